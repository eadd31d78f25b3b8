// Scheduled requests: those that wait in the log until they are due, the next first.

import { ask, named } from "./api.js";
import { confirmButton } from "./confirm.js";
import { el, empty } from "./dom.js";
import { age } from "./format.js";
import { live } from "./live.js";
import { argumentsOf, callOf, idOf } from "./request_cells.js";
import { shortMoment } from "./times.js";
import { WaitingList } from "./waiting_list.js";

const ARGUMENTS_SHOWN = 600;
const CANCELLED =
  "A cancelled request never runs. Its id stays taken, and its result is the error cancelled.";

/** Return the panel; `acted` is called after each request that was cancelled here, `counted` with the number. */
export function scheduledList(operators, acted, counted) {
  const byName = new Map(operators.map((operator) => [operator.name, operator]));
  const names = new Set(operators.filter((operator) => operator.key).map((operator) => operator.name));

  const cancelButton = (id) => {
    const question = {
      name: "Cancel …",
      more: { "aria-label": `Cancel ${id} …` },
      title: "Cancel this request?",
      text: `${id}: ${CANCELLED}`,
      leave: "Keep it",
      sure: "Cancel it",
    };
    const cancel = async () => {
      await ask(`/requests/${encodeURIComponent(named(id))}`, { method: "DELETE" });
    };
    return confirmButton(question, () => list.act(cancel));
  };

  const list = new WaitingList({
    id: "scheduled",
    path: "/console/api/scheduled",
    periodMs: 5_000,
    acted,
    counted,
    titleOf: (known, hasMore) => `Scheduled requests: ${hasMore ? "the next " : ""}${known}`,
    caption: "Scheduled requests, the next one first",
    columns: [["Due", "time"], ["Call", "call"], ["Arguments", "text"], ["Request id", "id"], ["Cancel", "orders"]],
    cells: ({ request_id: id, due_us: due, entity, key, method, arguments: held }) => {
      const operator = byName.get(entity ?? method);
      const cut = held.length >= ARGUMENTS_SHOWN;
      return [
        dueOf(due),
        callOf({ entity, key, method }, operator),
        argumentsOf(held, { cut, method, operator, names }),
        idOf(id),
        cancelButton(id),
      ];
    },
    below: () => el("p", { class: "hint description" }, CANCELLED),
    nothing: () => empty("No request is scheduled.", "A request with a delay waits here until it is due."),
  });
  return list;
}

function dueOf(due) {
  const now = live.status?.now_us ?? Date.now() * 1_000;
  const left = (due - now) / 1_000_000;
  const told = left > 0 ? `in ${age(left)}` : "due now";
  return el("span", {}, shortMoment(due), el("span", { class: "hint" }, ` ${told}`));
}
