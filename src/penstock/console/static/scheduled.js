// Scheduled requests: what waits in the log until it is due, the next one first.

import { ask, named } from "./api.js";
import { confirmButton } from "./confirm.js";
import { el, problem, show } from "./dom.js";
import { age, moment, plural } from "./format.js";
import { live } from "./live.js";
import { argumentsOf, callOf } from "./request_cells.js";
import { dataTable } from "./table.js";

const PERIOD_MS = 5_000;
const ARGUMENTS_SHOWN = 600;
const CANCELLED =
  "A cancelled request never runs. Its id stays taken, and its result is the error cancelled.";

/** The panel; it is empty while no request is scheduled. */
export class ScheduledList {
  element = el("div", { id: "scheduled" });
  #operators;
  #names;
  #next = 0;
  #cancelled;

  /** `cancelled` is called after each request that was cancelled here. */
  constructor(operators, cancelled) {
    this.#cancelled = cancelled;
    this.#operators = new Map(operators.map((one) => [one.name, one]));
    this.#names = new Set(operators.filter((one) => one.key).map((one) => one.name));
  }

  /** Follow the application; returns the function that ends it. */
  follow() {
    const change = () => performance.now() >= this.#next && this.load();
    live.addEventListener("change", change);
    return () => live.removeEventListener("change", change);
  }

  /** Ask for the requests that are due next. */
  async load() {
    this.#next = performance.now() + PERIOD_MS;
    try {
      const { value } = await ask("/console/api/scheduled");
      if (this.element.contains(document.activeElement)) return; // a link in use stays where it is
      show(this.element, value.requests.length ? this.#section(value) : null);
    } catch (failure) {
      show(this.element, problem(failure));
    }
  }

  #section({ requests, has_more: hasMore }) {
    const columns = ["Due", "Call", "Arguments", "Request id", "Cancel"];
    const told = hasMore ? `the next ${requests.length}` : plural(requests.length, "request");
    return el(
      "section",
      { "aria-labelledby": "scheduled-title", class: "stack" },
      el("h2", { id: "scheduled-title" }, `Scheduled requests: ${told}`),
      dataTable({
        caption: "Scheduled requests, the next one first",
        columns: columns.map((name) => ({ name, cell: (node) => node })),
        rows: requests.map((one) => this.#cells(one)),
        sortable: false,
        stacked: true,
      }),
      el("p", { class: "hint description" }, CANCELLED),
    );
  }

  #cells({ request_id: id, due_us: due, entity, key, method, arguments: held }) {
    const operator = this.#operators.get(entity ?? method);
    const cut = held.length >= ARGUMENTS_SHOWN;
    return [
      dueOf(due),
      callOf({ entity, key, method }, operator),
      argumentsOf(held, { cut, method, operator, names: this.#names }),
      el("a", { href: `#/requests/${encodeURIComponent(named(id))}`, class: "reference" }, id),
      this.#cancelButton(id),
    ];
  }

  #cancelButton(id) {
    const question = {
      name: "Cancel …",
      more: { "aria-label": `Cancel ${id} …` },
      title: "Cancel this request?",
      text: `${id}: ${CANCELLED}`,
      leave: "Keep it",
      sure: "Cancel it",
    };
    return confirmButton(question, () => this.#cancel(id));
  }

  async #cancel(id) {
    document.activeElement.blur(); // so that the list may change
    let refusal = null;
    try {
      await ask(`/requests/${encodeURIComponent(named(id))}`, { method: "DELETE" });
      this.#cancelled();
    } catch (failure) {
      refusal = problem(failure);
    }
    await this.load();
    if (refusal) this.element.prepend(refusal);
  }
}

function dueOf(due) {
  const now = live.status?.now_us ?? Date.now() * 1_000;
  const left = (due - now) / 1_000_000;
  const told = left > 0 ? `in ${age(left)}` : "due now";
  return el("span", {}, el("time", {}, moment(due)), el("span", { class: "hint" }, ` ${told}`));
}
