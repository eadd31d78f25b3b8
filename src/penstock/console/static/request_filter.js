// The filter of the list of requests: its form, its fields in the address, its conditions in SQL.

import { literal } from "./api.js";
import { el, field } from "./dom.js";
import { button } from "./widgets.js";

const WIDE = "(min-width: 761px)";
const PAUSE_MS = 250;
const NAMES = ["of", "key", "method", "outcome", "from", "to"];
const UNDONE = "SELECT epoch, lsn, request_id FROM penstock.replies WHERE error";
/** The codes of failures that the application has not declared: `engine.failure.REPEATABLE`. */
export const FAILURES = [
  "internal",
  "limit-exceeded",
  "migration-failed",
  "readonly-violation",
  "request",
  "unencodable",
  "unhandled",
];
const CREATED = ["create", "upsert", "update_or_create", "delete"];

/** Return the conditions of a filter, a list of SQL texts; `functions` are the names of functions. */
export function conditionsOf(given, functions = new Set()) {
  const { of, key, method, outcome, from, to } = given;
  const all = [];
  if (of && functions.has(of)) all.push(`entity IS NULL AND method = ${literal(of)}`);
  else if (of) all.push(`entity = ${literal(of)}`);
  if (key) all.push(`key = ${literal(key)}`);
  if (method) all.push(`method = ${literal(method)}`);
  if (from) all.push(`time >= CAST(${literal(from)} AS TIMESTAMPTZ)`);
  if (to) all.push(`time <= CAST(${literal(to)} AS TIMESTAMPTZ)`);
  // Few requests are undone: to look for the others, their short list is the one to compare with.
  if (outcome === "effect") all.push(`(epoch, lsn, request_id) NOT IN (${UNDONE} IS NOT NULL)`);
  else if (outcome === "undone") all.push(`(epoch, lsn, request_id) IN (${UNDONE} IS NOT NULL)`);
  else if (outcome === "failed")
    all.push(`(epoch, lsn, request_id) IN (${UNDONE} IN (${FAILURES.map(literal).join(", ")}))`);
  else if (outcome) all.push(`(epoch, lsn, request_id) IN (${UNDONE} = ${literal(outcome)})`);
  return all;
}

/** Return an instant as a field for local times holds it, and the reverse. */
export function localTime(instant) {
  const date = new Date(instant);
  if (Number.isNaN(date.getTime())) return "";
  const shifted = new Date(date.getTime() - date.getTimezoneOffset() * 60_000);
  return shifted.toISOString().slice(0, 19);
}
export const instantOf = (local) => (local ? new Date(local).toISOString() : "");

/** The form. It calls `onchange` when a field has changed. */
export class RequestFilter {
  #fields;
  #fixed;
  #functions;
  #timer = 0;

  /**
   * Begin with the fields of an address.
   *
   * `operators` are those of the plan, `codes` the codes of errors that the view holds, and `fixed` are fields that are not
   * shown, with their values.
   */
  constructor(search, { operators, codes, fixed = {} }, onchange) {
    this.#fixed = fixed;
    this.#functions = new Set(operators.filter((operator) => !operator.key).map((one) => one.name));
    this.#fields = {
      of: chooser([["", "any"], ...operators.map(operatorOption)]),
      key: el("input", { autocomplete: "off", spellcheck: "false" }),
      method: el("input", { autocomplete: "off", spellcheck: "false", list: "methods" }),
      outcome: chooser([
        ["", "any"],
        ["effect", "took effect"],
        ["undone", "undone"],
        ["failed", "failed: a mistake in the code"],
        ...codes.map((code) => [code, `undone: ${code}`]),
      ]),
      from: el("input", { type: "datetime-local", step: 1 }),
      to: el("input", { type: "datetime-local", step: 1 }),
    };
    this.#begin(search);
    const later = () => {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(onchange, PAUSE_MS);
    };
    const { of, key, method, outcome, from, to } = this.#fields;
    const clear = button("Clear filters", () => {
      this.#begin(new URLSearchParams());
      onchange();
    });
    const form = el(
      "form",
      {
        class: "row filters compact",
        role: "search",
        "aria-label": "Filter of requests",
        oninput: later,
        onchange: ({ target }) => target.tagName === "SELECT" && later(),
        onsubmit: (event) => event.preventDefault(),
      },
      field("Entity or function", of),
      field("Key", key),
      field("Method", method),
      fixed.outcome ? null : field("Outcome", outcome),
      el("div", { class: "pair" }, field("From", from), field("To", to)),
      el("datalist", { id: "methods" }, methodsOf(operators).map((value) => el("option", { value }))),
      clear,
    );
    this.element = el("details", { class: "filter" }, el("summary", {}, "Filter"), form);
    this.element.open = matchMedia(WIDE).matches || Object.keys(this.chosen).length > 0;
  }

  /** Forget a change that was not told yet, because the page is left. */
  close() {
    clearTimeout(this.#timer);
  }

  /** Return the fields that count, by their names. */
  get given() {
    return { ...this.chosen, ...this.#fixed };
  }

  /** Return the fields that a person has filled in, by their names. */
  get chosen() {
    const all = NAMES.filter((name) => !(name in this.#fixed)).map((name) => {
      const text = this.#fields[name].value.trim();
      return [name, name === "from" || name === "to" ? instantOf(text) : text];
    });
    return Object.fromEntries(all.filter(([, text]) => text));
  }

  /** Return the conditions in SQL. */
  get conditions() {
    return conditionsOf(this.given, this.#functions);
  }

  /** Fill in the fields of an address; a choice that does not exist any more stays as it was asked. */
  #begin(search) {
    for (const [name, input] of Object.entries(this.#fields)) {
      const text = search.get(name) ?? "";
      const value = text && input.type === "datetime-local" ? localTime(text) : text;
      if (input.tagName === "SELECT" && ![...input.options].some((one) => one.value === value))
        input.append(el("option", { value }, value));
      input.value = value;
    }
  }
}

const chooser = (options) =>
  el(
    "select",
    {},
    options.map(([value, name]) => el("option", { value }, name)),
  );

const operatorOption = ({ name, key }) => [name, key ? name : `${name}()`];

function methodsOf(operators) {
  const methods = operators.flatMap((operator) => (operator.key ? operator.methods.filter((method) => !method.is_property).map(({ name }) => name) : []));
  return [...new Set([...CREATED, ...methods])].sort();
}
