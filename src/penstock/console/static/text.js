// Texts of users as elements: what has no look of its own is shown, and no text turns the direction of its line.

import { el } from "./dom.js";
import { count } from "./format.js";

const UNSEEN = /([\p{Cc}\p{Cs}\u00ad\u200b\u2028-\u202e\u2060-\u2069\ufeff])/u; // a joiner of emojis is no such one
const LAID_OUT = /[\n\t]/; // these two have a look in a text with its own spaces
const SPACED = /^\s|\s$|\s\s|[\n\t]/;
const TURNED = /[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}\u200e\u200f\u061c]/u;
const STRUCTURED = /^[[{]/;
const UNCLEAR = /^$|^\s|\s$|, |: |[[\]{}"]|^(null|true|false)$/;
const INLINE_MAX = 120;
const TITLE_MAX = 2_000;
const WHOLE_MAX = 1_000;

/** Return a text for a place where it stands alone: unseen characters are escaped, and spaces are kept. */
export function textNode(text) {
  const isOdd = UNSEEN.test(text) || TURNED.test(text);
  if (!isOdd && !SPACED.test(text)) return text;
  const parts = text
    .split(UNSEEN)
    .map((part, at) => (at % 2 && !LAID_OUT.test(part) ? el("span", { class: "null" }, escaped(part)) : part));
  const dir = isOdd && STRUCTURED.test(text) ? "ltr" : null; // brackets and commas stay in their order
  return el(isOdd ? "bdi" : "span", { dir, class: SPACED.test(text) ? "as-is" : null }, parts);
}

/** Return a text in one line, of which a long one is cut. */
export function lineNode(text) {
  if (text === "") return el("span", { class: "null" }, "empty");
  if (text.length <= INLINE_MAX) return textNode(text);
  const title = text.slice(0, TITLE_MAX);
  return el("span", { title }, textNode(`${beginning(text, INLINE_MAX - 2)}…`));
}

/** Return a text as an element of a list or dictionary in one line: in quotes where it would be unclear without. */
export const elementNode = (text) =>
  UNCLEAR.test(text) && text.length <= INLINE_MAX ? textNode(JSON.stringify(text)) : lineNode(text);

/** Return a whole text; the rest of a very long one is shown on demand. */
export function wholeNode(text) {
  if (text.length <= WHOLE_MAX) return text === "" ? lineNode(text) : textNode(text);
  const first = beginning(text, WHOLE_MAX);
  const rest = el(
    "details",
    {},
    el("summary", {}, `The whole text, ${count(text.length)} characters`),
    el("div", { class: "as-is long" }, textNode(text)),
  );
  return el("div", {}, el("div", { class: "as-is" }, textNode(first), "…"), rest);
}

/** Return the beginning of a text, without one half of a character. */
function beginning(text, length) {
  const cut = text.slice(0, length);
  return /[\ud800-\udbff]$/.test(cut) ? cut.slice(0, -1) : cut;
}

const escaped = (character) => `\\u${character.codePointAt(0).toString(16).padStart(4, "0")}`;
