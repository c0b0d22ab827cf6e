// What all charts have in common: uPlot in the page's colours, as wide as their place.

import { css, pixels } from "./colours.js";
import { timeOf } from "./format.js";

const { uPlot } = globalThis;
const HALF_LABEL = 28; // CSS pixels of a time of day

/** A chart over the time from `window().from` to `window().to`, in Unix seconds, in `place`. */
export function chart(place, { window, height, series, scaleY, axisY, hooks, cursor, data }) {
  const plot = new uPlot({
    width: Math.max(1, place.clientWidth),
    height,
    pxAlign: 0,
    padding: axisY === null ? [0, 0, 0, 0] : [6, 8, 0, 0],
    legend: { show: false },
    cursor: cursor ? { y: false, points: { show: false }, drag: { x: false, y: false } } : { show: false },
    select: { show: false },
    scales: {
      x: { time: true, range: () => [window().from, window().to] },
      y: scaleY,
    },
    axes: axisY === null ? [{ show: false }, { show: false }] : [axisX(), axisY],
    series: [{}, ...series],
    hooks,
  }, data, place);
  return plot;
}

const axisX = () => ({
  ...ink(),
  space: 90,
  size: 26,
  // One that would be cut off at an end is left out.
  values: (plot, splits) => splits.map((t) => {
    const at = plot.valToPos(t, "x");
    return at < HALF_LABEL || at > plot.bbox.width / pixels() - HALF_LABEL ? "" : timeOf(t);
  }),
});

/** How axes are drawn. */
export const ink = () => ({
  stroke: () => css("--quiet"),
  font: "12px system-ui, sans-serif",
  grid: { stroke: () => css("--line"), width: 1 },
  ticks: { show: false },
  gap: 4,
});

/** Redraw a chart with what is known now, at the width of its place. */
export function redraw(plot, data) {
  const width = plot.root.parentElement.clientWidth;
  if (width > 0 && width !== plot.width) plot.setSize({ width, height: plot.height });
  plot.setData(data);
}

/** A path of rectangles; `boxes` gives [x0, x1, y0, y1] in the scales' units. */
export function rectangles(boxes) {
  return (plot, at) => {
    const fill = new Path2D();
    const gap = pixels() / 2; // so that neighbours in time are told apart, where they are wide
    for (const [x0, x1, y0, y1] of boxes(at)) {
      const left = plot.valToPos(x0, "x", true);
      const wide = plot.valToPos(x1, "x", true) - left;
      const top = plot.valToPos(y1, "y", true);
      fill.rect(left, top, wide > 6 * gap ? wide - gap : wide, plot.valToPos(y0, "y", true) - top);
    }
    return { fill, stroke: null, clip: null, band: null, gaps: null, flags: 0 };
  };
}
