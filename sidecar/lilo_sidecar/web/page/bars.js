// A model's intervals as stacked bars: as wide as the interval, and within it each part as high as
// its share, so that an area is time.

import { chart, ink, rectangles, redraw } from "./charts.js";
import { duration, percent, timeOf } from "./format.js";
import { total } from "./kept.js";
import { PARTS, fillOf } from "./parts.js";

const STRIP = 30; // CSS pixels
const LARGE = 150;

/** Bars in `place`; `intervals()` are [until, mine, ...]. With a readout they have axes, and it is
 * told what the pointer is on. */
export class Bars {
  #plot = null;
  #place;
  #window;
  #intervals;
  #readout;
  #rows = [];

  constructor(place, window, intervals, readout = null) {
    this.#place = place;
    this.#window = window;
    this.#intervals = intervals;
    this.#readout = readout;
  }

  draw() {
    if (this.#place.clientWidth === 0) return;
    const { from } = this.#window();
    this.#rows = this.#intervals().filter(([until]) => until > from);
    const data = [this.#rows.map(([until]) => until), ...PARTS.map(() => this.#rows.map(() => 1))];
    if (this.#plot === null) this.#plot = this.#made(data);
    else redraw(this.#plot, data);
  }

  /** Let go of what it holds. */
  close() {
    this.#plot?.destroy();
    this.#plot = null;
  }

  #made(data) {
    const large = this.#readout !== null;
    return chart(this.#place, {
      window: this.#window,
      height: large ? LARGE : STRIP,
      data,
      cursor: large,
      scaleY: { range: () => [0, 1] },
      axisY: large
        ? { ...ink(), size: 44, incrs: [0.25, 0.5], values: (_, splits) => splits.map(percent) }
        : null,
      series: PARTS.map((part) => ({
        fill: () => fillOf(part),
        width: 0,
        points: { show: false },
        paths: rectangles((at) => this.#boxes(at - 1)),
      })),
      hooks: large ? { setCursor: [(plot) => this.#tell(plot)] } : {},
    });
  }

  *#boxes(part) {
    for (const [until, ...parts] of this.#rows) {
      const length = total(parts);
      if (length <= 0) continue;
      const below = total(parts.slice(0, part)) / length;
      yield [until - length, until, below, below + parts[part] / length];
    }
  }

  #tell(plot) {
    const t = plot.cursor.left >= 0 ? plot.posToVal(plot.cursor.left, "x") : null;
    const row = this.#rows.find(([until, ...parts]) => t !== null && t <= until && t > until - total(parts));
    this.#readout.textContent = row === undefined ? "" : told(row);
  }
}

function told([until, ...parts]) {
  const length = total(parts);
  const shares = PARTS.flatMap(({ name }, at) =>
    parts[at] > 0 ? [`${name} ${duration(parts[at])} (${percent(parts[at] / length)})`] : []);
  return `${timeOf(until - length)} to ${timeOf(until)}: ${shares.join(", ")}`;
}
