// JSON without loss: numbers keep their value and their form, also where JavaScript would change them.

const MARK = [...crypto.getRandomValues(new Uint32Array(4))].join("-");
const MARKED = new RegExp(`"${MARK}:(\\d+)"`, "g");
const WHOLE = /^-?\d+$/;

/** A float that JavaScript would write as a whole number, such as `1.0`, `-0.0` and `1e+20`. */
export class Float {
  constructor(text) {
    this.text = text;
  }

  valueOf() {
    return Number(this.text);
  }

  toString() {
    return this.text;
  }
}

/** Say whether a value has parts: a list or an object of JSON. */
export const isNested = (value) => value !== null && typeof value === "object" && !(value instanceof Float);

/** Say whether a value is a number, of any size and form. */
export const isNumber = (value) =>
  typeof value === "number" || typeof value === "bigint" || value instanceof Float;

/** Decode JSON; whole numbers that JavaScript cannot hold exactly become BigInt. */
export const decode = (text) => parsed(text, (value, source) => (isUnsafe(value, source) ? BigInt(source) : value));

/** Decode JSON for people: as `decode`, and floats that JavaScript would write as whole numbers become `Float`. */
export const decodeExactly = (text) =>
  parsed(text, (value, source) => {
    if (isUnsafe(value, source)) return BigInt(source);
    return Number.isInteger(value) && !WHOLE.test(source ?? "0") ? new Float(source) : value;
  });

/** Encode JSON; a BigInt is a number, and a `Float` keeps its form. */
export function encode(value, indent = 0) {
  const held = [];
  const marked = (one) => `${MARK}:${held.push(String(one)) - 1}`;
  const text = JSON.stringify(
    value,
    (name, one) => (typeof one === "bigint" || one instanceof Float ? marked(one) : one),
    indent,
  );
  return text?.replace(MARKED, (found, index) => held[Number(index)]);
}

const isUnsafe = (value, source) => !Number.isSafeInteger(value) && WHOLE.test(source ?? "");

function parsed(text, numberOf) {
  if (text === "") return null;
  return JSON.parse(text, (name, value, context) =>
    typeof value === "number" ? numberOf(value, context?.source) : value,
  );
}
