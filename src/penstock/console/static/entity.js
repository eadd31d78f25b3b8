// One entity: its attributes at the newest epoch, what can be called, and its history.

import { ask } from "./api.js";
import { el, problem, show } from "./dom.js";
import { certificateOf, erasureLink } from "./erasures.js";
import { count } from "./format.js";
import { showHistory } from "./history.js";
import { lineNode, textNode } from "./text.js";
import { block, entityLink, keyText, parseType } from "./value.js";
import { between, button, chips } from "./widgets.js";

/** Show an entity, or its history where `view` says so; `names` are those of all entity classes. */
export function showEntity(body, heading, { operator, key, view, names }) {
  heading.replaceChildren(`${operator.name} `, el("code", {}, lineNode(key)));
  document.title = `${operator.name}/${key} · Penstock`;
  const all = el(
    "a",
    { href: `#/entities/${encodeURIComponent(operator.name)}` },
    `All of ${operator.name}`,
  );
  const past = view === "history";
  const result = el("div", { id: past ? "history" : "entity" });
  show(body, el("p", {}, all), tabs(operator.name, key, past), result);
  return past ? showHistory(result, operator.name, key) : showNow(result, operator, key, names);
}

function tabs(name, key, past) {
  const now = entityLink(name, key);
  const tab = (title, href, current) =>
    el("li", {}, el("a", { href, "aria-current": current ? "page" : null }, title));
  return el(
    "nav",
    { class: "tabs", "aria-label": "Now and before" },
    el("ul", {}, tab("Now", now, !past), tab("History", `${now}/history`, past)),
  );
}

async function showNow(result, operator, key, names) {
  const path = `/entities/${encodeURIComponent(operator.name)}/${encodeURIComponent(key)}`;
  const load = async () => {
    try {
      const { value, headers } = await ask(path, { exact: true });
      const epoch = el(
        "p",
        { class: "hint" },
        `at epoch ${count(Number(headers.get("Penstock-Epoch")))}`,
      );
      const panel = el(
        "section",
        { class: "panel", "aria-label": "Attributes" },
        attributes(value, operator, names),
        between(epoch, button("Read again", load)),
      );
      show(result, panel, calls(operator, key));
    } catch (failure) {
      show(result, problem(failure), operator.personal && failure.status === 404 ? await erased(operator, key) : null);
    }
  };
  await load();
  return null;
}

function attributes(value, operator, names) {
  const types = new Map(operator.attributes.map((attribute) => [attribute.name, attribute.type]));
  const rows = Object.entries(value).map(([name, held]) => {
    const isKey = name === operator.key.name;
    const type = isKey ? `${operator.key.type}, the key` : (types.get(name) ?? "");
    const shown = isKey ? textNode(keyText(held)) : block(held, parseType(type), names);
    return [
      el("dt", {}, name, el("span", { class: "type" }, type)),
      el("dd", { "data-attribute": name }, shown),
    ];
  });
  return el("dl", { class: "fields wide" }, rows);
}

function calls(operator, key) {
  const methods = operator.methods.filter(
    (method) => !method.is_property && !method.name.startsWith("_") && method.name !== "create",
  );
  const links = methods.map(({ name }) => {
    const fields = new URLSearchParams({ path: `/call/${operator.name}/{key}/${name}`, key });
    return el("a", { href: `#/try?${fields}` }, name);
  });
  const list = `#/requests?${new URLSearchParams({ of: operator.name, key })}`;
  const sent = el("p", {}, el("a", { href: list }, "Requests to it"));
  const erase = el("p", {}, el("a", { href: erasureLink(operator.name, key) }, "Erase this person …"));
  return el("section", {}, el("h2", {}, "Call it"), links.length ? chips(links) : null, sent, operator.personal ? erase : null);
}

/** Return what is known of a person that was erased; null if it was not. */
async function erased({ name }, key) {
  const certificate = await certificateOf(name, key).catch(() => null); // the failure above says enough
  if (!certificate) return null;
  const all = el("a", { href: "#/erasures" }, "Certificates");
  return el("p", {}, `A person with this key was erased in epoch ${count(certificate.epoch)}. `, all);
}
