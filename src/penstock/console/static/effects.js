// Effects: calls of the outside that wait, run, or have failed for good; orders to retry and discard them.

import { ask } from "./api.js";
import { confirmButton } from "./confirm.js";
import { el, empty, problem, show } from "./dom.js";
import { count } from "./format.js";
import { keepLooking } from "./look.js";
import { textNode } from "./text.js";
import { button, panel, row } from "./widgets.js";

const PATH = "/effects";
const QUERY = "SELECT * FROM penstock.effects ORDER BY sent DESC LIMIT 200";
const LOOK_MS = 1_000;
const STATE_CLASS = { dead: "absent", lost: "absent", running: "processing" };

/** Show the page. */
export async function open(body) {
  show(body, el("p", { class: "waiting" }, "Asking the gateway …"));
  const said = el("div", { role: "status" });
  const hold = el("div", { id: "held" });
  const functions = el("div", {});
  const list = el("div", { id: "effects", class: "stack" });
  let form = "";

  async function order(path, content) {
    show(said);
    try {
      const { value } = await ask(path, { method: "POST", body: JSON.stringify(content) });
      if (value.left) show(said, el("p", {}, value.left));
      update((await ask(PATH)).value);
    } catch (failure) {
      show(said, problem(failure));
    }
  }

  function update({ process, effects, held }) {
    show(functions, functionsPanel(process));
    // The buttons stay the same elements while nothing changes, so that the keyboard does not lose its place.
    const present = JSON.stringify([held, effects]);
    if (present === form) return;
    form = present;
    show(hold, held ? heldPanel(held, order) : null);
    show(list, effects.length ? effects.map((one) => effectPanel(one, order)) : nothing());
  }

  update((await ask(PATH)).value);
  const query = `#/sql?${new URLSearchParams({ q: QUERY })}`;
  show(body, said, hold, functions, list, el("p", {}, el("a", { href: query, id: "all" }, "All effects as SQL")));
  return keepLooking(PATH, LOOK_MS, update);
}

const nothing = () => empty("No effect waits.", "A handler sends one with send(effect, …).");

function functionsPanel(process) {
  if (!process) return empty("No process has called effects here.", "penstock run starts one for an application with effects.");
  const told = [process.state, process.reason, process.remedy].filter(Boolean).join("; ");
  const names = ["Effect", "Waiting", "Running", "Dead", "Calls", "Failures"];
  const rows = process.functions.map((each) => [
    each.function,
    ...[each.waiting, each.running, each.dead, each.calls, each.failures].map(count),
  ]);
  return panel("functions", "Functions", told, tableOf(names, rows));
}

function tableOf(names, rows) {
  return el(
    "table",
    {},
    el("thead", {}, el("tr", {}, names.map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell) => el("td", {}, cell))))),
  );
}

function effectPanel(effect, order) {
  const labelled = (verb) => ({ "aria-label": `${verb} ${effect.id}` });
  const discard = {
    name: "Discard …",
    more: labelled("Discard"),
    title: `Discard ${effect.id}?`,
    text: "It is not called again. If it has no outcome yet, its outcome is failed.",
    leave: "Leave it",
    sure: "Discard",
  };
  const state = el("span", { class: `state ${STATE_CLASS[effect.state] ?? "idle"}` }, effect.state);
  const facts = [`for ${effect.owner}`, `${count(effect.tries)} calls`];
  if (effect.due) facts.push(`next ${effect.due}`);
  return panel(
    `effect-${effect.id}`,
    `${effect.function} ${effect.id}`,
    facts.join(", "),
    el("p", {}, state),
    effect.error ? el("p", {}, textNode(effect.error)) : null,
    row([
      button("Retry", () => order(PATH, { kind: "retry", effect: effect.id }), labelled("Retry")),
      confirmButton(discard, () => order(PATH, { kind: "discard", effect: effect.id })),
    ]),
  );
}

function heldPanel(held, order) {
  const resume = {
    name: "Resume all …",
    title: "Call the effects of this directory?",
    text: "Its views write into their targets, and its effects are called, from now on. Discard first what must not be called.",
    leave: "Leave them",
    sure: "Resume",
  };
  return panel(
    "hold",
    "Held",
    "The effects of a copy are not called until they are resumed.",
    el("p", {}, textNode(held.reason)),
    row(confirmButton(resume, () => order("/resume", {}))),
  );
}
