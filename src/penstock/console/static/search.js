// Search: the rows of a view whose target is a search index, with the words that were found, counts, and the epoch.

import { ask } from "./api.js";
import { el, empty, field, problem, show } from "./dom.js";
import { count, plural } from "./format.js";
import { plainText } from "./table.js";
import { textNode } from "./text.js";
import { lines, panel } from "./widgets.js";

const WAIT_MS = 200;
const LIMIT = 20;

/** Return the views that have a search index. */
export const searchedOf = (views) => views.filter((view) => view.target === "search");

/** Show the page; `?view=catalogue&q=tea` fills in the question. */
export async function open(body, { search }) {
  show(body, el("p", { class: "waiting" }, "Asking the gateway …"));
  const views = searchedOf((await ask("/views")).value.views);
  if (!views.length) {
    show(body, empty("No view has a search index.", "Declare one with search() as its target."));
    return {};
  }
  const view = el("select", {}, views.map(({ name }) => el("option", { value: name }, name)));
  const words = el("input", { type: "search", maxlength: 2_000, autocomplete: "off", spellcheck: "false" });
  const answer = el("div", { id: "hits", class: "stack", role: "status" });
  if (search.get("view")) view.value = search.get("view");
  words.value = search.get("q") ?? "";
  let turn = 0;
  let timer;

  async function look() {
    const mine = ++turn;
    const fields = new URLSearchParams({ q: words.value, limit: LIMIT, facet: "*", highlight: "true" });
    try {
      const { value } = await ask(`/search/${encodeURIComponent(view.value)}?${fields}`, { exact: true });
      if (mine === turn) show(answer, ...answerOf(value));
    } catch (failure) {
      if (mine === turn) show(answer, problem(failure));
    }
  }

  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(look, WAIT_MS);
  };
  words.addEventListener("input", soon);
  view.addEventListener("change", look);
  const hint = '"a phrase", column:word, a OR b, -word, price:[10 TO 20], and a * behind the last word';
  const form = el("form", { class: "stack", onsubmit: (event) => (event.preventDefault(), look()) }, [
    field("View", view),
    field("Words", words, hint),
  ]);
  show(body, panel("search", "Search", "All words must be in the row.", form), answer);
  await look();
  return { close: () => (clearTimeout(timer), ++turn) };
}

function answerOf({ epoch, total, hits, facets }) {
  const counts = Object.entries(facets).map(([name, values]) =>
    el("p", { class: "hint" }, `${name}: `, values.map((each) => `${plainText(each.value)} (${count(each.count)})`).join(", ")),
  );
  return [
    el("p", {}, `${plural(Number(total), "row")} at epoch ${count(epoch)}`),
    ...counts,
    el("ol", { class: "stack", "aria-label": "Rows that were found" }, hits.map(hitOf)),
  ];
}

function hitOf({ table, row, highlights }) {
  const values = Object.entries(row).filter(([name, value]) => value !== null && !name.startsWith("_"));
  return el(
    "li",
    {},
    el("strong", {}, table),
    lines(values.map(([name, value]) => [name, el("span", {}, shownOf(highlights[name], value))])),
  );
}

/** Return a value, with the words that were found marked. */
const shownOf = (parts, value) =>
  parts ? parts.map((part, at) => (at % 2 ? el("mark", {}, part) : part)) : textNode(plainText(value));
