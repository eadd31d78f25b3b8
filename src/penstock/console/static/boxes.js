// The boxes of the dataflow graph: entity classes, functions, streams, workflows, portals and views, in one form.

import { UNKNOWN } from "./links.js";
import { streamLink } from "./references.js";

const SHAPES = { generator: "routing", stream: "stream", workflow: "workflow", splitter: "routing", sequencer: "routing", portal: "portal" };

/**
 * Return `{id, title, about, shape, rows, href, does}` for each operator of a plan.
 *
 * `rows` are `{name, text, title}`: methods, tasks and published streams. `href` is the page of the
 * operator, and `does` the verb of a link to it; both are null without such a page. In a set of applications,
 * `about` ends with the name of the application.
 */
export function boxesOf(plan, links) {
  const named = new Set(
    links.flatMap((link) => [`${link.from}.${link.fromRow}`, `${link.to}.${link.toRow}`]),
  );
  const boxes = plan.operators.map((operator) =>
    operator.key ? entityBox(operator, named) : functionBox(operator),
  );
  boxes.push(...plan.stream_operators.map(streamBox));
  boxes.push(...plan.views.map(viewBox));
  for (const { name, operators } of plan.applications)
    for (const box of boxes) if (operators.includes(box.id)) box.about += ` · ${name}`;
  if (links.some((link) => link.to === UNKNOWN))
    boxes.push({ ...functionBox({ name: UNKNOWN }), about: "", href: null, does: null });
  return boxes;
}

function entityBox({ name, key, methods }, named) {
  const isShown = (method) => !method.name.startsWith("_") || named.has(`${name}.${method.name}`);
  return {
    id: name,
    title: name,
    about: `key ${key.name}: ${key.type}`,
    shape: "entity",
    rows: methods.filter(isShown).map(methodRow),
    href: `#/entities/${encodeURIComponent(name)}`,
    does: "Browse",
  };
}

function methodRow({ name, parameters, returns, is_property: isProperty }) {
  if (isProperty) return { name, text: name, title: `${name}: ${returns}` };
  const taken = parameters.map((parameter) => `${parameter.name}: ${parameter.type}`).join(", ");
  return { name, text: name, title: `${name}(${taken}) -> ${returns}` };
}

const functionBox = ({ name }) => ({
  id: name,
  title: name,
  about: "function",
  shape: "function",
  rows: [],
  href: `#/try?path=${encodeURIComponent(`/call/${name}`)}`,
  does: "Try",
});

function streamBox({ path, kind, name, events, members }) {
  const of = kind === "portal" ? " " : " of ";
  const isStream = kind === "stream" || kind === "sequencer";
  return {
    id: path,
    title: name,
    about: events ? `${kind}${of}${events}` : kind,
    shape: SHAPES[kind],
    rows: members.map(memberRow),
    href: isStream ? streamLink(name) : null,
    does: isStream ? "Follow" : null,
  };
}

const viewBox = ({ path, name, target, tables }) => ({
  id: path,
  title: name,
  about: `view in ${target}`,
  shape: "view",
  rows: tables.map((table) => ({ name: table.name, text: table.name, title: `table ${table.name}` })),
  href: "#/views",
  does: "See",
});

function memberRow({ name, type }) {
  const stream = name.startsWith("streams/") ? name.slice("streams/".length) : null;
  if (stream === null) return { name, text: name, title: `task ${name}` };
  return { name, text: `→ ${stream}`, title: `publishes ${stream}: ${type}` };
}
