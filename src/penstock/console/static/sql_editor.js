// The editor of a query: suggestions while one types, and a mark at the place of an error.

import { el, field, show } from "./dom.js";
import { suggestionsAt, tokensOf } from "./sql_scan.js";
import { Suggestions } from "./suggestions.js";

/** Read the place of an error: `line 2, column 6: …` becomes `{line, column}`; else null. */
export function placeOf(message) {
  const found = /^line (\d+), column (\d+): /.exec(message);
  return found && { line: Number(found[1]), column: Number(found[2]) };
}

/** Return the part of a text that a place means: `{from, to}`, never empty if there is a text. */
export function rangeOf(text, { line, column }) {
  const lines = text.split("\n");
  const start = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
  const before = Array.from(lines[line - 1] ?? "").slice(0, column - 1);
  const from = Math.min(start + before.join("").length, text.length);
  const token = tokensOf(text).find((each) => each.from <= from && from < each.to);
  if (token && /\S/.test(token.text)) return { from, to: token.to };
  return from < text.length ? { from, to: from + 1 } : { from: Math.max(0, from - 1), to: from };
}

/** A text area for a query; `schema` is filled when the tables are known. */
export class Editor {
  schema = [];
  #text;
  #mirror = el("div", { class: "mirror code", "aria-hidden": "true" });
  #suggestions;

  constructor(query, onrun) {
    this.#text = el("textarea", {
      rows: 5,
      spellcheck: "false",
      autocapitalize: "off",
      autocomplete: "off",
      class: "code",
      id: "query",
      value: query,
    });
    this.#suggestions = new Suggestions(this.#text, {
      label: "Suggestions for the query",
      find: (wanted) => this.#found(wanted),
      take: (item, { from }) => this.#replace(from, this.#text.selectionStart, item.text),
      place: () => this.#caretPlace(),
    });
    this.#text.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      this.#suggestions.close();
      onrun();
    });
    this.#text.addEventListener("input", (event) => {
      this.unmark();
      if (event.inputType === "insertText") this.#suggestions.open();
      else this.#suggestions.close();
    });
    this.#text.addEventListener("click", () => this.#suggestions.close());
    this.#text.addEventListener("scroll", () => {
      this.#mirror.scrollTop = this.#text.scrollTop;
    });
    const hint = "Ctrl + Enter runs it. Suggestions open while you type, or with Ctrl + Space.";
    const labelled = field("Query", this.#text, hint);
    const { element } = this.#suggestions;
    element.classList.add("editor");
    element.prepend(this.#mirror);
    labelled.insertBefore(element, labelled.lastElementChild);
    element.insertBefore(this.#text, this.#mirror.nextSibling);
    this.element = labelled;
  }

  get text() {
    return this.#text.value;
  }

  set text(query) {
    this.#text.value = query;
    this.unmark();
  }

  focus() {
    this.#text.focus();
  }

  /** Write a name where the caret is, apart from the words around it. */
  insert(name) {
    const { selectionStart: from, selectionEnd: to, value } = this.#text;
    const before = /[\w"')]$/.test(value.slice(0, from)) ? " " : "";
    const after = /^[\w"'(]/.test(value.slice(to)) ? " " : "";
    this.#replace(from, to, before + name + after);
  }

  /** Mark the place of an error, and put the caret there; `described` is the id of its message. */
  mark(place, described) {
    const { from, to } = rangeOf(this.text, place);
    this.#text.setAttribute("aria-invalid", "true");
    this.#text.setAttribute("aria-errormessage", described);
    this.#fill(from, to);
    this.#text.focus();
    this.#text.setSelectionRange(from, from);
    const at = this.#mirror.querySelector("mark");
    const isSeen = at.offsetTop < this.#text.scrollTop + this.#text.clientHeight - 20;
    if (!isSeen || at.offsetTop < this.#text.scrollTop) this.#text.scrollTop = at.offsetTop - 40;
    this.#mirror.scrollTop = this.#text.scrollTop;
  }

  unmark() {
    this.#text.removeAttribute("aria-invalid");
    this.#text.removeAttribute("aria-errormessage");
    show(this.#mirror);
  }

  #found(wanted) {
    const { selectionStart: caret, selectionEnd: end, value } = this.#text;
    return caret === end ? suggestionsAt(value, caret, this.schema, wanted) : null;
  }

  #replace(from, to, text) {
    this.#text.focus();
    this.#text.setSelectionRange(from, to);
    // This command alone lets a person take the change back with Ctrl + Z.
    if (!document.execCommand("insertText", false, text)) {
      this.#text.setRangeText(text, from, to, "end");
    }
    this.unmark();
    this.#suggestions.close();
  }

  /** Return where the caret is, in pixels of the editor. */
  #caretPlace() {
    const caret = this.#text.selectionStart;
    this.#fill(caret, caret);
    const mark = this.#mirror.querySelector("mark");
    const height = Number.parseFloat(getComputedStyle(this.#text).lineHeight);
    const top = mark.offsetTop - this.#text.scrollTop + height + 4;
    const place = { left: mark.offsetLeft, top };
    show(this.#mirror);
    return place;
  }

  /** Lay the text below the text area, with a part of it marked. */
  #fill(from, to) {
    const { value } = this.#text;
    const mark = el("mark", {}, from === to ? "\u200b" : value.slice(from, to));
    show(this.#mirror, value.slice(0, from), mark, `${value.slice(to)}\n`);
  }
}
