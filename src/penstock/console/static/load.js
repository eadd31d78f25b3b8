// The load of the last hour: throughput, latency percentiles and lag, as the gateways measured them.

import { ask } from "./api.js";

const HOUR_S = 3_600;
const AGAIN_S = 60;
const PERIOD_MS = 5_000;
const STEP_S = 5;
const SLOTS = 90;
const SERIES_MAX = 6;
export const PERCENTILES = ["p50", "p95", "p99"];

/** Return points with newer ones in place of those of the same time; none is older than an hour. */
export function merged(points, newer) {
  const from = newer[0]?.time ?? Infinity;
  const all = [...points.filter((point) => point.time < from), ...newer];
  const oldest = (all.at(-1)?.time ?? 0) - HOUR_S * 1_000;
  return all.filter((each) => each.time > oldest);
}

/** Asks for the last hour once, and then for what is new. `points` are in order of time. */
export class LoadHistory {
  points = [];
  #next = 0;

  /** Ask now, if the last time is some seconds ago; say whether there is anything new. */
  async look() {
    if (performance.now() < this.#next) return false;
    this.#next = performance.now() + PERIOD_MS;
    try {
      const seconds = this.points.length ? AGAIN_S : HOUR_S;
      const { value } = await ask(`/metrics/recent?seconds=${seconds}`);
      this.points = merged(this.points, value.points.map(pointOf));
      return true;
    } catch {
      return false; // the strip of every page says that the gateway does not answer
    }
  }

  /** Return the lag over time: what gateways have measured, then what this page has seen itself. */
  lag(samples) {
    const from = samples[0]?.time ?? Infinity;
    return [...this.points.filter((point) => point.time < from), ...samples];
  }

  /**
   * Return requests per second up to a time, in slots of whole steps; a slot without points is empty.
   * The point of the unfinished step is later than `until`, and is left out.
   */
  throughput(until, seconds) {
    const slot = Math.max(STEP_S, Math.ceil(seconds / SLOTS / STEP_S) * STEP_S) * 1_000;
    const slots = new Map();
    this.points.forEach(({ time, processed }, index) => {
      const before = this.points[index - 1]?.time;
      if (processed === null || before === undefined) return;
      if (time > until || time <= until - seconds * 1_000) return;
      const end = Math.ceil(time / slot) * slot;
      const sum = slots.get(end) ?? { requests: 0, milliseconds: 0 };
      sum.requests += processed;
      sum.milliseconds += time - before;
      slots.set(end, sum);
    });
    const values = [...slots.values()].map((sum) => sum.requests / (sum.milliseconds / 1_000));
    return { points: [...slots.keys()], series: [{ name: "requests/s", values }] };
  }

  /** Return the lag of workflows and of followers since a time; of very many, those that were farthest behind. */
  streamLags(since) {
    const points = this.points.filter((point) => point.time > since);
    const lags = points.map(({ workflows, followers }) => workflows && { ...workflows, ...followers });
    return named(points, lags);
  }

  /** Return the atoms per second of generators since a time. */
  generated(since) {
    const perSecond = this.points.map(({ time, generated }, index) => {
      const seconds = (time - this.points[index - 1]?.time) / 1_000;
      return generated && mapped(generated, (name, atoms) => [name, atoms / seconds]);
    });
    const from = this.points.filter((point) => point.time <= since).length;
    return named(this.points.slice(from), perSecond.slice(from));
  }

  /** Return the number of requests that were processed since a time. */
  processed(since) {
    const counted = this.points.filter((point) => point.time > since && point.processed !== null);
    return counted.reduce((sum, one) => sum + one.processed, 0);
  }

  /** Return the newest point since a time in which a request was answered. */
  newest(since) {
    return this.points.findLast((point) => point.p50 !== null && point.time > since);
  }
}

const pointOf = (point) => ({
  time: point.time_us / 1_000,
  processed: point.processed,
  p50: point.p50_ms,
  p95: point.p95_ms,
  p99: point.p99_ms,
  lag: point.lag,
  workflows: point.workflow_lags && mapped(point.workflow_lags, (name, lag) => [`workflow ${name}`, lag]),
  followers: point.follower_lags && mapped(point.follower_lags, (name, lag) => [`followers of ${name}`, lag]),
  generated: point.generated,
});

const mapped = (object, entryOf) =>
  Object.fromEntries(Object.entries(object).map(([name, value]) => entryOf(name, value)));

/** Return a series for each name in records; a record without a name means 0, and no record means no value. */
function named(points, records) {
  const peaks = new Map();
  for (const record of records)
    for (const [name, value] of Object.entries(record ?? {}))
      peaks.set(name, Math.max(value, peaks.get(name) ?? 0));
  const highest = [...peaks].sort((one, other) => other[1] - one[1]).slice(0, SERIES_MAX);
  const names = highest.map(([name]) => name).sort();
  const valuesOf = (name) => records.map((record) => record && (record[name] ?? 0));
  return {
    points: names.length ? points.map((point) => point.time) : [],
    series: names.map((name) => ({ name, values: valuesOf(name) })),
  };
}
