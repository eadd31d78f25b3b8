// Entities: a table for each class, filtered and sorted.

import { quoted, sql } from "./api.js";
import { el, empty, problem, show } from "./dom.js";
import { showEntity } from "./entity.js";
import { EntityFilter } from "./entity_filter.js";
import { exportButtons } from "./exports.js";
import { count, plural } from "./format.js";
import { live } from "./live.js";
import { dataTable } from "./table.js";
import { brief, keyLink, keyText, parseType } from "./value.js";
import { between, button } from "./widgets.js";

const PAGE = 25;

/** Show a class's entities, or one of them. */
export async function open(body, { rest, search }, heading) {
  show(body, el("p", { class: "waiting" }, "Asking the gateway …"));
  const plan = await live.ready();
  const classes = plan.operators.filter((operator) => operator.key);
  const [name = classes[0]?.name, key, view] = rest;
  const operator = classes.find((each) => each.name === name);
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
        classes.map((each) => [link(each), " "]),
      ),
    );
    return null;
  }
  const names = new Set(classes.map((each) => each.name));
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
        classes.map((each) => el("li", {}, link(each))),
      ),
    ),
    list.form,
    list.result,
    exportButtons(operator.name),
  );
  list.load();
  return { close: () => list.close() };
}

/** The entities of one class, a page at a time. */
class List {
  #operator;
  #types;
  #names;
  #filter;
  #offset;
  #asked = 0;

  constructor(operator, names, search) {
    this.#operator = operator;
    this.#types = new Map(operator.attributes.map((attribute) => [attribute.name, parseType(attribute.type)]));
    this.#names = names;
    this.#offset = Math.min(Number(search.get("from")) || 0, Number.MAX_SAFE_INTEGER);
    this.#filter = new EntityFilter(operator, search, () => this.#turnTo(0));
    this.form = this.#filter.element;
    this.result = el(
      "div",
      { id: "entities", class: "stack" },
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
    const sorted = this.result.contains(document.activeElement)
      ? document.activeElement.closest("th")?.cellIndex
      : undefined;
    show(this.result, shown);
    if (sorted !== undefined) this.result.querySelectorAll("thead button")[sorted]?.focus();
    this.result.removeAttribute("aria-busy");
  }

  /** End what goes on, because the page is left. */
  close() {
    this.#asked += 1;
    this.#filter.close();
  }

  #turnTo(offset) {
    this.#offset = Math.max(0, offset);
    this.load();
  }

  #remember() {
    const { fields } = this.#filter;
    if (this.#offset) fields.set("from", this.#offset);
    const place = `#/entities/${encodeURIComponent(this.#operator.name)}`;
    history.replaceState(null, "", `${fields}` ? `${place}?${fields}` : place);
  }

  /** Read a page: first its keys alone, so that a page far behind costs no more than its keys. */
  async #rows() {
    const table = quoted(this.#operator.name);
    const key = quoted(this.#operator.key.name);
    const { conditions, order } = this.#filter;
    const where = conditions.length ? `WHERE ${conditions.join(" AND ")}` : "";
    const by = `${quoted(order.name)} ${order.falling ? "DESC" : "ASC"} NULLS LAST, ${key}`;
    const page = `SELECT ${key} FROM ${table} ${where} ORDER BY ${by} LIMIT ${PAGE} OFFSET ${this.#offset}`;
    const [found, total] = await Promise.all([
      sql(`SELECT * FROM ${table} WHERE ${key} IN (${page}) ORDER BY ${by}`),
      sql(`SELECT count(*) FROM ${table} ${where}`),
    ]);
    return { ...found, total: Number(total.rows[0][0]) };
  }

  #cell(column, value) {
    const { name, key } = this.#operator;
    if (column !== key.name) return brief(value, this.#types.get(column), this.#names);
    return keyLink(name, keyText(value));
  }

  #shown({ columns, rows, epoch, total }) {
    if (!rows.length) return this.#nothing();
    const first = this.#offset + 1;
    const last = this.#offset + rows.length;
    const told = `${count(first)} to ${count(last)} of ${plural(total, "entity", "entities")}`;
    const { name, falling } = this.#filter.order;
    const table = dataTable({
      caption: `Entities of class ${this.#operator.name}`,
      rowHead: true,
      columns: columns.map((column) => ({ ...column, cell: (value) => this.#cell(column.name, value) })),
      rows,
      order: {
        index: columns.findIndex((column) => column.name === name),
        falling,
        choose: (index) => this.#filter.sortBy(columns[index].name),
      },
    });
    const turns = [
      button("Previous", () => this.#turnTo(this.#offset - PAGE), { disabled: first === 1 }),
      button("Next", () => this.#turnTo(this.#offset + PAGE), { disabled: last >= total }),
    ];
    return [
      between(
        el("p", { role: "status" }, told),
        el("p", { class: "hint" }, `at epoch ${count(epoch)}`),
      ),
      table,
      total > PAGE ? el("div", { class: "row" }, turns) : null,
    ];
  }

  #nothing() {
    const { name } = this.#operator;
    if (this.#filter.conditions.length || this.#offset)
      return empty("No entity fits.", "Remove a filter, or search less of the key. Capitals count.");
    const href = `#/try?path=${encodeURIComponent(`/call/${name}/{key}/create`)}`;
    return empty(
      `There is no ${name} yet.`,
      "Create the first one: ",
      el("a", { href }, `try ${name}.create`),
      ".",
    );
  }
}
