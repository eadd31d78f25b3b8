// Entities: a table for each class, searched by key.

import { quoted, sql } from "./api.js";
import { el, empty, field, problem, show } from "./dom.js";
import { showEntity } from "./entity.js";
import { count, plural } from "./format.js";
import { live } from "./live.js";
import { dataTable } from "./table.js";
import { entityLink, inline, parseType } from "./value.js";
import { between, button } from "./widgets.js";

const PAGE = 25;
const PAUSE_MS = 250;
const WAYS = [
  ["contains", "contains"],
  ["starts_with", "starts with"],
];

/** Show a class's entities, or one of them. */
export async function open(body, { rest, search }, heading) {
  show(body, el("p", { class: "waiting" }, "Asking the gateway …"));
  const plan = await live.ready();
  const classes = plan.operators.filter((one) => one.key);
  const [name = classes[0]?.name, key, view] = rest;
  const operator = classes.find((one) => one.name === name);
  const link = (one) =>
    el(
      "a",
      {
        href: `#/entities/${encodeURIComponent(one.name)}`,
        "aria-current": one === operator ? "page" : null,
      },
      one.name,
    );
  if (!operator) {
    show(
      body,
      empty(
        `There is no entity class ${name ?? ""}.`,
        "The classes are: ",
        classes.map((one) => [link(one), " "]),
      ),
    );
    return null;
  }
  const names = new Set(classes.map((one) => one.name));
  if (key !== undefined) return showEntity(body, heading, { operator, key, view, names });
  const list = new List(operator, names, search);
  show(
    body,
    el(
      "nav",
      { class: "tabs", "aria-label": "Entity classes" },
      el(
        "ul",
        {},
        classes.map((one) => el("li", {}, link(one))),
      ),
    ),
    list.form,
    list.result,
  );
  list.load();
  return null;
}

/** The entities of one class, a page at a time. */
class List {
  #operator;
  #cells;
  #find;
  #how;
  #offset;
  #timer = 0;
  #asked = 0;

  constructor(operator, names, search) {
    this.#operator = operator;
    const types = new Map(operator.attributes.map((one) => [one.name, parseType(one.type)]));
    this.#cells = (column) => (value) => this.#cell(column, value, types.get(column), names);
    this.#offset = Number(search.get("from")) || 0;
    this.#find = el("input", {
      type: "search",
      value: search.get("find") ?? "",
      autocomplete: "off",
      spellcheck: "false",
      oninput: () => this.#again(),
    });
    this.#how = el(
      "select",
      { onchange: () => this.#again() },
      WAYS.map(([value, name]) => el("option", { value }, name)),
    );
    if (search.has("how")) this.#how.value = search.get("how");
    const how = field("Key", this.#how);
    how.classList.add("narrow");
    this.form = el(
      "form",
      { class: "row filters", role: "search", onsubmit: (event) => event.preventDefault() },
      how,
      field(`Find by ${operator.key.name}`, this.#find),
    );
    this.result = el(
      "div",
      { id: "entities", "aria-live": "polite" },
      el("p", { class: "waiting" }, "Asking the SQL view …"),
    );
  }

  /** Ask for the page that is wanted now; an answer that comes too late is not shown. */
  async load() {
    this.#asked += 1;
    const mine = this.#asked;
    this.#remember();
    this.result.setAttribute("aria-busy", "true");
    let shown;
    try {
      shown = this.#shown(await this.#rows());
    } catch (failure) {
      shown = problem(failure);
    }
    if (mine !== this.#asked) return;
    show(this.result, shown);
    this.result.removeAttribute("aria-busy");
  }

  #again() {
    clearTimeout(this.#timer);
    this.#offset = 0;
    this.#timer = setTimeout(() => this.load(), PAUSE_MS);
  }

  #turn(by) {
    this.#offset = Math.max(0, this.#offset + by);
    this.load();
  }

  #remember() {
    const fields = new URLSearchParams();
    if (this.#find.value) fields.set("find", this.#find.value);
    if (this.#find.value) fields.set("how", this.#how.value);
    if (this.#offset) fields.set("from", this.#offset);
    const place = `#/entities/${encodeURIComponent(this.#operator.name)}`;
    history.replaceState(null, "", fields.size ? `${place}?${fields}` : place);
  }

  async #rows() {
    const table = quoted(this.#operator.name);
    const key = quoted(this.#operator.key.name);
    const wanted = this.#find.value;
    const where = wanted ? `WHERE ${this.#how.value}(CAST(${key} AS VARCHAR), ?)` : "";
    const parameters = wanted ? [wanted] : [];
    const [found, total] = await Promise.all([
      sql(
        `SELECT * FROM ${table} ${where} ORDER BY ${key} LIMIT ${PAGE} OFFSET ${this.#offset}`,
        parameters,
      ),
      sql(`SELECT count(*) FROM ${table} ${where}`, parameters),
    ]);
    return { ...found, total: Number(total.rows[0][0]) };
  }

  #cell(column, value, type, names) {
    const { name, key } = this.#operator;
    if (column !== key.name) return inline(value, type ?? { name: "Any", parts: [] }, names);
    return el("a", { href: entityLink(name, value), class: "reference" }, String(value));
  }

  #shown({ columns, rows, epoch, total }) {
    if (!rows.length) return this.#nothing();
    const first = this.#offset + 1;
    const last = this.#offset + rows.length;
    const told = `${count(first)} to ${count(last)} of ${plural(total, "entity", "entities")}`;
    const table = dataTable({
      caption: `Entities of class ${this.#operator.name}`,
      rowHead: true,
      columns: columns.map((column) => ({ ...column, cell: this.#cells(column.name) })),
      rows,
    });
    const turns = [
      button("Previous", () => this.#turn(-PAGE), { disabled: first === 1 }),
      button("Next", () => this.#turn(PAGE), { disabled: last >= total }),
    ];
    return [
      between(el("p", {}, told), el("p", { class: "hint" }, `at epoch ${count(epoch)}`)),
      table,
      total > PAGE ? el("div", { class: "row" }, turns) : null,
    ];
  }

  #nothing() {
    const { name } = this.#operator;
    if (this.#find.value || this.#offset)
      return empty(
        "No entity has such a key.",
        "Try less of it, or contains instead of starts with. Capitals count.",
      );
    const href = `#/try?path=${encodeURIComponent(`/call/${name}/{key}/create`)}`;
    return empty(
      `There is no ${name} yet.`,
      "Create the first one: ",
      el("a", { href }, `try ${name}.create`),
      ".",
    );
  }
}
