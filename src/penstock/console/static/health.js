// Whether the application is well: what is wrong comes first, then the figures by which an operator sees it.

import { ask, send } from "./api.js";
import { el, show, svg } from "./dom.js";
import { age, ago, count, duration, plural, rate, short } from "./format.js";
import { live } from "./live.js";
import { LoadHistory } from "./load.js";
import { shortMoment } from "./times.js";

const PERIOD_MS = 5_000;
const HOUR_S = 3_600;
const SLOWER = 2; // times the latency of the hour before,
const SLOWER_MS = 20; // and at least so much more, is worth a word
const FEW = 20; // requests, from which no percentile is compared
const SLOTS = 60;
const MARKS = { good: "✓", warn: "!", bad: "✕" };
const TITLES = { good: "All is well", warn: "Needs attention", bad: "Not working" };
const SILENT = { reasons: ["/readyz does not answer"], missing: [] };
const FINE_VIEW = new Set(["following", "filling", "starting"]);

/**
 * Return what is wrong, the worst first: `{level, text, remedy, href, name}`.
 *
 * `ready` is the answer of `/readyz`, `health` that of `/console/api/health`, and `status` the application now; each may
 * be null while it is not known.
 */
export function findingsOf({ ready, health, status }) {
  const found = [
    ...(ready?.reasons ?? []).map((text) => finding("bad", text)),
    ...(ready?.missing ?? []).map((text) => finding("warn", text)),
    ...(status ? ofStatus(status) : []),
    ...(health ? ofHealth(health) : []),
  ];
  return found.sort((one, other) => (other.level === "bad") - (one.level === "bad"));
}

/** Return the worst level of findings. */
export const levelOf = (found) => (found.some(({ level }) => level === "bad") ? "bad" : found.length ? "warn" : "good");

const finding = (level, text, { remedy = "", href = "", name = "" } = {}) => ({ level, text, remedy, href, name });

function ofHealth({ outcomes, waiting, paused, latency, latency_before: before, recent_s: recent }) {
  const found = [];
  const minutes = Math.round(recent / 60);
  if (paused.length) {
    const named = paused.map((target) => (target === "*" ? "everything" : target)).slice(0, 5).join(", ");
    found.push(finding("warn", `Paused: ${named}. Gateways refuse these requests.`, { href: "#/flow", name: "Flow" }));
  }
  if (outcomes?.failed_recently)
    found.push(
      finding("warn", `${plural(outcomes.failed_recently, "request")} failed by a mistake in the code in the last ${minutes} minutes.`, {
        href: "#/requests?show=failed",
        name: "Failed requests",
      }),
    );
  if (waiting)
    found.push(
      finding("warn", `${plural(waiting, "failed request")} of the background ${waiting === 1 ? "waits" : "wait"} for an operator.`, {
        href: "#/requests?show=failed",
        name: "Failed requests",
      }),
    );
  if (isSlower(latency, before))
    found.push(
      finding("warn", `Latency: 95 % of requests take up to ${duration(latency.p95_ms)}; ${duration(before.p95_ms)} in the hour before.`, {
        href: "#/performance",
        name: "Performance",
      }),
    );
  return found;
}

function ofStatus({ processes, view_epoch: viewed, views, effects, captures, incidents, clock_text: clock, now_us: now }) {
  const found = [];
  if (viewed === null && processes.some(({ role }) => role === "view"))
    found.push(finding("warn", "The SQL view does not answer: it is busy, or starts. SQL and the lists of requests need it."));
  for (const { role, pid, state } of processes)
    if (state !== "running") found.push(finding("warn", `The ${role} (process ${pid}): ${state}.`));
  const recent = incidents.filter((one) => one.time_us > now - HOUR_S * 1_000_000);
  if (recent.length)
    found.push(finding("warn", `${plural(recent.length, "request")} stopped an epoch in the last hour and ${recent.length === 1 ? "was" : "were"} set aside; see Incidents below.`));
  for (const { name, state, reason, remedy, incomplete } of views)
    if (!FINE_VIEW.has(state) || incomplete || reason)
      found.push(finding("warn", `View ${name} is ${state}${reason ? `: ${reason}` : ""}.`, { remedy, href: "#/views", name: "Views" }));
  for (const { name, state, reason, remedy } of captures)
    if (reason) found.push(finding("warn", `Changes ${name}: ${state}: ${reason}.`, { remedy, href: "#/captures", name: "Changes" }));
  if (effects?.reason)
    found.push(finding("warn", `Effects: ${effects.state}: ${effects.reason}.`, { remedy: effects.remedy, href: "#/effects", name: "Effects" }));
  const dead = effects?.functions.reduce((sum, each) => sum + each.dead, 0);
  if (dead) found.push(finding("warn", `${plural(dead, "effect")} failed for good.`, { href: "#/effects", name: "Dead letters" }));
  if (clock) found.push(finding("warn", `${clock}.`));
  return found;
}

/** Say whether the requests of now are slower than those before, by more than chance. */
export const isSlower = (now, before) =>
  now.requests >= FEW &&
  before.requests >= FEW &&
  now.p95_ms >= SLOWER * before.p95_ms &&
  now.p95_ms - before.p95_ms >= SLOWER_MS;

/** The panel. `update()` draws what is known; it asks for the rest every five seconds. */
export class HealthPanel {
  #load = new LoadHistory();
  #ready = null;
  #health = null;
  #next = 0;
  #isKnown = false;
  #mark = el("span", { class: "health-mark", "aria-hidden": "true" }, "·");
  #title = el("h2", { id: "health-title" }, "Looking …");
  #told = el("p", { class: "hint" });
  #found = el("ul", { class: "found" });
  #vitals = el("dl", { class: "vitals", id: "vitals" }, UNKNOWN.map(tile));
  #followers = el("dl", { class: "readers", id: "readers" });
  #shown = "";
  element = el(
    "section",
    { class: "panel health", id: "health", "aria-labelledby": "health-title", "data-level": "unknown" },
    el("div", { class: "health-head", role: "status" }, this.#mark, this.#title, this.#told),
    this.#found,
    this.#vitals,
    this.#followers,
  );

  /** Draw what is known, and ask for the rest if the last time is some seconds ago. */
  update() {
    this.#draw();
    if (performance.now() < this.#next) return;
    this.#next = performance.now() + PERIOD_MS;
    this.#look();
  }

  async #look() {
    const [ready, health] = await Promise.allSettled([readiness(), ask("/console/api/health"), this.#load.look()]);
    this.#ready = ready.value ?? null;
    this.#health = health.value?.value ?? null;
    this.#isKnown = true;
    this.#draw();
  }

  #draw() {
    const { status, failure } = live;
    if (!status || !(failure || this.#isKnown)) return;
    const found = failure
      ? [finding("bad", failure.message, { remedy: failure.next })]
      : findingsOf({ ready: this.#ready ?? SILENT, health: this.#health, status });
    const level = levelOf(found);
    const told = level === "good" ? "The gateway is ready, and epochs are committed." : plural(found.length, "finding");
    const text = JSON.stringify([level, found]);
    if (text !== this.#shown) {
      this.element.dataset.level = level;
      this.#mark.textContent = MARKS[level];
      this.#title.textContent = TITLES[level];
      this.#told.textContent = told;
      show(this.#found, found.map(item));
      this.#shown = text; // said once, not every second
    }
    redraw(this.#vitals, vitals(status, this.#health, this.#load).map(tile));
    redraw(this.#followers, followers(status));
  }
}

/** Replace what an element holds; a link that has the focus keeps it. */
function redraw(place, nodes) {
  const links = () => [...place.querySelectorAll("a")];
  const focused = links().indexOf(document.activeElement);
  show(place, nodes);
  links()[focused]?.focus({ preventScroll: true });
}

/** Return what `/readyz` says, whether the gateway is ready or not. */
async function readiness() {
  return (await send("/readyz")).json();
}

const item = ({ level, text, remedy, href, name }) =>
  el(
    "li",
    { class: level },
    el("span", {}, text),
    remedy ? el("span", { class: "hint" }, ` ${remedy}`) : null,
    href ? [" ", el("a", { href }, name)] : null,
  );

/** The figures before they are known, which take the place of those that come. */
const UNKNOWN = ["Failed requests", "Latency, 95 %", "Requests", "Last deployment"].map((name) => ({
  name,
  value: "–",
  more: "\u00a0",
  line: [],
  href: "#/overview",
}));

function vitals(status, health, load) {
  const { outcomes, latency, latency_before: before, deployment } = health ?? {};
  const since = status.now_us / 1_000 - HOUR_S * 1_000;
  const points = load.points.filter((point) => point.time > since);
  return [
    {
      name: "Failed requests",
      value: outcomes ? count(outcomes.failed) : "–",
      bad: Boolean(outcomes?.failed),
      more: outcomes
        ? `of ${count(outcomes.requests)} in the last hour; ${count(outcomes.undone)} refused by the application`
        : health ? "the SQL view does not answer" : "",
      href: "#/requests?show=failed",
    },
    {
      name: "Latency, 95 %",
      value: latency?.p95_ms ? duration(latency.p95_ms) : "–",
      bad: Boolean(latency && isSlower(latency, before)),
      more: health ? (before.p95_ms ? `${duration(before.p95_ms)} in the hour before` : "no request in the hour before") : "",
      line: slots(points, "p95", Math.max),
      href: "#/performance",
    },
    {
      name: "Requests",
      value: rate(status.requests_per_s),
      more: status.lag ? `${plural(status.lag, "request")} not yet in an epoch` : "all are in an epoch",
      line: slots(points, "processed", (one, other) => one + other),
      href: "#/requests",
    },
    {
      name: "Last deployment",
      value: deployment ? ago((status.now_us - deployment.time_us) / 1_000_000) : "–",
      more: deployment
        ? [`number ${deployment.number}, `, shortMoment(deployment.time_us), deployment.by ? `, by ${deployment.by}` : null]
        : "",
      href: "#/deployments",
    },
  ];
}

const tile = ({ name, value, bad, more, line, href }) =>
  el(
    "div",
    { class: bad ? "bad" : null },
    el("dt", {}, el("a", { href }, name)),
    el("dd", { class: "vital" }, value),
    el("dd", { class: "hint" }, more),
    line ? el("dd", { class: "spark" }, spark(line)) : null,
  );

/** Return one value for each minute of the points, null where none was measured. */
function slots(points, name, join) {
  const values = new Array(SLOTS).fill(null);
  const end = points.at(-1)?.time ?? 0;
  for (const point of points) {
    const slot = SLOTS - 1 - Math.floor((end - point.time) / ((HOUR_S / SLOTS) * 1_000));
    const value = point[name];
    if (slot >= 0 && value !== null && value !== undefined)
      values[slot] = values[slot] === null ? value : join(values[slot], value);
  }
  return values;
}

/** Draw the last hour as a small line; the page Performance has the chart with its table. */
function spark(values) {
  const top = Math.max(...values.map((value) => value ?? 0)) || 1;
  let d = "";
  let isDown = false;
  values.forEach((value, at) => {
    if (value !== null) d += `${isDown ? "L" : "M"}${at * 2} ${short(22 - (20 * value) / top)}`;
    isDown = value !== null;
  });
  return svg(
    "svg",
    { viewBox: `0 0 ${(SLOTS - 1) * 2} 24`, preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("path", { class: "line series-0", d: d || "M0 22" }),
  );
}

/** Return how far each reader of the journal is behind. */
function followers({ epoch, view_epoch: viewed, views, effects, captures, rates, processes }) {
  const epochs = (lag) => (lag > 0 ? `${plural(lag, "epoch")} behind` : "");
  const rows = [];
  if (processes.some(({ role }) => role === "view"))
    rows.push(viewed === null ? ["SQL view", "does not answer", ""] : ["SQL view", "following", epochs(epoch - viewed)]);
  for (const { name, state, lag } of views) rows.push([link("#/views", `View ${name}`), state, epochs(lag)]);
  if (effects) {
    const waiting = effects.functions.reduce((sum, each) => sum + each.waiting, 0);
    rows.push([link("#/effects", "Effects"), effects.state, waiting ? `${count(waiting)} waiting` : epochs(epoch - effects.epoch)]);
  }
  for (const { name, state, lag_s: lag } of captures)
    rows.push([link("#/captures", `Changes ${name}`), state, lag ? `${age(lag)} behind` : ""]);
  for (const [name, lag] of Object.entries(rates.lags ?? {}))
    rows.push([`Workflow ${name}`, "following", lag ? `${plural(lag, "atom")} behind` : ""]);
  return rows.map(([name, state, behind]) =>
    el("div", {}, el("dt", {}, name), el("dd", {}, el("span", { class: stateClass(state) }, state), behind ? el("span", { class: "hint" }, behind) : null)),
  );
}

const stateClass = (state) => (FINE_VIEW.has(state) ? "state" : "state absent");

const link = (href, name) => el("a", { href }, name);
