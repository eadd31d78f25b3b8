// Changes of databases: how each stream of changes stands: state, lag, reason and remedy; orders.

import { ask } from "./api.js";
import { askFirst, confirmButton } from "./confirm.js";
import { el, empty, field, problem, show } from "./dom.js";
import { count } from "./format.js";
import { keepLooking } from "./look.js";
import { textNode } from "./text.js";
import { button, lines, panel, row } from "./widgets.js";

const PATH = "/captures";
const LOOK_MS = 1_000;
const STATE_CLASS = { following: "processing", reading: "processing", starting: "idle", paused: "idle" };

/** Show the page. */
export async function open(body) {
  show(body, el("p", { class: "waiting" }, "Asking the gateway …"));
  const said = el("div", { role: "status" });
  const list = el("div", { id: "captures", class: "stack" });
  let facts = new Map();
  let form = "";

  async function order(content) {
    show(said);
    try {
      update((await ask(PATH, { method: "POST", body: JSON.stringify(content) })).value);
    } catch (failure) {
      show(said, problem(failure));
    }
  }

  function update({ captures }) {
    // The buttons stay the same elements while a stream only moves on, so that the keyboard does not lose its place.
    const present = JSON.stringify(captures.map(({ name, state }) => [name, state]));
    if (present !== form) {
      form = present;
      facts = new Map(captures.map(({ name }) => [name, el("div", {})]));
      show(list, captures.length ? captures.map((each) => panelOf(each, facts.get(each.name), order)) : nothing());
    }
    for (const each of captures) show(facts.get(each.name), factsOf(each));
  }

  update((await ask(PATH)).value);
  show(body, said, list);
  return keepLooking(PATH, LOOK_MS, update);
}

const nothing = () => empty("The application takes no changes of a database.", "changes(…) declares a stream of them.");

function panelOf(capture, facts, order) {
  const { name, source } = capture;
  return panel(`capture-${name}`, name, source ? `From ${source}.` : "", facts, row(buttonsOf(capture, order)));
}

function buttonsOf({ name, state }, order) {
  const labelled = (verb) => ({ "aria-label": `${verb} ${name}` });
  const give = (kind, reason = "") => order({ kind, capture: name, reason });
  const again = {
    name: "Read the tables again …",
    more: labelled("Read again"),
    title: `Read the tables of ${name} again?`,
    text: "The slot is dropped and made again. The stream gets the change reset, and then all rows.",
    leave: "Leave it",
    sure: "Read",
  };
  return [
    state === "paused"
      ? button("Resume", () => give("resume"), labelled("Resume"))
      : button("Pause …", () => askPause(name, give), labelled("Pause")),
    confirmButton(again, () => give("snapshot")),
  ];
}

function askPause(name, give) {
  const reason = el("input", { maxlength: 500 });
  const question = {
    title: `Pause ${name}?`,
    text: "The database keeps its log until the stream is resumed.",
    inputs: [field("Reason", reason)],
    leave: "Leave it",
    sure: "Pause",
  };
  askFirst(question, () => give("pause", reason.value.trim()));
}

function factsOf(capture) {
  const kept = capture.retained_bytes;
  const state = el("span", { class: `state ${STATE_CLASS[capture.state] ?? "absent"}` }, capture.state);
  return lines(
    [
      ["State", state],
      ["Position", capture.source_lsn || "none yet"],
      ["Rows", count(capture.rows)],
      ["Behind", `${capture.lag_s.toFixed(1)} s`],
      kept === null ? null : ["Kept by the database", `${(kept / 1e6).toFixed(1)} MB`],
      capture.unfit ? ["Rows that do not fit", count(capture.unfit)] : null,
      capture.untaken.length ? ["Columns that no field takes", textNode(capture.untaken.join(", "))] : null,
      capture.reason ? ["Reason", textNode(capture.reason)] : null,
      capture.remedy ? ["Remedy", textNode(capture.remedy)] : null,
    ].filter(Boolean),
  );
}
