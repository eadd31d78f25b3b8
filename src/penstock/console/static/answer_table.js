// The rows of an answer as a table: sorted over all rows, shown a page at a time.

import { ordered, personal } from "./answer_text.js";
import { el, show } from "./dom.js";
import { count, plural } from "./format.js";
import { dataTable } from "./table.js";
import { instantNode } from "./times.js";
import { brief } from "./value.js";
import { button, row } from "./widgets.js";

const PAGE = 100;
const ANY = { name: "Any", parts: [] };
const NO_CLASSES = new Set();
const TIMESTAMP = /^timestamp/i;

/** The table of one answer; `rows` is the list in the order that is shown. */
export class AnswerTable {
  rows;
  element = el("div", { class: "stack" });
  #given;
  #columns;
  #order = { index: -1, falling: false };
  #offset = 0;

  constructor(columns, rows) {
    this.#columns = columns;
    this.#given = rows;
    this.rows = rows;
    this.#draw();
  }

  #sortBy(index) {
    const falling = this.#order.index === index && !this.#order.falling;
    const { type } = this.#columns[index];
    this.#order = { index, falling };
    const sign = falling ? -1 : 1;
    const compare = (one, other) => {
      const nulls = (one[index] === null) - (other[index] === null);
      return nulls || ordered(one[index], other[index], type) * sign;
    };
    this.rows = [...this.#given].sort(compare);
    this.#offset = 0;
    this.#draw();
    this.element.querySelectorAll("thead button")[index]?.focus();
  }

  #turnTo(offset, name) {
    this.#offset = offset;
    this.#draw();
    const [button, other] = [name, name === "Next" ? "Previous" : "Next"].map((one) =>
      this.element.querySelector(`[data-turn="${one}"]`),
    );
    (button.disabled ? other : button).focus();
  }

  #draw() {
    const table = dataTable({
      caption: "Answer",
      columns: this.#columns.map((column) => ({ ...column, cell: (value) => cell(value, column.type) })),
      rows: this.rows.slice(this.#offset, this.#offset + PAGE),
      order: { ...this.#order, choose: (index) => this.#sortBy(index) },
    });
    show(this.element, table, this.rows.length > PAGE ? this.#turns() : null);
  }

  #turns() {
    const total = this.rows.length;
    const last = Math.min(this.#offset + PAGE, total);
    const turn = (name, step, disabled) =>
      button(name, () => this.#turnTo(this.#offset + step, name), { disabled, "data-turn": name });
    const told = `${count(this.#offset + 1)} to ${count(last)} of ${plural(total, "row")}`;
    return row(
      turn("Previous", -PAGE, this.#offset === 0),
      turn("Next", PAGE, last === total),
      el("span", { role: "status" }, told),
    );
  }
}

function cell(value, type) {
  if (typeof value === "string" && TIMESTAMP.test(type ?? "")) return instantNode(value);
  return brief(personal(value, type), ANY, NO_CLASSES);
}
