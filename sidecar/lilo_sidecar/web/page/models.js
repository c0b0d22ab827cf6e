// The models: a row for each, with its bars, its shares of the time shown, its queue.

import { Bars } from "./bars.js";
import { Detail } from "./details.js";
import { element, identifier, say } from "./elements.js";
import { count, counted, percent } from "./format.js";
import { total } from "./kept.js";
import { PARTS, swatch } from "./parts.js";

const LABELS = ["Model", "Time, in intervals", ...PARTS.map(({ name }) => name), "queue", "batch"];
const MEANS = {
  queue: "commands that wait, and those that run",
  batch: "commands in a batch, of all models in it, on average",
};

let rows = 0;

/** One model's row, and the one below with its details. */
class Row {
  open = false;
  #bars;
  #detail = null;
  #cells;

  constructor(id, kept, window) {
    this.id = id;
    this.kept = kept;
    this.window = window;
    const detailId = `detail-${rows++}`;
    this.button = element("button", { type: "button", className: "open", "aria-expanded": "false" },
      identifier(id));
    this.strip = element("div", { className: "strip", "aria-hidden": "true" });
    this.#cells = LABELS.slice(2).map((label) =>
      element("td", { className: "number", role: "cell", "data-label": label }));
    PARTS.forEach(({ key }, at) => { this.#cells[at].dataset.part = key; });
    this.row = element("tr", { role: "row", className: "model" },
      element("th", { scope: "row", role: "rowheader" }, this.button),
      element("td", { className: "bars", role: "cell" }, this.strip),
      ...this.#cells);
    this.place = element("td", { colSpan: LABELS.length, role: "cell" });
    this.below = element("tr", { role: "row", className: "below", id: detailId, hidden: true }, this.place);
    this.#bars = new Bars(this.strip, window, () => kept.intervals.get(id) ?? []);
    this.button.addEventListener("click", () => this.#toggle());
  }

  /** Write the figures of the answer, and draw if it can be seen. */
  show(model) {
    this.model = model;
    const { from } = this.window();
    this.parts = this.kept.partsSince(model.model_id, from);
    const known = total(this.parts);
    this.shares = this.parts.map((seconds) => (known > 0 ? seconds / known : 0));
    PARTS.forEach((_, at) => {
      say(this.#cells[at], known > 0 ? percent(this.shares[at]) : "–");
      this.#cells[at].style.setProperty("--share", this.shares[at].toFixed(3));
    });
    say(this.#cells[PARTS.length], `${count(model.queued)} + ${count(model.running)}`);
    say(this.#cells[PARTS.length + 1],
      model.executions ? (model.commands / model.executions).toFixed(2) : "–");
    this.row.classList.toggle("quiet", model.until < from);
    this.draw();
  }

  draw() {
    if (this.visible) this.#bars.draw();
    if (this.open) this.#detail.show(this.model);
  }

  #toggle() {
    this.open = !this.open;
    this.button.setAttribute("aria-expanded", String(this.open));
    this.below.hidden = !this.open;
    if (this.open) {
      this.#detail ??= new Detail(this.place, this.id, this.kept, this.window);
      this.#detail.show(this.model);
    } else {
      this.#detail.close();
      this.#detail = null;
    }
  }

  close() {
    this.#bars.close();
    this.#detail?.close();
    this.row.remove();
    this.below.remove();
  }
}

export class Models {
  #kept;
  #window;
  #rows = new Map();
  #order = document.getElementById("order");
  #find = document.getElementById("find");
  #found = document.getElementById("found");
  #body = document.querySelector("#table tbody");
  #seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      target.shown.visible = isIntersecting;
      if (isIntersecting && target.shown.model) target.shown.draw();
    }
  }, { rootMargin: "200px" });

  constructor(kept, window) {
    this.#kept = kept;
    this.#window = window;
    document.querySelector("#table thead tr").replaceChildren(...LABELS.map((label, at) =>
      element("th", { scope: "col", role: "columnheader", className: at > 1 ? "number" : "", textContent: label,
        title: MEANS[label] ?? PARTS.find(({ name }) => name === label)?.means ?? "" })));
    document.getElementById("parts").replaceChildren(...PARTS.map((part) => element("div", {},
      element("dt", {}, swatch(part), part.name), element("dd", { textContent: part.means }))));
    this.#order.addEventListener("change", () => this.#arrange());
    this.#find.addEventListener("input", () => this.#arrange());
  }

  draw() {
    const here = new Set();
    for (const model of this.#kept.answer.models) {
      here.add(model.model_id);
      if (!this.#rows.has(model.model_id)) this.#rows.set(model.model_id, this.#made(model.model_id));
      this.#rows.get(model.model_id).show(model);
    }
    for (const [id, row] of this.#rows) {
      if (here.has(id)) continue;
      this.#seen.unobserve(row.row);
      row.close();
      this.#rows.delete(id);
    }
    this.#arrange();
  }

  /** Draw anew: other colours, another width. */
  redraw() {
    for (const swatch of document.querySelectorAll("canvas.swatch")) swatch.redraw();
    for (const row of this.#rows.values()) if (row.model) row.draw();
  }

  #made(id) {
    const row = new Row(id, this.#kept, this.#window);
    row.row.shown = row;
    this.#seen.observe(row.row);
    return row;
  }

  /** Put the rows in order; those that are where they belong are left alone, and so is what has
   * the focus. */
  #arrange() {
    const wanted = this.#find.value.trim().toLowerCase();
    const rows = [...this.#rows.values()].sort(this.#comparison());
    const shown = rows.filter(({ id }) => id.toLowerCase().includes(wanted));
    const hidden = new Set(rows);
    const focused = document.activeElement;
    let next = this.#body.firstElementChild;
    for (const row of shown) {
      hidden.delete(row);
      for (const part of [row.row, row.below]) {
        if (part === next) next = next.nextElementSibling;
        else this.#body.insertBefore(part, next);
      }
    }
    for (const row of hidden) {
      row.row.remove();
      row.below.remove();
    }
    if (focused !== document.activeElement && focused?.isConnected) focused.focus({ preventScroll: true });
    const left = this.#kept.answer?.models_left_out ?? 0;
    const besides = left ? `; ${count(left)} more that were active less recently are not shown` : "";
    say(this.#found, wanted
      ? `${count(shown.length)} of ${counted(rows.length, "model")}${besides}`
      : `${counted(rows.length, "model")}${besides}`);
  }

  #comparison() {
    const by = this.#order.value;
    const names = (one, other) => (one.id < other.id ? -1 : 1);
    if (by === "name") return names;
    const at = PARTS.findIndex(({ key }) => key === by);
    const figure = (row) => (at >= 0 ? row.parts[at] : by === "queued" ? row.model.queued : row.model.until);
    return (one, other) => figure(other) - figure(one) || names(one, other);
  }
}
