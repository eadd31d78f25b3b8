// Flow: limits, pauses and their record; pause and resume of a class, a method or everything. While
// everything is paused, the page says how many requests are under way, until the application is drained.

import { ask } from "./api.js";
import { askFirst } from "./confirm.js";
import { el, empty, field, problem, show } from "./dom.js";
import { plural } from "./format.js";
import { showSchedules } from "./schedules.js";
import { dataTable } from "./table.js";
import { momentNode } from "./times.js";
import { button, panel } from "./widgets.js";

const PATH = "/flow";
const EVERYTHING = "*";
const LOOK_MS = 1_000;
const WHOLE = {
  title: "Pause everything?",
  text: "Gateways refuse every request until it is resumed. Requests that are in the log run.",
  leave: "Leave it running",
  sure: "Pause everything",
};

/** Show the page. */
export async function open(body) {
  show(body, el("p", { class: "waiting" }, "Asking the gateway …"));
  const said = el("div", {});
  const paused = el("div", { id: "paused" });
  const drain = el("div", { id: "drain", role: "status" });
  let closed = false;
  let waiting = false;
  let resuming = false;
  const limits = el("div", { id: "limits" });
  const workflows = el("div", { id: "paused-workflows" });
  const record = el("div", { id: "record" });
  const { value } = await ask(PATH);
  const pauseForm = formOf(value.targets, change);

  async function change(kind, target, reason, skip = false) {
    show(said);
    try {
      const content = JSON.stringify({ kind, target, reason, skip });
      update((await ask(PATH, { method: "POST", body: content })).value);
      return true;
    } catch (failure) {
      show(said, problem(failure));
      return false;
    }
  }

  async function look() {
    if (waiting) return;
    waiting = true;
    try {
      const { value } = await ask(PATH);
      showDrain(value);
      showWorkflows(value.standing.workflows);
    } catch {
      show(drain); // the frame says that the gateway does not answer
    } finally {
      waiting = false;
    }
  }

  function showDrain({ standing, under_way: left, drained }) {
    closed = standing.paused.some((each) => each.target === EVERYTHING);
    const text = drained
      ? "Drained: every admitted request is committed. The application can be stopped."
      : `Draining: ${plural(left, "request")} under way.`;
    show(drain, closed ? el("p", {}, text) : null);
  }

  function showWorkflows(found) {
    resuming = found.some((each) => each.is_resuming);
    show(workflows, found.length ? workflowTable(found, change) : null);
  }

  function update(value) {
    const { standing } = value;
    showDrain(value);
    show(paused, pausedTable(standing.paused, change));
    showWorkflows(standing.workflows);
    show(limits, limitList(standing.limits));
    show(record, recordTable(standing.newest));
  }

  update(value);
  const schedules = el("div", { class: "stack" });
  const scheduled = panel("schedules", "Schedules", "The ticks of a paused schedule are passed over.", schedules);
  scheduled.hidden = true;
  showSchedules(schedules, scheduled);
  show(
    body,
    panel(
      "pauses",
      "Pauses",
      "Gateways refuse paused requests. Requests that are in the log run.",
      said,
      paused,
      drain,
      workflows,
      pauseForm,
    ),
    scheduled,
    panel("limits", "Limits on requests", "Declared in the application and its settings.", limits),
    panel("record", "Record", "The newest pauses and resumes.", record),
  );
  const timer = setInterval(() => (closed || resuming) && look(), LOOK_MS);
  return { close: () => clearInterval(timer) };
}

function formOf(targets, change) {
  // What stops most comes last, and nothing is chosen before a person chooses.
  const names = [...targets.filter((name) => name !== EVERYTHING), EVERYTHING];
  const target = el(
    "select",
    { id: "pause-target", required: true },
    el("option", { value: "" }, "Choose …"),
    names.map((name) => el("option", { value: name }, nameOf(name))),
  );
  const given = { id: "pause-reason", required: true, maxlength: 500, pattern: ".*\\S.*", title: "Say why." };
  const reason = el("input", given);
  const pause = async () => {
    if (!(await change("pause", target.value, reason.value.trim()))) return;
    reason.value = "";
    target.value = "";
  };
  const submit = (event) => {
    event.preventDefault();
    if (target.value === EVERYTHING) askFirst(WHOLE, pause);
    else pause();
  };
  return el(
    "form",
    { onsubmit: submit, class: "row filters" },
    field("Pause", target),
    field("Reason", reason),
    el("button", { type: "submit", class: "quiet-button" }, "Pause"),
  );
}

function pausedTable(every, change) {
  const actions = every.filter(({ target }) => !target.startsWith("schedules/")); // they have a panel of their own
  if (!actions.length) return empty("Nothing is paused.", "Gateways accept every request.");
  const columns = [
    { name: "Target", cell: nameOf },
    { name: "Since", cell: momentNode },
    { name: "By" },
    { name: "Reason" },
    { name: "Resume", cell: (target) => resumeButton(target, change) },
  ];
  const rows = actions.map((action) => [action.target, action.time_us, action.by, action.reason, action.target]);
  return dataTable({ caption: "Pauses in force", rowHead: true, columns, rows });
}

const resumeButton = (target, change) =>
  button("Resume", () => change("resume", target, ""), {
    "aria-label": `Resume ${nameOf(target)}`,
  });

function workflowTable(workflows, change) {
  const columns = [
    { name: "Workflow" },
    { name: "Since", cell: momentNode },
    { name: "Held steps" },
    { name: "Failure" },
    { name: "Resume", cell: (one) => workflowButtons(one, change) },
  ];
  const rows = workflows.map((workflow) => [workflow.name, workflow.since_us, workflow.held, workflow.failure, workflow]);
  return dataTable({ caption: "Workflows that are paused by a failure", rowHead: true, columns, rows });
}

function workflowButtons(one, change) {
  if (one.is_resuming) return "resumes …";
  const target = `workflows/${one.name}`;
  const resume = button("Resume", () => change("resume", target, ""), {
    "aria-label": `Resume workflow ${one.name}, with the failed atom`,
  });
  const skip = button("Skip the atom", () => change("resume", target, "", true), {
    "aria-label": `Resume workflow ${one.name}, and set the failed atom aside`,
  });
  return el("span", { class: "row" }, resume, skip);
}

function limitList(limits) {
  if (!limits.length)
    return empty("There are no limits.", "Declare them with @limit or gateway.limits.");
  return el(
    "ul",
    {},
    limits.map((limit) => el("li", {}, el("code", {}, limit))),
  );
}

function recordTable(actions) {
  if (!actions.length) return empty("Nothing was paused yet.", "Pauses and resumes appear here.");
  const columns = [
    { name: "Time", cell: momentNode },
    { name: "Action" },
    { name: "Target", cell: nameOf },
    { name: "By" },
    { name: "Reason" },
  ];
  const rows = actions.map((action) => [action.time_us, action.kind, action.target, action.by, action.reason]);
  return dataTable({ caption: "Pauses and resumes", columns, rows });
}

const nameOf = (target) => (target === EVERYTHING ? "everything" : target);
