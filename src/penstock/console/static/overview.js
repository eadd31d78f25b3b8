// Overview: the dataflow graph with live rates, the processes, and in `penstock dev` the button that
// kills the driver, with what happens then.

import { ask } from "./api.js";
import { el, empty, problem, show } from "./dom.js";
import { age, bytes, count } from "./format.js";
import { Graph } from "./graph.js";
import { live } from "./live.js";
import { Recovery } from "./recovery.js";
import { dataTable } from "./table.js";

const ROLES = { supervisor: "Supervisor", driver: "Driver", gateway: "Gateway", view: "SQL view" };

/** Show the page; it follows until it is closed. */
export async function open(body) {
  const processes = el("div", { id: "processes" });
  const idle = el("div", {});
  const killing = el("div", { id: "killing" });
  show(body, el("p", { class: "waiting" }, "Asking the gateway …"));
  const plan = await live.ready();
  const graph = new Graph(plan);
  const recovery = new Recovery();
  show(body,
    el("section", { class: "panel wide", "aria-labelledby": "graph-title" },
      el("div", { class: "row between" }, el("h2", { id: "graph-title" }, "Dataflow"), el("p", { class: "hint" }, summary(plan))), idle, graph.element),
    el("section", { class: "panel wide", "aria-labelledby": "processes-title" },
      el("div", { class: "row between" }, el("h2", { id: "processes-title" }, "Processes"), killing), processes, recovery.element),
  );

  function update() {
    if (!live.status) return;
    graph.update(live.callRates());
    show(idle, live.status.epoch < 0 ? empty("Nothing has run yet.", "Send a first request from ", el("a", { href: "#/try" }, "Try it"), "; its way through the graph shows here.") : null);
    show(processes, processTable(live.status));
    recovery.look(live);
    if (live.status.dev && !killing.firstChild) show(killing, killButton(recovery));
  }
  live.addEventListener("change", update);
  update();
  return { close: () => live.removeEventListener("change", update) };
}

function summary(plan) {
  const entities = plan.operators.filter((one) => one.key).length;
  const functions = plan.operators.length - entities;
  const circles = plan.cycles.length;
  return [`${entities} entity ${entities === 1 ? "class" : "classes"}`, functions ? `${functions} ${functions === 1 ? "function" : "functions"}` : "", circles ? `${circles} ${circles === 1 ? "circle" : "circles"} of calls` : "no circles"].filter(Boolean).join(" · ");
}

function processTable(status) {
  if (!status.processes.length) return empty("No process says that it is here.", "Start the application with penstock run or penstock dev.");
  const rows = status.processes.map((one) => [ROLES[one.role] ?? one.role, one.pid, one.uptime_s, one.memory_bytes, one.state, details(one.details)]);
  return dataTable({
    caption: "Processes of the application",
    sortable: false,
    rowHead: true,
    columns: [
      { name: "Role" },
      { name: "Process", numeric: true, cell: String },
      { name: "Up for", numeric: true, cell: age },
      { name: "Memory", numeric: true, cell: bytes },
      { name: "State", cell: (state) => el("span", { class: `state ${state}` }, state) },
      { name: "Details" },
    ],
    rows,
  });
}

const details = (all) => Object.entries(all).map(([name, value]) => `${name} ${typeof value === "number" ? count(value) : value}`).join(", ") || "–";

function killButton(recovery) {
  const said = el("div", {});
  const confirm = el("dialog", { "aria-labelledby": "kill-title", id: "kill-dialog" },
    el("h2", { id: "kill-title" }, "Kill the driver?"),
    el("p", {}, "It gets SIGKILL: no warning, no farewell. Requests go on being taken; they wait in the log until the driver is back. Nothing may be lost."),
    el("p", { class: "row end" },
      el("button", { type: "button", class: "quiet-button", onclick: () => confirm.close() }, "Leave it alone"),
      el("button", { type: "button", class: "main-button danger", id: "kill-now", onclick: kill }, "Kill it")));

  async function kill() {
    confirm.close();
    show(said);
    try {
      recovery.begin((await ask("/console/api/kill-driver", { method: "POST", headers: { "Penstock-Console": "kill-driver" } })).value);
    } catch (failure) {
      show(said, problem(failure));
    }
  }
  const button = el("button", { type: "button", class: "quiet-button danger", id: "kill-driver", onclick: () => confirm.showModal() }, "Kill the driver …");
  return [button, said, confirm];
}
