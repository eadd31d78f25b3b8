// A question before an act that cannot be taken back.

import { el, newId } from "./dom.js";
import { button } from "./widgets.js";

/** Ask a question; `title` and `text` ask, `inputs` are fields of the dialog, `leave` and `sure` are the two answers. */
export function askFirst({ title, text, inputs = [], leave, sure }, act) {
  const id = newId("question");
  const yes = async () => {
    dialog.close();
    await act();
  };
  const dialog = el(
    "dialog",
    { "aria-labelledby": id, onclose: () => dialog.remove() },
    el("h2", { id }, title),
    el("p", {}, text),
    inputs,
    el(
      "div",
      { class: "row end" },
      button(leave, () => dialog.close()),
      el("button", { type: "button", class: "main-button danger", onclick: yes }, sure),
    ),
  );
  document.getElementById("main").append(dialog);
  dialog.showModal();
}

/** Return a button that asks its question first; `name` is on the button, and `more` has its attributes. */
export const confirmButton = ({ name, more = {}, ...question }, act) =>
  button(name, () => askFirst(question, act), more);
