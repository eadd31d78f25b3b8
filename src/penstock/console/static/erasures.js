// Erasures: the order to erase a person, and the certificates of those that were erased.

import { ask } from "./api.js";
import { askFirst } from "./confirm.js";
import { el, empty, field, problem, show } from "./dom.js";
import { count } from "./format.js";
import { live } from "./live.js";
import { keySuggestions } from "./reference_keys.js";
import { dataTable } from "./table.js";
import { lineNode } from "./text.js";
import { momentNode } from "./times.js";
import { lines, panel } from "./widgets.js";
import { Working } from "./working.js";

const HASH_SHOWN = 16;

/** Return the classes of a plan whose entities are persons. */
export const personalOf = (plan) => plan.operators.filter((operator) => operator.personal);

/** Return the address of the order for a person. */
export const erasureLink = (entity, key) => `#/erasures?${new URLSearchParams({ of: entity, key })}`;

/** Return the newest certificate of an entity, or nothing. */
export async function certificateOf(entity, key) {
  const { value } = await ask("/erasures");
  return value.findLast(({ subject }) => subject === `${entity}/${key}`);
}

/** Show the page; `?of=User&key=ada` fills in the order. */
export async function open(body, { search }) {
  show(body, el("p", { class: "waiting" }, "Asking the gateway …"));
  const classes = personalOf(await live.ready()).map((one) => one.name);
  const certificates = el("div", { id: "certificates" });
  const order = classes.length
    ? orderForm(classes, search, () => load(certificates))
    : empty("No class is personal.", "Declare one with @entity(personal=True).");
  show(
    body,
    panel("erase", "Erase a person", "Needs a key with the scope admin. It cannot be undone.", order),
    panel("certificates", "Certificates", "The newest first.", certificates),
  );
  await load(certificates);
  return null;
}

function orderForm(classes, search, changed) {
  const working = new Working();
  const of = el(
    "select",
    {},
    classes.map((name) => el("option", { value: name }, name)),
  );
  if (classes.includes(search.get("of"))) of.value = search.get("of");
  const key = el("input", {
    class: "code",
    value: search.get("key") ?? "",
    required: true,
    autocomplete: "off",
    spellcheck: "false",
  });
  const erase = () =>
    working.run("Erasing: the key is destroyed, and the views are filled again without the person …", async () => {
      const body = JSON.stringify({ subject: `${of.value}/${key.value}` });
      const { value } = await ask("/erasures", { method: "POST", body });
      await changed();
      return outcomeOf(value);
    });
  const submit = (event) => {
    event.preventDefault();
    const question = {
      title: `Erase ${of.value}/${key.value}?`,
      text:
        "The entity is deleted, and the key of its data is destroyed: no file, former epoch or backup shows the person " +
        "any more. Requests about the person that are scheduled fail. This cannot be undone.",
      leave: "Leave it",
      sure: "Erase",
    };
    askFirst(question, erase);
  };
  const keyField = field("Key", key, "The key of the person; it may be used for another one afterwards.");
  const form = el(
    "form",
    { id: "erase", class: "stack", onsubmit: submit },
    el("div", { class: "row filters" }, field("Class", of), keyField),
    el("p", {}, el("button", { type: "submit", class: "main-button danger" }, "Erase …")),
    working.element,
  );
  const suggestions = keySuggestions(key, () => of.value);
  keyField.insertBefore(suggestions, keyField.querySelector(".hint"));
  return form;
}

function outcomeOf(answer) {
  if (answer.message) return el("p", { role: "status", class: "done" }, answer.message);
  const { subject, epoch, time_us: time, hash } = answer;
  const facts = [
    ["Person", lineNode(subject)],
    ["Epoch", count(epoch)],
    ["Time", momentNode(time)],
    ["Certificate", el("code", {}, hash)],
  ];
  const passages = (answer.views ?? []).map((view) => [`View ${view.view}`, passageText(view)]);
  return el("div", { role: "status", class: "done" }, el("p", {}, "The key is destroyed."), lines([...facts, ...passages]));
}

const hasPassed = ({ state }) => state === "passed";

const passageText = (view) =>
  hasPassed(view)
    ? `passed, at epoch ${count(view.epoch)}`
    : `not passed: ${[view.state, view.reason, view.remedy].filter(Boolean).join("; ")}`;

function viewsText(views = []) {
  const late = views.filter((view) => !hasPassed(view)).map(({ view }) => view);
  if (late.length) return `not passed by ${late.join(", ")}`;
  return views.length ? "all passed" : "none";
}

async function load(place) {
  try {
    const { value } = await ask("/erasures");
    show(place, value.length ? table(value) : empty("Nobody was erased.", "Each erasure leaves a certificate here."));
  } catch (failure) {
    show(place, problem(failure));
  }
}

const table = (certificates) =>
  dataTable({
    caption: "Certificates, the newest first",
    columns: [
      { name: "Person", cell: lineNode },
      { name: "Epoch", numeric: true, cell: count },
      { name: "Time", cell: momentNode },
      { name: "Views", cell: lineNode },
      { name: "Certificate", cell: (hash) => el("code", { class: "hash", title: hash }, `${hash.slice(0, HASH_SHOWN)}…`) },
    ],
    rows: certificates
      .map(({ subject, epoch, time_us: time, views, hash }) => [subject, epoch, time, viewsText(views), hash])
      .reverse(),
    rowHead: true,
  });
