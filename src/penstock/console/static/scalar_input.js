// Inputs of one value each: a text, a number, a choice, a day, a time, a reference, JSON.

import { el, field } from "./dom.js";
import { Float, decodeExactly } from "./json.js";
import { instantOf, localText, zoneName } from "./moments.js";
import { keySuggestions } from "./reference_keys.js";
import { classOf, kindOf, sketch } from "./schema.js";

const PICKERS = { date: "date", time: "time", "date-time": "datetime-local" };
const FLOATS = new Set(["NaN", "Infinity", "-Infinity"]);
const TEXTS = new Set(["string", "reference"]);
const NUMBER_MODES = { integer: "numeric", number: "decimal", decimal: "decimal" };
const JSON_NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?$/;
const DECIMAL = /^[-+]?\d+(\.\d+)?([eE][-+]?\d{1,4})?$/;

/** An input for one value. `read` returns `{given, value}`, and tells the reading what is wrong. */
export class ScalarInput {
  #kind;
  #schema;
  #input;
  #nullable;
  #initial; // a picker drops the digits after the seconds, and an input drops ends of lines
  #error = el("p", { class: "field-error", role: "alert", hidden: true });

  constructor({ name, label, schema, whole, document, required, nullable, initial, isLine }) {
    this.name = name;
    this.required = required;
    this.#schema = schema;
    this.#nullable = nullable;
    this.#kind = kindOf(schema);
    this.#input = this.#made(initial ?? whole.default, isLine);
    this.#initial = { text: this.#input.value, value: initial ?? whole.default };
    this.#input.name = name;
    if (required) this.#input.setAttribute("aria-required", "true");
    const title = `${label ?? name}${required ? "" : " (optional)"}`;
    this.element = field(title, this.#input, hintOf(this.#kind, whole, required && nullable, document));
    if (this.#kind === "reference") this.#suggestKeys(classOf(schema));
    this.#error.id = `${this.#input.id}-error`;
    this.element.append(this.#error);
  }

  /** Return the value, if it is given and fits. */
  read(reading) {
    const text = this.#input.value;
    if (this.#input.validity.badInput) return reading.refuse(this, "is not complete");
    if (text === "") {
      if (!this.required) return { given: false };
      if (this.#nullable) return { given: true, value: null };
      if (this.#kind !== "string" || this.#schema.minLength) return reading.refuse(this, "is needed");
    }
    return this.#value(text, reading);
  }

  /** Show what is wrong below the input. */
  refuse(message) {
    this.#input.setAttribute("aria-invalid", "true");
    this.#input.setAttribute("aria-errormessage", this.#error.id);
    this.#error.textContent = message;
    this.#error.hidden = false;
  }

  accept() {
    this.#input.removeAttribute("aria-invalid");
    this.#input.removeAttribute("aria-errormessage");
    this.#error.hidden = true;
  }

  focus() {
    this.#input.focus();
  }

  /** Return the input of a path; a single value has no parts. */
  at() {
    return this;
  }

  #made(initial, isLine) {
    const first = initial === undefined || initial === null ? "" : initial;
    if (this.#kind === "choice" || this.#kind === "boolean") return this.#select(first);
    const common = { autocomplete: "off", spellcheck: "false" };
    if (this.#kind === "json") {
      const value = first === "" || typeof first === "string" ? first : JSON.stringify(first);
      return el("textarea", { ...common, rows: 2, class: "code", value });
    }
    const { pattern, format, contentEncoding } = this.#schema;
    if (this.#kind === "string" && !isLine && !pattern && !format && !contentEncoding)
      return el("textarea", { ...common, rows: 1, class: "text", value: String(first) });
    const type = PICKERS[this.#kind];
    if (!type) return el("input", { ...common, inputmode: NUMBER_MODES[this.#kind], value: String(first) });
    const isDay = this.#kind !== "time";
    const zone = this.#kind === "date-time" ? "T23:59:59" : "";
    return el("input", {
      type,
      step: this.#kind === "date" ? null : 1,
      max: isDay ? `9999-12-31${zone}` : null,
      value: this.#kind === "date-time" ? localText(String(first)) : String(first).split(".")[0],
    });
  }

  #select(first) {
    const values = this.#kind === "boolean" ? [true, false] : this.#schema.enum;
    const names = values.map((value) => (typeof value === "string" ? value : JSON.stringify(value)));
    const blank = this.required ? (this.#nullable ? "null" : null) : "–";
    const select = el(
      "select",
      {},
      blank === null ? null : el("option", { value: "" }, blank),
      names.map((one, index) => el("option", { value: index }, one)),
    );
    const chosen = names.indexOf(typeof first === "string" ? first : JSON.stringify(first));
    if (chosen >= 0) select.value = String(chosen);
    return select;
  }

  #value(text, reading) {
    const kind = this.#kind;
    if ((kind in PICKERS || TEXTS.has(kind)) && text === this.#initial.text && this.#initial.value !== undefined) return { given: true, value: this.#initial.value };
    if (kind === "boolean") return { given: true, value: text === "0" };
    if (kind === "choice") return { given: true, value: this.#schema.enum[Number(text)] };
    if (kind === "date-time") return { given: true, value: instantOf(text) };
    if (kind === "time") return { given: true, value: text.length === 5 ? `${text}:00` : text };
    if (TEXTS.has(kind)) return this.#text(text, reading);
    if (kind === "date") return { given: true, value: text };
    return this.#number(text.trim(), reading);
  }

  #text(text, reading) {
    const { pattern } = this.#schema;
    if (pattern && !new RegExp(pattern, "u").test(text))
      return reading.refuse(this, this.#schema.format ? `is no ${this.#schema.format}` : `does not fit ${pattern}`);
    return { given: true, value: text };
  }

  #number(text, reading) {
    if (this.#kind === "integer" && !/^[+-]?\d+$/.test(text))
      return reading.refuse(this, "must be a whole number");
    if (this.#kind === "integer") {
      const value = Number(text);
      return { given: true, value: Number.isSafeInteger(value) ? value : BigInt(text) };
    }
    if (this.#kind === "decimal")
      return DECIMAL.test(text)
        ? { given: true, value: text }
        : reading.refuse(this, "must be a decimal number, such as 9.95");
    if (this.#kind === "number" && FLOATS.has(text)) return { given: true, value: text };
    if (this.#kind === "number")
      return Number.isFinite(Number(text))
        ? { given: true, value: JSON_NUMBER.test(text) ? new Float(text) : Number(text) }
        : reading.refuse(this, "must be a number");
    try {
      return { given: true, value: decodeExactly(text) };
    } catch {
      return reading.refuse(this, "must be JSON");
    }
  }

  #suggestKeys(entity) {
    const { nextSibling, parentNode } = this.#input;
    parentNode.insertBefore(keySuggestions(this.#input, () => entity), nextSibling);
  }
}

function hintOf(kind, schema, isNullable, document) {
  const type = {
    json: `JSON: ${sketch(schema, document)}`,
    integer: "whole number",
    number: "number, NaN or Infinity",
    decimal: "decimal number",
    reference: `key of ${classOf(schema)}`,
    string: schema.contentEncoding ?? schema.format ?? "",
    "date-time": `in the time zone of this browser, ${zoneName()}; it is sent in UTC`,
  }[kind];
  const told = (schema.description ?? "").replaceAll("`", "");
  return [told, kind === "reference" && told ? "" : type, isNullable ? "empty is null" : ""].filter(Boolean).join(" · ");
}
