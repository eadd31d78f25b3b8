// One entity: its attributes at the newest epoch, and what can be called.

import { ask } from "./api.js";
import { el, problem, show } from "./dom.js";
import { count } from "./format.js";
import { historyOf } from "./history.js";
import { block, parseType } from "./value.js";
import { between, button, chips } from "./widgets.js";

/** Show an entity; `names` are those of all entity classes. */
export async function showEntity(body, heading, operator, key, names) {
  heading.replaceChildren(`${operator.name} `, el("code", {}, key));
  document.title = `${operator.name}/${key} · Penstock`;
  const all = el(
    "a",
    { href: `#/entities/${encodeURIComponent(operator.name)}` },
    `All of ${operator.name}`,
  );
  const result = el("div", { id: "entity" });
  show(body, el("p", {}, all), result);
  const path = `/entities/${encodeURIComponent(operator.name)}/${encodeURIComponent(key)}`;
  const load = async () => {
    try {
      const { value, headers } = await ask(path);
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
      show(result, panel, calls(operator, key), historyOf(path));
    } catch (failure) {
      show(result, problem(failure));
    }
  };
  await load();
  return null;
}

function attributes(value, operator, names) {
  const types = new Map(operator.attributes.map((one) => [one.name, one.type]));
  const rows = Object.entries(value).map(([name, held]) => {
    const isKey = name === operator.key.name;
    const type = isKey ? `${operator.key.type}, the key` : (types.get(name) ?? "");
    const shown = isKey ? String(held) : block(held, parseType(type), names);
    return [
      el("dt", {}, name, el("span", { class: "type" }, type)),
      el("dd", { "data-attribute": name }, shown),
    ];
  });
  return el("dl", { class: "fields wide" }, rows);
}

function calls(operator, key) {
  const methods = operator.methods.filter(
    (one) => !one.name.startsWith("_") && one.name !== "create",
  );
  if (!methods.length) return null;
  const links = methods.map(({ name }) => {
    const fields = new URLSearchParams({ path: `/call/${operator.name}/{key}/${name}`, key });
    return el("a", { href: `#/try?${fields}` }, name);
  });
  return el("section", {}, el("h2", {}, "Call it"), chips(links));
}
