// Schedules: functions with @every and @cron, their next times, and buttons that pause, resume and fire them.

import { ask } from "./api.js";
import { confirmButton } from "./confirm.js";
import { el, problem, show } from "./dom.js";
import { dataTable } from "./table.js";
import { microsecondsOf, momentNode } from "./times.js";
import { button } from "./widgets.js";

const PATH = "/schedules";

/** Fill a panel with the schedules, and show it if there are any. */
export async function showSchedules(place, whole) {
  const said = el("div", { role: "status" });
  const list = el("div", { id: "schedule-list" });

  async function load() {
    try {
      const { value } = await ask(PATH);
      whole.hidden = !value.length;
      show(list, value.length ? table(value, give) : null);
    } catch (failure) {
      show(list, problem(failure));
    }
  }

  async function give(order, name) {
    try {
      const body = JSON.stringify({ order, name, reason: "" });
      const { value } = await ask(PATH, { method: "POST", body });
      const id = value.request_id;
      const link = id && el("a", { href: `#/requests/${encodeURIComponent(id)}` }, id);
      show(said, id ? el("p", {}, `${name} runs as the request `, link) : null);
      await load();
    } catch (failure) {
      show(said, problem(failure));
    }
  }

  show(place, said, list);
  await load();
}

function table(schedules, give) {
  const columns = [
    { name: "Schedule" },
    { name: "Times", cell: (text) => el("code", {}, text) },
    { name: "Next", cell: (times) => el("div", {}, times.map((text) => el("div", {}, text))) },
    { name: "Orders", cell: (one) => orders(one, give) },
  ];
  const rows = schedules.map((one) => [
    one.name,
    one.zone ? `${one.times} (${one.zone})` : one.times,
    one.paused ? ["paused"] : one.next.map((text) => momentNode(microsecondsOf(text))),
    one,
  ]);
  return dataTable({ caption: "Schedules of the application", rowHead: true, columns, rows });
}

function orders({ name, paused }, give) {
  const fire = {
    name: "Fire …",
    more: { "aria-label": `Fire ${name} …` },
    title: `Run ${name} now?`,
    text: "The function runs once more, with the present time as its due time.",
    leave: "Leave it",
    sure: "Run it",
  };
  const order = paused ? "resume" : "pause";
  const title = paused ? "Resume" : "Pause";
  return el(
    "div",
    { class: "row" },
    button(title, () => give(order, name), { "aria-label": `${title} ${name}` }),
    confirmButton(fire, () => give("fire", name)),
  );
}
