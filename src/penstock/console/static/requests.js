// Requests: what became of one, found by its id, and all that the SQL view holds.

import { el, field, show } from "./dom.js";
import { live } from "./live.js";
import { lookUp } from "./request.js";
import { RequestList, codesHeld } from "./request_list.js";
import { failedList } from "./failed.js";
import { scheduledList } from "./scheduled.js";
import { showTrace } from "./trace.js";

/** Show the page; `#/requests/{id}` looks up at once, `#/requests/{id}/trace` is its trace. */
export async function open(body, { rest: [asked, view], search }, heading) {
  if (view === "trace") return showTrace(body, heading, asked);
  const id = el("input", {
    autocomplete: "off",
    spellcheck: "false",
    class: "code",
    value: asked ?? "",
  });
  const result = el("div", { id: "request", "aria-live": "polite" });
  const submit = (event) => {
    event.preventDefault();
    const wanted = id.value.trim();
    if (wanted === asked) lookUp(result, wanted);
    else if (wanted) location.hash = `#/requests/${encodeURIComponent(wanted)}`;
  };
  const hint = "The Idempotency-Key that was sent, or Penstock-Request-Id of an answer.";
  const all = el("div", { class: "stack" }, el("p", { class: "waiting" }, "Asking the SQL view …"));
  show(
    body,
    el(
      "form",
      { class: "row filters", role: "search", "aria-label": "Look-up", onsubmit: submit },
      field("Request id", id, hint),
      el("button", { type: "submit", class: "main-button" }, "Look up"),
    ),
    result,
    all,
  );
  const found = asked === undefined ? null : lookUp(result, asked);
  const [plan, codes] = await Promise.all([live.ready(), codesHeld(), found]);
  const path = asked === undefined ? "#/requests" : `#/requests/${encodeURIComponent(asked)}`;
  const list = new RequestList(path, search, plan.operators, codes);
  if (!body.isConnected) return null; // another page was opened meanwhile
  const scheduled = scheduledList(plan.operators, () => list.loadNext());
  const failed = failedList(plan.operators, () => list.loadNext());
  show(all, failed.element, scheduled.element, list.element);
  list.load();
  scheduled.load();
  failed.load();
  const ends = [list.follow(), scheduled.follow(), failed.follow()];
  return { close: () => ends.forEach((end) => end()) };
}
