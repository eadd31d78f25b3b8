// What one request did: its calls as a tree, and every entity that it read or changed.

import { ask, encode } from "./api.js";
import { el, problem, show } from "./dom.js";
import { count, duration } from "./format.js";
import { dataTable } from "./table.js";
import { entityLink } from "./value.js";
import { button } from "./widgets.js";

const MICROSECONDS = 1_000;

/** Return a button that shows the trace of a request below itself. */
export function traceOf(id) {
  const result = el("div", { id: "trace", "aria-live": "polite" });
  const open = button("Trace: what it did", () => load(result, id, open), {
    "aria-controls": "trace",
  });
  return [el("p", {}, open), result];
}

/** Return a link to a request, which opens it here. */
export const requestLink = (id) =>
  el("a", { href: `#/requests/${encodeURIComponent(id)}`, class: "reference" }, id);

async function load(result, id, open) {
  open.disabled = true;
  show(result, el("p", { class: "waiting" }, "Running it again, over the state before it …"));
  try {
    const { value } = await ask(`/requests/${encodeURIComponent(id)}/trace`);
    show(result, place(value), warning(value), calls(value), entities(value));
  } catch (failure) {
    show(result, problem(failure));
  } finally {
    open.disabled = false;
  }
}

function place(trace) {
  const ran =
    trace.rounds === null
      ? ""
      : ` The epoch took ${count(trace.rounds)} round(s); ${count(trace.reran)} of its requests ran more than once.`;
  return el(
    "p",
    {},
    `Epoch ${count(trace.epoch)}, request ${count(trace.position + 1)} of ${count(trace.requests_in_epoch)} in it, position ${count(trace.lsn)} of the log.${ran}`,
  );
}

function warning(trace) {
  if (trace.taken_as_recorded)
    return el("p", { class: "hint" }, "It had exceeded a limit, and was not run again.");
  if (trace.as_recorded) return null;
  return problem({
    title: "It came out otherwise this time",
    message: "Its code has changed, or is not deterministic.",
    next: "penstock replay finds out which.",
  });
}

function calls({ root }) {
  if (!root) return null;
  return el(
    "section",
    { "aria-labelledby": "calls-title" },
    el("h2", { id: "calls-title" }, "Calls"),
    el("ul", { class: "calls" }, call(root)),
    el("p", { class: "hint" }, "Times are those of this run."),
  );
}

function call(one) {
  const ended = one.error
    ? el("span", { class: "raised" }, ` raised ${one.error}`)
    : one.value && one.value !== "None"
      ? el("span", { class: "code" }, ` → ${one.value}`)
      : null;
  const inside = one.calls.length ? el("ul", { class: "calls" }, one.calls.map(call)) : null;
  return el(
    "li",
    { class: one.undone ? "undone" : null, "data-call": one.call },
    el("code", { title: one.where || null }, one.call),
    " ",
    el("span", { class: "hint" }, duration(one.took_us / MICROSECONDS)),
    ended,
    one.undone ? el("span", { class: "hint" }, " (undone)") : null,
    inside,
  );
}

function entities({ entities: touched }) {
  if (!touched.length) return null;
  const rows = touched.flatMap(rowsOf);
  const text = (name) => ({ name, cell: (value) => value });
  return el(
    "section",
    { "aria-labelledby": "touched-title" },
    el("h2", { id: "touched-title" }, "Entities"),
    dataTable({
      caption: "Entities that it read or changed",
      columns: ["entity", "what", "attribute", "before", "after", "changed next by"].map(text),
      rows,
      sortable: false,
    }),
  );
}

function rowsOf(one) {
  const link = el(
    "a",
    { href: entityLink(one.entity, one.key), class: "reference" },
    `${one.entity}/${one.key}`,
  );
  const what = one.written ? "changed" : one.undone ? "undone" : "read";
  const changed = differences(one.before, one.after);
  const rows = changed.length ? changed : [["", "", ""]];
  return rows.map((row, at) => (at ? ["", "", ...row, ""] : [link, what, ...row, nextOf(one)]));
}

/** Return the attributes that differ, each with its values as text; a dash where there was none. */
export function differences(before, after) {
  const names = [...new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})])];
  return names
    .map((name) => [name, before ? encode(before[name]) : "–", after ? encode(after[name]) : "–"])
    .filter(([, old, now]) => old !== now);
}

function nextOf({ next }) {
  if (!next) return "";
  if (next.request_id === null) return `epoch ${count(next.epoch)}`;
  return [requestLink(next.request_id)];
}
