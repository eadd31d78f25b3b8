// SQL: one question over the whole state at one epoch, its answer as table, chart and CSV.

import { failureOf, quoted, send, sql } from "./api.js";
import { Chart } from "./chart.js";
import { el, empty, field, problem, show } from "./dom.js";
import { count, plural } from "./format.js";
import { live } from "./live.js";
import { dataTable, isNumeric } from "./table.js";

const ROWS_SHOWN = 1_000;
const CHART_ROWS_MAX = 500;
const TIMES = /^(date|timestamp.*|time)$/i;

/** Show the editor; a query in the address runs at once. */
export async function open(body, { search }) {
  const editor = el("textarea", { rows: 6, spellcheck: "false", autocapitalize: "off", autocomplete: "off", class: "code", id: "query", value: search.get("q") ?? "" });
  const result = el("div", { id: "result", "aria-live": "polite" });
  const said = el("span", { role: "status", class: "hint" });
  const examples = el("ul", { class: "chips", id: "examples" });
  let shape = search.get("show") === "chart" ? "chart" : "table";

  async function run() {
    const query = editor.value.trim();
    if (!query) return show(result, empty("Write a query first.", "Or take one of the examples above."));
    remember();
    said.textContent = "Running …";
    const began = performance.now();
    try {
      const answer = await sql(query, [], { rows_max: ROWS_SHOWN + 1 });
      said.textContent = "";
      show(result, answered(answer, performance.now() - began));
    } catch (failure) {
      said.textContent = "";
      show(result, problem(failure));
    }
    return undefined;
  }

  function remember() {
    const fields = new URLSearchParams({ q: editor.value.trim(), ...(shape === "chart" ? { show: "chart" } : {}) });
    history.replaceState(null, "", `#/sql?${fields}`);
  }

  function answered({ epoch, columns, rows }, took) {
    const cut = rows.length > ROWS_SHOWN;
    const kept = cut ? rows.slice(0, ROWS_SHOWN) : rows;
    const figure = chartOf(columns, kept);
    const place = el("div", {});
    const display = () => show(place, shape === "chart" && figure ? figure.element : tableOf(columns, kept));
    const choice = figure ? el("fieldset", { class: "choice" }, el("legend", { class: "hidden" }, "Show as"), ["table", "chart"].map((one) => {
      const input = el("input", { type: "radio", name: "shape", id: `shape-${one}`, onchange: () => {
        shape = one;
        remember();
        display();
      } });
      input.checked = shape === one;
      return [input, el("label", { for: input.id }, one === "table" ? "Table" : "Chart")];
    })) : null;
    display();
    return [
      el("div", { class: "row between" },
        el("p", { id: "answer" }, `${plural(kept.length, "row")}${cut ? ", the first ones" : ""} at epoch ${count(epoch)} `, el("span", { class: "hint" }, `in ${Math.round(took)} ms`)),
        el("div", { class: "row" }, choice, el("button", { type: "button", class: "quiet-button", onclick: () => csv(said, editor.value.trim()) }, "Download CSV"), el("button", { type: "button", class: "quiet-button", onclick: () => copyLink(said) }, "Copy link"))),
      place,
    ];
  }

  editor.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      run();
    }
  });
  show(body,
    el("section", { "aria-label": "Examples" }, el("p", { class: "hint" }, "Read-only SQL (DuckDB) over every entity, at one epoch. Examples:"), examples),
    el("form", { id: "sql-form", onsubmit: (event) => {
      event.preventDefault();
      run();
    } }, field("Query", editor), el("p", { class: "row" }, el("button", { type: "submit", class: "main-button", id: "run" }, "Run"), el("span", { class: "hint" }, "or Ctrl + Enter"), said)),
    result);
  if (editor.value) run();
  const plan = await live.ready();
  show(examples, examplesOf(plan).map(([name, query]) => el("li", {}, el("button", { type: "button", onclick: () => {
    editor.value = query;
    run();
    editor.focus();
  } }, name))));
  return { follow: (asked, name) => {
    if (name !== "sql" || asked.search.get("q") !== editor.value.trim()) return false;
    return true;
  } };
}

function tableOf(columns, rows) {
  if (!rows.length) return empty("The answer has no rows.", "The query is fine; nothing in this epoch fits it.");
  return dataTable({ caption: "Answer", columns, rows });
}

/** Return a chart where the shape fits: a first column to stand on, numbers beside it. */
function chartOf(columns, rows) {
  const numbers = columns.map((column, index) => ({ ...column, index })).filter((column) => column.index > 0 && isNumeric(column.type));
  if (!numbers.length || numbers.length > 6 || rows.length < 2 || rows.length > CHART_ROWS_MAX) return null;
  const isTime = TIMES.test(columns[0].type);
  const points = rows.map((row) => (isTime ? Date.parse(row[0]) : isNumeric(columns[0].type) ? Number(row[0]) : String(row[0])));
  const rising = !points.some((point, at) => at && !(points[at - 1] <= point));
  const line = rising && typeof points[0] === "number" && rows.length > 12;
  const chart = new Chart({
    title: `${numbers.map((one) => one.name).join(", ")} by ${columns[0].name}`,
    kind: line ? "line" : "bar",
    x: isTime ? "time" : line ? "number" : "category",
    height: 280,
  });
  const value = (one) => (one === null ? null : Number(one));
  chart.update({ points, series: numbers.map((one) => ({ name: one.name, values: rows.map((row) => value(row[one.index])) })) });
  return chart;
}

/** Return queries that this application's entities can answer. */
function examplesOf(plan) {
  const classes = plan.operators.filter((one) => one.key);
  const names = new Set(classes.map((one) => one.name));
  const found = classes.map((one) => [`all of ${one.name}`, `SELECT *\nFROM ${quoted(one.name)}\nORDER BY ${quoted(one.key.name)}\nLIMIT 50`]);
  for (const one of classes) {
    const number = one.attributes.find((attribute) => ["int", "float", "Decimal"].includes(attribute.type));
    if (number) found.push([`${one.name} by ${number.name}`, `SELECT ${quoted(number.name)}, count(*) AS entities\nFROM ${quoted(one.name)}\nGROUP BY ALL\nORDER BY 1\nLIMIT 200`]);
    const reference = one.attributes.find((attribute) => names.has(attribute.type) && attribute.type !== one.name);
    if (reference) {
      const other = classes.find((candidate) => candidate.name === reference.type);
      found.push([`${one.name} with ${other.name}`, `SELECT *\nFROM ${quoted(one.name)} AS one\nJOIN ${quoted(other.name)} AS other ON one.${quoted(reference.name)} = other.${quoted(other.key.name)}\nLIMIT 50`]);
    }
  }
  return [...found.slice(0, 9), ["recent requests", "SELECT *\nFROM requests\nORDER BY epoch DESC\nLIMIT 50"]];
}

async function csv(said, query) {
  const where = "POST /sql";
  const response = await send("/sql", { method: "POST", headers: { Accept: "text/csv" }, body: JSON.stringify({ query }) });
  if (!response.ok) {
    said.textContent = failureOf(response.status, await response.text(), where).message;
    return;
  }
  const link = el("a", { href: URL.createObjectURL(await response.blob()), download: "answer.csv" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  said.textContent = "answer.csv is downloaded.";
}

async function copyLink(said) {
  try {
    await navigator.clipboard.writeText(location.href);
    said.textContent = "The link is copied.";
  } catch {
    said.textContent = "Copy the link from the address bar: it holds the query.";
  }
}
