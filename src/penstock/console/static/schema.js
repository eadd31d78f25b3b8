// Forms from JSON Schema: one input for each value, typed; what is nested is written as JSON.

import { decode } from "./api.js";
import { el, field } from "./dom.js";

/** Return a schema with its references followed. */
export function resolve(schema, document) {
  let found = schema ?? {};
  for (let depth = 0; found.$ref && depth < 20; depth += 1)
    found =
      found.$ref
        .slice(2)
        .split("/")
        .reduce((at, name) => at?.[name.replaceAll("~1", "/").replaceAll("~0", "~")], document) ??
      {};
  return found;
}

/** Return the schema without its `null`, and whether it had one. */
function withoutNull(schema, document) {
  const choices = schema.anyOf ?? schema.oneOf;
  if (Array.isArray(schema.type)) {
    const types = schema.type.filter((one) => one !== "null");
    return {
      schema: { ...schema, type: types.length === 1 ? types[0] : types },
      nullable: types.length < schema.type.length,
    };
  }
  if (!choices) return { schema, nullable: false };
  const some = choices.map((one) => resolve(one, document)).filter((one) => one.type !== "null");
  return {
    schema:
      some.length === 1 ? { ...schema, anyOf: undefined, oneOf: undefined, ...some[0] } : schema,
    nullable: some.length < choices.length,
  };
}

/** Return the object among a body's forms: `{properties, required}`, or null where it takes none. */
export function objectOf(schema, document) {
  const found = resolve(schema, document);
  if (found.properties) return found;
  for (const one of found.oneOf ?? found.anyOf ?? []) {
    const inner = objectOf(one, document);
    if (inner) return inner;
  }
  return null;
}

/** An input for one value. `read()` returns `{given, value}` or throws with what is wrong. */
export class Input {
  #kind;
  #input;
  #nullable;

  constructor(name, schema, document, { required = false, initial = "" } = {}) {
    const whole = resolve(schema, document);
    const { schema: inner, nullable } = withoutNull(whole, document);
    this.name = name;
    this.required = required;
    this.#nullable = nullable;
    this.#kind = kindOf(inner);
    this.#input = inputOf(this.#kind, inner, required);
    this.#input.name = name;
    if (required) this.#input.setAttribute("aria-required", "true");
    const first =
      initial !== ""
        ? initial
        : whole.default !== undefined && this.#kind !== "json"
          ? whole.default
          : "";
    if (first !== "" && first !== null) this.#input.value = String(first);
    this.element = field(
      `${name}${required ? "" : " (optional)"}`,
      this.#input,
      hintOf(this.#kind, inner, whole, nullable),
    );
  }

  read() {
    const text = this.#input.value;
    this.#input.removeAttribute("aria-invalid");
    if (text === "" && (!this.required || this.#kind !== "string")) {
      if (!this.required) return { given: false };
      if (this.#nullable) return { given: true, value: null };
      this.refuse("is needed");
    }
    return { given: true, value: this.#value(text) };
  }

  refuse(why) {
    this.#input.setAttribute("aria-invalid", "true");
    this.#input.focus();
    throw new Error(`${this.name} ${why}`);
  }

  #value(text) {
    if (this.#kind === "string" || this.#kind === "choice") return text;
    if (this.#kind === "boolean") return text === "true";
    if (this.#kind === "integer") {
      if (!/^[+-]?\d+$/.test(text.trim())) this.refuse("must be a whole number");
      const value = Number(text);
      return Number.isSafeInteger(value) ? value : BigInt(text.trim());
    }
    if (this.#kind === "number" && !Number.isFinite(Number(text))) this.refuse("must be a number");
    try {
      return decode(text);
    } catch {
      return this.refuse("must be JSON");
    }
  }
}

function kindOf(schema) {
  if (schema.enum?.every((one) => typeof one === "string")) return "choice";
  return ["string", "integer", "number", "boolean"].includes(schema.type) ? schema.type : "json";
}

function inputOf(kind, schema, required) {
  const common = { autocomplete: "off", spellcheck: "false" };
  if (kind === "boolean" || kind === "choice") {
    const options = kind === "boolean" ? ["true", "false"] : schema.enum;
    return el(
      "select",
      {},
      required ? null : el("option", { value: "" }, "–"),
      options.map((one) => el("option", {}, one)),
    );
  }
  if (kind === "json") return el("textarea", { ...common, rows: 2, class: "code" });
  return el("input", {
    ...common,
    inputmode: kind === "integer" ? "numeric" : kind === "number" ? "decimal" : null,
  });
}

function hintOf(kind, schema, whole, nullable) {
  const type =
    kind === "json"
      ? `JSON: ${sketch(schema)}`
      : kind === "choice"
        ? ""
        : { integer: "whole number", number: "number", boolean: "", string: schema.format ?? "" }[
            kind
          ];
  const told = (schema.description ?? whole.description ?? "").replaceAll("`", "");
  return [told, type, nullable ? "or null" : ""].filter(Boolean).join(" · ");
}

/** Say shortly what a schema wants. */
function sketch(schema) {
  if (schema.type === "array")
    return schema.prefixItems
      ? `[${schema.prefixItems.map((one) => one.title ?? sketch(one)).join(", ")}]`
      : `[${sketch(schema.items ?? {})}, …]`;
  if (schema.type === "object") return `{${Object.keys(schema.properties ?? {}).join(", ") || "…"}}`;
  return schema.$ref
    ? schema.$ref.split("/").at(-1)
    : Array.isArray(schema.type)
      ? schema.type.join(" or ")
      : (schema.type ?? "anything");
}
