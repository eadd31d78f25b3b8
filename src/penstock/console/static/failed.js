// Failed requests that no caller waits for, the newest first, with their next attempt.

import { ask, named } from "./api.js";
import { confirmButton } from "./confirm.js";
import { el, problem, show } from "./dom.js";
import { plural } from "./format.js";
import { live } from "./live.js";
import { callOf } from "./request_cells.js";
import { dataTable } from "./table.js";

const PERIOD_MS = 10_000;
const DISCARDED = "A discarded request has no further attempt. Its result is the error cancelled.";
const RETRIED =
  "Each request runs again, once, under its id. Mend the code and deploy it first: with the same code it fails again.";

/** The panel; it is empty while no such request has failed. */
export class FailedList {
  element = el("div", { id: "failed" });
  #operators;
  #next = 0;
  #ordered;

  /** `ordered` is called after each order that was given here. */
  constructor(operators, ordered) {
    this.#ordered = ordered;
    this.#operators = new Map(operators.map((one) => [one.name, one]));
  }

  /** Follow the application; returns the function that ends it. */
  follow() {
    const change = () => performance.now() >= this.#next && this.load();
    live.addEventListener("change", change);
    return () => live.removeEventListener("change", change);
  }

  /** Ask for the failed requests. */
  async load() {
    this.#next = performance.now() + PERIOD_MS;
    try {
      const { value } = await ask("/failed");
      if (this.element.contains(document.activeElement)) return; // a button in use stays where it is
      show(this.element, value.requests.length ? this.#section(value) : null);
    } catch (failure) {
      show(this.element, problem(failure));
    }
  }

  #section({ requests, has_more: hasMore }) {
    const columns = ["Call", "Failure", "Epoch", "Request id", "Next attempt"];
    const told = hasMore ? `the newest ${requests.length}` : plural(requests.length, "request");
    const ids = requests.map((one) => one.request_id);
    return el(
      "section",
      { "aria-labelledby": "failed-title", class: "stack" },
      el("h2", { id: "failed-title" }, `Failed in the background: ${told}`),
      dataTable({
        caption: "Failed requests that no caller waits for, the newest first",
        columns: columns.map((name) => ({ name, cell: (node) => node })),
        rows: requests.map((one) => this.#cells(one)),
        sortable: false,
        stacked: true,
      }),
      el(
        "div",
        { class: "row" },
        this.#button("retry", ids, "all of them"),
        this.#button("discard", ids, "all of them"),
      ),
      el("p", { class: "hint description" }, `${RETRIED} ${DISCARDED}`),
    );
  }

  #cells({ request_id: id, entity, key, method, epoch, code, kind, message }) {
    return [
      callOf({ entity, key, method }, this.#operators.get(entity ?? method)),
      el("span", {}, `${kind || code}: ${message ?? ""}`),
      el("span", {}, String(epoch)),
      el("a", { href: `#/requests/${encodeURIComponent(named(id))}`, class: "reference" }, id),
      el("div", { class: "row" }, this.#button("retry", [id], id), this.#button("discard", [id], id)),
    ];
  }

  #button(order, ids, target) {
    const word = order === "retry" ? "Retry" : "Discard";
    const question = {
      name: target === ids[0] ? `${word} …` : `${word} all …`,
      more: { "aria-label": `${word} ${target} …` },
      title: `${word} ${plural(ids.length, "request")}?`,
      text: order === "retry" ? RETRIED : DISCARDED,
      leave: "Leave as it is",
      sure: word,
    };
    return confirmButton(question, () => this.#order(order, ids));
  }

  async #order(order, ids) {
    document.activeElement.blur(); // so that the list may change
    let told = null;
    try {
      const body = JSON.stringify({ order, ids });
      const { value } = await ask("/failed", { method: "POST", body });
      const lines = value.refused.map((one) => el("li", {}, `${one.request_id}: ${one.message}`));
      if (lines.length) told = el("ul", { class: "hint", role: "status" }, ...lines);
      this.#ordered();
    } catch (failure) {
      told = problem(failure);
    }
    await this.load();
    if (told) this.element.prepend(told);
  }
}
