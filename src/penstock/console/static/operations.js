// The operations of an OpenAPI document, as the forms and the reference use them.

import { resolve } from "./schema.js";

const VERBS = ["get", "post", "put", "patch", "delete"];

/** Return what can be tried: calls first, what does not wait for its answer last. */
export function operationsOf(document) {
  const found = Object.entries(document.paths ?? {}).flatMap(([path, item]) =>
    VERBS.filter((verb) => item[verb]).map((verb) => operationOf(document, path, item, verb)),
  );
  const rank = (one) => (one.path.startsWith("/call/") ? 0 : one.path.startsWith("/send/") ? 2 : 1);
  return found.sort((one, other) => rank(one) - rank(other));
}

function operationOf(document, path, item, verb) {
  const told = item[verb];
  const [, first, name, , method] = path.split("/");
  const isAppend = path.startsWith("/send/streams/");
  const isCall = first === "call" || (first === "send" && !isAppend);
  return {
    id: `${verb} ${path}`,
    path,
    verb,
    told,
    label: isCall ? (method ?? name) : null,
    group: told.tags?.[0] ?? (isCall ? name : "Gateway"),
    summary: [told.summary, told.description].filter(Boolean).join(" "),
    isReadonly: told["x-penstock-readonly"] === true,
    parameters: [...(item.parameters ?? []), ...(told.parameters ?? [])].map((one) =>
      resolve(one, document),
    ),
    body: resolve(told.requestBody, document),
  };
}

/** Return the name of an operation for people. */
export const textOf = ({ label, told, path }) => label ?? told.summary ?? told.operationId ?? path;
