// The six parts of a model's time: what they are called, mean and look like.

import { css, pixels } from "./colours.js";
import { element } from "./elements.js";

/** In the order of an interval's figures, which is the order they are stacked in. */
export const PARTS = [
  { key: "mine_s", name: "mine", means: "its share of the batches it was in", draw: null },
  { key: "shared_batch_s", name: "shared batch", means: "the rest of those batches", draw: slanted },
  { key: "neighbors_s", name: "neighbors", means: "it waited, and the lane ran others", draw: dotted },
  { key: "overhead_s", name: "overhead", means: "it waited, and the lane was idle", draw: crossed },
  { key: "persist_s", name: "persist", means: "nothing of it ran or waited; a capture was being written", draw: level },
  { key: "client_s", name: "client", means: "nothing of it was in the trainer: its own loop", draw: null },
];

const TILE = 6; // CSS pixels: several fit into the smallest bar that can be told apart
const fills = new Map();

/** The fill of a part on a canvas: its colour, with its pattern. */
export function fillOf(part) {
  if (!fills.has(part)) fills.set(part, made(part));
  return fills.get(part);
}

/** The colours have changed. */
export const forgetFills = () => fills.clear();

function made(part) {
  const colour = css(`--${part.key}`);
  if (part.draw === null) return colour;
  const size = Math.round(TILE * pixels());
  const tile = element("canvas", { width: size, height: size });
  const ink = tile.getContext("2d");
  ink.fillStyle = colour;
  ink.fillRect(0, 0, size, size);
  ink.strokeStyle = ink.fillStyle = css("--pattern");
  ink.lineWidth = Math.max(1, size / 6);
  ink.beginPath();
  part.draw(ink, size);
  return ink.createPattern(tile, "repeat");
}

function slanted(ink, size) {
  for (const shift of [-size, 0, size]) {
    ink.moveTo(shift - 1, size + 1);
    ink.lineTo(shift + size + 1, -1);
  }
  ink.stroke();
}

function crossed(ink, size) {
  slanted(ink, size);
  for (const shift of [-size, 0, size]) {
    ink.moveTo(shift - 1, -1);
    ink.lineTo(shift + size + 1, size + 1);
  }
  ink.stroke();
}

function dotted(ink, size) {
  ink.arc(size / 2, size / 2, size / 5, 0, 2 * Math.PI);
  ink.fill();
}

function level(ink, size) {
  ink.moveTo(0, size / 2);
  ink.lineTo(size, size / 2);
  ink.stroke();
}

/** A small square of a part's fill, for those who see. */
export function swatch(part) {
  const side = 14;
  const canvas = element("canvas", { className: "swatch", "aria-hidden": "true" });
  canvas.redraw = () => {
    canvas.width = canvas.height = Math.round(side * pixels());
    const ink = canvas.getContext("2d");
    ink.fillStyle = fillOf(part);
    ink.fillRect(0, 0, canvas.width, canvas.height);
  };
  canvas.redraw();
  return canvas;
}
