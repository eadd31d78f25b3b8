// A panel of requests that an operator acts on, looked at from time to time: failed ones, scheduled ones.

import { ask } from "./api.js";
import { el, problem, show } from "./dom.js";
import { plural } from "./format.js";
import { live } from "./live.js";
import { dataTable } from "./table.js";

/**
 * The panel.
 *
 * `id` is that of its element, `path` returns the requests, `periodMs` is between two looks, and `acted` is called after
 * each order that was given here. `counted(text)` is told their number, such as `3` or `25+`. `titleOf(count)`, `caption`,
 * `columns`, `cells(request)`, `below(requests)` and `nothing()` say what is shown.
 */
export class WaitingList {
  element;
  #facts;
  #next = 0;

  constructor(facts) {
    this.#facts = facts;
    this.element = el("div", { id: facts.id, class: "stack" }, el("p", { class: "waiting" }, "Asking the gateway …"));
  }

  /** Follow the application; returns the function that ends it. */
  follow() {
    const change = () => performance.now() >= this.#next && this.load();
    live.addEventListener("change", change);
    return () => live.removeEventListener("change", change);
  }

  /** Ask for the requests. */
  async load() {
    this.#next = performance.now() + this.#facts.periodMs;
    try {
      const { value } = await ask(this.#facts.path);
      this.#facts.counted(value.requests.length ? `${value.requests.length}${value.has_more ? "+" : ""}` : "");
      if (this.element.contains(document.activeElement)) return; // a part in use stays where it is
      show(this.element, value.requests.length ? this.#section(value) : this.#facts.nothing());
    } catch (failure) {
      show(this.element, problem(failure));
    }
  }

  /** Give an order; `send()` may return what is to be told of it. */
  async act(send) {
    document.activeElement.blur(); // so that the list may change
    let told = null;
    try {
      told = await send();
      this.#facts.acted();
    } catch (failure) {
      told = problem(failure);
    }
    await this.load();
    if (told) this.element.prepend(told);
  }

  #section({ requests, has_more: hasMore }) {
    const { id, titleOf, caption, columns, cells, below } = this.#facts;
    const known = hasMore ? requests.length : plural(requests.length, "request");
    return el(
      "section",
      { "aria-labelledby": `${id}-title`, class: "stack" },
      el("h2", { id: `${id}-title` }, titleOf(known, hasMore)),
      dataTable({
        caption,
        columns: columns.map(([name, part]) => ({ name, part, cell: (node) => node })),
        rows: requests.map(cells),
        lined: true,
      }),
      below(requests),
    );
  }
}
