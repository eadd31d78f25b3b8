// What a page says while the gateway works for a long time, and what came of it.

import { el, problem, show } from "./dom.js";
import { age } from "./format.js";

const TICK_MS = 1_000;

/** A place for the progress of one order at a time, and for its outcome. */
export class Working {
  element = el("div", {});
  #status = el("div", { role: "status" });
  #outcome = el("div", {});
  #busy = false;

  constructor() {
    this.element.append(this.#status, this.#outcome);
  }

  /** Do `work` while the page says `text` with the seconds that have passed; show what `work` returns. */
  async run(text, work) {
    if (this.#busy) return;
    this.#busy = true;
    const begun = performance.now();
    const passed = el("span", { "aria-hidden": true }); // not said anew each second
    const tick = () => show(passed, ` ${age((performance.now() - begun) / 1_000)}`);
    const timer = setInterval(tick, TICK_MS);
    show(this.#outcome);
    show(this.#status, el("p", { class: "waiting" }, text, passed));
    try {
      show(this.#outcome, await work());
    } catch (failure) {
      show(this.#outcome, problem(failure));
    } finally {
      clearInterval(timer);
      show(this.#status);
      this.#busy = false;
    }
  }
}
