// The colours of the style sheet, for canvases, and when they change.

const dark = matchMedia("(prefers-color-scheme: dark)");
let style = getComputedStyle(document.documentElement);

/** The value of a custom property. */
export const css = (name) => style.getPropertyValue(name).trim();

/** Device pixels for each of the style sheet's. */
export const pixels = () => window.devicePixelRatio || 1;

/** Call back when colours or pixels are others. */
export function onChange(redraw) {
  dark.addEventListener("change", redraw);
  const watch = () => {
    matchMedia(`(resolution: ${pixels()}dppx)`).addEventListener("change", () => {
      redraw();
      watch();
    }, { once: true });
  };
  watch();
}

const OPERATIONS = 8; // colours of the style sheet
// What engines do has its own, so that pages and days can be compared; other names get what these
// do not use yet, from the last one on, and with more of them colours come again.
const USUAL = ["forward_backward", "forward", "optim_step", "sample", "capture", "persist", "accept"];
const others = new Map();

/** The colour of an operation: of `capture:<kind>` and `persist:<kind>`, by what comes first. */
export function operationColour(name) {
  const usual = USUAL.indexOf(name.split(":", 1)[0]);
  if (usual < 0 && !others.has(name)) others.set(name, OPERATIONS - 1 - (others.size % OPERATIONS));
  return css(`--operation-${usual < 0 ? others.get(name) : usual}`);
}
