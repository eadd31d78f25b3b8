// Try it: every operation of /openapi.json as a form, sent with a request id.

import { ask } from "./api.js";
import { el, empty, field, problem, show } from "./dom.js";
import { Form } from "./form.js";
import { operationsOf, textOf } from "./operations.js";
import { bestFit } from "./paths.js";

/**
 * Show the form. `?path=/call/Item/i1/add` chooses an operation and fills in its key, and so does
 * `?path=/call/Item/{key}/add&key=i1`; `verb` is part of the choice.
 */
export async function open(body, { search }) {
  show(body, el("p", { class: "waiting" }, "Reading /openapi.json …"));
  const { value: document } = await ask("/openapi.json");
  const operations = operationsOf(document);
  if (!operations.length) {
    show(
      body,
      empty("The application takes no requests.", "Give App an entity class or a function."),
    );
    return null;
  }
  const groups = [...new Set(operations.map((operation) => operation.group))];
  const group = el(
    "select",
    {},
    groups.map((name) => el("option", { value: name }, name)),
  );
  const operation = el("select", {});
  const place = el("div", {});
  const choose = (chosen, values = new Map()) => {
    const same = operations.filter((operation) => operation.group === chosen.group);
    group.value = chosen.group;
    show(
      operation,
      same.map((each) => el("option", { value: each.id }, `${textOf(each)} — ${each.verb.toUpperCase()} ${each.path}`)),
    );
    operation.value = chosen.id;
    show(place, new Form(chosen, document, values).element);
  };
  group.addEventListener("change", () =>
    choose(operations.find((operation) => operation.group === group.value)),
  );
  operation.addEventListener("change", () =>
    choose(operations.find((each) => each.id === operation.value)),
  );
  show(
    body,
    el("div", { class: "row filters" }, field("Of", group), field("Operation", operation)),
    place,
  );
  const { choice, values, missing } = askedFor(operations, search);
  choose(choice, values);
  if (missing) place.prepend(problem({ title: "There is no such operation", message: missing }));
  return null;
}

/** Return the operation that an address asks for, with the values that it fills in; else the first operation. */
function askedFor(operations, search) {
  const verb = search.get("verb");
  const path = search.get("path");
  const fit = path && bestFit(operations.filter((operation) => operation.verb === (verb ?? operation.verb)), path);
  if (fit) return { choice: fit.choice, values: new Map([...search, ...fit.values]) };
  const missing = path && `The application has no operation ${verb?.toUpperCase() ?? ""} ${path}; choose another one.`;
  return { choice: operations[0], values: new Map(), missing: missing?.replace("  ", " ") };
}
