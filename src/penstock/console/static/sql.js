// SQL: one question over the whole state at one epoch.

import { sql } from "./api.js";
import { Answer } from "./answer.js";
import { el, empty, newId, problem, show } from "./dom.js";
import { examplesOf } from "./examples.js";
import { plural } from "./format.js";
import { live } from "./live.js";
import { QueryHistory, remember } from "./query_history.js";
import { Editor, placeOf } from "./sql_editor.js";
import { readTables, tableBrowser } from "./table_browser.js";
import { button, chips } from "./widgets.js";

const ROWS_MAX = 10_000;
const WIDE = "(min-width: 1100px)";

/** Show the editor; a query in the address runs at once. */
export async function open(body, { search }) {
  const page = new SqlPage(search.get("q") ?? "", search.get("show") ?? "table");
  const examples = el("div", {});
  show(
    body,
    el(
      "section",
      { "aria-label": "Examples" },
      el(
        "p",
        { class: "hint" },
        "Read-only SQL (DuckDB) over every entity, at one epoch; AS OF EPOCH n at its end asks the past. Examples:",
      ),
      examples,
    ),
    page.element,
  );
  if (page.query) page.run();
  const [plan] = await Promise.all([live.ready(), page.readTables()]);
  show(
    examples,
    chips(
      examplesOf(plan).map(([name, query]) =>
        el("button", { type: "button", onclick: () => page.take(query) }, name),
      ),
    ),
  );
  return { follow: (asked, name) => name === "sql" && asked.search.get("q") === page.query };
}

/** The tables, the editor, the queries of before, and the place for what comes back. */
class SqlPage {
  result = el("div", { id: "result", "aria-live": "polite" });
  #editor;
  #said = el("span", { role: "status", class: "hint" });
  #tables = el("div", { class: "table-list" }, el("p", { class: "waiting" }, "Asking the SQL view …"));
  #history = new QueryHistory((query) => this.take(query));
  #shape;
  #run = 0;

  constructor(query, shape) {
    this.#shape = shape;
    this.#editor = new Editor(query, () => this.run());
    const browser = el("details", { id: "tables", class: "panel" }, el("summary", {}, "Tables"), this.#tables);
    browser.open = matchMedia(WIDE).matches;
    const submit = (event) => {
      event.preventDefault();
      this.run();
    };
    this.element = el(
      "div",
      { class: "sql" },
      browser,
      el(
        "div",
        { class: "stack" },
        el(
          "form",
          { class: "stack", onsubmit: submit },
          this.#editor.element,
          el("p", { class: "row" }, el("button", { type: "submit", class: "main-button" }, "Run"), this.#said),
        ),
        this.result,
        this.#history.element,
      ),
    );
  }

  get query() {
    return this.#editor.text.trim();
  }

  /** Run an example, or a query of before. */
  take(query) {
    this.#editor.text = query;
    this.#editor.focus();
    this.run();
  }

  /** Show the tables; without them, the editor suggests keywords and functions. */
  async readTables() {
    try {
      const tables = await readTables();
      this.#editor.schema = tables;
      show(this.#tables, tableBrowser(tables, (name) => this.#editor.insert(name)));
    } catch (failure) {
      const again = button("Ask again", () => this.readTables());
      show(this.#tables, el("p", { class: "hint" }, failure.message), again);
    }
  }

  /** Ask, and show what comes back; a later run makes the answer of an earlier one unwanted. */
  async run() {
    if (!this.query) {
      show(this.result, empty("Write a query first.", "Or take one of the examples above."));
      return;
    }
    this.#run += 1;
    const mine = this.#run;
    const text = this.#editor.text;
    this.#remember();
    this.#editor.unmark();
    this.#said.textContent = "Running …";
    const began = performance.now();
    let shown;
    try {
      const found = await sql(text, [], { rows_max: ROWS_MAX });
      if (mine !== this.#run) return;
      shown = new Answer(text, found, performance.now() - began, this.#shape, (shape) => {
        this.#shape = shape;
        this.#remember();
      }).element;
      remember(text.trim(), plural(found.rows.length, "row"));
    } catch (failure) {
      if (mine !== this.#run) return;
      shown = this.#problem(failure, text);
      remember(text.trim(), "an error");
    }
    show(this.result, shown);
    this.#history.draw();
    this.#said.textContent = "";
  }

  /** Return what a failure says; its place in the text is marked and has the caret. */
  #problem(failure, text) {
    if (failure.message.includes("rows_max")) failure.next = "Add a LIMIT to the query.";
    const shown = problem(failure);
    shown.id = newId("problem");
    const place = placeOf(failure.message);
    if (!place || text !== this.#editor.text) return shown;
    const mark = () => this.#editor.mark(place, shown.id);
    shown.append(el("p", {}, button("Go to the place", mark)));
    mark();
    return shown;
  }

  /** Keep query and shape in the address, which can be shared. */
  #remember() {
    const fields = new URLSearchParams({ q: this.query });
    if (this.#shape === "chart") fields.set("show", "chart");
    history.replaceState(null, "", `#/sql?${fields}`);
  }
}
