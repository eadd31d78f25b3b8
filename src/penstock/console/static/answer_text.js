// The rows of an answer as text: CSV and JSON for other programs, and cells for people.

import { momentText } from "./format.js";
import { encode, isNested, isNumber } from "./json.js";

const DECIMAL = /^-?\d+(\.\d+)?$/;

/** Return whether a column holds decimals or whole numbers that JSON has as text. */
const isExact = (type) => /^(decimal|u?bigint|u?hugeint)/i.test(type ?? "");

/** Return a value as a person writes it: `1,234.50`, `2026-01-31 12:00:00 UTC`; else the value. */
export function personal(value, type) {
  if (typeof value !== "string") return value;
  if (isExact(type) && DECIMAL.test(value)) return grouped(value);
  if (/^timestamp/i.test(type ?? "")) return momentText(value);
  return value;
}

function grouped(text) {
  const [whole, fraction] = text.split(".");
  const shown = whole.replaceAll(/\B(?=(\d{3})+$)/g, ",");
  return fraction === undefined ? shown : `${shown}.${fraction}`;
}

/** Order two values of a column: numbers by size, exactly; nulls last. */
export function ordered(one, other, type) {
  if (one === null || other === null) return (one === null) - (other === null);
  if (typeof one === "string" && typeof other === "string" && isExact(type))
    return exactly(one, other);
  if (isNumber(one) && isNumber(other)) return one < other ? -1 : Number(one > other);
  if (isExact(type) && DECIMAL.test(one) && DECIMAL.test(other))
    return exactly(String(one), String(other));
  const text = (value) => (typeof value === "string" ? value : encode(value));
  return text(one).localeCompare(text(other), "en", { numeric: true });
}

function exactly(one, other) {
  const places = Math.max(...[one, other].map((text) => (text.split(".")[1] ?? "").length));
  const scaled = (text) => {
    const [whole, fraction = ""] = text.split(".");
    return BigInt(whole + fraction.padEnd(places, "0"));
  };
  const [first, second] = [scaled(one), scaled(other)];
  return first < second ? -1 : Number(first > second);
}

/** Return rows as CSV, as the gateway writes it: null is empty, empty text is `""`. */
export function csvOf(columns, rows) {
  const cell = (value) => {
    if (value === null) return "";
    const text = isNested(value) ? encode(value) : String(value);
    return text === "" || /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const lines = [columns.map((column) => cell(column.name)), ...rows.map((row) => row.map(cell))];
  return `${lines.map((line) => line.join(",")).join("\n")}\n`;
}

/** Return rows as JSON: a list of objects. */
export function jsonOf(columns, rows) {
  const object = (row) => Object.fromEntries(columns.map(({ name }, at) => [name, row[at]]));
  return encode(rows.map(object), 2);
}
