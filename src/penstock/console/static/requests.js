// Requests: what became of one, found by its id, and the newest of them.

import { ask, encode, named, sql } from "./api.js";
import { el, empty, field, problem, show } from "./dom.js";
import { clock, count, plural } from "./format.js";
import { dataTable, isNumeric } from "./table.js";
import { showTrace, traceLink } from "./trace.js";
import { between, button, lines } from "./widgets.js";

const NEWEST = `
  SELECT r.epoch, r.lsn, r.time, r.entity, r.key, r.method, a.error AS outcome, r.request_id
  FROM (SELECT * FROM penstock.requests ORDER BY epoch DESC, lsn DESC LIMIT 25) AS r
  LEFT JOIN penstock.replies AS a USING (epoch, lsn)
  ORDER BY r.epoch DESC, r.lsn DESC`;
const WAIT_S = 20;
const ID_SHOWN = 20;
const WORDS = {
  answered: "Its epoch is committed, and it never runs again.",
  pending: "It is durable in the log and will be processed.",
  scheduled: "It is durable and runs when it is due.",
};

/** Show the look-up; `#/requests/{id}` looks up at once, `#/requests/{id}/trace` is its trace. */
export async function open(body, { rest: [asked, view] }, heading) {
  if (view === "trace") return showTrace(body, heading, asked);
  const id = el("input", {
    autocomplete: "off",
    spellcheck: "false",
    class: "code",
    value: asked ?? "",
  });
  const result = el("div", { id: "request", "aria-live": "polite" });
  const recent = el("div", { id: "recent" });
  const submit = (event) => {
    event.preventDefault();
    const wanted = id.value.trim();
    if (wanted === asked) lookUp(result, wanted);
    else if (wanted) location.hash = `#/requests/${encodeURIComponent(wanted)}`;
  };
  const hint = "The Idempotency-Key that was sent, or Penstock-Request-Id of an answer.";
  const title = el("h2", { id: "recent-title" }, "Newest requests");
  show(
    body,
    el(
      "form",
      { class: "row filters", role: "search", onsubmit: submit },
      field("Request id", id, hint),
      el("button", { type: "submit", class: "main-button" }, "Look up"),
    ),
    result,
    el(
      "section",
      { "aria-labelledby": "recent-title" },
      between(
        title,
        button("Refresh", () => list(recent)),
      ),
      recent,
    ),
  );
  await Promise.all([asked === undefined ? null : lookUp(result, asked), list(recent)]);
  return null;
}

async function lookUp(result, id, query = "") {
  try {
    const { value } = await ask(`/requests/${encodeURIComponent(id)}${query}`);
    const again =
      value.status === "pending"
        ? button(`Wait up to ${WAIT_S} s`, () => lookUp(result, id, `?wait=${WAIT_S}`))
        : null;
    const trace =
      value.status === "answered"
        ? el("p", {}, el("a", { href: traceLink(id) }, "Trace: what it did"))
        : null;
    show(
      result,
      el(
        "section",
        { class: "panel", "aria-label": "Request" },
        lines(standing(value), true),
        again,
        trace,
      ),
    );
  } catch (failure) {
    const nowhere = empty(
      "There is no such request.",
      "See that the id is whole. Ids are kept as long as retention_s says: seven days, if nobody says else.",
    );
    show(result, failure.status === 404 ? nowhere : problem(failure));
  }
}

function standing({ request_id: id, status, epoch, value, error, due_us: due }) {
  const rows = [
    ["Request id", el("code", {}, id)],
    [
      "Status",
      el(
        "span",
        { "data-status": status },
        el("b", {}, status),
        " ",
        el("span", { class: "hint" }, WORDS[status] ?? ""),
      ),
    ],
    ["Epoch", epoch === null ? "–" : count(epoch)],
  ];
  if (error) rows.push(["Undone", undone(error)]);
  else if (status === "answered")
    rows.push(["Reply", el("pre", { class: "code", id: "reply" }, encode(value, 2))]);
  if (due) rows.push(["Due", new Date(due / 1_000).toLocaleString()]);
  return rows;
}

const undone = ({ kind, code, message }) =>
  el(
    "div",
    {},
    el("b", {}, `${kind || code}: `),
    message,
    el("p", { class: "hint" }, `code ${code}; nothing of the transaction remains`),
  );

async function list(place) {
  try {
    const { columns, rows, epoch } = await sql(NEWEST);
    show(place, rows.length ? newest(columns, rows, epoch) : noneYet());
  } catch (failure) {
    show(place, problem(failure));
  }
}

function newest(columns, rows, epoch) {
  const cells = { request_id: link, time: timeOf, outcome: outcomeOf };
  const shown = columns.map(({ name, type }) => ({
    name,
    numeric: isNumeric(type),
    cell: cells[name],
  }));
  const told = `${plural(rows.length, "request")} at epoch ${count(epoch)}`;
  return [
    dataTable({ caption: "Newest requests", columns: shown, rows }),
    el("p", { class: "hint" }, told),
  ];
}

const timeOf = (time) => el("span", { title: time }, clock(Date.parse(time)));
const outcomeOf = (code) => (code === null ? "took effect" : `undone: ${code}`);

const noneYet = () =>
  empty(
    "No request has been processed yet.",
    "Send one from ",
    el("a", { href: "#/try" }, "Try it"),
    ".",
  );

function link(id) {
  const text = id.length > ID_SHOWN ? `${id.slice(0, ID_SHOWN - 1)}…` : id;
  return el(
    "a",
    { href: `#/requests/${encodeURIComponent(named(id))}`, class: "reference", title: id },
    text,
  );
}
