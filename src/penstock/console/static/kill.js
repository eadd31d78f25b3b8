// The button that kills the driver, which is there in `penstock dev` only.

import { ask } from "./api.js";
import { el, problem, show } from "./dom.js";
import { button } from "./widgets.js";

const WARNING =
  "It gets SIGKILL: no warning, no farewell. Requests go on being taken, and wait in the log until " +
  "the driver is back. Nothing may be lost.";
const REQUEST = { method: "POST", headers: { "Penstock-Console": "kill-driver" } };

/** Return the button with its question; `recovery` tells what happens then. */
export function killButton(recovery) {
  const said = el("div", {});
  const kill = async () => {
    dialog.close();
    show(said);
    try {
      recovery.begin((await ask("/console/api/kill-driver", REQUEST)).value);
    } catch (failure) {
      show(said, problem(failure));
    }
  };
  const leave = button("Leave it alone", () => dialog.close());
  const sure = el(
    "button",
    { type: "button", class: "main-button danger", onclick: kill },
    "Kill it",
  );
  const dialog = el(
    "dialog",
    { "aria-labelledby": "kill-title" },
    el("h2", { id: "kill-title" }, "Kill the driver?"),
    el("p", {}, WARNING),
    el("div", { class: "row end" }, leave, sure),
  );
  const opens = button("Kill the driver …", () => dialog.showModal(), {
    id: "kill-driver",
    class: "quiet-button danger",
  });
  return [opens, said, dialog];
}
