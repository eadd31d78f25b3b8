// Performance: throughput, latency, lag, rounds and phases over time.

import { Chart } from "./chart.js";
import { el, empty, show } from "./dom.js";
import { count, duration, short } from "./format.js";
import { Latency } from "./latency.js";
import { live } from "./live.js";

const WINDOWS = [[60, "1 minute"], [300, "5 minutes"], [1_800, "30 minutes"]];
const SLOTS = 90;
const latency = new Latency();

/** Show the page; it follows until it is closed. */
export async function open(body, { search }) {
  let seconds = Number(search.get("window")) || WINDOWS[0][0];
  const charts = chartsOf();
  const figures = el("dl", { class: "figures" });
  const nothing = el("div", {});
  const choice = el("fieldset", { class: "choice" }, el("legend", {}, "Show the last"), WINDOWS.map(([length, name]) => {
    const input = el("input", { type: "radio", name: "window", value: length, id: `window-${length}`, onchange: () => {
      seconds = length;
      update();
    } });
    input.checked = length === seconds;
    return [input, el("label", { for: input.id }, name)];
  }));
  show(body, choice, nothing, figures, el("div", { class: "charts" }, Object.values(charts).map((chart) => chart.element)));

  function update() {
    if (!live.status) return;
    const until = live.status.now_us / 1_000;
    const epochs = live.epochs.filter((one) => one.time_us / 1_000 > until - seconds * 1_000);
    show(nothing, live.epochs.length ? null : empty("No epoch yet.", "Send requests from ", el("a", { href: "#/try" }, "Try it"), " or with penstock bench; the charts fill as epochs are committed."));
    show(figures, figuresOf(epochs, latency.points.at(-1)));
    charts.throughput.update(throughput(epochs, until, seconds));
    const samples = latency.points.filter((one) => one.time > until - seconds * 1_000);
    charts.latency.update({ points: samples.map((one) => one.time), series: ["p50", "p95", "p99"].map((name) => ({ name, values: samples.map((one) => one[name]) })) });
    const lags = live.samples.filter((one) => one.time > until - seconds * 1_000);
    charts.lag.update({ points: lags.map((one) => one.time), series: [{ name: "lag", values: lags.map((one) => one.lag) }] });
    charts.rounds.update(byEpoch(epochs, [["rounds", (one) => one.rounds]], mean));
    charts.size.update(byEpoch(epochs, [["requests", (one) => one.records - one.aborts], ["undone", (one) => one.aborts]], mean));
    charts.phases.update(byEpoch(epochs, phasesOf(epochs), mean));
  }
  const change = async () => {
    update();
    await latency.look(live.status?.now_us / 1_000 || Date.now());
  };
  live.addEventListener("change", change);
  change();
  return { close: () => live.removeEventListener("change", change) };
}

function chartsOf() {
  const whole = { format: count, finest: 1 };
  return {
    throughput: new Chart({ title: "Throughput", unit: "requests per second" }),
    latency: new Chart({ title: "Latency", unit: "from request to answer, at this gateway", format: duration, nothing: "Measured while this page is open: waiting for requests." }),
    phases: new Chart({ title: "Phases of an epoch", unit: "milliseconds in the driver", kind: "stack", format: (value) => duration(value), x: "number" }),
    lag: new Chart({ title: "Lag", unit: "requests in the log, not yet processed", ...whole, nothing: "Measured while the console is open." }),
    rounds: new Chart({ title: "Rounds", unit: "per epoch; 1 where nothing was in conflict", kind: "bar", x: "number", finest: 0.5 }),
    size: new Chart({ title: "Requests in an epoch", unit: "requests, and those undone", kind: "stack", x: "number", finest: 1 }),
  };
}

function figuresOf(epochs, newest) {
  const sum = (value) => epochs.reduce((total, one) => total + value(one), 0);
  const records = sum((one) => one.records);
  const entries = [
    ["Epochs", count(epochs.length)],
    ["Requests", count(records)],
    ["Undone", records ? `${short((100 * sum((one) => one.aborts)) / records)} %` : "–"],
    ["Ran again", records ? `${short((100 * sum((one) => one.reran)) / records)} %` : "–"],
    ["Epoch takes", epochs.length ? duration(sum(busyMs) / epochs.length) : "–"],
    ["Latency p50", newest?.p50 ? duration(newest.p50) : "–"],
  ];
  return entries.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)));
}

const busyMs = (epoch) => Object.values(epoch.phases_ms).reduce((sum, one) => sum + one, 0);

/** Return requests per second in equal steps of whole seconds. */
function throughput(epochs, until, seconds) {
  const step = Math.max(1, Math.round(seconds / SLOTS)) * 1_000;
  const last = Math.floor(until / step) * step;
  const slots = Math.floor((seconds * 1_000) / step);
  const sums = new Array(slots).fill(0);
  for (const epoch of epochs) {
    const slot = slots - 1 - Math.floor((last - epoch.time_us / 1_000) / step);
    if (slot >= 0 && slot < slots) sums[slot] += epoch.records;
  }
  return epochs.length ? { points: sums.map((_, at) => last - (slots - 1 - at) * step), series: [{ name: "requests/s", values: sums.map((sum) => sum / (step / 1_000)) }] } : { points: [], series: [] };
}

const mean = (...values) => values.reduce((sum, one) => sum + one, 0) / values.length;

/** Return values by epoch; neighbours are put together where there are more than fit. */
function byEpoch(epochs, series, together) {
  const size = Math.max(1, Math.ceil(epochs.length / SLOTS));
  const groups = [];
  for (let at = 0; at < epochs.length; at += size) groups.push(epochs.slice(at, at + size));
  return {
    points: groups.map((group) => group[0].epoch),
    series: series.map(([name, value]) => ({ name, values: groups.map((group) => together(...group.map(value))) })),
  };
}

function phasesOf(epochs) {
  const names = [...new Set(epochs.flatMap((one) => Object.keys(one.phases_ms)))];
  const rounds = names.filter((name) => name.startsWith("round")).sort();
  const known = ["read", ...rounds.slice(0, 2)].filter((name) => names.includes(name));
  const later = rounds.slice(2);
  const series = known.map((name) => [name, (one) => one.phases_ms[name] ?? 0]);
  if (later.length) series.push(["later rounds", (one) => later.reduce((sum, name) => sum + (one.phases_ms[name] ?? 0), 0)]);
  const last = names.filter((name) => !rounds.includes(name) && name !== "read").sort().reverse(); // write, then commit
  for (const name of last) series.push([name, (one) => one.phases_ms[name] ?? 0]);
  return series;
}
