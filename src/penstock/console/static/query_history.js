// The queries of this tab, the newest first. Closing the tab forgets them, as they may hold secrets.

import { el, show } from "./dom.js";
import { clock } from "./format.js";

const STORED = "penstock-queries";
const QUERIES_MAX = 50;
const CHARACTERS_MAX = 20_000;

/** Return the remembered queries: `{query, time, said}`. */
export function remembered() {
  try {
    return JSON.parse(sessionStorage.getItem(STORED)) ?? [];
  } catch {
    return [];
  }
}

/** Remember that a query was run; the same query is remembered once, with what its last run said. */
export function remember(query, said) {
  if (query.length > CHARACTERS_MAX) return;
  const others = remembered().filter((each) => each.query !== query);
  const all = [{ query, time: Date.now(), said }, ...others].slice(0, QUERIES_MAX);
  try {
    sessionStorage.setItem(STORED, JSON.stringify(all));
  } catch {
    // The tab's storage is full; the queries of before stay.
  }
}

/** The list; `onchoose` is called with a query. */
export class QueryHistory {
  element = el("details", { id: "queries", class: "panel" });
  #onchoose;

  constructor(onchoose) {
    this.#onchoose = onchoose;
    this.draw();
  }

  draw() {
    const all = remembered();
    this.element.hidden = !all.length;
    const forget = () => {
      sessionStorage.removeItem(STORED);
      this.draw();
    };
    show(
      this.element,
      el("summary", {}, `Queries of this tab (${all.length})`),
      el("ul", { class: "queries" }, all.map((each) => this.#item(each))),
      el("button", { type: "button", class: "quiet-button", onclick: forget }, "Forget them"),
    );
  }

  #item({ query, time, said }) {
    const choose = () => this.#onchoose(query);
    return el(
      "li",
      {},
      el("button", { type: "button", class: "name-button code", onclick: choose }, query),
      el("span", { class: "hint" }, `${clock(time)} · ${said}`),
    );
  }
}
