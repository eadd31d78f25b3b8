// Inputs of values that have parts: records, rows, lists, maps, unions, and what may be left out.

import { el, show } from "./dom.js";
import { Reading } from "./reading.js";
import { resolve, sketch } from "./schema.js";
import { button } from "./widgets.js";

/** What all groups share: a frame with a name, an error of their own, and parts that are read. */
class Group {
  parts = [];
  #error = el("p", { class: "field-error", tabindex: -1, hidden: true });

  constructor({ name, label, whole, required }) {
    this.name = name;
    this.required = required;
    this.body = el("div", { class: "stack" });
    const hint = (whole?.description ?? "").replaceAll("`", "");
    this.element = el(
      "fieldset",
      { class: "group" },
      el("legend", {}, label ?? name),
      hint ? el("p", { class: "hint" }, hint) : null,
      this.body,
      this.#error,
    );
  }

  refuse(message) {
    this.element.setAttribute("data-invalid", "");
    this.#error.textContent = message;
    this.#error.hidden = false;
  }

  accept() {
    this.element.removeAttribute("data-invalid");
    this.#error.hidden = true;
    for (const part of this.parts) part.accept();
  }

  focus() {
    this.#error.focus();
  }

  /** Return the input of a path, or this group where the path leaves what it has. */
  at([first, ...rest]) {
    const part = first === undefined ? undefined : this.partOf(first);
    return part ? part.at(rest) : this;
  }

  /** Tell the form that there are other inputs now. */
  changed() {
    this.element.dispatchEvent(new Event("change", { bubbles: true }));
  }
}

/** The named values of a record. */
export class RecordInput extends Group {
  constructor(given, make) {
    super(given);
    const { schema, document, initial, name } = given;
    const needed = new Set(schema.required);
    this.parts = Object.entries(schema.properties).map(([field, one]) =>
      make(`${name}.${field}`, one, document, {
        label: field,
        required: needed.has(field),
        initial: initial?.[field],
      }),
    );
    this.names = Object.keys(schema.properties);
    show(
      this.body,
      this.parts.map((part) => part.element),
    );
  }

  read(reading) {
    const read = this.parts.map((one, index) => [this.names[index], one.read(reading)]);
    const value = read.filter(([, one]) => one.given).map(([name, one]) => [name, one.value]);
    return { given: true, value: Object.fromEntries(value) };
  }

  partOf(name) {
    return this.parts[this.names.indexOf(name)];
  }
}

/** The values of an array in which each position has its own schema. */
export class RowInput extends Group {
  constructor(given, make) {
    super(given);
    const { schema, document, initial, name } = given;
    const least = schema.minItems ?? schema.prefixItems.length;
    this.parts = schema.prefixItems.map((one, index) =>
      make(`${name}[${index}]`, one, document, {
        label: schema.labels?.[index] ?? resolve(one, document).title ?? String(index + 1),
        required: index < least,
        initial: initial?.[index],
      }),
    );
    show(
      this.body,
      this.parts.map((part) => part.element),
    );
  }

  read(reading) {
    const read = this.parts.map((part) => part.read(reading));
    const last = read.findLastIndex((one) => one.given);
    const gap = read.slice(0, last).findIndex((each) => !each.given);
    const isTold = reading.problems.some((problem) => problem.input === this.parts[gap]);
    if (gap >= 0 && !isTold) reading.refuse(this.parts[gap], "is needed, because a later value is given");
    return { given: true, value: read.slice(0, last + 1).map((each) => each.value) };
  }

  partOf(index) {
    return this.parts[index];
  }
}

/** A list: a person adds and removes its elements. */
export class ListInput extends Group {
  #given;
  #make;
  #rows = el("div", { class: "stack" });
  #add;

  constructor(given, make) {
    super(given);
    this.#given = given;
    this.#make = make;
    this.#add = button(`Add to ${given.label ?? given.name}`, () => this.add(undefined, true));
    show(this.body, this.#rows, el("div", {}, this.#add));
    for (const one of Array.isArray(given.initial) ? given.initial : []) this.add(one);
  }

  /** Add an element at the end. */
  add(initial, isByHand = false) {
    const { schema, document, name, label } = this.#given;
    const index = this.parts.length;
    const part = this.#make(`${name}[${index}]`, schema.items, document, {
      label: `${label ?? name} ${index + 1}`,
      required: true,
      initial,
    });
    this.parts.push(part);
    this.#draw();
    if (!isByHand) return;
    part.element.querySelector("input, select, textarea, button")?.focus();
    this.changed();
  }

  #remove(part) {
    const kept = this.parts.filter((each) => each !== part);
    this.parts = kept;
    this.#draw();
    this.#add.focus();
    this.changed();
  }

  #draw() {
    const rows = this.parts.map((part, index) => {
      part.name = `${this.#given.name}[${index}]`;
      const name = `${this.#given.label ?? this.#given.name} ${index + 1}`;
      const title = part.element.querySelector("legend, label");
      if (title) title.textContent = name;
      const remove = button("Remove", () => this.#remove(part), { "aria-label": `Remove ${name}` });
      return el("div", { class: "element" }, part.element, remove);
    });
    show(this.#rows, rows);
  }

  read(reading) {
    const read = this.parts.map((part) => part.read(reading));
    return { given: true, value: read.filter((each) => each.given).map((one) => one.value) };
  }

  partOf(index) {
    return this.parts[index === "..." ? 0 : index];
  }
}

/** A dictionary, as a list of keys with their values. */
export class MapInput extends ListInput {
  constructor(given, make) {
    const { propertyNames: key = { type: "string" }, additionalProperties: value } = given.schema;
    const pair = { prefixItems: [key, value], labels: ["key", "value"] };
    super({ ...given, schema: { items: pair }, initial: Object.entries(given.initial ?? {}) }, make);
  }

  read(reading) {
    const { value: pairs } = super.read(reading);
    const keys = pairs.map(([key]) => key);
    const twice = keys.findIndex((one, index) => one !== undefined && keys.indexOf(one) < index);
    if (twice >= 0) reading.refuse(this, `has the key ${keys[twice]} twice`);
    return { given: true, value: Object.fromEntries(pairs) };
  }

  partOf(name) {
    const quiet = new Reading();
    const found = this.parts.find((part) => part.parts[0].read(quiet).value === name);
    return (found ?? (name === "..." ? this.parts[0] : undefined))?.parts[1];
  }
}

/** A value of one of several types: a person chooses the type. */
export class UnionInput extends Group {
  #select;

  constructor(given, make) {
    super(given);
    const { schema, document, name } = given;
    const place = el("div", {});
    const choose = () => {
      const one = schema.anyOf[Number(this.#select.value)];
      this.parts = [make(name, one, document, { label: "value", required: true })];
      show(place, this.parts[0].element);
    };
    const names = schema.anyOf.map((each) => sketch(each, document));
    this.#select = el(
      "select",
      { onchange: choose, "aria-label": `Type of ${given.label ?? name}` },
      names.map((one, index) => el("option", { value: index }, one)),
    );
    show(this.body, this.#select, place);
    choose();
  }

  read(reading) {
    return this.parts[0].read(reading);
  }

  partOf() {
    return this.parts[0];
  }

  at(path) {
    return path.length ? this.parts[0].at(path) : this;
  }
}

/** A group that may be left out or null: it is shown when a person adds it. */
export class OptionalInput {
  #given;
  #make;
  #inner = null;
  #place = el("div", {});

  constructor(given, make) {
    this.#given = given;
    this.#make = make;
    this.name = given.name;
    this.required = given.required;
    this.element = this.#place;
    if (given.initial !== undefined && given.initial !== null) this.#open(given.initial);
    else this.#close();
  }

  #open(initial) {
    this.#inner = this.#make({ ...this.#given, initial });
    const { element } = this.#inner;
    const label = this.#given.label ?? this.#given.name;
    const leave = button("Leave out", () => this.#leave(), { "aria-label": `Leave out ${label}` });
    show(this.#place, el("div", { class: "element" }, element, leave));
  }

  #close() {
    this.#inner = null;
    const { label, name, required } = this.#given;
    const state = required ? "null" : "left out";
    const add = button(`Add ${label ?? name}`, () => this.#add());
    show(this.#place, el("div", { class: "row" }, add, el("span", { class: "hint" }, state)));
  }

  #add() {
    this.#open();
    if (this.#inner instanceof ListInput) this.#inner.add();
    this.element.querySelector(".group :is(input, select, textarea, button)")?.focus();
    this.#changed();
  }

  #leave() {
    this.#close();
    this.element.querySelector("button").focus();
    this.#changed();
  }

  #changed() {
    this.#place.dispatchEvent(new Event("change", { bubbles: true }));
  }

  read(reading) {
    if (this.#inner) return this.#inner.read(reading);
    return this.required ? { given: true, value: null } : { given: false };
  }

  refuse(message) {
    this.#inner?.refuse(message);
  }

  accept() {
    this.#inner?.accept();
  }

  focus() {
    (this.#inner ?? this.element.querySelector("button")).focus();
  }

  at(path) {
    return this.#inner?.at(path) ?? this;
  }
}
