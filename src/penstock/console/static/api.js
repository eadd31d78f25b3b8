// Talks to the gateway that served this page, and to nobody else.

import { decode, decodeExactly } from "./json.js";

const ROOT = new URL("../", document.baseURI);
const STORED = "penstock-key";

/** What the gateway said instead of an answer, in words for people. */
export class Failure extends Error {
  constructor(status, code, message, where) {
    super(message);
    this.status = status;
    this.code = code;
    this.where = where;
    this.title =
      TITLES[code] ?? (code === "unreachable" ? "The gateway does not answer" : "This did not work");
    this.next =
      NEXT[code] ??
      (code === "unreachable" ? "It is asked again every two seconds; see that penstock still runs." : "");
  }
}

const TITLES = {
  unauthenticated: "A key is needed",
  forbidden: "This key may not do that",
  query: "The query cannot be answered",
  "view-unavailable": "The SQL view is not there yet",
  "no-such-entity": "There is no such entity",
  "already-exists": "It exists already",
  "not-unique": "Another entity has this value",
  "dangling-reference": "It would refer to an entity that does not exist",
  aborted: "The transaction was undone",
  request: "The request does not fit",
  "request-conflict": "This request id is taken by another request",
  "too-late": "The request was due before",
  gone: "The atom is gone",
  "timed-out": "No answer in time",
  overloaded: "Too much is waiting",
  throttled: "A limit on requests is reached",
  paused: "Such requests are paused",
  definition: "The code is not a valid application",
  config: "This code cannot be deployed",
  "class-changed": "Stored entities do not fit the code",
  "migration-failed": "A migration has failed",
};

const NEXT = {
  unauthenticated: "Sign in with an API key or a token that has the scope admin or watch.",
  forbidden: "Sign in with a key that has the scope which the message names.",
  "view-unavailable": "It starts with penstock run and rebuilds itself; try again in a moment.",
  gone: "Retention has removed it; begin at the oldest atom.",
  "too-late": "Its result is under Requests, by its id.",
  "timed-out": "The request is durable: look it up under Requests by its id.",
  overloaded: "Nothing of it was taken; send it again in a second.",
  throttled: "The request was not accepted; send it again later. The page Flow shows the limits.",
  paused: "The request was not accepted; the page Flow shows the pauses.",
  "class-changed": "Nothing has changed. Change the class as the message says, and deploy again.",
  "migration-failed": "Nothing has changed. Correct the function, and check again.",
};

export const key = {
  get: () => sessionStorage.getItem(STORED) ?? "",
  set: (text) => (text ? sessionStorage.setItem(STORED, text) : sessionStorage.removeItem(STORED)),
};

/** Return how a stored request id is named to the gateway; with a key, plain ids want a `~`. */
export const named = (id) => (key.get() && !id.includes("~") ? `~${id}` : id);

/** Return the address of a path of the gateway. */
export const address = (path) => new URL(path.replace(/^\//, ""), ROOT);

/** Send a request; return the answer, whatever its status. */
export async function send(path, { method = "GET", headers = {}, body, signal } = {}) {
  const given = new Headers(headers);
  if (key.get()) given.set("Authorization", `Bearer ${key.get()}`);
  if (body !== undefined && !given.has("Content-Type"))
    given.set("Content-Type", "application/json");
  let response;
  try {
    const options = { method, headers: given, body, signal, cache: "no-store" };
    response = await fetch(address(path), options);
  } catch {
    throw new Failure(0, "unreachable", "No connection could be made.", `${method} ${path}`);
  }
  if (response.status === 401) document.dispatchEvent(new CustomEvent("penstock:unauthenticated"));
  return response;
}

/** Send a request; return the decoded answer with its headers, or throw a `Failure`. `exact` keeps the form of floats. */
export async function ask(path, { exact = false, ...options } = {}) {
  const response = await send(path, options);
  const text = await response.text();
  if (!response.ok) throw failureOf(response.status, text, `${options.method ?? "GET"} ${path}`);
  const value = exact ? decodeExactly(text) : decode(text);
  return { value, headers: response.headers, status: response.status };
}

/** Return the failure that an answer's body tells. */
export function failureOf(status, text, where) {
  try {
    const { code, message } = JSON.parse(text).error;
    return new Failure(status, code, message, where);
  } catch {
    return new Failure(
      status,
      `http-${status}`,
      `The gateway answered with status ${status}.`,
      where,
    );
  }
}

/** Ask the SQL view; return `{epoch, columns, rows}`. */
export async function sql(query, parameters = [], more = {}) {
  const body = JSON.stringify({ query, parameters, ...more });
  return (await ask("/sql", { method: "POST", body, exact: true })).value;
}

/** Return a name as SQL quotes it. */
export const quoted = (name) => `"${name.replaceAll('"', '""')}"`;

/** Return a text as SQL quotes it. */
export const literal = (text) => `'${text.replaceAll("'", "''")}'`;
