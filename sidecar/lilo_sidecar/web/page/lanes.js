// What the lanes do and did: a timeline, and the same as a table.

import { chart, redraw } from "./charts.js";
import { css, operationColour, pixels } from "./colours.js";
import { element, identifier, say } from "./elements.js";
import { duration, preciseTimeOf } from "./format.js";

const ROW = 34; // CSS pixels of a lane
const BAR = 22; // of them, those of a span
const LABEL = 20; // the lane's name above its row
const FOOT = 32; // the axis below, with the space above the first lane
const ROWS = 100; // of the table: what somebody may want to read one by one
const NAMED = 8; // models named in one cell; whoever wants more has the trace

export class Lanes {
  #kept;
  #window;
  #plot = null;
  #lanes = [];
  #place = document.getElementById("lanes");
  #readout = document.getElementById("lane-readout");
  #legend = document.getElementById("operations");
  #details = document.getElementById("spans");

  constructor(kept, window) {
    this.#kept = kept;
    this.#window = window;
    this.#details.addEventListener("toggle", () => this.#fillTable());
  }

  draw() {
    const { answer, spans } = this.#kept;
    const names = new Set([...spans.keys(), ...Object.keys(answer.lanes)]);
    const lanes = [...names].sort((one, other) => (other === "gpu") - (one === "gpu") || (one < other ? -1 : 1));
    if (!lanes.length) lanes.push("gpu");
    if (lanes.join("\n") !== this.#lanes.join("\n") || this.#plot === null) {
      this.#lanes = lanes;
      this.#plot?.destroy();
      this.#plot = this.#made();
    } else {
      redraw(this.#plot, [[0], [0]]);
    }
    this.#drawLegend();
    this.#fillTable();
  }

  #made() {
    return chart(this.#place, {
      window: this.#window,
      height: this.#lanes.length * (ROW + LABEL) + FOOT,
      data: [[0], [0]],
      cursor: true,
      scaleY: { range: () => [this.#lanes.length, 0] },
      axisY: { show: false },
      series: [{ show: false }],
      hooks: {
        draw: [(plot) => this.#paint(plot)],
        setCursor: [(plot) => this.#tell(plot)],
      },
    });
  }

  /** Where a lane's spans are drawn, in device pixels. */
  #row(plot, at) {
    const height = plot.bbox.height / this.#lanes.length;
    const y = plot.bbox.top + at * height + LABEL * pixels();
    return { y, height: BAR * pixels() };
  }

  #paint(plot) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.textBaseline = "middle";
    this.#lanes.forEach((lane, at) => {
      const { y, height } = this.#row(plot, at);
      ctx.font = `600 ${12 * pixels()}px system-ui, sans-serif`;
      ctx.fillStyle = css("--quiet");
      ctx.textAlign = "left";
      ctx.fillText(lane, bbox.left, y - (LABEL / 2) * pixels());
      ctx.fillStyle = css("--track");
      ctx.fillRect(bbox.left, y, bbox.width, height);
      ctx.font = `${11.5 * pixels()}px system-ui, sans-serif`;
      this.#paintUnknown(plot, lane, y, height);
      for (const [t0, t1, name, models] of this.#kept.spans.get(lane) ?? []) {
        this.#box(plot, y, height, t0, t1, name, models);
      }
      this.#paintNow(plot, lane, y, height);
    });
    ctx.restore();
  }

  #box(plot, y, height, t0, t1, name, models) {
    const { ctx, bbox } = plot;
    const left = plot.valToPos(t0, "x", true);
    const right = plot.valToPos(t1, "x", true);
    if (right < bbox.left || left > bbox.left + bbox.width) return;
    // Of what is narrower than a pixel, the pixel gets as much colour as it was busy.
    const gap = right - left > 4 * pixels() ? pixels() : 0;
    ctx.fillStyle = operationColour(name);
    ctx.fillRect(left, y, right - left - gap, height);
    const from = Math.max(left, bbox.left);
    const room = right - from - 10 * pixels();
    if (room < 24 * pixels()) return;
    ctx.fillStyle = "#fff";
    ctx.textAlign = "left";
    for (const label of [`${name} · ${models.join(", ")}`, name]) {
      // Measuring is what takes long here: no letter is narrower than two pixels.
      if (label.length * 2 * pixels() < room && ctx.measureText(label).width < room) {
        ctx.fillText(label, from + 5 * pixels(), y + height / 2);
        return;
      }
    }
  }

  #paintNow(plot, lane, y, height) {
    const now = this.#kept.answer.lanes[lane];
    if (now === undefined) return;
    const { ctx } = plot;
    const to = this.#kept.answer.now;
    this.#box(plot, y, height, to - now.for_s, to, now.operation, ["now"]);
    ctx.strokeStyle = css("--ink");
    ctx.lineWidth = 2 * pixels();
    ctx.beginPath();
    ctx.moveTo(plot.valToPos(to, "x", true) - pixels(), y - 3 * pixels());
    ctx.lineTo(plot.valToPos(to, "x", true) - pixels(), y + height + 3 * pixels());
    ctx.stroke();
  }

  /** What was before the sidecar, or more spans ago than it keeps; a trainer may have told of some
   * of it all the same, later. */
  #paintUnknown(plot, lane, y, height) {
    const { ctx, bbox } = plot;
    const right = Math.min(plot.valToPos(this.#kept.spansFrom, "x", true), bbox.left + bbox.width);
    if (right <= bbox.left + pixels()) return;
    ctx.fillStyle = css("--ground");
    ctx.fillRect(bbox.left, y, right - bbox.left, height);
    ctx.strokeStyle = css("--line");
    ctx.setLineDash([4 * pixels(), 3 * pixels()]);
    ctx.lineWidth = pixels();
    ctx.strokeRect(bbox.left + pixels() / 2, y + pixels() / 2, right - bbox.left - pixels(), height - pixels());
    ctx.setLineDash([]);
    const first = this.#kept.spans.get(lane)?.[0][0] ?? Infinity;
    if (right - bbox.left < 80 * pixels() || first < this.#kept.spansFrom) return;
    ctx.fillStyle = css("--quiet");
    ctx.textAlign = "center";
    ctx.fillText("not kept", (bbox.left + right) / 2, y + height / 2);
  }

  #tell(plot) {
    const { left, top } = plot.cursor;
    let told = "";
    if (left >= 0 && top >= 0) {
      const t = plot.posToVal(left, "x");
      const lane = this.#lanes[Math.floor((top * pixels() * this.#lanes.length) / plot.bbox.height)];
      const span = (this.#kept.spans.get(lane) ?? []).findLast(([t0, t1]) => t0 <= t && t <= t1);
      if (span !== undefined) told = `${span[2]}: ${preciseTimeOf(span[0])}, ${duration(span[1] - span[0])}, ${some(span[3])}`;
    }
    say(this.#readout, told);
  }

  #drawLegend() {
    const { from } = this.#window();
    const { answer } = this.#kept;
    const names = new Set(Object.values(answer.lanes).map(({ operation }) => operation));
    for (const rows of this.#kept.spans.values()) for (const [, t1, name] of rows) if (t1 > from) names.add(name);
    const sorted = [...names].sort();
    const wanted = sorted.join("\n") + css("--operation-0");
    if (this.#legend.dataset.shows === wanted) return;
    this.#legend.dataset.shows = wanted;
    this.#legend.replaceChildren(...sorted.map((name) => {
      const mark = element("span", { className: "swatch" });
      mark.style.background = operationColour(name);
      return element("li", {}, mark, name);
    }));
  }

  #fillTable() {
    if (!this.#details.open || this.#kept.answer === null) return;
    const rows = [...this.#kept.spans].flatMap(([lane, spans]) => spans.map((span) => [lane, ...span]));
    rows.sort((one, other) => other[1] - one[1]);
    this.#details.querySelector("tbody").replaceChildren(...rows.slice(0, ROWS).map(
      ([lane, t0, t1, name, models]) => element("tr", {},
        element("td", { textContent: lane }),
        element("td", { textContent: name }),
        element("td", { textContent: preciseTimeOf(t0) }),
        element("td", { className: "number", textContent: duration(t1 - t0) }),
        modelsCell(models)),
    ));
  }
}

const some = (models) =>
  models.slice(0, NAMED).join(", ") + (models.length > NAMED ? ` and ${models.length - NAMED} more` : "");

function modelsCell(models) {
  const cell = element("td");
  models.slice(0, NAMED).forEach((id, at) => cell.append(at ? ", " : "", identifier(id)));
  if (models.length > NAMED) cell.append(` and ${models.length - NAMED} more`);
  return cell;
}
