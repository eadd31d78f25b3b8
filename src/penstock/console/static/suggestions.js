// A list of suggestions below a text field: arrow keys choose, Tab takes, Escape closes. Enter takes
// what the arrow keys have chosen; before that, it does what it always does in the field.

import { el, newId, show } from "./dom.js";
import { plural } from "./format.js";

/**
 * The list of one input or text area, which keeps the focus.
 *
 * `find(wanted)` returns the suggestions, or a promise of them: `{items, more}` or null, where an item
 * has `name` and `kind`. `take(item, found)` is called with the chosen one. `place()` returns where the
 * list is shown, `{left, top}` in pixels; without it, the list is below the field.
 */
export class Suggestions {
  #input;
  #options;
  #list;
  #said = el("span", { class: "hidden", role: "status" });
  #found = null;
  #active = -1;
  #isChosen = false;
  #asked = 0;

  constructor(input, options) {
    this.#input = input;
    this.#options = options;
    this.#list = el("ul", {
      id: newId("suggestions"),
      class: "suggestions",
      role: "listbox",
      "aria-label": options.label,
      hidden: true,
    });
    // A text area is no combobox for browsers; it tells of its list as editors do.
    if (input.tagName === "INPUT") input.setAttribute("role", "combobox");
    input.setAttribute("aria-autocomplete", "list");
    input.setAttribute("aria-haspopup", "listbox");
    input.setAttribute("aria-controls", this.#list.id);
    this.#announce();
    input.addEventListener("keydown", (event) => this.#key(event));
    input.addEventListener("blur", () => this.close());
    this.element = el("div", { class: "suggested" }, input, this.#list, this.#said);
  }

  get isOpen() {
    return this.#found !== null;
  }

  /** Look for suggestions; `wanted` says that the person asked for them. */
  async open(wanted = false) {
    this.#asked += 1;
    const mine = this.#asked;
    const found = await this.#options.find(wanted);
    if (mine !== this.#asked || document.activeElement !== this.#input) return;
    this.#found = found?.items.length ? found : null;
    this.#isChosen = false;
    this.#active = this.#found && !this.#options.isFree ? 0 : -1;
    this.#draw();
  }

  close() {
    this.#asked += 1;
    this.#found = null;
    this.#draw();
  }

  #draw() {
    const items = this.#found?.items ?? [];
    this.#list.hidden = !items.length;
    show(
      this.#list,
      items.map((item, index) => this.#option(item, index)),
      this.#found?.more ? el("li", { class: "hint", role: "presentation" }, this.#found.more) : null,
    );
    const said = `${plural(items.length, "suggestion")}: arrow keys choose, Tab takes, Escape closes.`;
    this.#said.textContent = items.length ? said : "";
    if (items.length && this.#options.place) {
      const { left, top } = this.#options.place();
      const width = this.#input.parentElement.clientWidth - this.#list.offsetWidth;
      this.#list.style.left = `${Math.max(0, Math.min(left, width))}px`;
      this.#list.style.top = `${top}px`;
    }
    this.#mark();
  }

  #option(item, index) {
    const properties = {
      id: `${this.#list.id}-${index}`,
      role: "option",
      onmousedown: (event) => {
        event.preventDefault(); // the field keeps the focus
        this.#take(index);
      },
    };
    return el("li", properties, el("span", {}, item.name), el("span", { class: "type" }, item.kind));
  }

  #mark() {
    [...this.#list.querySelectorAll("[role=option]")].forEach((one, index) => {
      one.setAttribute("aria-selected", String(index === this.#active));
      if (index === this.#active) one.scrollIntoView({ block: "nearest" });
    });
    this.#announce();
  }

  #announce() {
    if (this.#input.tagName === "INPUT")
      this.#input.setAttribute("aria-expanded", String(this.isOpen));
    if (this.isOpen && this.#active >= 0)
      this.#input.setAttribute("aria-activedescendant", `${this.#list.id}-${this.#active}`);
    else this.#input.removeAttribute("aria-activedescendant");
  }

  #take(index) {
    const found = this.#found;
    this.close();
    this.#options.take(found.items[index], found);
  }

  #key(event) {
    const isPlain = !event.ctrlKey && !event.metaKey && !event.altKey && !event.shiftKey;
    if (event.key === " " && event.ctrlKey) {
      event.preventDefault();
      this.open(true);
    } else if (this.isOpen && isPlain) this.#keyInList(event);
    else if (event.key === "ArrowDown" && isPlain && this.#input.tagName === "INPUT") {
      event.preventDefault();
      this.open(true);
    }
  }

  #takes(key) {
    if (this.#active < 0) return false;
    return key === "Tab" || (key === "Enter" && this.#isChosen);
  }

  #keyInList(event) {
    const size = this.#found.items.length;
    const steps = { ArrowDown: 1, ArrowUp: -1 };
    if (event.key in steps) {
      const from = this.#active < 0 && event.key === "ArrowUp" ? 0 : this.#active;
      this.#active = (from + steps[event.key] + size) % size;
      this.#isChosen = true;
      this.#mark();
    } else if (this.#takes(event.key)) this.#take(this.#active);
    else if (event.key === "Escape") this.close();
    else {
      if (event.key === "Enter") this.close();
      return;
    }
    event.preventDefault();
    event.stopImmediatePropagation();
  }
}
