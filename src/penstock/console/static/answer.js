// What a query answered: as a table, as a chart where the shape fits, as a file, as a link.

import { failureOf, send } from "./api.js";
import { AnswerTable } from "./answer_table.js";
import { csvOf, jsonOf } from "./answer_text.js";
import { Chart } from "./chart.js";
import { copied } from "./clipboard.js";
import { el, empty, show } from "./dom.js";
import { count, plural } from "./format.js";
import { isNumeric } from "./table.js";
import { between, button, choice, row } from "./widgets.js";

const CHART_ROWS_MAX = 500;
const CHART_SERIES_MAX = 6;
const LINE_ROWS_MIN = 13;
const TIMES = /^(date|timestamp.*|time)$/i;
const SHAPES = [
  ["table", "Table"],
  ["chart", "Chart"],
];

/** One answer; `onshape` is told when a person chooses how to see it. */
export class Answer {
  #query;
  #said = el("span", { role: "status", class: "hint" });

  constructor(query, { epoch, columns, rows }, took, shape, onshape) {
    this.#query = query;
    const chart = chartOf(columns, rows);
    const table = rows.length ? new AnswerTable(columns, rows) : null;
    const place = el("div", {});
    const display = (wanted) =>
      show(place, wanted === "chart" && chart ? chart.element : (table?.element ?? nothing()));
    const shapes = choice("Show as", SHAPES, shape, (wanted) => {
      onshape(wanted);
      display(wanted);
    });
    const told = el(
      "p",
      { id: "answer" },
      `${plural(rows.length, "row")} at epoch ${count(epoch)} `,
      el("span", { class: "hint" }, `in ${Math.round(took)} ms`),
    );
    const actions = row(
      this.#said,
      chart ? shapes : null,
      table ? button("Copy as CSV", () => this.#copy("The rows are", csvOf(columns, table.rows))) : null,
      table ? button("Copy as JSON", () => this.#copy("The rows are", jsonOf(columns, table.rows))) : null,
      button("Download CSV", () => this.#download()),
      button("Copy link", () => this.#copy("The link is", location.href)),
    );
    display(shape);
    this.element = el("div", { class: "stack" }, between(told, actions), place);
  }

  async #download() {
    const options = {
      method: "POST",
      headers: { Accept: "text/csv" },
      body: JSON.stringify({ query: this.#query }),
    };
    const response = await send("/sql", options);
    if (!response.ok) {
      this.#said.textContent = failureOf(
        response.status,
        await response.text(),
        "POST /sql",
      ).message;
      return;
    }
    const link = el("a", {
      href: URL.createObjectURL(await response.blob()),
      download: "answer.csv",
    });
    link.click();
    URL.revokeObjectURL(link.href);
    this.#said.textContent = "answer.csv is downloaded.";
  }

  async #copy(what, text) {
    const done = await copied(text);
    this.#said.textContent = done
      ? `${what} copied.`
      : "The browser does not allow copying here; the CSV file has the rows, the address the query.";
  }
}

function nothing() {
  return empty("The answer has no rows.", "The query is fine; nothing in this epoch fits it.");
}

/** Return a chart where the shape fits: a first column to stand on, numbers beside it. NaN and infinities have no place. */
export function chartOf(columns, rows) {
  const numbers = columns
    .map((column, index) => ({ name: column.name, type: column.type, index }))
    .filter((column) => column.index > 0 && isNumeric(column.type));
  const fits =
    numbers.length > 0 &&
    numbers.length <= CHART_SERIES_MAX &&
    rows.length > 1 &&
    rows.length <= CHART_ROWS_MAX;
  if (!fits) return null;
  const read = rows.map((row) => pointOf(row[0], columns[0].type));
  const placed = read.every(Number.isFinite);
  const points = placed ? read : rows.map((row) => String(row[0]));
  const rising = points.every((point, at) => at === 0 || points[at - 1] <= point);
  const line = rising && placed && rows.length >= LINE_ROWS_MIN;
  const x = placed && TIMES.test(columns[0].type) ? "time" : line ? "number" : "category";
  const title = `${numbers.map((number) => number.name).join(", ")} by ${columns[0].name}`;
  const kind = line ? "line" : "bar";
  const chart = new Chart({ title, kind, x, across: columns[0].name, height: 280 });
  const value = (one) => (one !== null && Number.isFinite(Number(one)) ? Number(one) : null);
  chart.update({
    points,
    series: numbers.map(({ name, index }) => ({
      name,
      values: rows.map((row) => value(row[index])),
    })),
  });
  return chart;
}

function pointOf(value, type) {
  if (TIMES.test(type)) return Date.parse(value);
  return isNumeric(type) ? Number(value) : String(value);
}
