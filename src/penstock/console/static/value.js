// Values with their Python types: references become links, nested values become lists and tables.

import { el } from "./dom.js";
import { count } from "./format.js";

/** Read a type as Python writes it: `list[tuple[Item, int]]` becomes `{name, parts}`. */
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
    return some.length === 1 ? some[0] : { name: "|", parts: some };
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

const ANY = { name: "Any", parts: [] };
const SEQUENCES = new Set(["list", "set", "frozenset"]);

/** Return the address of an entity's page. */
export const entityLink = (entity, key) =>
  `#/entities/${encodeURIComponent(entity)}/${encodeURIComponent(key)}`;

/** Return a node for a value in one line; `entities` are the names of the entity classes. */
export function inline(value, type, entities) {
  if (value === null || value === undefined) return el("span", { class: "null" }, "null");
  if (entities.has(type.name) && typeof value !== "object")
    return el("a", { href: entityLink(type.name, value), class: "reference" }, String(value));
  if (typeof value === "object") {
    const items = listOf(value, type);
    if (items)
      return el(
        "span",
        { class: "nested" },
        "[",
        separated(items.slice(0, 8), (one) => inline(one.value, one.type, entities)),
        items.length > 8 ? `, … ${items.length} in all` : "",
        "]",
      );
    const pairs = Object.entries(value);
    return el(
      "span",
      { class: "nested" },
      "{",
      separated(pairs.slice(0, 8), ([name, one]) => [
        `${name}: `,
        inline(one, type.parts[1] ?? ANY, entities),
      ]),
      pairs.length > 8 ? ", …" : "",
      "}",
    );
  }
  if (typeof value === "number" || typeof value === "bigint")
    return Number.isSafeInteger(value) ? count(value) : String(value);
  const text = String(value);
  return text.length > 120
    ? el("span", { title: text.slice(0, 2_000) }, `${text.slice(0, 118)}…`)
    : text;
}

/** Return a node for a value on a page of its own: every element on its line. */
export function block(value, type, entities, depth = 0) {
  if (value === null || typeof value !== "object" || depth > 6)
    return inline(value, type, entities);
  const items = listOf(value, type);
  if (items?.length === 0 || Object.keys(value).length === 0)
    return el("span", { class: "null" }, "empty");
  if (items && type.name === "tuple") return inline(value, type, entities);
  if (items)
    return el(
      "ol",
      { class: "items" },
      items.map((one) => el("li", {}, block(one.value, one.type, entities, depth + 1))),
    );
  return el(
    "dl",
    { class: "fields" },
    Object.entries(value).map(([name, one]) => [
      el(
        "dt",
        {},
        type.name === "dict" && entities.has(type.parts[0]?.name)
          ? inline(name, type.parts[0], entities)
          : name,
      ),
      el("dd", {}, block(one, type.parts[1] ?? ANY, entities, depth + 1)),
    ]),
  );
}

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
  if (!Array.isArray(value)) return null;
  const inner = SEQUENCES.has(type.name) ? (type.parts[0] ?? ANY) : ANY;
  return value.map((one) => ({ value: one, type: inner }));
}

const separated = (items, nodeOf) =>
  items.flatMap((one, index) => (index ? [", ", nodeOf(one)] : [nodeOf(one)])).flat();
