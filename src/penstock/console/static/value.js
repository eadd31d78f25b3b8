// Values with their Python types: references become links, nested values become lists and tables.

import { el } from "./dom.js";
import { count, momentText, plural } from "./format.js";
import { encode, isNested, isNumber } from "./json.js";
import { dataTable } from "./table.js";
import { elementNode, lineNode, textNode, wholeNode } from "./text.js";

/** Read a type as Python writes it: `list[tuple[Item, int]]` becomes `{name, parts}`; a type with None is optional. */
export function parseType(text) {
  const words = text.match(/[A-Za-z_][\w.]*|\.\.\.|[[\],|]/g) ?? [];
  let at = 0;
  const union = () => {
    const parts = [single()];
    while (words[at] === "|") {
      at += 1;
      parts.push(single());
    }
    const some = parts.filter((part) => part.name !== "None");
    const isOptional = some.length < parts.length;
    return some.length === 1 ? { ...some[0], isOptional } : { name: "|", parts: some, isOptional };
  };
  const single = () => {
    const name = words[at] ?? "Any";
    at += 1;
    const parts = [];
    if (words[at] === "[") {
      do {
        at += 1;
        parts.push(union());
      } while (words[at] === ",");
      at += 1;
    }
    return { name, parts };
  };
  return union();
}

/** The types of the fields of records, by the names of the records and of the fields. */
const records = new Map();

/** Learn the records of a plan, so that references inside of them become links. */
export function learnRecords(known) {
  records.clear();
  for (const { name, fields } of known)
    records.set(typeText(parseType(name)), new Map(fields.map((field) => [field.name, parseType(field.type)])));
}

const typeText = ({ name, parts }) => (parts.length ? `${name}[${parts.map(typeText).join()}]` : name);

/** Return the fields of a record with their types: of the only record in a union, too. */
function fieldsOf(type) {
  if (type.name !== "|") return records.get(typeText(type)) ?? new Map();
  const some = type.parts.map(fieldsOf).filter((fields) => fields.size);
  return some.length === 1 ? some[0] : new Map();
}

const ANY = { name: "Any", parts: [] };
const SEQUENCES = new Set(["list", "set", "frozenset", "deque"]);
const KEY_UNBROKEN = 40;
const SHORT_MAX = 12;
const PARTS_INLINE = 4;
const LINE_MAX = 8;
const DEPTH_MAX = 6;
const COLUMNS_MAX = 12;
const ROWS_MAX = 200;

/** Return the text of a key; SQL has a key that is a tuple as a struct of its parts. */
export const keyText = (key) =>
  isNested(key) ? encode(Object.values(key)) : String(key);

/** Return the address of an entity's page. */
export const entityLink = (entity, key) =>
  `#/entities/${encodeURIComponent(entity)}/${encodeURIComponent(key)}`;

/** Return a link to the page of an entity. */
export const keyLink = (entity, key) =>
  el("a", { href: entityLink(entity, key), class: key.length > KEY_UNBROKEN ? "reference long" : "reference" }, lineNode(key));

/** Return a node for a value in one line; `entities` are the names of the entity classes. */
export function inline(value, type, entities) {
  return lineOf(value, type, entities, lineNode);
}

/** Return a node for a value that has a place of its own, with the whole of a text. */
export function whole(value, type, entities) {
  return lineOf(value, type, entities, wholeNode);
}

function lineOf(value, type, entities, textOf) {
  if (value === null || value === undefined) return el("span", { class: "null" }, "null");
  if (entities.has(type.name)) return keyLink(type.name, keyText(value));
  if (isNested(value)) return nestedLine(value, type, entities);
  if (isNumber(value)) return numberText(value);
  const text = String(value);
  if (type.name === "float") return el("span", {}, text); // NaN or an infinity
  return textOf(type.name === "datetime" ? momentText(text) : text);
}

function nestedLine(value, type, entities) {
  const inner = (one, of) => lineOf(one, of ?? ANY, entities, elementNode);
  const items = listOf(value, type);
  const fields = fieldsOf(type);
  const shown = items
    ? items.slice(0, LINE_MAX).map((each) => inner(each.value, each.type))
    : entriesOf(value)
        .slice(0, LINE_MAX)
        .map(([name, one]) => [inner(name, type.parts[0]), ": ", inner(one, fields.get(name) ?? type.parts[1])]);
  const size = items?.length ?? entriesOf(value).length;
  return el(
    "span",
    { class: "nested" },
    items ? "[" : "{",
    separated(shown),
    size > LINE_MAX ? `, … ${count(size)} in all` : "",
    items ? "]" : "}",
  );
}

/** Return a number as people read it; a float keeps its form, so that 1.0 is not 1. */
const numberText = (value) =>
  typeof value === "bigint" || Number.isSafeInteger(value) ? count(value) : String(value);

/** Return a node for a value in a cell of a table: what has many parts opens as a table. */
export function brief(value, type = ANY, entities) {
  const items = isNested(value) ? listOf(value, type) : null;
  const parts = items ?? (isNested(value) ? Object.keys(value) : []);
  const isDeep = items?.some(({ value: one }) => isNested(one));
  if (parts.length <= (isDeep ? 1 : PARTS_INLINE)) return inline(value, type, entities);
  const said = items ? plural(parts.length, "element") : plural(parts.length, "entry", "entries");
  const details = el("details", {}, el("summary", {}, said));
  details.addEventListener("toggle", () => details.append(block(value, type, entities)), {
    once: true, // a table is built only when it is wanted
  });
  return details;
}

/** Return a node for a value on a page of its own: what has parts is a table or a list. */
export function block(value, type, entities, depth = 0) {
  if (!isNested(value) || depth > DEPTH_MAX) return whole(value, type, entities);
  const items = listOf(value, type);
  if (items?.length === 0 || Object.keys(value).length === 0)
    return el("span", { class: "null" }, "empty");
  const inner = (one, of) => block(one, of ?? ANY, entities, depth + 1);
  if (items && type.name === "tuple" && type.parts[1]?.name !== "...")
    return inline(value, type, entities);
  const named = namedParts(value, type);
  if (named) return fieldList(named, inner);
  const columns = items ? columnsOf(items) : null;
  if (columns) return listTable(items, columns, inner);
  if (items) return numbered(items, inner);
  if (type.name === "dict") return dictTable(value, type, entities, inner);
  return fieldList(partsOf(value, type), inner);
}

const fieldList = (parts, inner) =>
  el(
    "dl",
    { class: "fields" },
    parts.map(({ name, value, type }) => [el("dt", {}, textNode(name)), el("dd", {}, inner(value, type))]),
  );

/** Return the parts of a NamedTuple, which is an array; null for other values. */
function namedParts(value, type) {
  const fields = Array.isArray(value) ? [...fieldsOf(type)] : [];
  if (!fields.length || fields.length < value.length) return null;
  return value.map((one, at) => ({ name: fields[at][0], value: one, type: fields[at][1] }));
}

/** Return the columns of a list whose elements all have the same parts: `{name, type}`; or null. */
function columnsOf(items) {
  const rows = items.map(({ value, type }) => partsOf(value, type));
  const first = rows[0];
  if (!first?.length || first.length > COLUMNS_MAX) return null;
  const names = first.map((each) => each.name).join();
  return rows.every((row) => row?.map((each) => each.name).join() === names) ? first : null;
}

/** Return the named parts of a record, or the numbered ones of a tuple; null for other values. */
function partsOf(value, type) {
  if (!isNested(value) || type.name === "dict") return null;
  if (type.name === "tuple")
    return type.parts[1]?.name === "..."
      ? null
      : listOf(value, type).map((one, at) => ({ ...one, name: String(at) }));
  if (Array.isArray(value)) return namedParts(value, type);
  const fields = fieldsOf(type);
  return Object.entries(value).map(([name, one]) => ({ name, value: one, type: fields.get(name) ?? ANY }));
}

function listTable(items, columns, inner) {
  const rows = items.map(({ value, type }) => partsOf(value, type).map((each) => each.value));
  return grid(
    columns.map(({ name, type }) => ({ name, cell: (one) => inner(one, type) })),
    rows,
  );
}

function dictTable(value, type, entities, inner) {
  const [ofKey = ANY, ofValue = ANY] = type.parts;
  const columns = [
    { name: "Key", cell: (name) => inline(name, ofKey, entities) },
    { name: "Value", cell: (one) => inner(one, ofValue) },
  ];
  return grid(columns, entriesOf(value));
}

/** Return the table of nested values; of very many, the first. */
function grid(columns, rows) {
  const table = dataTable({
    caption: `Nested values: ${columns.map((column) => column.name).join(", ")}`,
    columns,
    rows: rows.slice(0, ROWS_MAX),
    sortable: rows.length > 1,
    nested: true,
  });
  return rows.length > ROWS_MAX ? el("div", {}, table, rest(rows.length)) : table;
}

function numbered(items, inner) {
  const isShort = items.every(({ value }) => !isNested(value) && String(value).length <= SHORT_MAX);
  const list = el(
    "ol",
    { class: isShort ? "items short" : "items" },
    items.slice(0, ROWS_MAX).map((each) => el("li", {}, inner(each.value, each.type))),
  );
  return items.length > ROWS_MAX ? el("div", {}, list, rest(items.length)) : list;
}

const rest = (all) =>
  el("p", { class: "hint" }, `the first ${count(ROWS_MAX)} of ${count(all)} are shown`);

/** Return the entries of a dictionary; SQL has one whose keys are no texts as a list of pairs. */
const entriesOf = (value) => (Array.isArray(value) ? value : Object.entries(value));

/** Return elements with their types, or null for what is no sequence. A SQL struct may be a tuple. */
function listOf(value, type) {
  if (type.name === "tuple") {
    const values = Array.isArray(value) ? value : Object.values(value);
    const same = type.parts[1]?.name === "...";
    return values.map((one, index) => ({
      value: one,
      type: (same ? type.parts[0] : type.parts[index]) ?? ANY,
    }));
  }
  if (!Array.isArray(value) || type.name === "dict") return null;
  const inner = SEQUENCES.has(type.name) ? (type.parts[0] ?? ANY) : ANY;
  const fields = [...fieldsOf(type).values()]; // of a NamedTuple, which is an array
  return value.map((one, index) => ({ value: one, type: fields[index] ?? inner }));
}

const separated = (nodes) => nodes.flatMap((one, index) => (index ? [", ", one] : [one]));
