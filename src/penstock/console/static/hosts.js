// Hosts: the machines of an application in an object store: state, lag of each copy, lease, disk, clock, money.

import { ask } from "./api.js";
import { el, empty, problem, show } from "./dom.js";
import { bytes, count, rate } from "./format.js";
import { keepLooking } from "./look.js";
import { textNode } from "./text.js";
import { lines, panel } from "./widgets.js";

const PATH = "/console/api/hosts";
const LOOK_MS = 5_000;

/** Show the page. */
export async function open(body) {
  show(body, el("p", { class: "waiting" }, "Asking the gateway …"));
  const said = el("div", { role: "status" });
  const sum = el("div", { id: "hosts-sum" });
  const list = el("div", { id: "hosts", class: "stack" });
  let facts = new Map();
  let form = "";

  function update({ hosts, text }) {
    show(said, text ? problem({ message: text }) : null);
    const present = JSON.stringify(hosts.map(({ id }) => id));
    if (present !== form) {
      form = present;
      facts = new Map(hosts.map(({ id }) => [id, el("div", {})]));
      show(list, hosts.length ? hosts.map((host) => hostPanel(host, facts.get(host.id))) : nothing());
    }
    for (const host of hosts) show(facts.get(host.id), factsOf(host));
    show(sum, hosts.length ? sumOf(hosts) : null);
  }

  update((await ask(PATH)).value);
  show(body, said, sum, list);
  return keepLooking(PATH, LOOK_MS, update);
}

const nothing = () =>
  empty("No host has said anything yet.", "Each host says every ten seconds how it stands, if the data are in an object store.");

const dollars = (cents) => `$${(cents / 100).toFixed(2)}`;

function sumOf(hosts) {
  const add = (figure) => hosts.filter((host) => !host.is_silent).reduce((sum, { report }) => sum + report[figure], 0);
  const holder = hosts.find((host) => host.has_lease);
  return panel(
    "hosts-all",
    "All hosts",
    "Money of a day like the last ten seconds, from the settings prices.",
    lines([
      ["Driver", holder ? textNode(holder.report.name) : "none holds the lease"],
      ["Store", `${rate(add("puts_per_s"))} written, ${rate(add("gets_per_s"))} read`],
      ["Money", `${dollars(add("cents_per_day"))} a day`],
    ]),
  );
}

function hostPanel(host, facts) {
  return panel(`host-${host.id}`, host.report.name, host.report.url, facts);
}

function lagOf(lag, what, missing) {
  if (lag === null) return missing;
  return lag ? `${count(lag)} ${what} behind` : "up to date";
}

function stateOf(host) {
  const { report, is_silent: silent } = host;
  if (silent) return el("span", { class: "state absent" }, "silent");
  if (report.trouble) return el("span", { class: "state absent" }, "in trouble");
  return el("span", { class: "state processing" }, "runs");
}

function roleOf(host) {
  if (host.has_lease) return "driver, holds the lease";
  return host.report.processes.standby ? "standby" : "";
}

function factsOf(host) {
  const { report } = host;
  const processes = Object.entries(report.processes).map(([role, number]) => (number > 1 ? `${count(number)} × ${role}` : role));
  return lines(
    [
      ["State", stateOf(host)],
      roleOf(host) ? ["Driver", roleOf(host)] : null,
      ["Last seen", `${count(Math.round(host.age_s))} s ago`],
      ["Copy of the state", lagOf(host.state_lag, "epochs", "none yet")],
      report.held ? ["Part of the state", `${count(report.held)} of ${count(report.partitions)} partitions`] : null,
      ["SQL view", lagOf(host.view_lag, "epochs", "does not run")],
      ["Copy of the log", lagOf(report.log_lag, "messages", "unknown")],
      ["Disk", `${bytes(report.disk_free)} of ${bytes(report.disk_bytes)} free`],
      ["Clock", Math.abs(report.clock_s) < 1 ? "as the store's" : `${report.clock_s.toFixed(1)} s ahead of the store's`],
      ["Store", `${rate(report.puts_per_s)} written, ${rate(report.gets_per_s)} read, ${dollars(report.cents_per_day)} a day`],
      ["Processes", processes.join(", ")],
      ["Version", `Penstock ${report.penstock}, Python ${report.python}`],
      ...host.notes.map((note) => ["Note", textNode(note)]),
    ].filter(Boolean),
  );
}
