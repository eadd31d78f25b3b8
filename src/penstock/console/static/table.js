// Tables of values: typed columns, sortable, with a cell for every shape of value.

import { el, show } from "./dom.js";
import { count } from "./format.js";
import { encode, isNested, isNumber } from "./json.js";
import { lineNode } from "./text.js";

const NUMBERS = /^(u?(tiny|small|big|huge)?int(eger)?|u?int\d+|float\d*|double|real|decimal.*)$/i;

/** Say whether a column of this type holds numbers. */
export const isNumeric = (type) => NUMBERS.test(type ?? "");

/** Return a value as the text that a cell shows. */
export function plainText(value) {
  if (value === null || value === undefined) return "null";
  if (typeof value === "string") return value;
  return isNested(value) ? encode(value) : String(value);
}

/** Order two values: numbers by size, all else by text, nulls last. */
export function compare(one, other) {
  if (one === null || other === null) return (one === null) - (other === null);
  if (isNumber(one) && isNumber(other)) return one < other ? -1 : Number(one > other);
  return plainText(one).localeCompare(plainText(other), "en", { numeric: true });
}

/**
 * Return a table.
 *
 * `columns`: `{name, type, numeric, cell}`, where `cell(value, row)` may return a node.
 * With `sortable`, the heads are buttons that sort the rows here; with `order`, which is
 * `{index, falling, choose}`, they call `choose(index)`, and the rows are shown as they come.
 * A narrow window shows each row as a block, every value behind the name of its column; the roles keep
 * it a table for assistive technology. A `nested` table is inside of another one or of an
 * attribute; it is no landmark, because its name is not the only one of the page. In a `lined` table each row is one
 * line: what does not fit is cut at its end, and `column.part` names the class of a column's cells.
 */
export function dataTable({
  columns,
  rows,
  caption,
  sortable = false,
  order = null,
  rowHead = false,
  nested = false,
  lined = false,
}) {
  const body = el("tbody", { role: "rowgroup" });
  const choose = order ? order.choose : sortable ? sort : null;
  const heads = columns.map((column, index) => head(column, index, choose));
  let chosen = order ?? { index: -1, falling: false };

  function sort(index) {
    chosen = { index, falling: chosen.index === index && !chosen.falling };
    fill();
  }

  function fill() {
    if (choose) heads.forEach((one, at) => one.setAttribute("aria-sort", direction(chosen, at)));
    const { index, falling } = chosen;
    const sorted =
      order || index < 0
        ? rows
        : [...rows].sort((one, other) => compare(one[index], other[index]) * (falling ? -1 : 1));
    const tr = (row) =>
      el(
        "tr",
        { role: "row" },
        columns.map((column, at) => cell(column, row, at, rowHead)),
      );
    show(body, sorted.map(tr));
  }

  fill();
  const table = el(
    "table",
    { role: "table", class: lined ? "stacked lined" : "stacked" },
    el("caption", { class: "hidden" }, caption),
    el("thead", {}, el("tr", {}, heads)),
    body,
  );
  return el(
    "div",
    { class: "table-scroll", tabindex: 0, role: nested ? "group" : "region", "aria-label": caption },
    table,
  );
}

const direction = ({ index, falling }, at) =>
  at === index ? (falling ? "descending" : "ascending") : "none";

function head(column, index, choose) {
  const type = column.type ? el("span", { class: "type" }, shortType(column.type)) : null;
  const properties = {
    scope: "col",
    class: classOf(column),
  };
  if (!choose) return el("th", properties, column.name, type);
  const name = [el("span", { class: "sort-name" }, column.name), type];
  return el(
    "th",
    properties,
    el("button", { type: "button", class: "sort", onclick: () => choose(index) }, name),
  );
}

const classOf = ({ numeric, type, part }) =>
  [(numeric ?? isNumeric(type)) && "number", part && `part-${part}`].filter(Boolean).join(" ") || null;

const shortType = (type) => (type.length > 28 ? `${type.slice(0, 26)}…` : type).toLowerCase();

function cell(column, row, index, rowHead) {
  const value = row[index];
  const shown = column.cell ? column.cell(value, row) : valueText(value);
  const isHead = rowHead && index === 0;
  const properties = {
    class: classOf(column),
    scope: isHead ? "row" : null,
    role: isHead ? "rowheader" : "cell",
    "data-label": column.name,
  };
  return el(isHead ? "th" : "td", properties, el("div", {}, shown));
}

/** Return a node for a value without a known meaning. */
export function valueText(value) {
  if (value === null || value === undefined) return el("span", { class: "null" }, "null");
  return Number.isSafeInteger(value) ? count(value) : lineNode(plainText(value));
}
