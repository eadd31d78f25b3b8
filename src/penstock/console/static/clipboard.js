// Copies texts, also where the page has no secure origin and so no clipboard of its own.

import { el } from "./dom.js";

/** Copy a text; return whether this was possible. */
export async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copiedByCommand(text);
  }
}

function copiedByCommand(text) {
  const held = el("textarea", { class: "hidden", "aria-hidden": "true", tabindex: -1, value: text });
  const focused = document.activeElement;
  document.body.append(held);
  held.select();
  const done = document.execCommand("copy");
  held.remove();
  focused?.focus();
  return done;
}
