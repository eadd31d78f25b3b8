// Overview: whether the application is well, the dataflow graph with live rates, the processes, and what happens when
// one is killed.

import { el, empty, show } from "./dom.js";
import { age, bytes, count, plural } from "./format.js";
import { Graph } from "./graph.js";
import { HealthPanel } from "./health.js";
import { killButton } from "./kill.js";
import { live } from "./live.js";
import { Recovery } from "./recovery.js";
import { streamOf } from "./references.js";
import { dataTable } from "./table.js";
import { momentNode } from "./times.js";
import { between } from "./widgets.js";

const ROLES = {
  supervisor: "Supervisor",
  driver: "Driver",
  gateway: "Gateway",
  view: "SQL view",
  applier: "Applier",
  generator: "Generators",
};

/** Show the page; it follows until it is closed. */
export async function open(body) {
  show(body, el("p", { class: "waiting" }, "Asking the gateway …"));
  const plan = await live.ready();
  const health = new HealthPanel();
  const graph = new Graph(plan);
  const recovery = new Recovery();
  const idle = el("div", {});
  const processes = el("div", { id: "processes" });
  const killing = el("div", {});
  const generators = el("div", { id: "generators" });
  const leased = el("div", { id: "leased" });
  const clock = el("div", { id: "clock" });
  const incidents = el("div", { id: "incidents" });
  let shownIncidents = "";
  show(
    body,
    health.element,
    el(
      "section",
      { class: "panel", "aria-labelledby": "graph-title" },
      between(
        el("h2", { id: "graph-title" }, "Dataflow"),
        el("p", { class: "hint" }, summary(plan)),
      ),
      idle,
      graph.element,
    ),
    el(
      "section",
      { class: "panel", "aria-labelledby": "processes-title" },
      between(el("h2", { id: "processes-title" }, "Processes"), killing),
      processes,
      generators,
      recovery.element,
    ),
    leased,
    clock,
    incidents,
  );

  function update() {
    health.update();
    if (!live.status) return;
    graph.update(live.callRates(), live.streamRates());
    show(idle, live.status.epoch < 0 ? nothingYet() : null);
    const focused = processes.contains(document.activeElement);
    show(processes, processTable(live.status));
    show(generators, generatorTable(live.status.generators));
    if (focused) processes.querySelector(".table-scroll")?.focus();
    recovery.look(live);
    const { lease_text: lease, log_text: log } = live.status;
    const places = [lease, log ? `the log is ${log}` : ""].filter(Boolean).join("; ");
    show(leased, places ? el("p", { class: "hint" }, `${places}.`) : null);
    const jumped = live.status.clock_text;
    show(clock, jumped ? el("p", { class: "hint" }, `Warning: ${jumped}.`) : null);
    const told = JSON.stringify(live.status.incidents);
    if (told !== shownIncidents) show(incidents, incidentPanel(live.status.incidents));
    shownIncidents = told; // what a person has unfolded stays so
    if (live.status.dev && !killing.firstChild) show(killing, killButton(recovery));
  }
  live.addEventListener("change", update);
  update();
  return { close: () => live.removeEventListener("change", update) };
}

function nothingYet() {
  const link = el("a", { href: "#/try" }, "Try it");
  return empty(
    "Nothing has run yet.",
    "Send a first request from ",
    link,
    "; its way through the graph shows here.",
  );
}

function summary({ operators, stream_operators: streams, views, cycles }) {
  const entities = operators.filter((operator) => operator.key).length;
  const functions = operators.length - entities;
  const parts = [];
  if (entities || !streams.length) parts.push(plural(entities, "entity class", "entity classes"));
  if (functions) parts.push(plural(functions, "function"));
  for (const kind of ["workflow", "stream", "portal", "generator"]) {
    const number = streams.filter((stream) => stream.kind === kind).length;
    if (number) parts.push(plural(number, kind));
  }
  if (views.length) parts.push(plural(views.length, "view"));
  parts.push(cycles.length ? `${plural(cycles.length, "circle")} of calls` : "no circles");
  return parts.join(" · ");
}

function incidentPanel(incidents) {
  if (!incidents.length) return null;
  const columns = [
    { name: "Time", cell: momentNode },
    { name: "Request", cell: (id) => el("a", { href: `#/requests/${encodeURIComponent(id)}` }, id) },
    { name: "Epoch", numeric: true, cell: count },
    { name: "Incident" },
    { name: "Cause", cell: causeOf },
  ];
  const rows = incidents.map((incident) => [
    incident.time_us,
    incident.request_id,
    incident.epoch,
    incident.incident,
    incident.cause,
  ]);
  return el(
    "section",
    { class: "panel", "aria-labelledby": "incidents-title" },
    between(
      el("h2", { id: "incidents-title" }, "Incidents"),
      el("p", { class: "hint" }, "These requests stopped their epoch and were set aside."),
    ),
    dataTable({
      caption: "Requests that were set aside",
      sortable: true,
      columns,
      rows,
    }),
  );
}

/** Show the last line of a cause, which names the error; the rest unfolds. */
function causeOf(cause) {
  const last = cause.trimEnd().split("\n").at(-1);
  if (last === cause.trimEnd()) return last;
  return el("details", {}, el("summary", {}, last), el("pre", {}, cause));
}

function processTable({ processes, view_epoch: viewed }) {
  if (!processes.length)
    return empty(
      "No process says that it is here.",
      "Start the application with penstock run or penstock dev.",
    );
  const columns = [
    { name: "Role" },
    { name: "Process", numeric: true, cell: String },
    { name: "Up for", numeric: true, cell: age },
    { name: "Memory", numeric: true, cell: bytes },
    { name: "State", cell: stateOf },
    { name: "Details" },
  ];
  const rows = processes.map((process) => [
    ROLES[process.role] ?? process.role,
    process.pid,
    process.uptime_s,
    process.memory_bytes,
    process.state,
    process.role === "view" ? answersOf(viewed) : details(process.details),
  ]);
  return dataTable({ caption: "Processes of the application", rowHead: true, columns, rows });
}

function generatorTable(generators) {
  if (!generators.length) return null;
  const columns = [
    { name: "Generator" },
    { name: "Stream", cell: streamOf },
    { name: "Status" },
    { name: "Atoms", numeric: true, cell: count },
    { name: "Place" },
  ];
  const rows = generators.map((generator) => [
    generator.generator,
    generator.stream,
    generator.status,
    generator.atoms,
    generator.reason || generator.place + (generator.share === null ? "" : ` (${Math.round(generator.share * 100)} %)`),
  ]);
  return dataTable({ caption: "Generators of the application", rowHead: true, columns, rows });
}

const stateOf = (state) =>
  el("span", { class: state === "running" ? "state" : "state absent" }, state);

const answersOf = (epoch) =>
  epoch === null ? "does not answer yet" : epoch < 0 ? "no epoch yet" : `at epoch ${count(epoch)}`;

function details(all) {
  const parts = Object.entries(all).map(
    ([name, value]) => `${name} ${typeof value === "number" ? count(value) : value}`,
  );
  return parts.join(", ") || "–";
}
