// Requests: what became of one, found by its id, and the newest of them.

import { ask, encode, sql } from "./api.js";
import { el, empty, field, problem, show } from "./dom.js";
import { count, plural } from "./format.js";
import { dataTable } from "./table.js";

const RECENT = 25;
const WAIT_S = 20;
const WORDS = {
  answered: "Answered: its epoch is committed, and it never runs again.",
  pending: "Pending: it is durable in the log and will be processed.",
  scheduled: "Scheduled: it is durable and runs when it is due.",
  unknown: "Unknown: no request has this id, or it is known no longer.",
};

/** Show the look-up; `#/requests/{id}` looks up at once. */
export async function open(body, { rest }) {
  const id = el("input", { autocomplete: "off", spellcheck: "false", id: "request-id", class: "code", value: rest[0] ?? "" });
  const result = el("div", { id: "request", "aria-live": "polite" });
  const recent = el("div", { id: "recent" });
  show(body,
    el("form", { class: "row filters", role: "search", onsubmit: (event) => {
      event.preventDefault();
      const wanted = id.value.trim();
      if (wanted) location.hash = `#/requests/${encodeURIComponent(wanted)}`;
      if (wanted === rest[0]) lookUp(result, wanted);
    } }, field("Request id", id, "The Idempotency-Key that was sent, or Penstock-Request-Id of an answer."), el("button", { type: "submit", class: "main-button" }, "Look up")),
    result,
    el("section", { "aria-labelledby": "recent-title" }, el("div", { class: "row between" }, el("h2", { id: "recent-title" }, "Newest requests"), el("button", { type: "button", class: "quiet-button", onclick: () => list(recent) }, "Refresh")), recent));
  await Promise.all([rest[0] === undefined ? null : lookUp(result, rest[0]), list(recent)]);
  return null;
}

async function lookUp(result, id, wait = 0) {
  try {
    const { value } = await ask(`/requests/${encodeURIComponent(id)}${wait ? `?wait=${wait}` : ""}`);
    show(result, standing(value, () => lookUp(result, id, WAIT_S)));
  } catch (failure) {
    show(result, failure.status === 404 ? empty("There is no such request.", "See that the id is whole. Ids are kept for as long as retention_s says, seven days by default.") : problem(failure));
  }
}

function standing(told, again) {
  const { request_id: id, status, epoch, value, error } = told;
  const rows = [
    ["Request id", el("code", {}, id)],
    ["Status", el("span", { "data-status": status }, el("b", {}, status), el("br"), el("span", { class: "hint" }, WORDS[status] ?? ""))],
    ["Epoch", epoch === null || epoch === undefined ? "–" : count(epoch)],
  ];
  if (error) rows.push(["Undone", el("div", {}, el("b", {}, `${error.kind || error.code}: `), error.message, el("p", { class: "hint" }, `code ${error.code}; nothing of the transaction remains`))]);
  else if (status === "answered") rows.push(["Reply", el("pre", { class: "code", id: "reply" }, encode(value, 2) ?? "null")]);
  if (told.due_us) rows.push(["Due", new Date(told.due_us / 1_000).toLocaleString()]);
  return el("section", { class: "panel", "aria-label": "Request" }, el("dl", { class: "fields wide" }, rows.map(([name, shown]) => [el("dt", {}, name), el("dd", {}, shown)])),
    status === "pending" ? el("button", { type: "button", class: "quiet-button", onclick: again }, `Wait up to ${WAIT_S} s`) : null);
}

async function list(place) {
  try {
    const { columns, rows, epoch } = await sql(`SELECT * FROM requests ORDER BY epoch DESC, lsn DESC LIMIT ${RECENT}`);
    if (!rows.length) return show(place, empty("No request has been processed yet.", "Send one from ", el("a", { href: "#/try" }, "Try it"), "."));
    const link = (value) => el("a", { href: `#/requests/${encodeURIComponent(value)}`, class: "reference" }, value.length > 20 ? `${value.slice(0, 18)}…` : value);
    const shown = columns.map((column) => (column.name === "request_id" ? { ...column, cell: link } : column));
    return show(place, dataTable({ caption: "Newest requests", columns: shown, rows }), el("p", { class: "hint" }, `${plural(rows.length, "request")} at epoch ${count(epoch)}`));
  } catch (failure) {
    return show(place, problem(failure));
  }
}
