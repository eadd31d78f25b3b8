// The filter and the order of a list of entities: the form, the address, and the parts of a query.

import { literal, quoted } from "./api.js";
import { el, field } from "./dom.js";
import { parseType } from "./value.js";
import { button } from "./widgets.js";

const PAUSE_MS = 250;
const FILTERS_MAX = 6;
const KEY_WAYS = [
  ["contains", "contains"],
  ["starts_with", "starts with"],
];
const COMPARISONS = {
  is: ["is", "="],
  not: ["is not", "IS DISTINCT FROM"],
  lt: ["is less than", "<"],
  le: ["is at most", "<="],
  gt: ["is more than", ">"],
  ge: ["is at least", ">="],
};
const TEXTS = { contains: "contains", starts_with: "starts with" };
const ABSENCE = { null: ["is null", "IS NULL"], some: ["is not null", "IS NOT NULL"] };
const NESTED = new Set(["list", "dict", "tuple", "set", "frozenset", "|"]);

/** Return the condition that an attribute fulfils; an unknown way is no condition. */
export function conditionOf({ name, way, value }) {
  const column = quoted(name);
  if (way in ABSENCE) return `${column} ${ABSENCE[way][1]}`;
  if (value === "") return null;
  if (way in TEXTS) return `${way}(CAST(${column} AS VARCHAR), ${literal(value)})`;
  return way in COMPARISONS ? `${column} ${COMPARISONS[way][1]} ${literal(value)}` : null;
}

/** Read `-price` as `{name: "price", falling: true}`. */
export const orderOf = (text) => ({ name: text.replace(/^-/, ""), falling: text.startsWith("-") });

/** The form. It calls `onchange` when the list must be read again from its first page. */
export class EntityFilter {
  #operator;
  #onchange;
  #later;
  #timer = 0;
  #find;
  #way;
  #sort;
  #rows = el("div", { class: "stack" });
  #filters = [];
  #add;

  constructor(operator, search, onchange) {
    this.#operator = operator;
    this.#onchange = onchange;
    this.#later = () => {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(onchange, PAUSE_MS);
    };
    this.#find = el("input", {
      type: "search",
      value: search.get("find") ?? "",
      autocomplete: "off",
      spellcheck: "false",
      oninput: this.#later,
    });
    this.#way = chooser(KEY_WAYS, search.get("how"), this.#later);
    const names = [operator.key.name, ...operator.attributes.map((attribute) => attribute.name)];
    const orders = names.flatMap((one) => [
      [one, `${one}, rising`],
      [`-${one}`, `${one}, falling`],
    ]);
    this.#sort = chooser(orders, search.get("sort"), this.#later);
    this.#add = button("Add a filter by attribute", () => this.#addFilter({ focus: true }));
    this.element = el(
      "form",
      { class: "stack", role: "search", onsubmit: (event) => event.preventDefault() },
      el(
        "div",
        { class: "row filters" },
        narrow(field("Key", this.#way)),
        field(`Find by ${operator.key.name}`, this.#find),
        narrow(field("Sort by", this.#sort)),
      ),
      this.#rows,
      operator.attributes.length ? el("div", {}, this.#add) : null,
    );
    for (const text of search.getAll("where")) {
      const [, name, way, value] = /^(\w+):(\w+):(.*)$/s.exec(text) ?? [];
      if (operator.attributes.some((attribute) => attribute.name === name)) this.#addFilter({ name, way, value });
    }
  }

  /** Return the order: the name of a column, and whether the greatest value is first. */
  get order() {
    return orderOf(this.#sort.value);
  }

  /** Sort by a column; by the same one again, the other way round. */
  sortBy(name) {
    const { name: before, falling } = this.order;
    this.#sort.value = name === before && !falling ? `-${name}` : name;
    this.#onchange();
  }

  /** Return the conditions, as SQL texts. */
  get conditions() {
    const key = quoted(this.#operator.key.name);
    const wanted = this.#find.value;
    const found = wanted
      ? [`${this.#way.value}(CAST(${key} AS VARCHAR), ${literal(wanted)})`]
      : [];
    const all = this.#filters.map((filter) => conditionOf(filter.given()));
    return [...found, ...all.filter((each) => each !== null)];
  }

  /** Return the fields of the address. */
  get fields() {
    const fields = new URLSearchParams();
    if (this.#find.value) fields.set("find", this.#find.value);
    if (this.#find.value) fields.set("how", this.#way.value);
    if (this.#sort.selectedIndex > 0) fields.set("sort", this.#sort.value);
    for (const { given } of this.#filters) {
      const { name, way, value } = given();
      fields.append("where", `${name}:${way}:${value}`);
    }
    return fields;
  }

  /** Forget a change that was not told yet, because the page is left. */
  close() {
    clearTimeout(this.#timer);
  }

  #addFilter({ name, way, value = "", focus = false }) {
    const { attributes } = this.#operator;
    const attribute = chooser(attributes.map((attribute) => [attribute.name, attribute.name]), name, () => rebuild());
    const comparison = chooser([], null, () => change());
    const input = el("input", { autocomplete: "off", spellcheck: "false", value, oninput: this.#later });
    const held = field("Value", input);
    const rebuild = () => {
      const { type } = attributes.find((each) => each.name === attribute.value);
      const before = comparison.value || way;
      const ways = waysOf(type);
      comparison.replaceChildren(...ways.map(([one, shown]) => el("option", { value: one }, shown)));
      if (ways.some(([one]) => one === before)) comparison.value = before;
      change();
    };
    const change = () => {
      held.hidden = comparison.value in ABSENCE;
      this.#later();
    };
    const filter = {
      given: () => ({ name: attribute.value, way: comparison.value, value: input.value }),
      element: el("div", { class: "row filters compact", role: "group", "aria-label": "Filter" }),
    };
    const remove = button("Remove", () => this.#remove(filter));
    filter.element.append(field("Attribute", attribute), field("Condition", comparison), held, remove);
    this.#filters.push(filter);
    this.#rows.append(filter.element);
    this.#add.disabled = this.#filters.length >= FILTERS_MAX;
    rebuild();
    if (focus) attribute.focus();
  }

  #remove(filter) {
    this.#filters = this.#filters.filter((each) => each !== filter);
    filter.element.remove();
    this.#add.disabled = false;
    this.#add.focus();
    this.#onchange();
  }
}

/** Return the ways in which an attribute of a type can be compared. */
function waysOf(type) {
  const { name } = parseType(type);
  const isNested = NESTED.has(name);
  const texts = name === "bool" ? [] : Object.entries(TEXTS).slice(0, isNested ? 1 : 2);
  const comparisons = isNested
    ? []
    : Object.entries(COMPARISONS).map(([way, [shown]]) => [way, shown]);
  const absence = Object.entries(ABSENCE).map(([way, [shown]]) => [way, shown]);
  return [...(name === "bool" ? comparisons.slice(0, 2) : comparisons), ...texts, ...absence];
}

function chooser(options, chosen, onchange) {
  const select = el(
    "select",
    { onchange },
    options.map(([value, name]) => el("option", { value }, name)),
  );
  if (options.some(([value]) => value === chosen)) select.value = chosen;
  return select;
}

function narrow(element) {
  element.classList.add("narrow");
  return element;
}
