// History of one entity: every change, the request behind it, and what it changed.

import { ask } from "./api.js";
import { changed, deviating, marked, valuesOf } from "./difference.js";
import { el, empty, problem, show } from "./dom.js";
import { count, plural } from "./format.js";
import { live } from "./live.js";
import { traceOf } from "./references.js";
import { momentNode } from "./times.js";
import { refused } from "./trace.js";
import { button, row } from "./widgets.js";

const FIRST = 20;
const MORE = 5;
const KINDS = { create: "created", update: "changed", delete: "deleted" };

/** Show the newest changes of an entity, newest first; they are asked for until the page is left. */
export function showHistory(place, entity, key) {
  const leaving = new AbortController();
  const load = async (last) => {
    show(place, el("p", { class: "waiting", role: "status" }, "Running its requests again …"));
    try {
      const path = `/entities/${encodeURIComponent(entity)}/${encodeURIComponent(key)}/history`;
      const asked = ask(`${path}?last=${last}`, { exact: true, signal: leaving.signal });
      const [{ value }, plan] = await Promise.all([asked, live.ready()]);
      show(place, changes(value, valuesOf(plan), () => load(last * MORE)));
    } catch (failure) {
      show(place, failure.status === 404 ? nothing() : problem(failure));
    }
  };
  load(FIRST);
  return { close: () => leaving.abort() };
}

const nothing = () =>
  empty("Nothing has changed it.", "No epoch that the journal has created or changed this entity.");

function changes({ entity, changes: found, more, outside, erased }, values, older) {
  const groups = found
    .map((change) => ({
      id: change.request_id ?? `epoch ${change.epoch}`,
      heads: [
        count(change.epoch),
        momentNode(change.time_us),
        [
          el("span", { class: "badge" }, KINDS[change.kind]),
          " ",
          behind(change),
          deviating(entity, change, values),
        ],
      ],
      rows: changed(entity, change, values),
    }))
    .reverse();
  const titles = ["Epoch", "Committed", "Request", "Element", "Before", "After"];
  return [
    refused(outside),
    marked("Changes, newest first", titles, groups),
    el("p", { class: "hint" }, `${plural(found.length, "change")}, newest first`),
    erased ? el("p", { class: "hint" }, unreadable(erased)) : null,
    more ? row(button("Show older changes", older)) : null,
  ];
}

const unreadable = (epochs) =>
  `Changes of ${plural(epochs, "epoch")}, by requests about erased persons, cannot be shown.`;

const behind = ({ request_id: id, call }) =>
  id === null
    ? "by a request that does not do it again"
    : [traceOf(id), el("p", { class: "hint" }, el("code", {}, call))];
