// Tables of values: typed columns, sortable, with a cell for every shape of value.

import { el, show } from "./dom.js";
import { count } from "./format.js";
import { encode } from "./api.js";

const NUMBERS = /^(u?(tiny|small|big|huge)?int(eger)?|u?int\d+|float\d*|double|real|decimal.*)$/i;

/** Say whether a column of this type holds numbers. */
export const isNumeric = (type) => NUMBERS.test(type ?? "");

/** Return a value as the text that a cell shows. */
export function plainText(value) {
  if (value === null || value === undefined) return "null";
  if (typeof value === "string") return value;
  return typeof value === "object" ? encode(value) : String(value);
}

/** Order two values: numbers by size, all else by text, nulls last. */
export function compare(one, other) {
  if (one === null || other === null) return (one === null) - (other === null);
  const numeric = (value) => typeof value === "number" || typeof value === "bigint";
  if (numeric(one) && numeric(other)) return one < other ? -1 : Number(one > other);
  return plainText(one).localeCompare(plainText(other), "en", { numeric: true });
}

/**
 * Return a table.
 *
 * `columns`: `{name, type, numeric, cell}`, where `cell(value, row)` may return a node.
 * With `sortable`, the heads are buttons.
 */
export function dataTable({ columns, rows, caption, sortable = true, rowHead = false }) {
  const body = el("tbody");
  const heads = columns.map((column, index) => head(column, index, sortable ? sort : null));
  let order = { index: -1, falling: false };

  function sort(index) {
    order = { index, falling: order.index === index && !order.falling };
    heads.forEach((one, at) =>
      one.setAttribute(
        "aria-sort",
        at === index ? (order.falling ? "descending" : "ascending") : "none",
      ),
    );
    fill();
  }

  function fill() {
    const sorted =
      order.index < 0
        ? rows
        : [...rows].sort(
            (one, other) =>
              compare(one[order.index], other[order.index]) * (order.falling ? -1 : 1),
          );
    show(
      body,
      sorted.map((row) =>
        el(
          "tr",
          {},
          columns.map((column, index) => cell(column, row, index, rowHead)),
        ),
      ),
    );
  }

  fill();
  const table = el(
    "table",
    {},
    el("caption", { class: "hidden" }, caption),
    el("thead", {}, el("tr", {}, heads)),
    body,
  );
  return el(
    "div",
    { class: "table-scroll", tabindex: 0, role: "region", "aria-label": caption },
    table,
  );
}

function head(column, index, sort) {
  const type = column.type ? el("span", { class: "type" }, shortType(column.type)) : null;
  const properties = {
    scope: "col",
    class: (column.numeric ?? isNumeric(column.type)) ? "number" : null,
  };
  if (!sort) return el("th", properties, column.name, type);
  return el(
    "th",
    { ...properties, "aria-sort": "none" },
    el("button", { type: "button", class: "sort", onclick: () => sort(index) }, column.name, type),
  );
}

const shortType = (type) => (type.length > 28 ? `${type.slice(0, 26)}…` : type).toLowerCase();

function cell(column, row, index, rowHead) {
  const value = row[index];
  const shown = column.cell ? column.cell(value, row) : valueText(value);
  const numeric = column.numeric ?? isNumeric(column.type);
  return el(
    rowHead && index === 0 ? "th" : "td",
    { class: numeric ? "number" : null, scope: rowHead && index === 0 ? "row" : null },
    shown,
  );
}

/** Return a node for a value without a known meaning. */
export function valueText(value) {
  if (value === null || value === undefined) return el("span", { class: "null" }, "null");
  if (Number.isSafeInteger(value)) return count(value);
  const text = plainText(value);
  return text.length > 160
    ? el("span", { title: text.slice(0, 2_000) }, `${text.slice(0, 158)}…`)
    : text;
}
