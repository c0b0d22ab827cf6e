// The page: asks the sidecar again and again, and shows what it said.

import { UnauthorizedError, ask } from "./answer.js";
import { onChange } from "./colours.js";
import { element, say } from "./elements.js";
import { count, duration, timeOf } from "./format.js";
import { Kept } from "./kept.js";
import { Lanes } from "./lanes.js";
import { Models } from "./models.js";
import { deliveryOf, noticesOf } from "./notices.js";
import { forgetFills } from "./parts.js";

const PERIOD = 2_000; // milliseconds between questions: half of what the sidecar's intervals have
const PERIOD_SELDOM = 30_000; // while nobody looks, or a token is asked for; the sidecar keeps ten minutes
const TOKEN = "lilo-timing-token";

const $ = (id) => document.getElementById(id);
const kept = new Kept();
let range = 180; // seconds shown
const shown = () => ({ from: kept.answer.now - range, to: kept.answer.now });
const lanes = new Lanes(kept, shown);
const models = new Models(kept, shown);
let token = sessionStorage.getItem(TOKEN);
let heard = null; // Unix seconds on this browser's clock of the last answer
let wake = () => {};

async function follow() {
  for (;;) {
    await turn();
    const period = document.hidden || !$("access").hidden ? PERIOD_SELDOM : PERIOD;
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, period);
      wake = () => { clearTimeout(timer); resolve(); };
    });
  }
}

async function turn() {
  try {
    const after = kept.after;
    if (!kept.take(await ask(after, token), after)) kept.take(await ask(null, token), null);
    heard = Date.now() / 1000;
    $("access").hidden = true;
    $("forget").hidden = token === null;
  } catch (error) {
    if (error instanceof UnauthorizedError) askForToken();
    else missing(error);
    return;
  }
  draw();
}

function draw() {
  const { answer } = kept;
  const empty = !answer.models.length && !kept.spans.size;
  $("figures").hidden = empty;
  const state = answer.trainer.connected ? "live" : "waiting";
  status(state, answer.trainer.connected ? "live" : "no trainer connected");
  say($("heard"), answer.trainer.last_heard_age_s === null ? ""
    : answer.trainer.last_heard_age_s < 1 ? "last heard just now"
      : `last heard ${duration(answer.trainer.last_heard_age_s)} ago`);
  say($("foot"), `lilo-sidecar ${answer.version}, up ${duration(answer.uptime_s)}. The last minutes are kept in `
    + "memory and begin with the sidecar; the figures since a model is known survive its restart.");
  notices(noticesOf(answer));
  if (empty) return;
  summary(answer);
  lanes.draw();
  models.draw();
}

function status(state, text) {
  $("status").dataset.state = state;
  say($("status"), text);
  document.title = state === "live" ? "Lilo timing" : `${text} – Lilo timing`;
}

function missing(error) {
  if (!$("access").hidden) return;
  // What a browser says of a connection that failed helps nobody.
  const why = error instanceof TypeError || error.name === "TimeoutError" ? "" : `: ${error.message}`;
  const since = heard === null ? "" : ` since ${timeOf(heard)}`;
  status("missing", `no answer from the sidecar${since}; trying again${why}`);
  say($("heard"), kept.answer === null ? "" : "what is shown is what was known then");
}

function notices(wanted) {
  const place = $("notices");
  const there = new Map([...place.children].map((child) => [child.dataset.key, child]));
  place.replaceChildren(...wanted.map(([kind, key, make]) =>
    there.get(key) ?? element("div", { className: `notice ${kind}`, "data-key": key }, ...make())));
}

function summary(answer) {
  const working = Object.entries(answer.lanes).map(([lane, { operation, for_s: seconds }]) =>
    `${lane}: ${operation} for ${duration(seconds)}`);
  const sum = (field) => answer.models.reduce((all, model) => all + model[field], 0);
  const executions = sum("executions");
  const facts = [
    ["Lanes now", working.join("; ") || "idle"],
    ["Queue", `${count(sum("queued"))} waiting, ${count(sum("running"))} running`],
    ["Batch factor", executions ? `${(sum("commands") / executions).toFixed(2)} per batch` : "no batch yet"],
    ["Delivery", deliveryOf(answer)],
    ["Journal", answer.journal.writing ? "figures survive a restart" : "not written"],
  ];
  const place = $("summary");
  if (!place.children.length) {
    place.append(...facts.map(([name]) => element("div", {}, element("dt", { textContent: name }), element("dd"))));
  }
  facts.forEach(([, text], at) => say(place.children[at].lastElementChild, text));
}

function askForToken() {
  status("missing", "a token is needed");
  say($("heard"), "");
  $("figures").hidden = $("forget").hidden = true;
  notices([]);
  if (token !== null) say($("refused"), "The sidecar does not accept this token.");
  forget();
  if ($("access").hidden) {
    $("access").hidden = false;
    $("token").focus();
  }
}

function forget() {
  token = null;
  sessionStorage.removeItem(TOKEN);
}

$("access").addEventListener("submit", (event) => {
  event.preventDefault();
  const given = $("token").value.trim();
  $("token").value = "";
  say($("refused"), "");
  if (!/^[\x21-\x7e]+$/.test(given)) {
    say($("refused"), "A token is one word of printable ASCII.");
    return;
  }
  token = given;
  sessionStorage.setItem(TOKEN, token);
  wake();
});
$("forget").addEventListener("click", () => {
  forget();
  wake();
});
$("range").addEventListener("change", ({ target }) => {
  range = Number(target.value);
  if (kept.answer !== null) draw();
});
function redraw() {
  forgetFills();
  if (kept.answer === null || $("figures").hidden) return;
  lanes.draw();
  models.redraw();
}
onChange(redraw);
addEventListener("resize", redraw);
document.addEventListener("visibilitychange", () => { if (!document.hidden) wake(); });
follow();
