// Performance: throughput, latency, lag, rounds and phases over time.

import { Chart } from "./chart.js";
import { el, empty, show } from "./dom.js";
import { clock, count, duration, short } from "./format.js";
import { live } from "./live.js";
import { LoadHistory, PERCENTILES } from "./load.js";
import { busyMs, byEpoch, mean, phasesOf, throughput } from "./series.js";
import { choice, figures } from "./widgets.js";

const WINDOWS = [
  [60, "1 minute"],
  [300, "5 minutes"],
  [1_800, "30 minutes"],
  [3_600, "1 hour"],
];
const FINE_S = 60; // of so many seconds, the reports of epochs are complete
const load = new LoadHistory();

/** Show the page; it follows until it is closed. */
export async function open(body, { search }) {
  let seconds = Number(search.get("window")) || WINDOWS[0][0];
  const plan = await live.ready();
  const charts = chartsOf(new Set(plan.stream_operators.map((operator) => operator.kind)));
  const summary = el("div", {});
  const reach = el("div", {});
  const nothing = el("div", {});
  const windows = choice("Show the last", WINDOWS, seconds, (wanted) => {
    seconds = wanted;
    update();
  });
  show(
    body,
    windows,
    nothing,
    summary,
    reach,
    el(
      "div",
      { class: "charts" },
      Object.values(charts).map((chart) => chart?.element),
    ),
  );

  function update() {
    if (!live.status) return;
    const until = live.status.now_us / 1_000;
    const since = until - seconds * 1_000;
    const epochs = live.epochs.filter((epoch) => epoch.time_us / 1_000 > since);
    show(nothing, live.epochs.length ? null : nothingYet());
    show(summary, figures(figuresOf(epochs, load, since)));
    show(reach, reachOf(live.epochs[0], since));
    charts.throughput.update(
      seconds <= FINE_S ? throughput(epochs, until, seconds) : load.throughput(until, seconds),
    );
    charts.latency.update(overTime(load.points, since, PERCENTILES));
    charts.lag.update(overTime(load.lag(live.samples), since, ["lag"]));
    charts.streams?.update(load.streamLags(since));
    charts.generators?.update(load.generated(since));
    charts.rounds.update(byEpoch(epochs, [["rounds", (one) => one.rounds]]));
    charts.size.update(
      byEpoch(epochs, [
        ["requests", (one) => one.records - one.aborts],
        ["undone", (one) => one.aborts],
      ]),
    );
    charts.phases.update(byEpoch(epochs, phasesOf(epochs)));
  }

  const change = async () => {
    update();
    if (await load.look()) update();
  };
  live.addEventListener("change", change);
  change();
  return { close: () => live.removeEventListener("change", change) };
}

function nothingYet() {
  const link = el("a", { href: "#/try" }, "Try it");
  return empty(
    "No epoch yet.",
    "Send requests from ",
    link,
    " or with penstock bench; the charts fill as epochs are committed.",
  );
}

/** Say from which time on the reports of epochs are, if they do not reach back far enough. */
function reachOf(oldest, since) {
  if (!oldest || oldest.epoch <= 0 || oldest.time_us / 1_000 <= since) return null;
  return el(
    "p",
    { class: "hint" },
    `Figures and charts of epochs begin at ${clock(oldest.time_us / 1_000)}, with epoch ` +
      `${count(oldest.epoch)}. Throughput, latency and lag are of the whole time.`,
  );
}

function overTime(points, since, names) {
  const shown = points.filter((point) => point.time > since);
  const series = names.map((name) => ({ name, values: shown.map((each) => each[name]) }));
  return { points: shown.map((each) => each.time), series };
}

/** Return the charts of an application; `kinds` are those of its parts with streams. */
function chartsOf(kinds) {
  return {
    ...chartsOfLoad(),
    streams: kinds.has("stream")
      ? new Chart({
          title: "Lag of streams",
          unit: "atoms that workflows and followers have still to take",
          format: count,
          finest: 1,
          named: true,
          nothing: "No workflow and no follower was behind in this time.",
        })
      : null,
    generators: kinds.has("generator")
      ? new Chart({
          title: "Generators",
          unit: "atoms per second",
          named: true,
          nothing: "No generator ran in this time.",
        })
      : null,
  };
}

function chartsOfLoad() {
  return {
    throughput: new Chart({ title: "Throughput", unit: "requests per second" }),
    latency: new Chart({
      title: "Latency",
      unit: "from request to answer, at all gateways",
      format: duration,
      nothing: "No request was answered in this time.",
    }),
    phases: new Chart({
      title: "Phases of an epoch",
      unit: "in the driver",
      kind: "stack",
      format: duration,
      x: "number",
      across: "Epoch",
    }),
    lag: new Chart({
      title: "Lag",
      unit: "requests in the log, not yet processed",
      format: count,
      finest: 1,
      nothing: "Measured while a gateway runs.",
    }),
    rounds: new Chart({
      title: "Rounds",
      unit: "per epoch; 1 where nothing was in conflict",
      kind: "bar",
      x: "number",
      across: "Epoch",
      finest: 0.5,
    }),
    size: new Chart({
      title: "Requests in an epoch",
      unit: "and how many of them were undone",
      kind: "stack",
      x: "number",
      across: "Epoch",
      finest: 1,
    }),
  };
}

function figuresOf(epochs, load, since) {
  const sum = (value) => epochs.reduce((total, one) => total + value(one), 0);
  const records = sum((one) => one.records);
  const share = (value) => (records ? `${short((100 * sum(value)) / records)} %` : "–");
  const newest = load.newest(since);
  return [
    ["Epochs", count(epochs.length)],
    ["Requests", count(Math.max(records, load.processed(since)))],
    ["Undone", share((one) => one.aborts)],
    ["Ran again", share((one) => one.reran)],
    ["Epoch takes", epochs.length ? duration(mean(epochs.map(busyMs))) : "–"],
    ["Latency p50 now", newest?.p50 ? duration(newest.p50) : "–"],
  ];
}
