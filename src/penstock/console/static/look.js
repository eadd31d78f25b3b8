// A page that shows how something stands asks for it again and again.

import { ask } from "./api.js";

/** Ask a path every so often, and pass each answer on; a question that waits is not asked again meanwhile. */
export function keepLooking(path, everyMs, update) {
  let waiting = false;

  async function look() {
    if (waiting) return;
    waiting = true;
    try {
      update((await ask(path)).value);
    } catch {
      // the frame says that the gateway does not answer
    } finally {
      waiting = false;
    }
  }

  const timer = setInterval(look, everyMs);
  return { close: () => clearInterval(timer) };
}
