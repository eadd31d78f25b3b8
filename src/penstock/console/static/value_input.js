// Chooses the input for a value by its JSON Schema.

import { ListInput, MapInput, OptionalInput, RecordInput, RowInput, UnionInput } from "./group_input.js";
import { ScalarInput } from "./scalar_input.js";
import { kindOf, resolve, withoutNull } from "./schema.js";

const GROUPS = { record: RecordInput, row: RowInput, list: ListInput, map: MapInput, union: UnionInput };

/**
 * Return the input for a value: `{name, element, read, refuse, accept, focus, at}`.
 *
 * `read(reading)` returns `{given, value}`. An empty input that is not required is not given; an
 * empty one that is required is null where the schema allows null. A text `isLine` if it has no ends of lines.
 */
export function inputFor(name, schema, document, { label, required = false, initial, isLine = false } = {}) {
  const found = resolve(schema, document);
  const { schema: inner, nullable } = withoutNull(found, document);
  const whole = { ...inner, ...found, description: schema?.description ?? found.description };
  const given = { name, label, schema: inner, whole, document, required, nullable, initial, isLine };
  const Kind = GROUPS[kindOf(inner)];
  if (!Kind) return new ScalarInput(given);
  const make = (one) => new Kind({ ...given, ...one }, inputFor);
  if (required && !nullable) return make({});
  return new OptionalInput(given, make);
}
