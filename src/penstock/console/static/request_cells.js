// The parts of a request that lists and pages show: its call, its arguments, its outcome.

import { el } from "./dom.js";
import { decodeExactly } from "./json.js";
import { streamOf } from "./references.js";
import { lineNode } from "./text.js";
import { entityLink, inline, parseType } from "./value.js";

const ANY = { name: "Any", parts: [] };
const PERSONAL = "<personal>";

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
