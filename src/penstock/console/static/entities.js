// Entities: a table for each class, searched by key, and a page for each entity.

import { ask, quoted, sql } from "./api.js";
import { el, empty, field, problem, show } from "./dom.js";
import { count, plural } from "./format.js";
import { live } from "./live.js";
import { dataTable } from "./table.js";
import { block, entityLink, inline, parseType } from "./value.js";

const PAGE = 25;
const PAUSE_MS = 250;

/** Show a class's entities, or one of them. */
export async function open(body, { rest, search }, heading) {
  show(body, el("p", { class: "waiting" }, "Asking the gateway …"));
  const plan = await live.ready();
  const classes = plan.operators.filter((one) => one.key);
  const names = new Set(classes.map((one) => one.name));
  const [name = classes[0]?.name, key] = rest;
  const operator = classes.find((one) => one.name === name);
  if (!operator) {
    show(body, empty(`There is no entity class ${name ?? ""}.`, "The classes are: ", classes.map((one) => [el("a", { href: `#/entities/${one.name}` }, one.name), " "])));
    return null;
  }
  const type = typesOf(operator);
  if (key !== undefined) return one(body, heading, operator, key, type, names);
  return list(body, classes, operator, search, type, names);
}

function typesOf(operator) {
  const types = new Map(operator.attributes.map((one) => [one.name, parseType(one.type)]));
  return (attribute) => types.get(attribute) ?? { name: "Any", parts: [] };
}

function list(body, classes, operator, search, type, names) {
  let offset = Number(search.get("from")) || 0;
  const result = el("div", { id: "entities", "aria-live": "polite" }, el("p", { class: "waiting" }, "Asking the SQL view …"));
  const find = el("input", { type: "search", value: search.get("find") ?? "", autocomplete: "off", spellcheck: "false" });
  const how = el("select", {}, el("option", { value: "contains" }, "contains"), el("option", { value: "starts_with" }, "starts with"));
  if (search.get("how") === "starts_with") how.value = "starts_with";
  let timer = 0;
  const again = () => {
    clearTimeout(timer);
    offset = 0;
    timer = setTimeout(load, PAUSE_MS);
  };
  find.addEventListener("input", again);
  how.addEventListener("change", again);
  show(body,
    el("nav", { class: "tabs", "aria-label": "Entity classes" }, el("ul", {}, classes.map((one) => el("li", {}, el("a", { href: `#/entities/${encodeURIComponent(one.name)}`, "aria-current": one === operator ? "page" : null }, one.name))))),
    el("form", { class: "row filters", role: "search", onsubmit: (event) => event.preventDefault() }, narrow(field("Key", how)), field(`Find by ${operator.key.name}`, find)),
    result);

  let asked = 0;
  async function load() {
    asked += 1;
    const mine = asked;
    const query = new URLSearchParams({ ...(find.value ? { find: find.value, how: how.value } : {}), ...(offset ? { from: offset } : {}) }).toString();
    history.replaceState(null, "", `#/entities/${encodeURIComponent(operator.name)}${query ? `?${query}` : ""}`);
    result.setAttribute("aria-busy", "true");
    try {
      const found = await page(operator, how.value, find.value, offset);
      if (mine === asked) show(result, shown(found, operator, find.value, offset, type, names, turn));
    } catch (failure) {
      if (mine === asked) show(result, problem(failure));
    }
    if (mine === asked) result.removeAttribute("aria-busy");
  }
  function turn(by) {
    offset = Math.max(0, offset + by);
    load();
  }
  load();
  return null;
}

const narrow = (one) => {
  one.classList.add("narrow");
  return one;
};

async function page(operator, how, wanted, offset) {
  const table = quoted(operator.name);
  const key = quoted(operator.key.name);
  const where = wanted ? `WHERE ${how}(CAST(${key} AS VARCHAR), ?)` : "";
  const parameters = wanted ? [wanted] : [];
  const [rows, total] = await Promise.all([
    sql(`SELECT * FROM ${table} ${where} ORDER BY ${key} LIMIT ${PAGE} OFFSET ${offset}`, parameters),
    sql(`SELECT count(*) FROM ${table} ${where}`, parameters),
  ]);
  return { ...rows, total: Number(total.rows[0][0]) };
}

function shown({ columns, rows, epoch, total }, operator, wanted, offset, type, names, turn) {
  if (!rows.length)
    return wanted || offset
      ? empty("No entity has such a key.", "Try less of it, or contains instead of starts with. Capitals count.")
      : empty(`There is no ${operator.name} yet.`, "Create the first one: ", el("a", { href: `#/try?path=${encodeURIComponent(`/call/${operator.name}/{key}/create`)}` }, `try ${operator.name}.create`), ".");
  const table = dataTable({
    caption: `Entities of class ${operator.name}`,
    rowHead: true,
    columns: columns.map((column) => ({
      ...column,
      cell: column.name === operator.key.name
        ? (value) => el("a", { href: entityLink(operator.name, value), class: "reference" }, String(value))
        : (value) => inline(value, type(column.name), names),
    })),
    rows,
  });
  const last = offset + rows.length;
  return [
    el("p", { class: "row between" }, el("span", {}, `${count(offset + 1)} to ${count(last)} of ${plural(total, "entity", "entities")}`), el("span", { class: "hint" }, `at epoch ${count(epoch)}`)),
    table,
    el("p", { class: "row end" },
      el("button", { type: "button", class: "quiet-button", disabled: offset === 0, onclick: () => turn(-PAGE) }, "Previous"),
      el("button", { type: "button", class: "quiet-button", disabled: last >= total, onclick: () => turn(PAGE) }, "Next")),
  ];
}

async function one(body, heading, operator, key, type, names) {
  heading.replaceChildren(`${operator.name} `, el("code", {}, key));
  document.title = `${operator.name}/${key} · Penstock`;
  const back = el("p", {}, el("a", { href: `#/entities/${encodeURIComponent(operator.name)}` }, `All of ${operator.name}`));
  const result = el("div", { id: "entity" });
  show(body, back, result);
  const load = async () => {
    try {
      const path = `/entities/${encodeURIComponent(operator.name)}/${encodeURIComponent(key)}`;
      const { value, headers } = await ask(path);
      show(result, detail(value, headers.get("Penstock-Epoch"), operator, key, type, names, load));
    } catch (failure) {
      show(result, problem(failure));
    }
  };
  await load();
  return null;
}

function detail(value, epoch, operator, key, type, names, load) {
  const calls = operator.methods.filter((method) => !method.name.startsWith("_") && method.name !== "create");
  return [
    el("section", { class: "panel" },
      el("dl", { class: "fields wide" }, Object.entries(value).map(([name, held]) => [
        el("dt", {}, name, el("span", { class: "type" }, name === operator.key.name ? `${operator.key.type}, the key` : operator.attributes.find((one) => one.name === name)?.type ?? "")),
        el("dd", { "data-attribute": name }, name === operator.key.name ? String(held) : block(held, type(name), names)),
      ])),
      el("p", { class: "row between" }, el("span", { class: "hint" }, epoch ? `at epoch ${count(Number(epoch))}` : ""), el("button", { type: "button", class: "quiet-button", onclick: load }, "Read again"))),
    calls.length ? el("section", {}, el("h2", {}, "Call it"), el("ul", { class: "chips" }, calls.map((method) =>
      el("li", {}, el("a", { href: `#/try?${new URLSearchParams({ path: `/call/${operator.name}/{key}/${method.name}`, key })}` }, method.name))))) : null,
  ];
}
