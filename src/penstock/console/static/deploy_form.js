// The form that checks and deploys a source: its files become an archive here, and the gateway does the rest.

import { Failure, ask } from "./api.js";
import { el, field, newId, show } from "./dom.js";
import { findingsList } from "./findings.js";
import { count, plural } from "./format.js";
import { archiveOf, pathsIn } from "./source_archive.js";
import { button, row } from "./widgets.js";
import { Working } from "./working.js";

const APPLICATION = "module:name, as penstock run takes it; of a set, one of it or a new one. The others stay as they are.";
const ZIP = { "Content-Type": "application/zip" };

/** The field for the stored classes that a deployment drops. */
export class DroppedClasses {
  #input = el("input", { class: "code", autocomplete: "off", spellcheck: "false" });

  constructor() {
    const hint = "Stored classes that the code lacks, with commas between them; usually none.";
    this.field = field("Classes to drop", this.#input, hint);
  }

  get names() {
    return this.#input.value.split(",").map((each) => each.trim()).filter(Boolean);
  }
}

/** Return the form; `applications()` are the deployed ones, and `changed` is called after an order. */
export function deployForm(applications, changed) {
  const working = new Working();
  const known = el("datalist", { id: newId("applications") });
  const suggest = () => show(known, applications().map((each) => el("option", { value: each })));
  const name = el("input", {
    class: "code",
    value: applications().length === 1 ? applications()[0] : "",
    list: known.id,
    onfocus: suggest,
    required: true,
    autocomplete: "off",
    spellcheck: "false",
  });
  const files = el("input", { type: "file", multiple: true, accept: ".py,.json,.toml,.csv,.txt,.yaml,.yml,*/*" });
  const folder = el("input", { type: "file", webkitdirectory: true });
  const drop = new DroppedClasses();
  const chosen = el("p", { class: "hint", role: "status" });

  for (const [input, other] of [
    [files, folder],
    [folder, files],
  ])
    input.addEventListener("change", () => {
      if (input.files.length) other.value = "";
      show(chosen, input.files.length ? `${plural(input.files.length, "file")} chosen` : "");
    });

  async function order(query) {
    let body;
    try {
      const given = files.files.length ? files.files : folder.files;
      body = await archiveOf(pathsIn(given, name.value));
    } catch (error) {
      throw new Failure(0, "request", error.message, "archive");
    }
    const fields = new URLSearchParams({ app: name.value.trim(), ...query });
    if (drop.names.length) fields.set("drop", drop.names.join(","));
    return ask(`/deployments?${fields}`, { method: "POST", headers: ZIP, body });
  }

  const check = () =>
    form.reportValidity() &&
    working.run("Checking: the code is imported, and the newest epochs run again with it …", async () =>
      reportOf((await order({ check: "true" })).value),
    );
  const deploy = (event) => {
    event.preventDefault();
    working.run("Deploying: the code is checked, and takes effect between two epochs …", async () => {
      const { value } = await order({});
      changed();
      return resultText(value);
    });
  };

  const form = el(
    "form",
    { onsubmit: deploy, id: "deploy" },
    field("Application", name, APPLICATION),
    known,
    el(
      "div",
      { class: "row filters" },
      field("Files of the source", files),
      field("Or its folder", folder, "Hidden files are left out."),
    ),
    chosen,
    drop.field,
    row(
      button("Check", check),
      el("button", { type: "submit", class: "main-button" }, "Deploy"),
    ),
    working.element,
  );
  return form;
}

function reportOf({ verdict, findings, deployed }) {
  const against = deployed === null ? "what is stored" : `deployment ${deployed}`;
  return el(
    "div",
    { id: "report", role: "status" },
    el("p", {}, "Compared with ", against, ": ", el("strong", { class: `level ${verdict}` }, wordOf(verdict))),
    findingsList(findings),
  );
}

const wordOf = (verdict) =>
  ({
    safe: "safe to deploy",
    "needs-a-word": "read the findings before you deploy",
    refused: "it would be refused",
  })[verdict] ?? verdict;

/** Say what has come of an order to deploy. */
export function resultText(result) {
  return el("p", { role: "status", class: "done" }, textOf(result));
}

function textOf({ changed, number, since, behind = [], message }) {
  if (message) return message; // the driver has not executed the order in time
  if (changed === false) return "This code is deployed already; nothing has changed.";
  if (number === null || number === undefined)
    return "The order is in the log. No driver runs; the next one puts the code in force.";
  const late = behind.length ? ` ${plural(behind.length, "gateway")} still load it.` : "";
  return `Deployment ${number} is in force from epoch ${count(since)} on.${late}`;
}
