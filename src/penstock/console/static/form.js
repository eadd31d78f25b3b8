// The form of one operation: an input for each value, and the request that they make.

import { encode, send } from "./api.js";
import { el, field, problem, show } from "./dom.js";
import { Input, objectOf } from "./schema.js";
import { curlOf, replyOf } from "./reply.js";
import { button } from "./widgets.js";

const ID = "Idempotency-Key";
const JSON_TYPE = "application/json";

/** A form that sends; `search` has values to begin with. */
export class Form {
  #operation;
  #inputs;
  #named;
  #raw = null;
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

  constructor(operation, document, search) {
    this.#operation = operation;
    this.#id.value = this.#nextId();
    this.#inputs = operation.parameters
      .filter((one) => one.in === "path" || one.in === "query")
      .map((one) => ({
        place: one.in,
        input: new Input(one.name, described(one), document, {
          required: one.required ?? one.in === "path",
          initial: search.get(one.name) ?? "",
        }),
      }));
    const schema = operation.body.content?.[JSON_TYPE]?.schema;
    const object = schema ? objectOf(schema, document) : null;
    this.#named = Object.entries(object?.properties ?? {}).map(
      ([name, one]) =>
        new Input(name, one, document, { required: object.required?.includes(name) ?? false }),
    );
    if (schema && !object)
      this.#raw = new Input("body", schema, document, {
        required: operation.body.required ?? false,
      });
    this.element = el(
      "div",
      { class: "stack" },
      el("p", { class: "description" }, operation.summary),
      el("div", { class: "trying" }, this.#form(), this.#answer),
    );
  }

  /** Whether what is sent becomes a request, which has an id. */
  get #isRequest() {
    return this.#operation.parameters.some((one) => one.in === "header" && one.name === ID);
  }

  /** Return the id to begin with: none for a call that only reads. */
  #nextId() {
    return this.#operation.isReadonly ? "" : newRequestId();
  }

  #form() {
    const of = (place) =>
      this.#inputs.filter((one) => one.place === place).map((one) => one.input.element);
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
      { class: "panel try", onsubmit: (event) => this.#submit(event) },
      of("path"),
      this.#named.map((one) => one.element),
      this.#raw?.element,
      more.length ? el("details", {}, el("summary", {}, "More"), more) : null,
      this.#isRequest ? id : null,
      el("p", {}, el("button", { type: "submit", class: "main-button" }, "Send")),
    );
  }

  async #submit(event) {
    event.preventDefault();
    let request;
    try {
      request = this.#request();
    } catch (error) {
      show(
        this.#answer,
        problem({ title: "The form is not complete", message: `${error.message}.` }),
      );
      return;
    }
    show(this.#answer, el("p", { class: "waiting" }, "Sent; waiting for the answer …"));
    const began = performance.now();
    try {
      const response = await send(request.path, request);
      this.#id.value = this.#nextId(); // a form that is sent again means another request
      show(
        this.#answer,
        replyOf(response, await response.text(), performance.now() - began, request),
      );
    } catch (failure) {
      show(this.#answer, problem(failure), curlOf(request));
    }
  }

  /** Return the request that the inputs make; throws where one does not fit. */
  #request() {
    const headers = {};
    if (this.#isRequest && this.#id.value.trim()) headers[ID] = this.#id.value.trim();
    const body = this.#body();
    if (body !== undefined) headers["Content-Type"] = JSON_TYPE;
    return { path: this.#path(), method: this.#operation.verb.toUpperCase(), headers, body };
  }

  #path() {
    let { path } = this.#operation;
    const query = new URLSearchParams();
    for (const { place, input } of this.#inputs) {
      const { given, value } = input.read();
      if (place === "path" && (!given || value === "")) input.refuse("is needed");
      if (place === "path") path = path.replace(`{${input.name}}`, encodeURIComponent(value));
      else if (given)
        query.set(input.name, typeof value === "object" ? encode(value) : String(value));
    }
    return query.size ? `${path}?${query}` : path;
  }

  #body() {
    if (this.#raw) {
      const { given, value } = this.#raw.read();
      return given ? encode(value) : undefined;
    }
    if (!this.#named.length) return undefined;
    const read = this.#named.map((input) => [input.name, input.read()]);
    return encode(
      Object.fromEntries(
        read.filter(([, one]) => one.given).map(([name, one]) => [name, one.value]),
      ),
    );
  }
}

/** Return a parameter's schema with what the document says of the parameter. */
function described({ schema, content, description }) {
  const found = schema ?? content?.[JSON_TYPE]?.schema;
  return description ? { ...found, description } : found;
}

function newRequestId() {
  const digits = [...crypto.getRandomValues(new Uint8Array(8))].map((one) =>
    one.toString(16).padStart(2, "0"),
  );
  return `console-${digits.join("")}`;
}
