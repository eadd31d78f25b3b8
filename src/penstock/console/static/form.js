// The form of one operation: an input for each value, and the request that they make.

import { failureOf, send } from "./api.js";
import { el, field, problem, show } from "./dom.js";
import { Reading, pathIn } from "./reading.js";
import { curlOf, replyOf } from "./reply.js";
import { BodyInput } from "./body_input.js";
import { decodeExactly, encode, isNested } from "./json.js";
import { inputFor } from "./value_input.js";
import { button } from "./widgets.js";

const ID = "Idempotency-Key";
const DOTS = new Set([".", ".."]);
const JSON_TYPE = "application/json";

/** A form that sends; `values` are those of parameters to begin with, by name. */
export class Form {
  #operation;
  #inputs;
  #body;
  #sent = el("div", { class: "sent", id: "sent" });
  #id = el("input", {
    class: "code",
    autocomplete: "off",
    spellcheck: "false",
  });
  #answer = el(
    "div",
    { id: "answer", "aria-live": "polite" },
    el(
      "p",
      { class: "hint" },
      "The answer will be shown here, with its headers and the same request for a terminal.",
    ),
  );

  constructor(operation, document, values) {
    this.#operation = operation;
    this.#id.value = this.#nextId();
    this.#inputs = operation.parameters
      .filter((parameter) => parameter.in === "path" || parameter.in === "query")
      .map((one) => ({
        place: one.in,
        input: inputFor(one.name, described(one, operation), document, {
          required: one.required ?? one.in === "path",
          initial: values.get(one.name),
          isLine: true,
        }),
      }));
    const schema = operation.body.content?.[JSON_TYPE]?.schema;
    this.#body = schema ? new BodyInput(schema, document, operation.body.required ?? false) : null;
    this.element = el(
      "div",
      { class: "stack" },
      el("p", { class: "description" }, operation.summary),
      el("div", { class: "trying" }, this.#form(), el("div", { class: "stack" }, this.#sent, this.#answer)),
    );
    this.#preview();
  }

  /** Whether what is sent becomes a request, which has an id. */
  get #isRequest() {
    return this.#operation.parameters.some((parameter) => parameter.in === "header" && parameter.name === ID);
  }

  /** Return the id to begin with: none for a call that only reads. */
  #nextId() {
    return this.#operation.isReadonly ? "" : newRequestId();
  }

  #form() {
    const of = (place) =>
      this.#inputs.filter((input) => input.place === place).map((one) => one.input.element);
    const more = of("query");
    const id = el(
      "div",
      { class: "row filters" },
      field(
        "Request id",
        this.#id,
        this.#operation.isReadonly
          ? `Empty: reads the newest state and is not recorded. With ${ID} it is a request in the log.`
          : `Sent as ${ID}: one id is one request, however often it is sent.`,
      ),
      button("New id", () => {
        this.#id.value = newRequestId();
      }),
    );
    return el(
      "form",
      {
        class: "panel try",
        novalidate: true,
        onsubmit: (event) => this.#submit(event),
        oninput: () => this.#preview(),
        onchange: () => this.#preview(),
      },
      of("path"),
      this.#body?.element,
      more.length ? el("details", {}, el("summary", {}, "More"), more) : null,
      this.#isRequest ? id : null,
      el("p", {}, el("button", { type: "submit", class: "main-button" }, "Send")),
    );
  }

  async #submit(event) {
    event.preventDefault();
    const reading = new Reading();
    const request = this.#request(reading);
    for (const one of this.#all) one.accept();
    if (reading.problems.length) {
      this.#refuse(reading);
      return;
    }
    show(this.#answer, el("p", { class: "waiting" }, "Sent; waiting for the answer …"));
    const began = performance.now();
    try {
      const response = await send(request.path, request);
      const text = await response.text();
      this.#id.value = this.#nextId(); // a form that is sent again means another request
      show(this.#answer, replyOf(response, text, performance.now() - began, request));
      this.#preview();
      if (response.status === 400) this.#markCause(failureOf(response.status, text, ""));
    } catch (failure) {
      show(this.#answer, problem(failure), curlOf(request));
    }
  }

  get #all() {
    return [...this.#inputs.map((input) => input.input), ...(this.#body ? [this.#body] : [])];
  }

  /** Show what is wrong, each at its input; the first such input gets the focus. */
  #refuse(reading) {
    for (const { input, message } of reading.problems) input.refuse(message);
    reading.problems[0].input.focus();
    const message = `${reading.texts.join(".\n")}.`;
    show(this.#answer, problem({ title: "The form is not complete", message }));
  }

  /** Show the gateway's message at the input that it is about, if it names one. */
  #markCause({ message }) {
    const path = pathIn(message);
    const input = path && this.#body?.at(path);
    if (!input || input === this.#body) return;
    input.refuse(message);
    input.focus();
  }

  /** Show the request that would be sent now. */
  #preview() {
    const reading = new Reading();
    const { method, path, body } = this.#request(reading);
    const lacks = reading.texts.length ? `Not complete yet: ${reading.texts.join("; ")}.` : "";
    show(
      this.#sent,
      el("h2", {}, "What is sent"),
      el("pre", { class: "code" }, `${method} ${path}`, body === undefined ? "" : `\n\n${pretty(body)}`),
      lacks ? el("p", { class: "hint" }, lacks) : null,
    );
  }

  /** Return the request that the inputs make; the reading has what does not fit. */
  #request(reading) {
    const headers = {};
    if (this.#isRequest && this.#id.value.trim()) headers[ID] = this.#id.value.trim();
    const body = this.#body?.text(reading);
    if (body !== undefined) headers["Content-Type"] = JSON_TYPE;
    return { path: this.#path(reading), method: this.#operation.verb.toUpperCase(), headers, body };
  }

  #path(reading) {
    let { path } = this.#operation;
    const query = new URLSearchParams();
    for (const { place, input } of this.#inputs) {
      const { given, value } = input.read(reading);
      const isLacking = !given || value === "";
      if (place === "path" && isLacking && !reading.problems.some((problem) => problem.input === input))
        reading.refuse(input, "is needed");
      const text = isNested(value) ? encode(value) : String(value);
      if (place === "path" && DOTS.has(text)) reading.refuse(input, "cannot be . or .., which an address does not keep");
      if (place === "path" && !isLacking) path = path.replace(`{${input.name}}`, encodeURIComponent(text));
      else if (place === "query" && given) query.set(input.name, text);
    }
    return query.size ? `${path}?${query}` : path;
  }
}

function pretty(body) {
  try {
    return encode(decodeExactly(body), 2);
  } catch {
    return body;
  }
}

/** Return a parameter's schema with its description, and with the class whose key it is. */
function described({ name, in: place, schema, content, description }, { path, group }) {
  const found = { ...(schema ?? content?.[JSON_TYPE]?.schema) };
  if (description) found.description = description;
  const isKey = name === "key" && place === "path" && !path.endsWith("/create");
  if (isKey && found.type === "string") found.title = `Key of ${group}`;
  return found;
}

function newRequestId() {
  const digits = [...crypto.getRandomValues(new Uint8Array(8))].map((one) =>
    one.toString(16).padStart(2, "0"),
  );
  return `console-${digits.join("")}`;
}
