// Latency percentiles, from the histogram that the gateway gives Prometheus.

import { send } from "./api.js";

const NAME = "penstock_request_seconds_bucket";
const KEPT = 900;
export const PERCENTILES = { p50: 0.5, p95: 0.95, p99: 0.99 };

/** Return cumulative counts by upper bound in seconds, summed over all labels. */
export function bucketsOf(text) {
  const sums = new Map();
  for (const [, labels, value] of text.matchAll(
    /^penstock_request_seconds_bucket\{([^}]*)\} (\S+)$/gm,
  )) {
    if (/kind="(other|docs|health|metrics|sql)"/.test(labels)) continue;
    const bound = Number(/le="([^"]+)"/.exec(labels)?.[1].replace("+Inf", "Infinity"));
    sums.set(bound, (sums.get(bound) ?? 0) + Number(value));
  }
  return [...sums].sort(([one], [other]) => one - other);
}

/** Return a percentile in milliseconds, between the bounds of its bucket; null of nothing. */
export function percentile(buckets, share) {
  const total = buckets.at(-1)?.[1] ?? 0;
  if (total <= 0) return null;
  let [low, below] = [0, 0];
  for (const [bound, reached] of buckets) {
    if (reached >= share * total) {
      if (bound === Infinity) return low * 1_000;
      return (low + (bound - low) * ((share * total - below) / (reached - below || 1))) * 1_000;
    }
    [low, below] = [bound, reached];
  }
  return null;
}

/** Looks at the histogram from time to time; `points` are what lay between two looks. */
export class Latency {
  points = [];
  #before = null;

  /** Look now; `time` is that of the server, in milliseconds. */
  async look(time) {
    const response = await send("/metrics").catch(() => null);
    if (!response?.ok) return;
    const text = await response.text();
    if (!text.includes(NAME)) return;
    const now = bucketsOf(text);
    const before = new Map(this.#before ?? now);
    this.#before = now;
    const between = now.map(([bound, reached]) => [bound, reached - (before.get(bound) ?? 0)]);
    if (between.some(([, reached]) => reached < 0)) return; // another gateway, or begun anew
    const point = { time };
    for (const [name, share] of Object.entries(PERCENTILES))
      point[name] = percentile(between, share);
    this.points = [...this.points, point].slice(-KEPT);
  }
}
