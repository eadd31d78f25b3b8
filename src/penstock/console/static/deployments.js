// Deployments: what runs at which version, the history with the difference of each, and the orders of an operator.

import { ask } from "./api.js";
import { confirmButton } from "./confirm.js";
import { DroppedClasses, deployForm, resultText } from "./deploy_form.js";
import { el, empty, problem, show } from "./dom.js";
import { findingsList } from "./findings.js";
import { count } from "./format.js";
import { encode } from "./json.js";
import { showPartitions } from "./partitions.js";
import { dataTable } from "./table.js";
import { momentNode } from "./times.js";
import { lines, panel, row } from "./widgets.js";
import { Working } from "./working.js";

const LOOK_MS = 5_000;
const HASH_SHOWN = 12;

/** Show the page. */
export async function open(body) {
  show(body, el("p", { class: "waiting" }, "Asking the gateway …"));
  const shown = new DeploymentPage(body);
  await shown.start();
  return { close: () => shown.close() };
}

class DeploymentPage {
  #body;
  #present = el("div", { id: "in-force" });
  #history = el("div", { id: "deployments" });
  #working = new Working();
  #removing = new Working();
  #applications = [];
  #before = "";
  #timer;

  constructor(body) {
    this.#body = body;
  }

  async start() {
    const { value } = await ask("/deployments");
    const partitions = el("div", {});
    this.#fill(value);
    const form = deployForm(() => this.#applications, () => this.#look());
    show(
      this.#body,
      panel("present", "In force", "The code that executes the next epoch.", this.#present, this.#removing.element),
      panel("deploy-source", "Deploy", "The check changes nothing. Needs a key with the scope admin.", form),
      panel("history", "History", "The newest first.", this.#working.element, this.#history),
      panel("stores", "Partitions", "The state lies in as many stores.", partitions),
    );
    this.#timer = setInterval(() => this.#look(), LOOK_MS);
    await showPartitions(partitions);
  }

  close() {
    clearInterval(this.#timer);
  }

  async #look() {
    try {
      this.#fill((await ask("/deployments")).value);
    } catch {
      // the frame says that the gateway does not answer; the list stays
    }
  }

  #fill(every) {
    const text = encode(every);
    if (text === this.#before) return;
    this.#before = text;
    const present = every.find((each) => each.in_force);
    this.#applications = present ? applicationsOf(present) : [];
    show(this.#present, present ? factsOf(present, (name) => this.#removal(name)) : nothing());
    show(this.#history, every.length ? this.#table(every) : null);
  }

  #table(every) {
    const columns = [
      { name: "Deployment", numeric: true, cell: count },
      { name: "Since epoch", numeric: true, cell: count },
      { name: "Recorded", cell: momentNode },
      { name: "By" },
      { name: "Source", cell: hashOf },
      { name: "What changed", cell: changesOf },
      { name: "Roll back", cell: (each) => this.#rollBack(each) },
    ];
    const rows = every
      .map((each) => [each.number, each.since, each.time_us, orderedBy(each), each.archive, each, each])
      .reverse();
    const caption = "Deployments, the newest first";
    return dataTable({ caption, columns, rows, rowHead: true });
  }

  #removal(name) {
    const question = {
      name: "Remove …",
      title: `Remove the application ${name}?`,
      text:
        "It takes effect between two epochs, as a deployment. Its entities stay stored, and are there again if it is " +
        "deployed again. Requests to it fail. It is refused if another application uses a part of it.",
      leave: "Keep it",
      sure: "Remove",
      more: { "aria-label": `Remove ${name} …` },
    };
    return confirmButton(question, () =>
      this.#removing.run(`Removing ${name} …`, async () => {
        const body = JSON.stringify({ remove: name });
        const { value } = await ask("/deployments", { method: "POST", body });
        this.#look();
        return resultText(value);
      }),
    );
  }

  #rollBack(deployment) {
    if (deployment.in_force) return "in force";
    const { number } = deployment;
    const dropped = new DroppedClasses();
    const question = {
      inputs: [dropped.field],
      name: "Roll back …",
      title: `Deploy the code of deployment ${number} again?`,
      text:
        "It takes effect between two epochs, as a new deployment, and no request is lost. Classes that " +
        "cannot read what is stored now are refused, and nothing changes.",
      leave: "Leave it",
      sure: "Roll back",
      more: { "aria-label": `Roll back to deployment ${number} …` },
    };
    return confirmButton(question, () =>
      this.#working.run(`Deploying the code of deployment ${number} …`, async () => {
        const body = JSON.stringify({ number, drop: dropped.names });
        const { value } = await ask("/deployments", { method: "POST", body });
        this.#look();
        return resultText(value);
      }),
    );
  }
}

/** Return the names of the applications of a deployment, such as `shop:app`. */
const applicationsOf = ({ applications, app }) => {
  const names = Object.keys(applications);
  return names.length ? names : [app];
};

const nothing = () => empty("No deployment is recorded.", "The next start of the driver records one.");

/** Return the facts of a deployment; of several applications, each has the button of `removal`. */
function factsOf(deployment, removal) {
  const names = applicationsOf(deployment);
  const sourceOf = (name) => hashOf(deployment.applications[name] ?? deployment.archive);
  return lines([
    ...names.map((name) => [name, names.length > 1 ? row(sourceOf(name), removal(name)) : sourceOf(name)]),
    ["Deployment", count(deployment.number)],
    ["Since epoch", count(deployment.since)],
    ["Recorded", momentNode(deployment.time_us)],
    ["By", orderedBy(deployment)],
    ["Python", deployment.python],
  ]);
}

const orderedBy = ({ by, live }) => by || (live ? "a command" : "the start of a driver");

const hashOf = (archive) => el("code", { class: "hash", title: archive }, archive.slice(0, HASH_SHOWN));

function changesOf(deployment) {
  if (deployment.number === 1) return "the first deployment";
  const texts = [
    deployment.source_changed ? sourceText(deployment.changed_applications) : null,
    deployment.changed_classes.length ? `stored form of ${deployment.changed_classes.join(", ")}` : null,
    ...deployment.changed_versions,
  ].filter(Boolean);
  return [texts.join("; "), differenceOf(deployment.number)];
}

const sourceText = (changed) => (changed.length ? `source of ${changed.join(", ")}` : "source");

/** Return a box whose opening asks for the differences. */
function differenceOf(number) {
  const content = el("div", { "aria-live": "polite" });
  let asked = false;
  const load = async () => {
    if (asked || !box.open) return;
    asked = true;
    show(content, el("p", { class: "waiting" }, "Comparing both versions …"));
    try {
      show(content, findingsList((await ask(`/deployments/${number}`)).value.findings));
    } catch (failure) {
      asked = false; // opening it again asks again
      if (failure.code === "gone") failure.next = "";
      show(content, problem(failure));
    }
  };
  const name = { "aria-label": `Differences of deployment ${number}` };
  const box = el("details", { ontoggle: load }, el("summary", name, "Differences"), content);
  return box;
}
