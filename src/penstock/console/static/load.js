// The load of the last hour: throughput, latency percentiles and lag, as the gateways measured them.

import { ask } from "./api.js";

const HOUR_S = 3_600;
const AGAIN_S = 60;
const PERIOD_MS = 5_000;
const STEP_S = 5;
const SLOTS = 90;
export const PERCENTILES = ["p50", "p95", "p99"];

/** Return points with newer ones in place of those of the same time; none is older than an hour. */
export function merged(points, newer) {
  const from = newer[0]?.time ?? Infinity;
  const all = [...points.filter((one) => one.time < from), ...newer];
  const oldest = (all.at(-1)?.time ?? 0) - HOUR_S * 1_000;
  return all.filter((one) => one.time > oldest);
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
    return [...this.points.filter((one) => one.time < from), ...samples];
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

  /** Return the number of requests that were processed since a time. */
  processed(since) {
    const counted = this.points.filter((one) => one.time > since && one.processed !== null);
    return counted.reduce((sum, one) => sum + one.processed, 0);
  }

  /** Return the newest point since a time in which a request was answered. */
  newest(since) {
    return this.points.findLast((one) => one.p50 !== null && one.time > since);
  }
}

const pointOf = ({ time_us: time, p50_ms: p50, p95_ms: p95, p99_ms: p99, lag, processed }) => ({
  time: time / 1_000,
  processed,
  p50,
  p95,
  p99,
  lag,
});
