// What happened since the driver was killed: a list that grows until nothing can have been lost.

import { el, show } from "./dom.js";
import { age, count, plural } from "./format.js";
import { figures } from "./widgets.js";

/** Follows one kill of the driver at a time. */
export class Recovery {
  #events = el("ol", { class: "timeline", "aria-live": "polite" });
  #counts = el("div", {});
  #killed = null;
  #seen = new Set();

  constructor() {
    const title = el("h3", {}, "Since the driver was killed");
    this.element = el(
      "div",
      { class: "recovery", hidden: true },
      title,
      this.#counts,
      this.#events,
    );
  }

  /** Start: `killed` is what the gateway answered, `{pid, epoch, accepted, answered, now_us}`. */
  begin(killed) {
    this.#killed = killed;
    this.#seen = new Set();
    this.element.hidden = false;
    show(this.#events);
    this.#say(
      "killed",
      killed.now_us,
      `Driver ${killed.pid} got SIGKILL after epoch ${count(killed.epoch)}.`,
    );
  }

  /** Note what has changed. */
  look(live) {
    if (!this.#killed || !live.status) return;
    const { status } = live;
    const driver = live.driver();
    if (!driver)
      this.#say("gone", status.now_us, "No driver runs. The gateway goes on taking requests.");
    else if (driver.pid !== this.#killed.pid) this.#back(driver, live);
    const entries = [
      ["Taken", status.accepted],
      ["Processed", status.answered],
      ["Waiting", status.lag],
    ];
    show(
      this.#counts,
      figures(
        entries.map(([name, value]) => [name, count(value)]),
        "counts",
      ),
    );
  }

  #back(driver, { status, epochs }) {
    const killed = this.#killed;
    this.#say(
      "back",
      driver.started_s * 1e6,
      `Driver ${driver.pid} started; it takes up where the journal ends.`,
    );
    const first = epochs.find((epoch) => epoch.epoch > killed.epoch);
    if (first)
      this.#say(
        "working",
        first.time_us,
        `Processing again: epoch ${count(first.epoch)} is committed.`,
      );
    const whole = status.answered >= killed.accepted && (first || status.lag === 0);
    if (whole)
      this.#say(
        "whole",
        status.now_us,
        `Nothing lost: ${plural(killed.accepted, "request")} had been taken, and each is processed.`,
      );
  }

  #say(what, timeUs, words) {
    if (this.#seen.has(what)) return;
    this.#seen.add(what);
    const after = Math.max(0, (timeUs - this.#killed.now_us) / 1e6);
    this.#events.append(
      el("li", { "data-event": what }, el("span", { class: "when" }, `+ ${age(after)}`), words),
    );
  }
}
