// Figures as people read them.

const clock = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23",
});
const whole = new Intl.NumberFormat("en");

/** The time of day of Unix seconds, in the browser's time zone. */
export const timeOf = (t) => clock.format(t * 1000);

/** The same, with hundredths of a second. */
export const preciseTimeOf = (t) =>
  timeOf(t) + (Math.floor(t * 100) / 100).toFixed(2).slice(-3);

/** A duration: three digits where it is short, whole minutes where it is long. */
export function duration(seconds) {
  if (seconds <= 0) return "0 s";
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 0.9995) return `${Number((seconds * 1000).toPrecision(3))} ms`;
  if (seconds < 10) return `${seconds.toFixed(2)} s`;
  if (seconds < 100) return `${seconds.toFixed(1)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

/** A part of one, in whole percent; what is there and rounds to nothing is told from nothing. */
export function percent(part) {
  if (part > 0 && part < 0.005) return "<1%";
  return `${Math.round(part * 100)}%`;
}

export const count = (n) => whole.format(n);

/** A count with its noun, whose plural has an s. */
export const counted = (n, noun) => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;
