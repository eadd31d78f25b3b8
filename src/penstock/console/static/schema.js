// Reads JSON Schemas: follows references, and names the kind of input that a value needs.

const KEY_OF = "Key of ";
const SCALARS = new Set(["string", "integer", "number", "boolean"]);
const PICKED = new Set(["date", "date-time"]);
// JSON Schema's format `time` needs a zone; a time of day has none, and so has a pattern instead.
const TIME_PATTERN = "^([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d";

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
export function withoutNull(schema, document) {
  const choices = schema.anyOf ?? schema.oneOf;
  if (Array.isArray(schema.type)) {
    const types = schema.type.filter((each) => each !== "null");
    return {
      schema: { ...schema, type: types.length === 1 ? types[0] : types },
      nullable: types.length < schema.type.length,
    };
  }
  if (!choices) return { schema, nullable: false };
  const some = choices.filter((choice) => resolve(choice, document).type !== "null");
  const rest = { ...schema, anyOf: some, oneOf: undefined };
  return {
    schema:
      some.length === 1 ? { ...schema, anyOf: undefined, oneOf: undefined, ...resolve(some[0], document) } : rest,
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

/** Return the class that a schema's value refers to; null for other values. */
export const classOf = (schema) =>
  schema.title?.startsWith(KEY_OF) ? schema.title.slice(KEY_OF.length) : null;

/**
 * Return the kind of input for a schema without null.
 *
 * It is that of one value (`string`, `integer`, `number`, `decimal`, `boolean`, `choice`, `date`,
 * `time`, `date-time`, `reference`), that of a group (`record`, `row`, `list`, `map`, `union`), or `json`.
 */
export function kindOf(schema) {
  if (schema.enum) return "choice";
  if (schema.anyOf) return isDecimal(schema.anyOf) ? "decimal" : isFloat(schema.anyOf) ? "number" : "union";
  if (schema.type === "string" && classOf(schema)) return "reference";
  if (schema.type === "string" && PICKED.has(schema.format)) return schema.format;
  if (schema.pattern?.startsWith(TIME_PATTERN)) return "time";
  if (SCALARS.has(schema.type)) return schema.type;
  if (schema.properties) return "record";
  if (schema.prefixItems) return "row";
  if (schema.type === "array" && schema.items) return "list";
  if (schema.type === "object" && typeof schema.additionalProperties === "object") return "map";
  return "json";
}

const isDecimal = (choices) =>
  choices.length === 2 && choices[0].format === "decimal" && choices[1].type === "number";

const isFloat = (choices) =>
  choices.length === 2 && choices[0].type === "number" && Boolean(choices[1].enum?.includes("NaN"));

/** Say shortly what a schema wants. */
export function sketch(schema, document) {
  const named = schema.$ref?.split("/").at(-1);
  if (named) return named;
  if (classOf(schema)) return classOf(schema);
  const inner = (one) => sketch(one, document);
  if (schema.prefixItems) return `[${schema.prefixItems.map((prefixItem) => prefixItem.title ?? inner(prefixItem)).join(", ")}]`;
  if (schema.anyOf && isFloat(schema.anyOf)) return "number";
  if (schema.anyOf) return isDecimal(schema.anyOf) ? "decimal" : schema.anyOf.map(inner).join(" or ");
  if (schema.type === "array") return `[${inner(schema.items ?? {})}, …]`;
  if (schema.type === "object") return `{${Object.keys(schema.properties ?? {}).join(", ") || "…"}}`;
  if (Array.isArray(schema.type)) return schema.type.join(" or ");
  return { integer: "whole number", string: schema.format ?? "text" }[schema.type] ?? schema.type ?? "anything";
}
