// The last minutes, put together from answers that each have only what is new.

import { PARTS } from "./parts.js";

const KEPT = 600; // seconds; what the sidecar keeps
const MAX_SPANS = 20_000; // of a lane: some minutes at a hundred a second; more are no more to see
const SAME_START = 0.001; // seconds that rounding may make of one start: both come of one clock

export class Kept {
  #started = null;
  #since = new Map();
  #spansFrom = -Infinity;
  /** The last answer. */
  answer = null;
  /** By lane: [t0, t1, name, models], in the order they began. */
  spans = new Map();
  /** By model: [until, mine, ...], oldest first. */
  intervals = new Map();

  /** What to ask for next: all there is, or what came after this. */
  get after() {
    return this.answer === null ? null : this.answer.now;
  }

  /** Take an answer in. False if it is no continuation, and all there is must be asked for. */
  take(answer, asked) {
    const started = answer.now - answer.uptime_s;
    const another = this.#started === null || Math.abs(started - this.#started) > SAME_START
      || answer.now < this.answer.now;
    if (another && asked !== null) {
      this.#forget();
      return false;
    }
    if (asked === null) this.#forget();
    this.#started = started;
    this.answer = answer;
    this.#spansFrom = Math.max(this.#spansFrom, ...Object.values(answer.spans_from));
    this.#takeSpans(answer);
    this.#takeIntervals(answer);
    return true;
  }

  #forget() {
    this.answer = null;
    this.#spansFrom = -Infinity;
    this.spans.clear();
    this.intervals.clear();
    this.#since.clear();
  }

  #takeSpans({ spans, now }) {
    for (const [lane, rows] of Object.entries(spans)) {
      const all = (this.spans.get(lane) ?? []).concat(rows);
      all.sort((one, other) => one[0] - other[0]);
      this.spans.set(lane, all);
    }
    for (const [lane, rows] of this.spans) {
      const kept = rows.filter(([, t1]) => t1 > now - KEPT);
      if (kept.length > MAX_SPANS) {
        const gone = kept.splice(0, kept.length - MAX_SPANS);
        this.#spansFrom = Math.max(this.#spansFrom, ...gone.map(([, t1]) => t1));
      }
      if (kept.length) this.spans.set(lane, kept);
      else this.spans.delete(lane);
    }
  }

  #takeIntervals({ models, now }) {
    const known = new Map();
    for (const { model_id: id, since, intervals } of models) {
      const before = this.#since.get(id) === since ? this.intervals.get(id) ?? [] : [];
      known.set(id, before.concat(intervals).filter(([until]) => until > now - KEPT));
      this.#since.set(id, since);
    }
    this.intervals = known;
    for (const id of this.#since.keys()) if (!known.has(id)) this.#since.delete(id);
  }

  /** Up to where the spans of all lanes are known to be complete, looking back. */
  get spansFrom() {
    return Math.max(this.#spansFrom, this.answer.now - KEPT);
  }

  /** A model's seconds by part since a time, in the order of PARTS; an interval that began
   * earlier counts with the part of it that is later. */
  partsSince(id, from) {
    const sums = PARTS.map(() => 0);
    for (const [until, ...parts] of this.intervals.get(id) ?? []) {
      const length = total(parts);
      if (until <= from || length <= 0) continue;
      const counts = Math.min(1, (until - from) / length);
      parts.forEach((seconds, at) => { sums[at] += seconds * counts; });
    }
    return sums;
  }
}

/** The sum of seconds. */
export const total = (parts) => parts.reduce((sum, seconds) => sum + seconds, 0);
