// The reference of the HTTP API: every operation of /openapi.json, its errors and its schemas; the scopes of requests.

import { ask } from "./api.js";
import { el, show } from "./dom.js";
import { operationsOf, textOf } from "./operations.js";
import { encode } from "./json.js";
import { resolve, sketch } from "./schema.js";
import { dataTable } from "./table.js";
import { lineNode } from "./text.js";

const JSON_TYPE = "application/json";
const CODE = /`([^`]+)`/;
const SCOPES =
  "With keys or tokens, a gateway refuses every other request to the application. Internal handlers are not in the list. " +
  "With a right per row, the method `allows` of the class decides about each entity.";

/** Show the reference. `?operation=call.Item.add`, `?schema=Item` or `?error=404` opens a part of it. */
export async function open(body, { search }) {
  show(body, el("p", { class: "waiting" }, "Reading /openapi.json …"));
  const [{ value: document }, { value: surface }] = await Promise.all([ask("/openapi.json"), ask("/console/api/surface")]);
  const operations = operationsOf(document).filter((each) => !each.id.includes(" /send/"));
  const groups = document.tags.map(({ name, description }) => [
    name,
    description,
    operations.filter((each) => each.group === name),
  ]);
  show(
    body,
    el("p", { class: "hint" }, `${document.info.title}, version ${document.info.version}. `, download(document)),
    prose(document.info.description),
    groups.filter(([, , some]) => some.length).map(([name, description, some]) =>
      section(name, prose(description ?? ""), some.map((each) => operationPart(each, document))),
    ),
    section("Scopes", prose(SCOPES), part("scopes", "Requests and their scopes", () => scopesOf(surface))),
    section("Errors", prose("All errors have the same form. `code` is stable; the message is for people."), errorParts(document)),
    section(
      "Schemas",
      Object.entries(document.components.schemas).map(([name, schema]) =>
        part(`schema-${name}`, name, () => [prose(schema.description ?? ""), shape(name, schema, document)]),
      ),
    ),
  );
  reveal(search);
  return { follow: (asked, name) => name === "api" && (reveal(asked.search), true) };
}

/** Open the part that an address names, and move there. */
function reveal(search) {
  for (const kind of ["operation", "schema", "error"]) {
    const found = search.has(kind) && document.getElementById(`${kind}-${search.get(kind)}`);
    if (!found) continue;
    found.open = true;
    found.scrollIntoView();
    found.querySelector("summary").focus();
  }
}

function download(document) {
  const file = new Blob([encode(document, 1)], { type: JSON_TYPE });
  const href = URL.createObjectURL(file);
  return el("a", { href, download: "openapi.json" }, "openapi.json");
}

const section = (name, ...children) => el("section", { "aria-label": name, class: "stack api" }, el("h2", {}, name), children);

/** Return a part that is closed; `content` makes what it holds when it is opened. */
function part(id, summary, content) {
  const inside = el("div", { class: "stack" });
  const made = () => inside.childElementCount || show(inside, content());
  return el("details", { id, class: "part", ontoggle: made }, el("summary", {}, summary), inside);
}

function operationPart(operation, document) {
  const { verb, path, told } = operation;
  const summary = [
    el("span", { class: "verb" }, verb.toUpperCase()),
    el("span", { class: "code" }, path),
    el("span", { class: "hint" }, told.summary),
  ];
  return part(`operation-${told.operationId}`, summary, () => [
    prose(told.description ?? ""),
    parameters(operation, document),
    bodyOf(operation, document),
    answers(operation, document),
    el("p", {}, el("a", { href: `#/try?verb=${verb}&path=${encodeURIComponent(path)}` }, `Try ${textOf(operation)}`)),
    path.startsWith("/call/") ? prose(`Without waiting: \`POST ${path.replace("/call/", "/send/")}\``) : null,
  ]);
}

function parameters({ path, parameters: some }, document) {
  if (!some.length) return null;
  const rows = some.map((each) => [
    each.name,
    typeOf(each.schema ?? each.content[JSON_TYPE].schema, document),
    each.in + (each.required ? ", required" : ""),
    inline(each.description ?? ""),
  ]);
  return [el("h3", {}, "Parameters"), tableOf(`Parameters of ${path}`, ["Name", "Type", "In", "Meaning"], rows)];
}

function bodyOf({ path, body }, document) {
  const schema = body.content?.[JSON_TYPE]?.schema;
  if (!schema) return null;
  return [el("h3", {}, "Body"), shape(`the body of ${path}`, (schema.oneOf ?? [schema]).at(-1), document)];
}

function answers({ path, told }, document) {
  const all = Object.entries(told.responses);
  const rows = all
    .filter(([, answer]) => !answer.$ref)
    .flatMap(([status, { content, description }]) =>
      Object.entries(content ?? {}).map(([media, { schema }]) => [status, typeOf(schema, document), media, inline(description)]),
    );
  const errors = all.filter(([, answer]) => answer.$ref).map(([status]) => [
    el("a", { href: `#/api?error=${status}` }, status),
    " ",
  ]);
  return [
    el("h3", {}, "Answers"),
    tableOf(`Answers of ${path}`, ["Status", "Value", "As", "Meaning"], rows),
    errors.length ? el("p", {}, "Errors: ", errors) : null,
  ];
}

function scopesOf({ requests }) {
  const rows = requests.map(({ request, scope, asks_right: asks, remark }) => [
    lineNode(request),
    lineNode(scope),
    asks ? "yes" : "no",
    remark,
  ]);
  return tableOf("Requests and their scopes", ["Request", "Scope", "Right per row", "Remark"], rows);
}

function errorParts(document) {
  return Object.entries(document.components.responses).map(([name, { description }]) => {
    const status = name.replace("Error", "");
    const rows = [...description.matchAll(/^- `(.+?)`: (.*)$/gm)].map(([, code, meaning]) => [code, inline(meaning)]);
    const codes = rows.map(([code]) => code).join(", ");
    return part(`error-${status}`, [el("span", { class: "verb" }, status), el("span", { class: "code" }, codes)], () =>
      rows.length ? tableOf(`Errors with the status ${status}`, ["Code", "Meaning"], rows) : prose(description),
    );
  });
}

/** Return the fields of a schema as a table, or its type where it has none. */
function shape(name, schema, document) {
  if (!schema.properties) return el("p", {}, typeOf(schema, document));
  const needed = schema.required ?? [];
  const rows = Object.entries(schema.properties).map(([field, inner]) => [
    field,
    typeOf(inner, document),
    needed.includes(field) ? "required" : "optional",
    "default" in inner ? `default ${encode(inner.default)}` : inline(inner.description ?? ""),
  ]);
  return tableOf(`Fields of ${name}`, ["Name", "Type", "Presence", "Meaning"], rows);
}

function tableOf(caption, names, rows) {
  return dataTable({
    caption,
    columns: names.map((name) => ({ name, cell: (node) => node })),
    rows,
    rowHead: true,
    nested: true,
  });
}

/** Return a type; the name of a schema is a link to it. */
function typeOf(schema, document) {
  const text = sketch(schema ?? {}, document);
  const inner = schema?.$ref ? schema : schema?.items;
  const name = inner?.$ref?.split("/").at(-1);
  const isNamed = name && resolve(inner, document) === document.components.schemas[name];
  return isNamed ? el("a", { href: `#/api?schema=${encodeURIComponent(name)}` }, text) : text;
}

/** Return the paragraphs of a text; words in backquotes are code. */
const prose = (text) =>
  text
    .split("\n\n")
    .filter(Boolean)
    .map((paragraph) => el("p", { class: "description" }, inline(paragraph)));

const inline = (text) => text.split(CODE).map((piece, at) => (at % 2 ? el("code", {}, piece) : piece));
