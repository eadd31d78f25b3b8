// Views: the databases and search indexes that show tables of the application: state, lag, reason and remedy; orders.

import { ask } from "./api.js";
import { askFirst, confirmButton } from "./confirm.js";
import { el, empty, field, problem, show } from "./dom.js";
import { count } from "./format.js";
import { keepLooking } from "./look.js";
import { textNode } from "./text.js";
import { button, lines, panel, row, tick } from "./widgets.js";

const PATH = "/views";
const LOOK_MS = 1_000;
const STATE_CLASS = { following: "processing", filling: "processing", starting: "idle", paused: "idle" };

/** Show the page. */
export async function open(body) {
  show(body, el("p", { class: "waiting" }, "Asking the gateway …"));
  const said = el("div", { role: "status" });
  const hold = el("div", { id: "held" });
  const list = el("div", { id: "views", class: "stack" });
  let facts = new Map();
  let form = "";

  async function order(path, content) {
    show(said);
    try {
      const { value } = await ask(path, { method: "POST", body: JSON.stringify(content) });
      update(value);
      if (value.left) show(said, el("p", {}, value.left));
    } catch (failure) {
      show(said, problem(failure));
    }
  }

  function update({ views, held }) {
    // The buttons stay the same elements while a view only moves on, so that the keyboard does not lose its place.
    const present = JSON.stringify([held, views.map(({ name, state }) => [name, state])]);
    if (present !== form) {
      form = present;
      show(hold, held ? heldPanel(held, order) : null);
      facts = new Map(views.map(({ name }) => [name, el("div", {})]));
      show(list, views.length ? views.map((view) => viewPanel(view, facts.get(view.name), order)) : nothing());
    }
    for (const view of views) show(facts.get(view.name), factsOf(view));
  }

  update((await ask(PATH)).value);
  show(body, said, hold, list);
  return keepLooking(PATH, LOOK_MS, update);
}

const nothing = () => empty("The application has no views.", "Name a view among the members of its App.");

function viewPanel(view, facts, order) {
  const id = `view-${view.name}`;
  return panel(id, view.name, view.target ? `In ${view.target}.` : "", facts, row(buttonsOf(view, order)));
}

function buttonsOf(view, order) {
  const { name, state } = view;
  const labelled = (verb) => ({ "aria-label": `${verb} ${name}` });
  const give = (kind, reason = "") => order(PATH, { kind, view: name, reason });
  if (state === "undeclared") {
    const kept = tick("Keep the tables in the database", false);
    const remove = {
      name: "Remove …",
      more: labelled("Remove"),
      title: `Remove ${name}?`,
      text: "Its folder in the data directory is removed, and so are its tables in a database.",
      inputs: [kept.element],
      leave: "Leave them",
      sure: "Remove",
    };
    return confirmButton(remove, () => order(PATH, { kind: "remove", view: name, keep_tables: kept.input.checked }));
  }
  const rebuild = {
    name: "Rebuild …",
    more: labelled("Rebuild"),
    title: `Rebuild ${name}?`,
    text: "Its tables are filled again from the newest snapshot. Readers see the former rows until then.",
    leave: "Leave it",
    sure: "Rebuild",
  };
  return [
    state === "paused"
      ? button("Resume", () => give("resume"), labelled("Resume"))
      : button("Pause …", () => askPause(name, give), labelled("Pause")),
    confirmButton(rebuild, () => give("rebuild")),
  ];
}

function askPause(name, give) {
  const reason = el("input", { maxlength: 500 });
  const question = {
    title: `Pause ${name}?`,
    text: "Its tables stay at their epoch until it is resumed.",
    inputs: [field("Reason", reason)],
    leave: "Leave it",
    sure: "Pause",
  };
  askFirst(question, () => give("pause", reason.value.trim()));
}

function heldPanel(held, order) {
  const resume = {
    name: "Resume all …",
    title: "Resume the views of this directory?",
    text: "They write into the targets that the settings name. Those must not be the targets of the original.",
    leave: "Leave them",
    sure: "Resume",
  };
  return panel(
    "hold",
    "Held",
    "The views of a copy write nothing until they are resumed.",
    el("p", {}, textNode(held.reason)),
    row(confirmButton(resume, () => order("/resume", {}))),
  );
}

function factsOf(view) {
  const filled = view.filled === null ? "" : `, ${Math.round(view.filled * 100)} %`;
  const state = el("span", { class: `state ${STATE_CLASS[view.state] ?? "absent"}` }, view.state + filled);
  return lines(
    [
      ["State", state],
      ["Epoch", view.epoch < 0 ? "none yet" : count(view.epoch)],
      ["Lag", `${count(view.lag)} epochs`],
      ["Failed rows", view.incomplete ? `${count(view.failed)}: incomplete` : "0"],
      view.asked_ms === null ? null : ["Queries", `${count(Math.round(view.asked_ms))} ms${view.rests ? ", rests" : ""}`],
      view.reason ? ["Reason", textNode(view.reason)] : null,
      view.remedy ? ["Remedy", textNode(view.remedy)] : null,
      view.rebuilding ? ["Rebuild", "ordered"] : null,
    ].filter(Boolean),
  );
}
