// Failed requests that no caller waits for, the newest first, with their next attempt.

import { ask } from "./api.js";
import { confirmButton } from "./confirm.js";
import { el, empty } from "./dom.js";
import { plural } from "./format.js";
import { callOf, idOf } from "./request_cells.js";
import { WaitingList } from "./waiting_list.js";

const DISCARDED = "A discarded request has no further attempt. Its result is the error cancelled.";
const RETRIED =
  "Each request runs again, once, under its id. Mend the code and deploy it first: with the same code it fails again.";

/** Return the panel; `acted` is called after each order that was given here, `counted` with the number. */
export function failedList(operators, acted, counted) {
  const byName = new Map(operators.map((operator) => [operator.name, operator]));

  const order = (word, ids) =>
    list.act(async () => {
      const body = JSON.stringify({ order: word, ids });
      const { value } = await ask("/failed", { method: "POST", body });
      const lines = value.refused.map((refused) => el("li", {}, `${refused.request_id}: ${refused.message}`));
      return lines.length ? el("ul", { class: "hint", role: "status" }, ...lines) : null;
    });

  const orderButton = (word, ids, target) => {
    const name = word === "retry" ? "Retry" : "Discard";
    const question = {
      name: target === ids[0] ? `${name} …` : `${name} all …`,
      more: { "aria-label": `${name} ${target} …` },
      title: `${name} ${plural(ids.length, "request")}?`,
      text: word === "retry" ? RETRIED : DISCARDED,
      leave: "Leave as it is",
      sure: name,
    };
    return confirmButton(question, () => order(word, ids));
  };
  const buttons = (ids, target) =>
    el("div", { class: "row" }, orderButton("retry", ids, target), orderButton("discard", ids, target));

  const list = new WaitingList({
    id: "failed",
    path: "/failed",
    periodMs: 10_000,
    acted,
    counted,
    titleOf: (known, hasMore) => `Failed in the background: ${hasMore ? "the newest " : ""}${known}`,
    caption: "Failed requests that no caller waits for, the newest first",
    columns: [["Call", "call"], ["Failure", "text"], ["Epoch", "epoch"], ["Request id", "id"], ["Next attempt", "orders"]],
    cells: ({ request_id: id, entity, key, method, epoch, code, kind, message }) => [
      callOf({ entity, key, method }, byName.get(entity ?? method)),
      failureOf(`${kind || code}: ${message ?? ""}`),
      el("span", {}, String(epoch)),
      idOf(id),
      buttons([id], id),
    ],
    below: (requests) => [
      buttons(requests.map((request) => request.request_id), "all of them"),
      el("p", { class: "hint description" }, `${RETRIED} ${DISCARDED}`),
    ],
    nothing: () => empty("No failed request waits.", "Requests that handlers send appear here if a mistake in the code fails them."),
  });
  return list;
}

const failureOf = (text) => el("span", { title: text }, text);
