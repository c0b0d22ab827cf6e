// What somebody should know or do: in words, from an answer.

import { element } from "./elements.js";
import { count, counted, timeOf } from "./format.js";

/** A code of the shell or of Python, to be copied. */
const code = (text) => element("pre", {}, element("code", { textContent: text }));
const inline = (text) => element("code", { textContent: text });
const paragraph = (...parts) => element("p", {}, ...parts);

const ADD = `from lilo_engine_hook import attach

timing = attach(engine)`;
const START = "lilo-sidecar run --http 127.0.0.1:9411 -- python -m your_trainer";

function nobody() {
  return [
    element("h2", { textContent: "No trainer has reported yet" }),
    paragraph("The sidecar runs and waits. What comes next:"),
    element("ol", {},
      element("li", {}, "Attach the hook in the trainer, beside whatever observer its engine has:", code(ADD)),
      element("li", {}, "Start the trainer with ", inline("LILO_TIMING_SOCKET"), " in its environment: the ",
        "socket that the first line of this sidecar on stdout names. Or end this sidecar, and start ",
        "the trainer with one beside it:", code(START)),
      element("li", {}, "If nothing appears here then, ", inline(`lilo-sidecar check --http ${location.host}`),
        " says what is missing. A loop without an engine has ", inline("lilo_engine_hook.loop.LoopTiming"), ".")),
    paragraph("This page shows it by itself as soon as the first event arrives."),
  ];
}

function noModels(connected) {
  return [
    element("h2", { textContent: connected ? "The trainer is connected; it has no model yet" : "No models" }),
    paragraph(connected
      ? "Models appear here as soon as a client creates one, or the first of its commands arrives."
      : "The trainer that was here is gone, and its models with it. A trainer that connects appears here by itself."),
  ];
}

const LOSSES = [
  ["dropped", "event", "turned away at a bound or never arrived",
    "counts and sums miss them, and time that they told of is counted as what came before"],
  ["rejected", "observer call", "made no valid event", "the trainer's log says which; they are in no figure"],
  ["negative", "duration", "below zero: a clock was set back", "they are in no series"],
  ["series_refused", "record", "found no room for another series or model", "the models that came last miss them"],
  ["pending_evicted", "command", "forgotten while waiting because too many did", "their waits are in no series"],
];

/** The notices of an answer: [kind, key, elements]; the key says whether it is the same again. */
export function noticesOf(answer) {
  const { trainer, models, delivery, journal, faults } = answer;
  const found = [];
  if (trainer.last_heard_unix_s === null) found.push(["next", "nobody", nobody]);
  else if (!models.length) found.push(["next", `none ${trainer.connected}`, () => noModels(trainer.connected)]);
  if (trainer.last_heard_unix_s !== null && !trainer.connected && models.length) {
    const text = `No trainer is connected. The figures are those of the one that was last heard at `
      + `${timeOf(trainer.last_heard_unix_s)}; when it comes back they go on.`;
    found.push(["warning", text, () => [paragraph(text)]]);
  }
  for (const [field, noun, what, means] of LOSSES) {
    if (!delivery[field]) continue;
    const text = `${counted(delivery[field], noun)} ${what}: ${means}.`;
    found.push(["warning", text, () => [paragraph(text)]]);
  }
  if (faults) {
    const text = `${counted(faults, "event")} could not be applied, which is a fault of the sidecar: its log says why.`;
    found.push(["warning", text, () => [paragraph(text)]]);
  }
  if (!journal.writing) {
    const text = `The journal is not being written: ${journal.reason}. The figures go on, but the end of the `
      + "sidecar would lose them.";
    found.push(["warning", text, () => [paragraph(text)]]);
  }
  return found;
}

/** What became of the events, in a few words. */
export function deliveryOf({ delivery }) {
  const lost = delivery.dropped + delivery.rejected;
  if (!delivery.sent) return "nothing sent yet";
  return lost ? `${count(lost)} of ${counted(delivery.sent, "event")} lost` : `all ${counted(delivery.sent, "event")} counted`;
}
