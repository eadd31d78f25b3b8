// The button that kills the driver, which is there in `penstock dev` only.

import { ask } from "./api.js";
import { confirmButton } from "./confirm.js";
import { el, problem, show } from "./dom.js";

const QUESTION = {
  name: "Kill the driver …",
  title: "Kill the driver?",
  text:
    "It gets SIGKILL: no warning, no farewell. Requests go on being taken, and wait in the log until " +
    "the driver is back. Nothing may be lost.",
  leave: "Leave it alone",
  sure: "Kill it",
  more: { id: "kill-driver", class: "quiet-button danger" },
};
const REQUEST = { method: "POST", headers: { "Penstock-Console": "kill-driver" } };

/** Return the button with its question; `recovery` tells what happens then. */
export function killButton(recovery) {
  const said = el("div", {});
  const kill = async () => {
    show(said);
    try {
      recovery.begin((await ask("/console/api/kill-driver", REQUEST)).value);
    } catch (failure) {
      show(said, problem(failure));
    }
  };
  return [confirmButton(QUESTION, kill), said];
}
