// What became of attributes: before and after beside each other, with what differs marked.

import { encode } from "./api.js";
import { el } from "./dom.js";
import { inline, parseType } from "./value.js";

const ANY = { name: "Any", parts: [] };

/** Return what shows the values of attributes: `values(entity, attribute, value)` is a node. */
export function valuesOf(plan) {
  const classes = plan.operators.filter((one) => one.key);
  const names = new Set(classes.map((one) => one.name));
  const types = new Map(
    classes.flatMap((one) =>
      one.attributes.map(({ name, type }) => [`${one.name}.${name}`, parseType(type)]),
    ),
  );
  return (entity, name, value) => inline(value, types.get(`${entity}.${name}`) ?? ANY, names);
}

/** Return a row for each attribute of an entity that was read or changed. */
export function cells({ entity, before, after }, values) {
  const names = [...new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})])];
  return names.map((name) => {
    const side = (held) => (held === null ? absent() : values(entity, name, held[name]));
    const same =
      before !== null && after !== null && encode(before[name]) === encode(after[name]);
    return { name, same, before: side(before), after: side(after) };
  });
}

/** Return a row for each attribute that a change changed. */
export const changed = (entity, { kind, attributes }, values) =>
  attributes.map(({ name, before, after }) => ({
    name,
    same: false,
    before: kind === "create" ? absent() : values(entity, name, before),
    after: kind === "delete" ? absent() : values(entity, name, after),
  }));

const absent = () => el("span", { class: "null absent", title: "not there" }, "–");
const isAbsent = (node) => node instanceof Element && node.classList.contains("absent");

/**
 * Return a table of groups `{id, heads, rows}`.
 *
 * `heads` are the cells that stand for the whole group, the first of them its name; `titles` are
 * theirs, then those of attribute, before and after.
 */
export function marked(caption, titles, groups) {
  const head = titles.map((one) => el("th", { scope: "col" }, one));
  const table = el(
    "table",
    { class: "differences" },
    el("caption", { class: "hidden" }, caption),
    el("thead", {}, el("tr", {}, head)),
    groups.map(group),
  );
  return el(
    "div",
    { class: "table-scroll", tabindex: 0, role: "region", "aria-label": caption },
    table,
  );
}

function group({ id, heads, rows }) {
  const span = Math.max(1, rows.length);
  const first = heads.map((one, index) =>
    index === 0
      ? el("th", { scope: "rowgroup", rowspan: span }, one)
      : el("td", { rowspan: span }, one),
  );
  const none = [el("td", { colspan: 3, class: "null" }, "no attributes")];
  const lines = rows.length ? rows.map(line) : [none];
  return el(
    "tbody",
    { "data-group": id },
    lines.map((one, index) =>
      el(
        "tr",
        rows.length ? { "data-attribute": rows[index].name, class: rows[index].same ? "same" : null } : {},
        index === 0 ? first : null,
        one,
      ),
    ),
  );
}

/** Return the cells of an attribute; what differs is marked by its tags, for ears too. */
function line({ name, same, before, after }) {
  return [
    el("th", { scope: "row" }, name),
    el("td", {}, same || isAbsent(before) ? before : el("del", {}, before)),
    el("td", {}, same || isAbsent(after) ? after : el("ins", {}, after)),
  ];
}
