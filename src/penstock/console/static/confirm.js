// A button that asks before it acts.

import { el, newId } from "./dom.js";
import { button } from "./widgets.js";

/**
 * Return a button and its question.
 *
 * `name` is on the button; `title` and `text` ask; `leave` and `sure` are the two answers. `more` has attributes of
 * the button.
 */
export function confirmButton({ name, title, text, leave, sure, more = {} }, act) {
  const id = newId("question");
  const yes = async () => {
    dialog.close();
    await act();
  };
  const dialog = el(
    "dialog",
    { "aria-labelledby": id },
    el("h2", { id }, title),
    el("p", {}, text),
    el(
      "div",
      { class: "row end" },
      button(leave, () => dialog.close()),
      el("button", { type: "button", class: "main-button danger", onclick: yes }, sure),
    ),
  );
  return [button(name, () => dialog.showModal(), more), dialog];
}
