// One model, closely: its bars with axes, and every figure of them as a table.

import { Bars } from "./bars.js";
import { element, identifier, say } from "./elements.js";
import { counted, duration, percent, timeOf } from "./format.js";
import { total } from "./kept.js";
import { PARTS } from "./parts.js";

export class Detail {
  #id;
  #kept;
  #window;
  #bars;
  #facts = element("p", { className: "facts" });
  #sums = element("tbody");
  #intervals;
  #rows = element("tbody");

  constructor(place, id, kept, window) {
    this.#id = id;
    this.#kept = kept;
    this.#window = window;
    const drawn = element("div", { className: "drawn", "aria-hidden": "true" });
    const readout = element("p", { className: "readout", "aria-hidden": "true" });
    this.#intervals = element("details", {}, element("summary", { textContent: "The intervals as a table" }),
      scrolling(`The intervals of ${id}`, table("Each interval, newest first", "Interval", this.#rows)));
    this.#intervals.addEventListener("toggle", () => this.#fill());
    place.replaceChildren(
      element("p", { className: "whole" }, identifier(id)), this.#facts, drawn, readout,
      scrolling(`Where the time of ${id} went`, table("Where its time went", "Over", this.#sums)),
      this.#intervals);
    this.#bars = new Bars(drawn, window, () => this.#kept.intervals.get(id) ?? [], readout);
  }

  show(model) {
    this.model = model;
    say(this.#facts, `Known since ${timeOf(model.since)}; its account reaches to ${timeOf(model.until)}, `
      + `its last event. It was in ${counted(model.executions, "batch").replace("batchs", "batches")}.`);
    const { from, to } = this.#window();
    const recent = this.#kept.partsSince(this.#id, from);
    this.#sums.replaceChildren(
      row(`the last ${duration(to - from)}`, recent),
      row("all since it is known", PARTS.map(({ key }) => model.step[key])));
    this.#bars.draw();
    this.#fill();
  }

  close() {
    this.#bars.close();
  }

  #fill() {
    if (!this.#intervals.open) return;
    const all = (this.#kept.intervals.get(this.#id) ?? []).toReversed();
    this.#rows.replaceChildren(...all.map(([until, ...parts]) =>
      row(`${timeOf(until - total(parts))} to ${timeOf(until)}`, parts)));
  }
}

function table(caption, first, body) {
  const heads = [first, "in all", ...PARTS.map(({ name }) => name)];
  return element("table", {}, element("caption", { textContent: caption }),
    element("thead", {}, element("tr", {}, ...heads.map((name, at) =>
      element("th", { scope: "col", className: at ? "number" : "", textContent: name })))),
    body);
}

function row(name, parts) {
  const all = total(parts);
  return element("tr", {}, element("th", { scope: "row", textContent: name }),
    element("td", { className: "number", textContent: duration(all) }),
    ...parts.map((seconds) => element("td", { className: "number" },
      duration(seconds), element("span", { className: "share", textContent: all > 0 ? ` ${percent(seconds / all)}` : "" }))));
}

/** A region that scrolls by itself, with the keyboard, too. */
const scrolling = (label, content) =>
  element("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": label }, content);
