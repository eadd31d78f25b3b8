// The number of partitions: the present one, the proposal, and the form that changes it.

import { ask } from "./api.js";
import { confirmButton } from "./confirm.js";
import { el, field, problem, show } from "./dom.js";
import { count, plural } from "./format.js";
import { Working } from "./working.js";

const BUCKETS = 1_024;

/** Fill the panel of partitions. */
export async function showPartitions(place) {
  const working = new Working();
  const facts = el("div", { id: "partitions" });
  const number = el("input", { type: "number", min: 1, max: BUCKETS, required: true, class: "short" });

  async function load() {
    try {
      const { partitions, proposed, reason } = (await ask("/partitions")).value;
      number.value ||= proposed;
      const good = proposed === partitions ? "A good number. " : `Proposed: ${count(proposed)}. `;
      show(facts, el("p", {}, el("strong", {}, plural(partitions, "partition")), ". ", good, reason));
    } catch (failure) {
      show(facts, problem(failure));
    }
  }

  const move = () =>
    number.reportValidity() &&
    working.run("Copying the state into new stores; requests continue …", async () => {
      const body = JSON.stringify({ partitions: Number(number.value) });
      const { value } = await ask("/partitions", { method: "POST", body });
      await load();
      return el("p", { role: "status", class: "done" }, textOf(value));
    });
  const question = {
    name: "Move the buckets …",
    title: "Change the number of partitions?",
    text:
      "The state is copied into stores of the new number, which needs as much disk again for a while. Requests " +
      "continue, and no outcome changes.",
    leave: "Leave it",
    sure: "Move",
  };
  show(
    place,
    facts,
    el("div", { class: "row filters" }, field("New number", number), confirmButton(question, move)),
    working.element,
  );
  await load();
}

function textOf({ before, partitions, epoch }) {
  if (before === partitions) return `There are ${count(partitions)} partitions already.`;
  if (epoch === null) return `No driver runs. The next start changes the number to ${count(partitions)}.`;
  return `${count(before)} → ${count(partitions)} partitions, from epoch ${count(epoch + 1)} on.`;
}
