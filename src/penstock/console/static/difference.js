// Changes of entities, element by element: `items[2].quantity` before and after.

import { el } from "./dom.js";
import { plural } from "./format.js";
import { encode } from "./json.js";
import { parseType, whole } from "./value.js";

const ANY = { name: "Any", parts: [] };
const STEPS = /^[^.[]+|\.[^.[]+|\[(?:"(?:[^"\\]|\\.)*"|[^\]]*)\]/g;

/** Return a function `values(entity, path, value)`, which returns the node of a value. */
export function valuesOf(plan) {
  const classes = plan.operators.filter((operator) => operator.key);
  const names = new Set(classes.map((each) => each.name));
  const types = new Map(
    classes.flatMap((each) =>
      each.attributes.map(({ name, type }) => [`${each.name}.${name}`, parseType(type)]),
    ),
  );
  return (entity, path, value) => {
    const [name, ...steps] = path.match(STEPS) ?? [path];
    return whole(value, steps.reduce(inside, types.get(`${entity}.${name}`) ?? ANY), names);
  };
}

/** Return the type of an element of a list, set, tuple or dictionary; a step is `[2]` or `.name`. */
function inside({ name, parts }, step) {
  if (name === "dict") return parts[1] ?? ANY;
  if (name === "|") return ANY;
  const each = name !== "tuple" || parts[1]?.name === "...";
  return parts[each ? 0 : Number(step.slice(1, -1))] ?? ANY;
}

/** Return a row for each attribute of an entity that was read, and for each element that differs. */
export function cells(entity, values) {
  const { entity: cls, before, after } = entity;
  const same = Object.keys(before && after ? after : {}).filter(
    (name) => encode(before[name]) === encode(after[name]),
  );
  const shown = (name) => values(cls, name, after[name]);
  return [
    ...changed(cls, entity, values),
    ...same.map((name) => ({ name, same: true, before: shown(name), after: shown(name) })),
  ];
}

/** Return a row for each element that a change changed, and a row that counts further ones. */
export function changed(entity, { differences, differences_left_out: more }, values) {
  const side = (held, there, path) => {
    if (!there) return absent();
    return held === undefined ? "too large to be shown here" : values(entity, path, held);
  };
  const rows = differences.map(({ path, kind, before, after }) => ({
    name: path,
    same: false,
    before: side(before, kind !== "added", path),
    after: side(after, kind !== "removed", path),
  }));
  if (more) rows.push({ name: plural(more, "further difference"), same: true, before: "", after: "" });
  return rows;
}

/** Say which elements come out otherwise when the requests run again; the stored values are shown. */
export function deviating(entity, { deviations }, values) {
  if (!deviations?.length) return null;
  const given = deviations.map(({ path, before, after }) => [
    el("code", {}, path),
    " is ",
    before === undefined ? absent() : values(entity, path, before),
    " and becomes ",
    after === undefined ? absent() : values(entity, path, after),
  ]);
  const lines = given.map((each) => el("p", { class: "hint" }, each));
  return el("div", { class: "deviating" }, el("p", {}, "Running it again does not give the stored state:"), lines);
}

const absent = () => el("span", { class: "null absent", title: "not there" }, "–");
const isAbsent = (node) => node instanceof Element && node.classList.contains("absent");

/**
 * Return a table of groups `{id, heads, rows}`.
 *
 * `heads` are the cells that stand for the whole group, the first of them its name; `titles` are
 * theirs, then those of attribute, before and after.
 */
export function marked(caption, titles, groups) {
  const head = titles.map((title) => el("th", { scope: "col" }, title));
  const table = el(
    "table",
    { class: "differences stacked", role: "table" },
    el("caption", { class: "hidden" }, caption),
    el("thead", {}, el("tr", {}, head)),
    groups.map((each) => group(each, titles)),
  );
  return el(
    "div",
    { class: "table-scroll", tabindex: 0, role: "region", "aria-label": caption },
    table,
  );
}

function group({ id, heads, rows }, titles) {
  const rowspan = Math.max(1, rows.length);
  const first = heads.map((one, index) =>
    cell(titles[index], { rowspan, scope: index === 0 ? "rowgroup" : null }, one),
  );
  const none = [cell("", { colspan: 3, class: "null" }, "no attributes")];
  const lines = rows.length ? rows.map((row) => line(row, titles.slice(-3))) : [none];
  const properties = (row) =>
    row ? { "data-attribute": row.name, class: row.same ? "same" : null } : {};
  return el(
    "tbody",
    { "data-group": id, role: "rowgroup" },
    lines.map((one, index) =>
      el("tr", { role: "row", ...properties(rows[index]) }, index === 0 ? first : null, one),
    ),
  );
}

/** Return a cell, or the head of a row or of a group; a narrow window shows its title before it. */
function cell(title, properties, content) {
  const isHead = Boolean(properties.scope);
  const all = { ...properties, role: isHead ? "rowheader" : "cell", "data-label": title };
  return el(isHead ? "th" : "td", all, el("div", {}, content));
}

/** Return the cells of an attribute; what differs is marked by its tags, for ears too. */
function line({ name, same, before, after }, [ofName, ofBefore, ofAfter]) {
  return [
    cell(ofName, { scope: "row" }, name),
    cell(ofBefore, {}, same || isAbsent(before) ? before : el("del", {}, before)),
    cell(ofAfter, {}, same || isAbsent(after) ? after : el("ins", {}, after)),
  ];
}
