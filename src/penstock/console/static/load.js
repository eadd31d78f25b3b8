// The load of the last hour: latency percentiles and lag, as the gateways have measured them.

import { ask } from "./api.js";

const HOUR_S = 3_600;
const AGAIN_S = 60;
const PERIOD_MS = 5_000;
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

  /** Return the newest point since a time in which a request was answered. */
  newest(since) {
    return this.points.findLast((one) => one.p50 !== null && one.time > since);
  }
}

const pointOf = ({ time_us: time, p50_ms: p50, p95_ms: p95, p99_ms: p99, lag }) => ({
  time: time / 1_000,
  p50,
  p95,
  p99,
  lag,
});
