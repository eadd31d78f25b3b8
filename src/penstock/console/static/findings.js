// The findings of a check or of a comparison: each with its level, as a word and as a colour.

import { el, empty } from "./dom.js";

const WORDS = { safe: "safe", "needs-a-word": "needs a word", refused: "refused" };

/** Return findings as a list. */
export function findingsList(findings) {
  if (!findings.length) return empty("No difference was found.", "Callers and stored entities notice nothing.");
  return el(
    "ul",
    { class: "plain findings" },
    findings.map(({ level, kind, what }) =>
      el(
        "li",
        {},
        el("span", { class: `level ${level}` }, WORDS[level] ?? level),
        " ",
        el("span", { class: "hint" }, kind),
        " · ",
        what,
      ),
    ),
  );
}
