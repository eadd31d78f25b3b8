// Buttons that save the entities of a class, or the events of a stream, as a file.

import { address, failureOf, key, send } from "./api.js";
import { el, problem, show } from "./dom.js";
import { button } from "./widgets.js";

const FORMATS = [
  ["parquet", "Parquet"],
  ["csv", "CSV"],
  ["jsonl", "JSON lines"],
];

/** Return the buttons for a class or a stream. */
export function exportButtons(name, folder = "") {
  const told = el("div", { role: "status" });
  const path = (format) => `/export/${folder}${encodeURIComponent(name)}?format=${format}`;
  const choices = FORMATS.map(([format, title]) =>
    key.get()
      ? button(title, () => saveWithKey(path(format), `${name}.${format}`, told))
      : el("a", { href: `${address(path(format))}`, download: "" }, title),
  );
  return el("div", { class: "stack" }, el("div", { class: "row" }, el("span", { class: "hint" }, "Export"), choices), told);
}

// A link cannot send a key, so the file goes through the memory of the browser.
async function saveWithKey(path, name, told) {
  show(told, el("p", { class: "waiting" }, "The gateway reads the rows …"));
  try {
    const response = await send(path);
    if (!response.ok) throw failureOf(response.status, await response.text(), `GET ${path}`);
    const href = URL.createObjectURL(await response.blob());
    el("a", { href, download: name }).click();
    URL.revokeObjectURL(href);
    show(told);
  } catch (failure) {
    show(told, problem(failure));
  }
}
