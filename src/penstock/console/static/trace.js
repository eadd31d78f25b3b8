// Trace: one request, run again: its calls, its cascade, and its changes of entities.

import { ask } from "./api.js";
import { cascade } from "./cascade.js";
import { cells, deviating, marked, valuesOf } from "./difference.js";
import { el, empty, problem, show, svg } from "./dom.js";
import { count, plural, short } from "./format.js";
import { encode } from "./json.js";
import { live } from "./live.js";
import { traceOf } from "./references.js";
import { lineNode } from "./text.js";
import { momentNode } from "./times.js";
import { entityLink } from "./value.js";
import { lines } from "./widgets.js";

const OPEN_MAX = 200;

/** Show a request's trace as a page of its own; it is asked for until the page is left. */
export function showTrace(body, heading, id) {
  heading.replaceChildren("Trace of ", el("code", {}, id));
  document.title = `Trace of ${id} · Penstock`;
  const leaving = new AbortController();
  const result = el("div", { id: "trace", "aria-busy": "true" });
  show(
    body,
    el("p", {}, el("a", { href: `#/requests/${encodeURIComponent(id)}` }, "What became of it")),
    el("p", { class: "waiting", role: "status" }, "Running it again, over the state before it …"),
    result,
  );
  const load = async () => {
    let shown;
    try {
      const asked = ask(`/requests/${encodeURIComponent(id)}/trace`, { exact: true, signal: leaving.signal });
      const [{ value }, plan] = await Promise.all([asked, live.ready()]);
      shown = [
        panel(value),
        warnings(value),
        calls(value),
        cascade(value.cascade),
        entities(value, plan),
      ];
    } catch (failure) {
      shown = failure.status === 404 ? nowhere(failure) : problem(failure);
    }
    body.querySelector(".waiting")?.remove();
    show(result, shown);
    result.removeAttribute("aria-busy");
  };
  load();
  return { close: () => leaving.abort() };
}

const nowhere = (failure) =>
  empty(
    "There is no trace of such a request.",
    failure.message,
    ". A request can be traced when its epoch is committed, and for as long as the journal has it.",
  );

function panel(trace) {
  const { reply, epoch, position, requests_in_epoch: all, lsn } = trace;
  const rows = [
    ["Call", el("code", {}, trace.call)],
    [
      "Place in the order",
      `epoch ${count(epoch)}, request ${count(position + 1)} of ${count(all)} in it, ` +
        `position ${count(lsn)} of the log`,
    ],
    ["Appended", momentNode(trace.appended_us)],
    ["Committed", momentNode(trace.committed_us)],
    ["Its epoch took", rounds(trace)],
  ];
  if (reply.error) {
    const { kind, code, message } = reply.error;
    const hint = el("p", { class: "hint" }, `code ${code}; nothing of the transaction remains`);
    rows.push(["Undone", el("div", { id: "reply" }, el("b", {}, `${kind || code}: `), message, hint)]);
  } else rows.push(["Reply", el("pre", { class: "code", id: "reply" }, encode(reply.value, 2))]);
  return el("section", { class: "panel", "aria-label": "Request" }, lines(rows, true));
}

function rounds({ rounds: number, tasks, reran }) {
  if (number === null) return el("span", { class: "null" }, "not known any more");
  const again = reran ? `${plural(reran, "transaction")} ran more than once` : "none ran twice";
  return `${plural(number, "round")} of ${plural(tasks, "task")}; ${again}`;
}

function warnings({ as_recorded: same, taken_as_recorded: skipped, outside }) {
  const title = "It came out otherwise this time";
  const message = "Its code has changed, or is not deterministic. penstock replay finds out which.";
  return [
    refused(outside),
    same || outside.length ? null : problem({ title, message }),
    skipped ? empty("It had exceeded a limit.", "Such a request is not run again.") : null,
  ];
}

/** Say which requests wanted something outside of the application, which is not done again. */
export function refused(outside) {
  return outside.map(({ request_id: id, what, where }) =>
    problem({
      title: `Request ${id} was not run again as it was`,
      message: `The handler ${what}${where ? ` (${where})` : ""}. Looking back refuses that.`,
    }),
  );
}

function calls({ root }) {
  if (root === null) return null;
  const open = sizeOf(root) <= OPEN_MAX;
  return el(
    "section",
    { "aria-labelledby": "calls-title" },
    el("h2", { id: "calls-title" }, "Calls"),
    el("ul", { class: "calls", id: "calls" }, branch(root, root.took_us, open, true)),
    el("p", { class: "hint" }, "Times are of this run, in one process."),
  );
}

const sizeOf = (call) => call.calls.reduce((sum, one) => sum + sizeOf(one), 1);

/** Return a call as a list item; those inside it are a list that can be closed. */
function branch(call, whole, open, first = false) {
  const line = [told(call), el("span", { class: "took" }, time(call.took_us)), bar(call, whole)];
  if (!call.calls.length) return el("li", {}, el("div", { class: "call" }, line));
  const inside = call.calls.map((call) => branch(call, whole, open));
  return el(
    "li",
    {},
    el(
      "details",
      { open: open || first },
      el("summary", { class: "call" }, line),
      el("ul", {}, inside),
    ),
  );
}

function told({ call, value, error, undone, where }) {
  const came = error
    ? el("span", { class: "raised" }, ` raised ${error}`)
    : value !== null && value !== "None"
      ? [" → ", el("code", {}, value)]
      : null;
  return el(
    "span",
    { class: "told" },
    el("code", { class: "name" }, call),
    came,
    undone ? el("span", { class: "badge undone" }, "undone") : null,
    where ? el("span", { class: "where" }, where) : null,
  );
}

function time(took) {
  const microseconds = Number(took);
  if (microseconds >= 1_000_000) return `${short(microseconds / 1_000_000)} s`;
  if (microseconds >= 1_000) return `${short(microseconds / 1_000)} ms`;
  return `${short(microseconds)} µs`;
}

function bar({ took_us: took }, whole) {
  const width = `${whole > 0 ? Math.min(100, (100 * took) / whole) : 0}%`;
  return svg(
    "svg",
    { class: "share", "aria-hidden": "true" },
    svg("rect", { class: "all", width: "100%", height: "100%" }),
    svg("rect", { class: "part", width, height: "100%" }),
  );
}

function entities({ entities: touched }, plan) {
  if (!touched.length) return null;
  const heads = ["Entity", "Element", "Before", "After"];
  const values = valuesOf(plan);
  const classes = new Set(plan.operators.map(({ name }) => name));
  return el(
    "section",
    { "aria-labelledby": "entities-title" },
    el("h2", { id: "entities-title" }, "Entities"),
    marked("Entities before and after", heads, touched.map((each) => entity(each, values, classes))),
  );
}

function entity(one, values, classes) {
  const name = `${one.entity}/${one.key}`;
  const what = el("span", { class: one.undone ? "badge undone" : "badge" }, deed(one));
  const head = [
    classes.has(one.entity)
      ? el("a", { href: entityLink(one.entity, one.key), class: "reference" }, lineNode(name))
      : el("code", {}, name), // a row of a task has no page
    " ",
    what,
    one.next ? following(one.next) : null,
    deviating(one.entity, one, values),
  ];
  return { id: name, heads: [head], rows: cells(one, values) };
}

function deed({ written, undone, before, after }) {
  if (undone) return "undone";
  if (!written) return before === null ? "is not there" : "read";
  if (before === null) return "created";
  return after === null ? "deleted" : "written";
}

function following({ request_id: id, call, epoch }) {
  const place = `in epoch ${count(epoch)}`;
  const by = id === null ? [place] : ["by ", traceOf(id), `, ${place}: `, el("code", {}, call)];
  return el("p", { class: "hint next" }, "changed next ", by);
}
