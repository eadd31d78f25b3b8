// The cascade of a traced request as a tree: sent requests, atoms, workflow steps, and later records.

import { el } from "./dom.js";
import { count, plural, short } from "./format.js";
import { encode } from "./json.js";
import { streamOf, traceOf } from "./references.js";

const OPEN_MAX = 60;

/** Return the section with a cascade; null if the request has caused nothing. */
export function cascade(document) {
  if (document === null) return null;
  const { steps, sent, atoms } = document;
  const below = new Map([[0, []]]);
  for (const step of steps) below.set(step.number, []);
  for (const step of steps) (below.get(step.parent) ?? below.get(0)).push(step);
  const open = steps.length + sent.length + atoms.length <= OPEN_MAX;
  const roots = below.get(0).map((step) => stepItem(step, below, open));
  return el(
    "section",
    { "aria-labelledby": "cascade-title" },
    el("h2", { id: "cascade-title" }, "Cascade"),
    el(
      "ul",
      { class: "calls cascade", id: "cascade" },
      sent.map(sentItem),
      further(document.sent_left_out, "sent request"),
      atoms.map(atomItem),
      further(document.atoms_left_out, "atom"),
      roots,
      further(document.steps_left_out, "workflow step"),
      document.later.map(laterItem),
      further(document.later_left_out, "later record"),
    ),
    differences(document),
  );
}

const item = (name, ...told) => el("li", {}, line(name, ...told));

const line = (name, ...told) =>
  el(
    "div",
    { class: "call" },
    el("span", { class: "told" }, el("span", { class: "part" }, name), " ", told),
  );

const further = (number, noun) =>
  number ? el("li", {}, el("p", { class: "hint" }, `and ${plural(number, `further ${noun}`)}`)) : null;

function stepItem(step, below, open) {
  const inside = [
    step.atoms.map(atomItem),
    messages("asked", step.questions),
    further(step.questions_left_out, "question"),
    messages("answered", step.answers),
    further(step.answers_left_out, "answer"),
    step.later.map(laterItem),
    further(step.later_left_out, "later record"),
    below.get(step.number).map((next) => stepItem(next, below, open)),
  ].flat(2).filter(Boolean);
  const noun = step.takes.slice(0, -1);
  const from = step.takes === "events" ? "of stream" : "of";
  const told = [
    el("code", { class: "name" }, step.consumer),
    ` took ${plural(step.count, noun)} ${from} `,
    step.takes === "events" ? streamOf(step.source) : el("code", {}, step.source),
    " ",
    el("code", { class: "id" }, step.step_id),
    step.held ? el("span", { class: "badge" }, "held: its workflow is paused") : null,
    step.failure ? failed(step.failure) : null,
  ];
  if (!inside.length) return item("step", ...told);
  return el(
    "li",
    {},
    el(
      "details",
      { open },
      el("summary", { class: "call" }, el("span", { class: "told" }, el("span", { class: "part" }, "step"), " ", told)),
      el("ul", {}, inside),
    ),
  );
}

function atomItem({ stream, atom, count: events, events: first }) {
  const number = atom === null ? "" : ` ${count(atom)}`;
  const more = events > first.length ? [" …"] : [];
  return item(
    "atom",
    streamOf(stream),
    `${number}, ${plural(events, "event")} `,
    first.map((event) => [el("code", {}, event), " "]),
    more,
  );
}

const messages = (verb, all) =>
  all.map(({ id, to, text }) =>
    item(verb, el("code", {}, to), ": ", el("code", {}, text), " ", el("code", { class: "id" }, id)),
  );

function sentItem({ request_id: id, call, reply }) {
  const came = reply.error ? failed(reply.error) : [" → ", el("code", {}, encode(reply.value))];
  return item("sent", el("code", { class: "name" }, call), came, " ", el("code", { class: "id" }, id));
}

function laterItem({ request_id: id, call, delay_us: delay, epoch, error }) {
  const after = delay ? ` after ${short(delay / 1e6)} s` : "";
  const came =
    epoch === null
      ? el("span", { class: "badge" }, "not in the journal yet")
      : error === null
        ? `took effect in epoch ${count(epoch)}`
        : el("span", { class: "raised" }, `undone in epoch ${count(epoch)}: ${error}`);
  const name = epoch === null ? el("code", { class: "id" }, id) : traceOf(id);
  return item("later", el("code", { class: "name" }, call), `${after} `, came, " ", name);
}

const failed = ({ kind, code, message }) =>
  el("span", { class: "raised" }, ` failed: ${kind || code}: ${message}`);

/** Return the parts that came out differently in this run. */
function differences({ differences: all, differences_left_out: left }) {
  if (!all.length) return null;
  const told = (value) => (value === null ? "nothing" : el("code", {}, encode(value)));
  return el(
    "div",
    { class: "problem", role: "alert" },
    el("p", { class: "problem-title" }, "Its cascade came out otherwise this time"),
    el(
      "ul",
      {},
      all.map(({ place, part, recorded, replayed }) =>
        el("li", {}, `${place}, ${part}: recorded `, told(recorded), ", in this run ", told(replayed)),
      ),
    ),
    left ? el("p", { class: "hint" }, `and ${plural(left, "further difference")}`) : null,
  );
}
