// Try it: every operation of /openapi.json as a form, sent with a request id, and its answer.

import { ask, decode, encode, key, address, send } from "./api.js";
import { el, empty, field, problem, show } from "./dom.js";
import { duration } from "./format.js";
import { Input, objectOf, resolve } from "./schema.js";

const VERBS = ["get", "post", "put", "patch", "delete"];
const ID = "Idempotency-Key";

/** Show the form; `?path=/call/Item/{key}/add&key=i1` chooses and fills in. */
export async function open(body, { search }) {
  show(body, el("p", { class: "waiting" }, "Reading /openapi.json …"));
  const { value: document } = await ask("/openapi.json");
  const operations = operationsOf(document);
  if (!operations.length) {
    show(body, empty("The application takes no requests.", "Give App an entity class or a function."));
    return null;
  }
  const groups = [...new Set(operations.map((one) => one.group))];
  const asked = operations.find((one) => one.path === search.get("path")) ?? operations.find((one) => one.group === search.get("of")) ?? operations[0];
  const group = el("select", { id: "try-group" }, groups.map((name) => el("option", { value: name }, name)));
  const operation = el("select", { id: "try-operation" });
  const place = el("div", { id: "try-form" });
  const choose = (chosen) => {
    group.value = chosen.group;
    const same = operations.filter((one) => one.group === chosen.group);
    show(operation, same.map((one) => el("option", { value: one.id }, `${one.label} — ${one.verb.toUpperCase()} ${one.path}`)));
    operation.value = chosen.id;
    show(place, form(chosen, document, search));
  };
  group.addEventListener("change", () => choose(operations.find((one) => one.group === group.value)));
  operation.addEventListener("change", () => choose(operations.find((one) => one.id === operation.value)));
  show(body, el("div", { class: "row filters" }, field("Of", group), field("Operation", operation)), place);
  choose(asked);
  return null;
}

function operationsOf(document) {
  const found = [];
  for (const [path, item] of Object.entries(document.paths ?? {}))
    for (const verb of VERBS) {
      const told = item[verb];
      if (!told) continue;
      const [, first, name, , method] = path.split("/");
      const isCall = first === "call" || first === "send";
      found.push({
        id: `${verb} ${path}`, path, verb, told,
        parameters: [...(item.parameters ?? []), ...(told.parameters ?? [])].map((one) => resolve(one, document)),
        group: told.tags?.[0] ?? (isCall ? name : "Gateway"),
        label: isCall ? `${first === "send" ? "send " : ""}${method ?? name}` : told.summary ?? told.operationId ?? path,
      });
    }
  const rank = (one) => (one.path.startsWith("/call/") ? 0 : one.path.startsWith("/send/") ? 2 : 1);
  return found.sort((one, other) => rank(one) - rank(other));
}

/** Return a parameter's schema with what the document says of the parameter. */
const described = (one) => ({ ...(one.schema ?? one.content?.["application/json"]?.schema), ...(one.description ? { description: one.description } : {}) });

function form(operation, document, search) {
  const media = resolve(operation.told.requestBody, document).content ?? {};
  const schema = media["application/json"]?.schema;
  const wanted = schema ? objectOf(schema, document) : null;
  const places = operation.parameters.filter((one) => one.in === "path" || one.in === "query").map((one) => ({
    place: one.in,
    input: new Input(one.name, described(one), document, { required: one.required ?? one.in === "path", initial: search.get(one.name) ?? "" }),
  }));
  const fields = Object.entries(wanted?.properties ?? {}).map(([name, one]) => new Input(name, one, document, { required: wanted.required?.includes(name) ?? false }));
  const raw = schema && !wanted ? new Input("body", schema, document, { required: resolve(operation.told.requestBody, document).required ?? false }) : null;
  const id = el("input", { class: "code", autocomplete: "off", spellcheck: "false", id: "idempotency-key", value: newRequestId() });
  const changes = operation.verb !== "get" && operation.path !== "/sql";
  const answer = el("div", { id: "answer", "aria-live": "polite" }, el("p", { class: "hint" }, "The answer will be shown here, with its headers and the same request for a terminal."));
  const first = places.filter((one) => one.place === "path");
  const rest = places.filter((one) => one.place === "query");

  async function submit(event) {
    event.preventDefault();
    let request;
    try {
      request = requestOf(operation, places, fields, raw, changes ? id.value.trim() : "");
    } catch (error) {
      show(answer, problem({ title: "The form is not complete", message: `${error.message}.` }));
      return;
    }
    show(answer, el("p", { class: "waiting" }, "Sent; waiting for the commit …"));
    const began = performance.now();
    try {
      const response = await send(request.path, request);
      show(answer, told(response, await response.text(), performance.now() - began, request));
    } catch (failure) {
      show(answer, problem(failure), curl(request));
    }
  }

  return [
    el("p", { class: "description" }, operation.told.summary ?? "", " ", operation.told.description ?? ""),
    el("div", { class: "trying" }, el("form", { class: "panel try", onsubmit: submit },
      first.map((one) => one.input.element), fields.map((one) => one.element), raw?.element,
      rest.length ? el("details", {}, el("summary", {}, "More"), rest.map((one) => one.input.element)) : null,
      changes ? el("div", { class: "row filters" }, field("Request id", id, "Sent as Idempotency-Key: the same id gives the same answer, and runs once."), el("button", { type: "button", class: "quiet-button", onclick: () => {
        id.value = newRequestId();
      } }, "New id")) : null,
      el("p", {}, el("button", { type: "submit", class: "main-button", id: "send" }, "Send"))), answer),
  ];
}

const newRequestId = () => `console-${[...crypto.getRandomValues(new Uint8Array(8))].map((one) => one.toString(16).padStart(2, "0")).join("")}`;

function requestOf(operation, places, fields, raw, id) {
  let { path } = operation;
  const query = new URLSearchParams();
  for (const { place, input } of places) {
    const { given, value } = input.read();
    if (place === "path") {
      if (!given || value === "") input.refuse("is needed");
      path = path.replace(`{${input.name}}`, encodeURIComponent(value));
    } else if (given) query.set(input.name, typeof value === "object" ? encode(value) : String(value));
  }
  const method = operation.verb.toUpperCase();
  const headers = id ? { [ID]: id } : {};
  const named = fields.map((input) => [input.name, input.read()]).filter(([, one]) => one.given);
  let body = fields.length ? encode(Object.fromEntries(named.map(([name, one]) => [name, one.value]))) : undefined;
  if (raw) {
    const { given, value } = raw.read();
    body = given ? encode(value) : undefined;
  }
  if (body !== undefined) headers["Content-Type"] = "application/json";
  return { path: `${path}${query.size ? `?${query}` : ""}`, method, headers, body };
}

function told(response, text, took, request) {
  const id = response.headers.get("Penstock-Request-Id");
  const fine = response.ok;
  return el("section", { class: `panel answer ${fine ? "fine" : "failed"}`, "aria-label": "Answer" },
    el("p", { class: "row between" },
      el("span", {}, el("span", { class: "status", "data-status": response.status }, `${response.status} ${fine ? "succeeded" : "failed"}`), el("span", { class: "hint" }, ` in ${duration(took)}`)),
      id ? el("a", { href: `#/requests/${encodeURIComponent(id)}` }, "Look this request up") : null),
    el("h2", {}, "Body"), el("pre", { class: "code", id: "answer-body" }, pretty(text)),
    el("details", {}, el("summary", {}, "Headers"), el("dl", { class: "fields" }, [...response.headers].map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]))),
    curl(request));
}

function pretty(text) {
  try {
    return encode(decode(text), 2) ?? "";
  } catch {
    return text;
  }
}

function curl(request) {
  const word = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
  const parts = ["curl", ...(request.method === "GET" ? [] : ["-X", request.method]), word(String(address(request.path)))];
  for (const [name, value] of Object.entries(request.headers)) parts.push("-H", word(`${name}: ${value}`));
  if (key.get()) parts.push("-H", '"Authorization: Bearer $PENSTOCK_KEY"');
  if (request.body !== undefined) parts.push("-d", word(request.body));
  const line = parts.join(" ");
  const said = el("span", { role: "status", class: "hint" });
  const copy = el("button", { type: "button", class: "quiet-button", onclick: async () => {
    await navigator.clipboard.writeText(line).catch(() => {});
    said.textContent = "Copied.";
  } }, "Copy");
  return el("div", { class: "curl" }, el("h2", {}, "The same from a terminal"), el("pre", { class: "code" }, line), el("p", { class: "row" }, copy, said));
}
