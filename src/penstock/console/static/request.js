// One request: its status, its call and its reply, found by its id.

import { ask, sql } from "./api.js";
import { confirmButton } from "./confirm.js";
import { el, empty, problem, show } from "./dom.js";
import { count } from "./format.js";
import { encode } from "./json.js";
import { live } from "./live.js";
import { traceLink } from "./references.js";
import { argumentsOf, callOf } from "./request_cells.js";
import { microsecondsOf, momentNode } from "./times.js";
import { button, lines } from "./widgets.js";

const WAIT_S = 20;
const ARGUMENTS_SHOWN = 20_000;
const SENT_SHOWN = 100;
const CALL = `
  SELECT time, entity, key, method, left(arguments, ${ARGUMENTS_SHOWN})
  FROM penstock.requests WHERE epoch = ? AND lsn = ? AND parent IS NULL`;
const SENT = `
  SELECT r.request_id, r.entity, r.key, r.method, a.kind
  FROM penstock.requests AS r JOIN penstock.replies AS a USING (epoch, lsn, request_id)
  WHERE epoch = ? AND lsn = ? AND parent IS NOT NULL
  ORDER BY length(r.request_id), r.request_id LIMIT ${SENT_SHOWN}`;
const WORDS = {
  answered: "Its epoch is committed, and it never runs again.",
  cancelled: "It never runs.",
  pending: "It is durable in the log and will be processed.",
  scheduled: "It is durable and runs when it is due.",
};

/** Show what became of a request. */
export async function lookUp(result, id, query = "") {
  try {
    const { value } = await ask(`/requests/${encodeURIComponent(id)}${query}`, { exact: true });
    const call = value.status === "answered" ? await callRows(value) : [];
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
        lines([...standing(value), ...call, ...outcome(value)], true),
        again,
        trace,
        value.status === "answered" && (await wasCut(id)) ? endButton(result, id) : null,
      ),
    );
  } catch (failure) {
    const nowhere = empty(
      "There is no such request.",
      "See that the id is complete. Ids are kept for retention_s seconds; the default is seven days.",
    );
    show(result, failure.status === 404 ? nowhere : problem(failure));
  }
}

/** Say whether a later record continues the cascade of a request. */
async function wasCut(id) {
  try {
    await ask(`/requests/${encodeURIComponent(`${id}~~c1`)}`);
    return true;
  } catch {
    return false;
  }
}

/** Return a button that ends what waits of the cascade of a request. */
function endButton(result, id) {
  const question = {
    name: "End its cascade …",
    title: "End the rest of its cascade?",
    text: `${id} has run, and its effect stays. The requests and workflow steps that wait do not run any more.`,
    leave: "Keep it",
    sure: "End it",
  };
  return confirmButton(question, async () => {
    let refusal = null;
    try {
      await ask(`/requests/${encodeURIComponent(id)}`, { method: "DELETE" });
    } catch (failure) {
      refusal = problem(failure);
    }
    await lookUp(result, id);
    if (refusal) result.prepend(refusal);
  });
}

/** Return rows for the call, if the view has the request still. */
async function callRows({ epoch, lsn }) {
  try {
    const [{ rows }, sent, { operators }] = await Promise.all([
      sql(CALL, [epoch, lsn]),
      sql(SENT, [epoch, lsn]),
      live.ready(),
    ]);
    if (!rows.length) return [];
    const [time, entity, key, method, held] = rows[0];
    const operator = operators.find((operator) => operator.name === (entity ?? method));
    const names = new Set(operators.filter((operator) => operator.key).map((one) => one.name));
    const cut = held?.length >= ARGUMENTS_SHOWN;
    return [
      ["Time", momentNode(microsecondsOf(time))],
      ["Call", callOf({ entity, key, method }, operator)],
      ["Arguments", argumentsOf(held, { cut, method, operator, names })],
      ...sentRows(sent.rows, operators),
    ];
  } catch {
    return []; // without a view, the rest is still worth showing
  }
}

/** Return a row with the requests that handlers have sent. */
function sentRows(rows, operators) {
  if (!rows.length) return [];
  const items = rows.map(([id, entity, key, method, kind]) => {
    const operator = operators.find((operator) => operator.name === (entity ?? method));
    const failed = kind === null ? [] : [" ", el("span", { class: "hint" }, `undone: ${kind}`)];
    return el("li", {}, callOf({ entity, key, method }, operator), " ", el("code", {}, id), ...failed);
  });
  return [["Sent", el("ul", {}, items)]];
}

function standing({ request_id: id, status, epoch, due_us: due }) {
  const said = el("span", { class: "hint" }, WORDS[status] ?? "");
  const rows = [
    ["Request id", el("code", {}, id)],
    ["Status", el("span", { "data-status": status }, el("b", {}, status), " ", said)],
    ["Epoch", epoch === null ? "–" : count(epoch)],
  ];
  if (due) rows.push(["Due", momentNode(due)]);
  return rows;
}

function outcome({ status, value, error }) {
  if (error) return [["Undone", undone(error)]];
  if (status !== "answered") return [];
  return [["Reply", el("pre", { class: "code", id: "reply" }, encode(value, 2))]];
}

const undone = ({ kind, code, message }) =>
  el(
    "div",
    { class: "outcome failed" },
    el("b", {}, `${kind || code}: `),
    message,
    el("span", { class: "hint" }, `code ${code}; nothing of the transaction remains`),
  );
