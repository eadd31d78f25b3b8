// What happened since the driver was killed, as a list that grows: gone, back, working, nothing lost.

import { el, show } from "./dom.js";
import { age, count, plural } from "./format.js";

/** Follows one kill of the driver at a time. */
export class Recovery {
  #events = el("ol", { class: "timeline", "aria-live": "polite" });
  #counts = el("dl", { class: "counts" });
  #killed = null;
  #seen = new Set();

  constructor() {
    this.element = el("div", { class: "recovery", id: "recovery", hidden: true }, el("h3", {}, "Since the driver was killed"), this.#counts, this.#events);
  }

  /** Start: `killed` is what the gateway answered, `{pid, epoch, accepted, answered, now_us}`. */
  begin(killed) {
    this.#killed = killed;
    this.#seen = new Set();
    this.element.hidden = false;
    show(this.#events);
    this.#say("killed", killed.now_us, `Driver ${killed.pid} got SIGKILL after epoch ${count(killed.epoch)}.`);
  }

  /** Note what has changed. */
  look(live) {
    if (!this.#killed || !live.status) return;
    const { status } = live;
    const driver = live.driver();
    const now = status.now_us;
    if (!driver) this.#say("gone", now, "No driver runs. The gateway goes on taking requests.");
    if (driver && driver.pid !== this.#killed.pid) {
      this.#say("back", driver.started_s * 1e6, `A new driver, ${driver.pid}, started; it takes up where the journal ends.`);
      if (status.epoch > this.#killed.epoch) {
        const first = live.epochs.find((one) => one.epoch > this.#killed.epoch);
        this.#say("working", first?.time_us ?? now, `Processing again: epoch ${count(first?.epoch ?? status.epoch)} is committed.`);
      }
      if (status.answered >= this.#killed.accepted && (status.epoch > this.#killed.epoch || status.lag === 0))
        this.#say("whole", now, `Nothing lost: each of the ${plural(this.#killed.accepted, "request")} that had been taken is processed.`);
    }
    const waiting = status.accepted - status.answered;
    show(this.#counts, [["Taken", status.accepted], ["Processed", status.answered], ["Waiting", waiting]].map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, count(value)))));
  }

  #say(what, timeUs, words) {
    if (this.#seen.has(what)) return;
    this.#seen.add(what);
    const after = Math.max(0, (timeUs - this.#killed.now_us) / 1e6);
    this.#events.append(el("li", { "data-event": what }, el("span", { class: "when" }, `+ ${age(after)}`), words));
  }
}
