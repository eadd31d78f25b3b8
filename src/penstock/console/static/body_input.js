// The body of a request: an input for each value, or the JSON as a person writes it.

import { el, field, show } from "./dom.js";
import { decode, encode } from "./json.js";
import { Reading } from "./reading.js";
import { objectOf } from "./schema.js";
import { inputFor } from "./value_input.js";
import { button } from "./widgets.js";

/** The inputs of a body. `text(reading)` returns its JSON, or undefined where there is no body. */
export class BodyInput {
  name = "body";
  #whole = null;
  #named = [];
  #written = null;
  #place = el("div", { class: "stack" });
  #toggle = button("Write it as JSON", () => this.#turn());
  element = el("div", { class: "stack" }, this.#place, el("div", {}, this.#toggle));

  constructor(schema, document, required) {
    const object = objectOf(schema, document);
    const needed = new Set(object?.required);
    const { additionalProperties: more } = object ?? {};
    this.#named = Object.entries(object?.properties ?? {}).map(([name, one]) =>
      inputFor(name, one, document, { required: needed.has(name) }),
    );
    if (object && typeof more === "object" && Object.keys(more).length)
      this.#whole = inputFor("more arguments", { type: "object", additionalProperties: more }, document);
    if (!object) this.#whole = inputFor(this.name, schema, document, { required });
    this.isObject = object !== null;
    this.element.hidden = !this.#parts.length;
    this.#draw();
  }

  get #parts() {
    return this.#whole ? [...this.#named, this.#whole] : this.#named;
  }

  text(reading) {
    if (this.#written) return this.#writtenText(reading);
    if (!this.isObject) {
      const { given, value } = this.#whole.read(reading);
      return given ? encode(value) : undefined;
    }
    const read = this.#named.map((each) => [each.name, each.read(reading)]);
    const more = this.#whole?.read(reading).value ?? {};
    const named = read.filter(([, one]) => one.given).map(([name, one]) => [name, one.value]);
    return encode({ ...Object.fromEntries(named), ...more });
  }

  /** Return the input of a path, or the body where the path leaves what it has. */
  at([first, ...rest]) {
    if (this.#written) return this;
    if (!this.isObject) return this.#whole.at(first === undefined ? [] : [first, ...rest]);
    return this.#named.find((each) => each.name === first)?.at(rest) ?? this;
  }

  refuse() {
    this.#written?.setAttribute("aria-invalid", "true");
  }

  accept() {
    this.#written?.removeAttribute("aria-invalid");
    for (const one of this.#parts) one.accept();
  }

  focus() {
    this.#written?.focus();
  }

  #writtenText(reading) {
    const text = this.#written.value;
    if (text.trim() === "") return undefined;
    try {
      decode(text);
    } catch (error) {
      reading.refuse(this, `is no JSON: ${error.message}`);
    }
    return text;
  }

  #turn() {
    const text = this.#written ? null : this.text(new Reading());
    this.#written =
      text === null
        ? null
        : el("textarea", { rows: 10, class: "code", spellcheck: "false", value: pretty(text ?? "") });
    this.#draw();
    this.#toggle.dispatchEvent(new Event("change", { bubbles: true }));
  }

  #draw() {
    this.#toggle.textContent = this.#written ? "Back to the fields" : "Write it as JSON";
    if (this.#written) show(this.#place, field("Body as JSON", this.#written));
    else show(this.#place, this.#parts.map((part) => part.element));
  }
}

const pretty = (text) => (text === "" ? "" : encode(decode(text), 2));
