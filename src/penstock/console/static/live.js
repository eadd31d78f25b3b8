// What the application does now: asks for status and epochs once a second and tells the pages.

import { ask } from "./api.js";
import { learnRecords } from "./value.js";

const PERIOD_MS = 1_000;
const AFTER_FAILURE_MS = 2_000;
const EPOCHS_KEPT = 1_800;
const SAMPLES_KEPT = 900;
const REORDERED_MAX = 100;
const RECENT_US = 5_000_000;

class Live extends EventTarget {
  plan = null;
  status = null;
  failure = null;
  epochs = [];
  samples = [];
  #stopped = true;

  /** Load the plan, then follow for as long as the page is open. */
  start() {
    if (!this.#stopped) return;
    this.#stopped = false;
    this.#follow();
  }

  /** Return the plan when it is known. */
  async ready() {
    while (this.plan === null)
      await new Promise((go) => this.addEventListener("change", go, { once: true }));
    return this.plan;
  }

  async #follow() {
    for (;;) {
      if (!document.hidden) await this.#look();
      await new Promise((go) => setTimeout(go, this.failure ? AFTER_FAILURE_MS : PERIOD_MS));
    }
  }

  async #look() {
    try {
      if (this.plan === null) {
        const plan = (await ask("/console/api/plan")).value;
        learnRecords(plan.records);
        this.plan = plan;
      }
      const after = this.epochs.at(-1)?.epoch ?? -1;
      const [status, epochs] = await Promise.all([
        ask("/console/api/status"),
        ask(`/console/api/epochs?after=${after}`),
      ]);
      this.#take(status.value, epochs.value);
      this.failure = null;
    } catch (failure) {
      this.failure = failure;
    }
    this.dispatchEvent(new Event("change"));
  }

  #take(status, epochs) {
    this.status = status;
    const newest = this.epochs.at(-1)?.epoch ?? -1;
    if (status.epoch < newest - REORDERED_MAX) this.epochs = []; // the journal was begun anew
    this.epochs = [...this.epochs, ...epochs].slice(-EPOCHS_KEPT);
    this.samples = [...this.samples, { time: status.now_us / 1_000, lag: status.lag }].slice(
      -SAMPLES_KEPT,
    );
  }

  /** Return the epochs of the last seconds, by the server's clock. */
  recent() {
    const since = (this.status?.now_us ?? 0) - RECENT_US;
    return this.epochs.filter((epoch) => epoch.time_us > since);
  }

  /** Return calls per second over the last seconds, by `caller>callee`. */
  callRates() {
    const rates = new Map();
    for (const epoch of this.recent())
      for (const [call, times] of Object.entries(epoch.calls))
        rates.set(call, (rates.get(call) ?? 0) + times / (RECENT_US / 1e6));
    return rates;
  }

  /** Return events per second over the last seconds, by the path of the stream. */
  streamRates() {
    const rates = new Map();
    for (const epoch of this.recent())
      for (const [stream, events] of Object.entries(epoch.events)) {
        const path = `streams/${stream}`;
        rates.set(path, (rates.get(path) ?? 0) + events / (RECENT_US / 1e6));
      }
    return rates;
  }

  /** Return the driver that runs, or nothing. */
  driver() {
    return this.status?.processes.find((process) => process.role === "driver");
  }
}

export const live = new Live();
