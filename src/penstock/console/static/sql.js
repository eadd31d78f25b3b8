// SQL: one question over the whole state at one epoch.

import { sql } from "./api.js";
import { Answer } from "./answer.js";
import { el, empty, field, problem, show } from "./dom.js";
import { examplesOf } from "./examples.js";
import { live } from "./live.js";
import { chips } from "./widgets.js";

const ROWS_MAX = 10_000;

/** Show the editor; a query in the address runs at once. */
export async function open(body, { search }) {
  const editor = new Editor(search.get("q") ?? "", search.get("show") ?? "table");
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
    editor.form,
    editor.result,
  );
  if (editor.query) editor.run();
  const plan = await live.ready();
  show(
    examples,
    chips(
      examplesOf(plan).map(([name, query]) =>
        el("button", { type: "button", onclick: () => editor.take(query) }, name),
      ),
    ),
  );
  return { follow: (asked, name) => name === "sql" && asked.search.get("q") === editor.query };
}

/** The text, what runs it, and the place for what comes back. */
class Editor {
  #text;
  #said = el("span", { role: "status", class: "hint" });
  #shape;

  constructor(query, shape) {
    this.#shape = shape;
    this.#text = el("textarea", {
      rows: 6,
      spellcheck: "false",
      autocapitalize: "off",
      autocomplete: "off",
      class: "code",
      id: "query",
      value: query,
    });
    this.#text.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      this.run();
    });
    this.result = el("div", { id: "result", "aria-live": "polite" });
    this.form = el(
      "form",
      {
        onsubmit: (event) => {
          event.preventDefault();
          this.run();
        },
      },
      field("Query", this.#text),
      el(
        "p",
        { class: "row" },
        el("button", { type: "submit", class: "main-button" }, "Run"),
        el("span", { class: "hint" }, "or Ctrl + Enter"),
        this.#said,
      ),
    );
  }

  get query() {
    return this.#text.value.trim();
  }

  /** Run an example. */
  take(query) {
    this.#text.value = query;
    this.#text.focus();
    this.run();
  }

  /** Ask, and show what comes back. */
  async run() {
    if (!this.query) {
      show(this.result, empty("Write a query first.", "Or take one of the examples above."));
      return;
    }
    this.#remember();
    this.#said.textContent = "Running …";
    const began = performance.now();
    try {
      const found = await sql(this.query, [], { rows_max: ROWS_MAX });
      const chosen = (shape) => {
        this.#shape = shape;
        this.#remember();
      };
      show(
        this.result,
        new Answer(this.query, found, performance.now() - began, this.#shape, chosen).element,
      );
    } catch (failure) {
      if (failure.message.includes("rows_max")) failure.next = "Add a LIMIT to the query.";
      show(this.result, problem(failure));
    }
    this.#said.textContent = "";
  }

  /** Keep query and shape in the address, which can be shared. */
  #remember() {
    const fields = new URLSearchParams({ q: this.query });
    if (this.#shape === "chart") fields.set("show", "chart");
    history.replaceState(null, "", `#/sql?${fields}`);
  }
}
