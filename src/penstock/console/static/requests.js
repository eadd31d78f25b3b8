// Requests: what became of one, found by its id, and the lists of recent, failed and scheduled ones.

import { el, field, show } from "./dom.js";
import { live } from "./live.js";
import { lookUp } from "./request.js";
import { RequestList, codesHeld } from "./request_list.js";
import { failedList } from "./failed.js";
import { scheduledList } from "./scheduled.js";
import { showTrace } from "./trace.js";

const TABS = [
  ["recent", "Recent"],
  ["failed", "Failed"],
  ["scheduled", "Scheduled"],
];

/**
 * Show the page; `#/requests/{id}` looks up at once, `#/requests/{id}/trace` is its trace, and `?show=failed` is another
 * list.
 */
export async function open(body, { rest: [asked, view], search }, heading) {
  if (view === "trace") return showTrace(body, heading, asked);
  const id = el("input", {
    autocomplete: "off",
    spellcheck: "false",
    class: "code",
    value: asked ?? "",
  });
  const result = el("div", { id: "request", "aria-live": "polite" });
  const submit = (event) => {
    event.preventDefault();
    const wanted = id.value.trim();
    if (wanted === asked) lookUp(result, wanted);
    else if (wanted) location.hash = `#/requests/${encodeURIComponent(wanted)}`;
  };
  const path = asked === undefined ? "#/requests" : `#/requests/${encodeURIComponent(asked)}`;
  const tabs = tabsOf(path);
  const list = el("div", { class: "stack" }, el("p", { class: "waiting" }, "Asking the SQL view …"));
  show(
    body,
    el(
      "form",
      { class: "row filters", role: "search", "aria-label": "Look-up", onsubmit: submit },
      field("Request id", id, "An Idempotency-Key, or the Penstock-Request-Id of an answer."),
      el("button", { type: "submit", class: "main-button" }, "Look up"),
    ),
    result,
    tabs.element,
    list,
  );
  const found = asked === undefined ? null : lookUp(result, asked);
  const [plan, codes] = await Promise.all([live.ready(), codesHeld(), found]);
  if (!body.isConnected) return null; // another page was opened meanwhile
  const page = new Lists(path, plan.operators, codes, tabs, list);
  page.turn(search);
  return {
    close: () => page.close(),
    follow: ({ rest: [other, part], search: wanted }, name) =>
      name === "requests" && other === asked && !part && (page.turn(wanted), true),
  };
}

/** The three lists, of which one is shown; the two short ones are followed at any time, so that the tabs say their numbers. */
class Lists {
  #path;
  #operators;
  #codes;
  #tabs;
  #place;
  #failed;
  #scheduled;
  #list = null;
  #hasActed = false;
  #endList = () => {};
  #ends;

  constructor(path, operators, codes, tabs, place) {
    [this.#path, this.#operators, this.#codes, this.#tabs, this.#place] = [path, operators, codes, tabs, place];
    const acted = () => {
      this.#hasActed = true;
      this.#list?.loadNext();
    };
    this.#failed = failedList(operators, acted, (number) => tabs.count("failed", number));
    this.#scheduled = scheduledList(operators, acted, (number) => tabs.count("scheduled", number));
    for (const each of [this.#failed, this.#scheduled]) each.load();
    this.#ends = [this.#failed.follow(), this.#scheduled.follow()];
  }

  /** Show the list that an address names. */
  turn(search) {
    const shown = TABS.find(([name]) => name === search.get("show"))?.[0] ?? "recent";
    this.#tabs.mark(shown);
    this.#endList();
    [this.#list, this.#endList] = [null, () => {}];
    if (shown === "scheduled") show(this.#place, this.#scheduled.element);
    else {
      this.#list = new RequestList(this.#path, search, this.#operators, this.#codes, shown === "failed" ? { outcome: "failed" } : {});
      this.#endList = this.#list.follow();
      show(this.#place, shown === "failed" ? this.#failed.element : null, this.#list.element);
      this.#list.load();
      if (this.#hasActed) this.#list.loadNext(); // the SQL view may not have the request yet
    }
  }

  close() {
    this.#endList();
    this.#ends.forEach((end) => end());
  }
}

/** Return the links to the lists: `mark(name)` says which one is shown, and `count(name, text)` how many it has. */
function tabsOf(path) {
  const parts = new Map(
    TABS.map(([name, title]) => {
      const number = el("span", { class: "count" });
      const href = name === "recent" ? path : `${path}?show=${name}`;
      return [name, { link: el("a", { href }, title, number), number }];
    }),
  );
  return {
    element: el(
      "nav",
      { class: "tabs", "aria-label": "Lists of requests" },
      el("ul", {}, [...parts.values()].map(({ link }) => el("li", {}, link))),
    ),
    mark: (shown) => {
      for (const [name, { link }] of parts)
        if (name === shown) link.setAttribute("aria-current", "page");
        else link.removeAttribute("aria-current");
    },
    count: (name, text) => {
      parts.get(name).number.textContent = text ? ` ${text}` : "";
    },
  };
}
