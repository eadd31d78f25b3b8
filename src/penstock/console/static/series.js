// From reports of epochs to the series that charts show. Nothing here draws.

const SLOTS = 90;
const REST = "rest";
const LAST = ["write", "commit"];
const LATER = /^(validate|round([2-9]|\d\d+))$/;

export const mean = (values) => values.reduce((sum, one) => sum + one, 0) / values.length;

/** Return what an epoch kept the driver busy, in milliseconds; what is between epochs does not. */
export function busyMs({ phases_ms: phases }) {
  return Object.values(phases).reduce((sum, one) => sum + one, 0) - (phases[REST] ?? 0);
}

/** Return requests per second in equal steps of whole seconds, up to a time in milliseconds. */
export function throughput(epochs, until, seconds) {
  if (!epochs.length) return { points: [], series: [] };
  const step = Math.max(1, Math.round(seconds / SLOTS)) * 1_000;
  const last = Math.floor(until / step) * step;
  const slots = Math.floor((seconds * 1_000) / step);
  const sums = new Array(slots).fill(0);
  for (const { time_us: time, records } of epochs) {
    const slot = slots - 1 - Math.floor((last - time / 1_000) / step);
    if (slot >= 0 && slot < slots) sums[slot] += records;
  }
  const points = sums.map((_, at) => last - (slots - 1 - at) * step);
  return {
    points,
    series: [{ name: "requests/s", values: sums.map((sum) => sum / (step / 1_000)) }],
  };
}

/** Return means by epoch, `series` being names with functions; neighbours share a bar where needed. */
export function byEpoch(epochs, series) {
  const size = Math.max(1, Math.ceil(epochs.length / SLOTS));
  const groups = [];
  for (let at = 0; at < epochs.length; at += size) groups.push(epochs.slice(at, at + size));
  return {
    points: groups.map((group) => group[0].epoch),
    series: series.map(([name, value]) => ({
      name,
      values: groups.map((group) => mean(group.map(value))),
    })),
  };
}

/** Return the phases in the order in which they happen; all after the first round are one. */
export function phasesOf(epochs) {
  const names = new Set(epochs.flatMap((epoch) => Object.keys(epoch.phases_ms)));
  names.delete(REST);
  const later = [...names].filter((name) => LATER.test(name));
  const last = LAST.filter((name) => names.has(name));
  const first = [...names].filter((name) => !later.includes(name) && !last.includes(name));
  const sum = (one) => later.reduce((total, name) => total + (one.phases_ms[name] ?? 0), 0);
  const series = (all) => all.map((name) => [name, (one) => one.phases_ms[name] ?? 0]);
  return [...series(first), ...(later.length ? [["later rounds", sum]] : []), ...series(last)];
}
