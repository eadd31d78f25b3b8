// What the gateway answered to a request, and the same request for a terminal.

import { address, key } from "./api.js";
import { copied } from "./clipboard.js";
import { el } from "./dom.js";
import { duration } from "./format.js";
import { decodeExactly, encode } from "./json.js";
import { between, button, lines, row } from "./widgets.js";

const PLAIN = /^[\w@%+=:,./-]+$/;

/** Return a node that shows an answer: status, body, headers. */
export function replyOf(response, text, took, request) {
  const id = response.headers.get("Penstock-Request-Id");
  const words = `${response.status} ${response.ok ? "succeeded" : "failed"}`;
  const status = el(
    "p",
    {},
    el("span", { class: "status" }, words),
    el("span", { class: "hint" }, ` in ${duration(took)}`),
  );
  const link = id
    ? el("a", { href: `#/requests/${encodeURIComponent(id)}` }, "Look this request up")
    : null;
  return el(
    "section",
    { class: `panel answer ${response.ok ? "fine" : "failed"}`, "aria-label": "Answer" },
    between(status, link),
    el("h2", {}, "Body"),
    el("pre", { class: "code" }, pretty(text)),
    el("details", {}, el("summary", {}, "Headers"), lines([...response.headers])),
    curlOf(request),
  );
}

/** Return a node with the line that sends the same from a terminal; a key is named, never shown. */
export function curlOf(request) {
  const line = curl(request);
  const said = el("span", { role: "status", class: "hint" });
  const copy = async () => {
    said.textContent = (await copied(line)) ? "Copied." : "Mark the line and copy it.";
  };
  return el(
    "div",
    { class: "curl" },
    el("h2", {}, "The same from a terminal"),
    el("pre", { class: "code" }, line),
    row(button("Copy", copy), said),
  );
}

function curl({ method, path, headers, body }) {
  const word = (text) => (PLAIN.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
  const parts = ["curl"];
  if (method !== "GET") parts.push("-X", method);
  parts.push(word(String(address(path))));
  for (const [name, value] of Object.entries(headers)) parts.push("-H", word(`${name}: ${value}`));
  if (key.get()) parts.push("-H", '"Authorization: Bearer $PENSTOCK_KEY"');
  if (body !== undefined) parts.push("-d", word(body));
  return parts.join(" ");
}

function pretty(text) {
  try {
    return encode(decodeExactly(text), 2) ?? "";
  } catch {
    return text;
  }
}
