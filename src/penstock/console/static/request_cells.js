// The parts of a request that lists and pages show: its call, its arguments, its outcome.

import { named } from "./api.js";
import { copied } from "./clipboard.js";
import { el, svg } from "./dom.js";
import { decodeExactly } from "./json.js";
import { streamOf } from "./references.js";
import { lineNode } from "./text.js";
import { entityLink, inline, parseType } from "./value.js";

const ANY = { name: "Any", parts: [] };
const PERSONAL = "<personal>";
const ID_SHOWN = 12;
const SAID_MS = 1_500;

/** Return a call, with a link to its entity; a narrow column breaks it before the method. */
export function callOf({ entity, key, method }, operator) {
  if (!method) return el("span", { class: "null" }, "no call: the request could not be read");
  if (!entity && key !== null) return el("code", {}, "streams/", streamOf(key), `.${method}`); // an append
  if (!entity) return el("code", {}, method);
  if (key === null) return el("code", {}, `${entity}.${method}`);
  const text = lineNode(key);
  const link = operator ? el("a", { href: entityLink(entity, key) }, text) : text;
  return el("code", {}, `${entity}(`, link, ")", el("wbr"), `.${method}`);
}

/** Return a link to a request, by the beginning of a long id, with a button that copies the whole id. */
export function idOf(id) {
  const isCut = id.length > ID_SHOWN + 2;
  const link = el(
    "a",
    { href: `#/requests/${encodeURIComponent(named(id))}`, class: "reference", title: id, "aria-label": isCut ? id : null },
    isCut ? `${id.slice(0, ID_SHOWN)}…` : id,
  );
  return el("span", { class: "request-id" }, link, copyButton(id));
}

function copyButton(id) {
  const tell = (text) => {
    button.dataset.said = text;
    setTimeout(() => delete button.dataset.said, SAID_MS);
  };
  const icon = svg(
    "svg",
    { viewBox: "0 0 16 16", width: 14, height: 14, "aria-hidden": "true" },
    svg("path", { d: "M5.5 5.5 V2.5 H13.5 V10.5 H10.5 M2.5 5.5 H10.5 V13.5 H2.5 Z" }),
  );
  const copy = async () => tell((await copied(id)) ? "Copied" : "No copy");
  const button = el("button", { type: "button", class: "copy", "aria-label": `Copy ${id}`, onclick: copy }, icon);
  return button;
}

/**
 * Return arguments with the names of their parameters.
 *
 * `held` is their JSON text, of which `cut` says that its end is missing; `operator` is the class or
 * function of the call in the plan, if it is still there, and `names` are those of the classes.
 */
export function argumentsOf(held, { cut, method, operator, names }) {
  if (held === null) return el("span", { class: "null" }, "too large for the SQL view");
  if (cut) return el("code", {}, `${held.slice(0, 160)} …`);
  const value = decodeExactly(held);
  if (value?.length === 1 && value[0] === PERSONAL)
    return el("span", { class: "null" }, "encrypted: they belong to a person");
  const pairs = pairsOf(value, parametersOf(operator, method));
  if (!pairs.length) return el("span", { class: "null" }, "none");
  return el(
    "span",
    { class: "arguments" },
    pairs.map(([name, value, type]) =>
      el("span", {}, name ? el("span", { class: "hint" }, `${name} `) : null, inline(value, type, names)),
    ),
  );
}

/** Return an outcome in words, with a mark; colour only repeats them. */
export function outcomeOf({ error, kind, message }) {
  if (error === null) return el("span", { class: "outcome fine" }, "took effect");
  return el(
    "span",
    { class: "outcome failed", title: message ?? "" },
    `undone: ${error}`,
    kind || message ? el("span", { class: "hint" }, [kind, message].filter(Boolean).join(": ")) : null,
  );
}

/** Return the parameters of a method, with parsed types; those of `create` are the attributes. */
function parametersOf(operator, method) {
  const found = operator?.methods.find((each) => each.name === method)?.parameters;
  const all = found ?? (operator?.key && method !== "delete" ? operator.attributes : []);
  return all.map(({ name, type }) => ({ name, type: parseType(type) }));
}

/** Return name, value and type of each argument: an array, an object, or both in one object. */
function pairsOf(value, parameters) {
  const types = new Map(parameters.map(({ name, type }) => [name, type]));
  const isBoth = value && Object.keys(value).sort().join() === "named,positional";
  const both = isBoth && Array.isArray(value.positional) && !types.has("named");
  const [positional, byName] = both
    ? [value.positional, value.named]
    : Array.isArray(value)
      ? [value, {}]
      : [[], value ?? {}];
  return [
    ...positional.map((one, at) => [parameters[at]?.name, one, parameters[at]?.type ?? ANY]),
    ...Object.entries(byName).map(([name, one]) => [name, one, types.get(name) ?? ANY]),
  ];
}
