// What happened to one entity: its newest changes, each with the request behind it.

import { ask, encode } from "./api.js";
import { el, empty, problem, show } from "./dom.js";
import { clock, count } from "./format.js";
import { dataTable } from "./table.js";
import { requestLink } from "./trace.js";
import { button } from "./widgets.js";

const STEP = 20;

/** Return a section with a button that shows the history of an entity. */
export function historyOf(path) {
  const result = el("div", { id: "history", "aria-live": "polite" });
  const open = button("Show its changes", () => load(result, path, STEP));
  return el(
    "section",
    { "aria-labelledby": "history-title" },
    el("h2", { id: "history-title" }, "History"),
    el("p", {}, open),
    result,
  );
}

async function load(result, path, last) {
  show(result, el("p", { class: "waiting" }, "Running the epochs that changed it again …"));
  try {
    const { value } = await ask(`${path}/history?last=${last}`);
    const older = value.more
      ? button("Show older ones", () => load(result, path, last + STEP))
      : null;
    show(result, table(value.changes), older);
  } catch (failure) {
    const nothing = empty("Nothing in the journal has changed it.", "It may have come with a fork.");
    show(result, failure.status === 404 ? nothing : problem(failure));
  }
}

function table(changes) {
  const rows = changes.toReversed().flatMap((change) => {
    const told = change.attributes.length ? change.attributes : [{ name: "" }];
    return told.map(({ name, before, after }, at) => {
      const head = [
        count(change.epoch),
        clock(change.time_us / 1_000),
        [requestLink(change.request_id)],
        change.call,
      ];
      const old = change.kind === "create" || before === undefined ? "–" : encode(before);
      const now = change.kind === "delete" || after === undefined ? "–" : encode(after);
      return [...(at ? ["", "", "", ""] : head), name, old, now];
    });
  });
  const names = ["epoch", "time", "request", "call", "attribute", "before", "after"];
  return dataTable({
    caption: "Changes, the newest first",
    columns: names.map((name) => ({ name, cell: (value) => value })),
    rows,
    sortable: false,
  });
}
