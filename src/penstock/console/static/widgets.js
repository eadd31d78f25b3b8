// Small parts that several pages are made of.

import { el, newId } from "./dom.js";

/** Return a button of the quiet kind. */
export const button = (name, onclick, more = {}) =>
  el("button", { type: "button", class: "quiet-button", onclick, ...more }, name);

/** Return things side by side. */
export const row = (...children) => el("div", { class: "row" }, children);

/** Return things at both ends of a line. */
export const between = (...children) => el("div", { class: "row between" }, children);

/** Return a list of small buttons or links. */
export const chips = (items, more = {}) =>
  el(
    "ul",
    { class: "chips", ...more },
    items.map((item) => el("li", {}, item)),
  );

/** Return names with their values, one beside the other. */
export const figures = (entries, kind = "figures") =>
  el(
    "dl",
    { class: kind },
    entries.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))),
  );

/** Return names with their values, a line each. */
export const lines = (entries, wide = false) =>
  el(
    "dl",
    { class: wide ? "fields wide" : "fields" },
    entries.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]),
  );

/** Return a choice of one among few: `options` are pairs of value and name. */
export function choice(legend, options, chosen, onchoose) {
  const name = newId("choice");
  return el(
    "fieldset",
    { class: "choice" },
    el("legend", {}, legend),
    options.map(([value, shown]) => {
      const id = `${legend.toLowerCase().replaceAll(" ", "-")}-${value}`;
      const input = el("input", {
        type: "radio",
        name,
        id,
        value,
        onchange: () => onchoose(value),
      });
      input.checked = value === chosen;
      return [input, el("label", { for: id }, shown)];
    }),
  );
}

/** Return a box to tick, `{element, input}`. */
export function tick(name, checked, onchange) {
  const input = el("input", { type: "checkbox", id: newId("tick"), onchange });
  input.checked = checked;
  return { input, element: el("div", { class: "tick" }, input, el("label", { for: input.id }, name)) };
}

/** Return a part of a page with a heading and a hint beside it. */
export function panel(id, title, hint, ...content) {
  return el(
    "section",
    { class: "panel", "aria-labelledby": `${id}-title` },
    between(el("h2", { id: `${id}-title` }, title), el("p", { class: "hint" }, hint)),
    content,
  );
}
