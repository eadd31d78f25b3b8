/** How a client reaches its gateway. */
export interface ClientOptions {
  /** An API key or a token. */
  key?: string;
  /** The longest that an operation takes, with its pauses, in milliseconds; 60,000 by default. */
  timeoutMs?: number;
  /** How often a request is sent again; 8 by default. */
  retries?: number;
  /** Whether reads wait for the newest epoch that this client has seen; true by default. */
  fresh?: boolean;
  /** Another `fetch`, such as one with a proxy. */
  fetch?: typeof fetch;
}

/** Options of one operation. */
export interface Options {
  /** The request id. A repeated id takes effect once and has the same reply. Without one, the client makes one. */
  requestId?: string;
  /** As `ClientOptions.timeoutMs`. */
  timeoutMs?: number;
  /** Ends the waiting. A request that was sent takes effect all the same. */
  signal?: AbortSignal;
}

/** Options of a request that is sent without waiting for its result. */
export interface SendOptions extends Options {
  /** How long the request is kept before it runs, in seconds. */
  delayS?: number;
}

/** The key of an entity; a number is sent as its digits. */
export type Key = string | number | bigint;

/** An error of the gateway, or of the way to it. */
export class PenstockError extends Error {
  /** A stable code for programs. */
  readonly code: ErrorCode | (string & {});
  /** The name of the exception class in the application. */
  readonly kind: string;
  /** The HTTP status; 0 if there was no answer. */
  readonly status: number;
  /** The id of the request; ask again with it, and the request takes effect once. Empty for reads. */
  readonly requestId: string;
  /** The epoch of the reply; -1 if the request has none. */
  readonly epoch: number;

  constructor(answer: ErrorAnswer) {
    super(answer.message);
    this.name = new.target.name;
    this.code = answer.code;
    this.kind = answer.kind;
    this.status = answer.status;
    this.requestId = answer.requestId;
    this.epoch = answer.epoch;
  }
}

/** The parts of an error. */
export interface ErrorAnswer {
  code: string;
  kind: string;
  message: string;
  status: number;
  requestId: string;
  epoch: number;
}

/** An exception of the application: the transaction was undone, and nothing of it remains. */
export class Aborted extends PenstockError {}

/** A request that was sent: it takes effect once, also if this program ends. */
export class Pending<T> {
  readonly requestId: string;
  readonly #gateway: Gateway;

  constructor(gateway: Gateway, requestId: string) {
    this.#gateway = gateway;
    this.requestId = requestId;
  }

  /** Wait for the result. */
  async result(options: Options = {}): Promise<T> {
    return (await this.#gateway.reply(this.requestId, options)) as T;
  }

  /** Cancel a request that is not due yet. Afterwards its result is the error `cancelled`. */
  async cancel(options: Options = {}): Promise<void> {
    const path = `/requests/${segment(this.requestId)}`;
    await this.#gateway.ask({ verb: "DELETE", path, requestId: this.requestId }, options);
  }
}

/** Whether a call waits for its result, or is sent. */
export type Mode = "call" | "send";
/** The options of a call. */
export type Given<How extends Mode> = How extends "call" ? Options : SendOptions;
/** What a call returns. */
export type Returned<How extends Mode, Result> = How extends "call" ? Promise<Result> : Promise<Pending<Result>>;

/** An atom of a stream: events that took effect together. */
export interface Atom<Event> {
  /** Its number in the stream, from 0, without gaps. */
  atom: Integer;
  events: Event[];
  /** The time of the request that caused it. */
  time: string;
  epoch: Integer;
}

/** A page of a published table: changes that bring a copy to a later epoch. */
export interface Page<Change> {
  table: string;
  /** Where the next page begins. */
  position: string;
  epoch: Integer;
  /** Whether the copy has all rows of the table. */
  complete: boolean;
  changes: Change[];
}

/** The question for a page of entities. */
export interface PageOf {
  /** `after` of the page before. */
  after?: string | null;
  /** The most entities of the page. */
  limit?: number;
  /** The values that attributes must have; a reference is its key. */
  where?: { [attribute: string]: Key | boolean | null };
}

/** Entities of a class, all at one epoch. */
export interface EntityPage<Attributes> {
  epoch: number;
  entities: Attributes[];
  /** Where the next page begins; null after the last entity. */
  after: string | null;
}

/** Where to begin, and how to end. */
export interface FollowOptions extends Options {
  /** The number of the first atom; `earliest`, the default, is the oldest one that is held, `latest` the next new one. */
  from?: number | bigint | "earliest" | "latest";
}

/** A stream that can be followed. */
export class Followed<Event> {
  protected readonly gateway: Gateway;
  protected readonly name: string;

  constructor(gateway: Gateway, name: string) {
    this.gateway = gateway;
    this.name = name;
  }

  /** Yield each atom in order, and wait for new ones, until the signal ends it or the loop is left. */
  async *follow(options: FollowOptions = {}): AsyncGenerator<Atom<Event>, void, undefined> {
    let from: number | bigint | string = options.from ?? "earliest";
    for (;;) {
      const path = `/streams/${segment(this.name)}?from=${from}&wait=${this.gateway.pollS(options)}`;
      const page = (await this.gateway.ask({ verb: "GET", path }, options)) as { next: Integer; atoms: Atom<Event>[] };
      yield* page.atoms;
      from = page.next;
    }
  }
}

/** A stream that takes events from outside. */
export class Appended<Given, Event> extends Followed<Event> {
  /** Append events as one atom, and wait until they are committed. Returns their number. */
  async append(events: Given[], options: Options = {}): Promise<Integer> {
    return (await this.gateway.call(`/streams/${segment(this.name)}`, events, options)) as Integer;
  }

  /** Append events as one atom, and return when that is durable. */
  async send(events: Given[], options: SendOptions = {}): Promise<Pending<Integer>> {
    return await this.gateway.send(`/send/streams/${segment(this.name)}`, events, options);
  }
}

/** A published table. */
export class Table<Change> {
  readonly #gateway: Gateway;
  readonly #name: string;

  constructor(gateway: Gateway, name: string) {
    this.#gateway = gateway;
    this.#name = name;
  }

  /** Yield pages that build a copy, and then its changes. `after` is the `position` of the last page that the copy has. */
  async *follow(options: Options & { after?: string } = {}): AsyncGenerator<Page<Change>, void, undefined> {
    let after = options.after ?? "";
    for (;;) {
      const begin = after === "" ? "" : `after=${encodeURIComponent(after)}&`;
      const path = `/tables/${segment(this.#name)}?${begin}wait=${this.#gateway.pollS(options)}`;
      const page = (await this.#gateway.ask({ verb: "GET", path }, options)) as Page<Change>;
      if (page.position !== after) yield page;
      after = page.position;
    }
  }
}

/** Options of a query. */
export interface SqlOptions extends Options {
  /** A past state: an epoch, or the newest epoch at a time, as ISO 8601 text. */
  asOf?: number | bigint | string;
}

/** Rows of a query, all of one epoch. */
export interface Rows {
  epoch: Integer;
  columns: { name: string; type: string }[];
  rows: unknown[][];
}

const RETRIED = [429, 502, 503, 504];
const LONG_POLL_S = 20;
const PAUSE_MIN_MS = 50;
const PAUSE_MAX_MS = 2_000;
const LOOK_MAX_MS = 1_000;
const SLACK_MS = 1_000;

interface Asked {
  verb: string;
  path: string;
  body?: unknown;
  requestId?: string;
  /** Whether the path takes `timeout`, the seconds that the gateway may wait. */
  waits?: boolean;
  /** Whether the answer must be of the newest epoch that this client has seen. */
  reads?: boolean;
}

/** The way to the gateway: sends a request again, with the same id, until its answer is final. */
class Gateway {
  /** The newest epoch that an answer has named. */
  epoch = -1;
  readonly #url: string;
  readonly #options: ClientOptions;

  constructor(url: string, options: ClientOptions) {
    this.#url = url.replace(/\/+$/, "");
    this.#options = options;
  }

  async call(path: string, body: unknown, options: Options): Promise<unknown> {
    const requestId = options.requestId ?? crypto.randomUUID();
    return await this.ask({ verb: "POST", path, body, requestId, waits: true }, options);
  }

  /** A call that changes nothing: without an id it is not recorded. */
  async read(path: string, body: unknown, options: Options): Promise<unknown> {
    if (options.requestId !== undefined) return await this.call(path, body, options);
    return await this.ask({ verb: "POST", path, body, waits: true, reads: true }, options);
  }

  async send<T>(path: string, body: unknown, options: SendOptions): Promise<Pending<T>> {
    const requestId = options.requestId ?? crypto.randomUUID();
    const query = options.delayS === undefined ? "" : `?delay=${options.delayS}`;
    await this.ask({ verb: "POST", path: path + query, body, requestId }, options);
    return new Pending<T>(this, requestId);
  }

  /** Return the function that reads the attributes of the entities of a class. */
  reading<Attributes>(entity: string): (key: Key, options?: Options) => Promise<Attributes> {
    return async (key, options = {}) => {
      const path = `/entities/${segment(entity)}/${segment(key)}`;
      return (await this.ask({ verb: "GET", path, reads: true }, options)) as Attributes;
    };
  }

  /** Return the function that lists the entities of a class in pages. */
  listing<Attributes>(entity: string): (page?: PageOf, options?: Options) => Promise<EntityPage<Attributes>> {
    return async ({ after, limit, where = {} } = {}, options = {}) => {
      const fields = new URLSearchParams();
      for (const [name, value] of Object.entries(where)) fields.append(name, String(value));
      if (after !== undefined && after !== null) fields.append("after", after);
      if (limit !== undefined) fields.append("limit", String(limit));
      const path = `/entities/${segment(entity)}?${fields.toString()}`;
      return (await this.ask({ verb: "GET", path, reads: true }, options)) as EntityPage<Attributes>;
    };
  }

  async sql(query: string, parameters: unknown[], options: SqlOptions): Promise<Rows> {
    const { asOf } = options;
    const past = asOf === undefined ? {} : { as_of: typeof asOf === "string" ? { timestamp: asOf } : { epoch: asOf } };
    const fresh = this.epoch >= 0 && (this.#options.fresh ?? true) && asOf === undefined;
    const body = { query, parameters, ...past, ...(fresh ? { min_epoch: this.epoch } : {}) };
    return (await this.ask({ verb: "POST", path: "/sql", body }, options)) as Rows;
  }

  async reply(requestId: string, options: Options): Promise<unknown> {
    const endMs = performance.now() + this.#timeoutMs(options);
    let lookMs = PAUSE_MIN_MS;
    for (;;) {
      const leftMs = endMs - performance.now();
      if (leftMs <= 0) throw this.#late(requestId);
      const waitedS = Math.min(leftMs / 1_000, LONG_POLL_S);
      const path = `/requests/${segment(requestId)}?wait=${waitedS.toFixed(3)}`;
      const asked = { verb: "GET", path, requestId };
      const answer = await this.ask(asked, { ...options, timeoutMs: leftMs + SLACK_MS });
      const { status, value, error } = answer as { status: string; value?: unknown; error?: ErrorAnswer };
      if (error !== undefined) throw errorOf({ ...error, status: 400, requestId, epoch: this.epoch });
      if (status === "answered") return value;
      // The gateway answers at once if the request is not due yet.
      await pause(Math.min(leftMs, lookMs), options.signal);
      lookMs = Math.min(2 * lookMs, LOOK_MAX_MS);
    }
  }

  async ask(asked: Asked, options: Options): Promise<unknown> {
    const endMs = performance.now() + this.#timeoutMs(options);
    const retries = this.#options.retries ?? 8;
    for (let attempt = 0; ; attempt++) {
      const leftMs = endMs - performance.now();
      if (leftMs <= 0) throw this.#late(asked.requestId);
      const received = await this.#once(asked, leftMs, options.signal);
      if (received instanceof Response && !RETRIED.includes(received.status)) {
        return await this.#final(asked, received, endMs - performance.now());
      }
      const usualMs = Math.min(PAUSE_MAX_MS, PAUSE_MIN_MS * 2 ** Math.min(attempt, 10));
      const leastMs = received instanceof Response ? 1_000 * Number(received.headers.get("retry-after") ?? 0) : 0;
      // Half of the pause is at random, so that clients that failed together do not come back together.
      const pauseMs = Math.max(Number.isFinite(leastMs) ? leastMs : 0, usualMs / 2) + (Math.random() * usualMs) / 2;
      if (attempt >= retries || performance.now() + pauseMs >= endMs) {
        if (received instanceof Response) return await this.#final(asked, received, endMs - performance.now());
        if (performance.now() >= endMs) throw this.#late(asked.requestId);
        throw errorOf({
          code: "unreachable",
          kind: "Unreachable",
          message: `${this.#url}: ${received}, ${attempt + 1} times${hint(asked.requestId)}`,
          status: 0,
          requestId: asked.requestId ?? "",
          epoch: -1,
        });
      }
      await release(received);
      await pause(pauseMs, options.signal);
    }
  }

  /** Send a request; return its response, or why it has none. */
  async #once(asked: Asked, leftMs: number, signal: AbortSignal | undefined): Promise<Response | string> {
    const headers: Record<string, string> = { Accept: "application/json" };
    if (this.#options.key !== undefined) headers["Authorization"] = `Bearer ${this.#options.key}`;
    if (asked.verb === "POST") headers["Content-Type"] = "application/json";
    if (asked.verb === "POST" && asked.requestId !== undefined) headers["Idempotency-Key"] = asked.requestId;
    if (asked.reads && this.epoch >= 0 && (this.#options.fresh ?? true)) {
      headers["Penstock-Min-Epoch"] = String(this.epoch);
    }
    const sign = asked.path.includes("?") ? "&" : "?";
    const wait = asked.waits ? `${sign}timeout=${(leftMs / 1_000).toFixed(3)}` : "";
    const limit = AbortSignal.timeout(Math.ceil(leftMs) + SLACK_MS);
    const init: RequestInit = {
      method: asked.verb,
      headers,
      redirect: "error", // the key goes to the given gateway and nowhere else
      signal: signal === undefined ? limit : AbortSignal.any([signal, limit]),
    };
    if (asked.verb === "POST") init.body = written(asked.body ?? {});
    try {
      return await (this.#options.fetch ?? fetch)(this.#url + asked.path + wait, init);
    } catch (error) {
      if (signal?.aborted) throw signal.reason;
      const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
      return cause instanceof Error ? cause.message : String(cause);
    }
  }

  async #final(asked: Asked, response: Response, leftMs: number): Promise<unknown> {
    const epoch = Number(response.headers.get("penstock-epoch") ?? -1);
    this.epoch = Math.max(this.epoch, epoch);
    let text: string;
    try {
      text = await response.text();
    } catch (error) {
      if (leftMs <= 0) throw this.#late(asked.requestId);
      throw errorOf({
        code: "unreachable",
        kind: "Unreachable",
        message: `${this.#url}: the answer broke off: ${error}${hint(asked.requestId)}`,
        status: response.status,
        requestId: asked.requestId ?? "",
        epoch,
      });
    }
    if (response.ok) return text === "" ? undefined : read(text);
    const requestId = asked.requestId ?? "";
    try {
      const { error } = JSON.parse(text) as { error: ErrorAnswer };
      throw errorOf({ ...error, status: response.status, requestId, epoch });
    } catch (error) {
      if (error instanceof PenstockError) throw error;
      const message = `${this.#url} answers ${response.status} without the body of an error: ${text.slice(0, 200)}`;
      throw errorOf({ code: "operational", kind: "OperationalError", message, status: response.status, requestId, epoch });
    }
  }

  /** The seconds that the gateway may wait for news. */
  pollS(options: Options): number {
    return Math.min(LONG_POLL_S, this.#timeoutMs(options) / 2_000);
  }

  #timeoutMs(options: Options): number {
    return options.timeoutMs ?? this.#options.timeoutMs ?? 60_000;
  }

  #late(requestId: string | undefined): PenstockError {
    return errorOf({
      code: "timed-out",
      kind: "TimedOut",
      message: `${this.#url}: no response in time${hint(requestId)}`,
      status: 0,
      requestId: requestId ?? "",
      epoch: -1,
    });
  }
}

type Make = (path: string, body: unknown, options: Options | SendOptions | undefined, reads?: boolean) => any;

function calling(gateway: Gateway): Make {
  return (path, body, options = {}, reads = false) =>
    reads ? gateway.read(`/call${path}`, body, options) : gateway.call(`/call${path}`, body, options);
}

function sending(gateway: Gateway): Make {
  return (path, body, options = {}) => gateway.send(`/send${path}`, body, options);
}

function errorOf(answer: ErrorAnswer): PenstockError {
  const own = ERRORS[answer.code] ?? (answer.code === "aborted" ? (ERRORS[`aborted ${answer.kind}`] ?? Aborted) : PenstockError);
  return new own(answer);
}

function hint(requestId: string | undefined): string {
  return requestId === undefined
    ? ""
    : `; the request may have been accepted, and takes effect once: ask again with requestId "${requestId}"`;
}

/** A part of a path. A URL cannot hold the parts `.` and `..`, and an empty part is no key. */
function segment(key: Key): string {
  if (typeof key === "number" && !Number.isSafeInteger(key)) {
    throw new RangeError(`${key} is no whole number that JavaScript holds exactly; give the key as a bigint or as text`);
  }
  const text = encodeURIComponent(String(key));
  if (text === "" || text === "." || text === "..") throw new RangeError(`"${key}" cannot be a part of a URL`);
  return text;
}

/** Wait; rejects at once when the signal ends the operation. */
function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const ended = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", ended);
      resolve();
    }, ms);
    signal?.addEventListener("abort", ended, { once: true });
  });
}

/** End a response that is not read, so that its connection is free. */
async function release(received: Response | string): Promise<void> {
  if (received instanceof Response) await received.body?.cancel().catch(() => undefined);
}

/** Matches texts, which stay, and numbers outside of texts. */
const TOKENS = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?/g;
const WHOLE = /^-?\d+$/;

/** Read JSON without changing a number. */
function read(text: string): unknown {
  const mark = `${crypto.randomUUID()}:`;
  const marked = text.replace(TOKENS, (token) => {
    if (!WHOLE.test(token)) return token;
    if (BIGINT) return `"${mark}${token}"`;
    if (token.length > 15 && !Number.isSafeInteger(Number(token))) {
      throw new RangeError(
        `the answer has the number ${token}, which JavaScript cannot hold exactly; write the client with --bigint`,
      );
    }
    return token;
  });
  if (!BIGINT) return JSON.parse(marked);
  return JSON.parse(marked, (_, value) =>
    typeof value === "string" && value.startsWith(mark) ? BigInt(value.slice(mark.length)) : value,
  );
}

/** Write JSON: a `bigint` is a number, and floats that are no numbers have the texts of Python. */
function written(value: unknown): string {
  const mark = crypto.randomUUID();
  const text = JSON.stringify(value, (_, item) => {
    if (typeof item === "bigint") return `${mark}${item}`;
    return typeof item === "number" && !Number.isFinite(item) ? String(item) : item;
  });
  return text.replaceAll(new RegExp(`"${mark}(-?\\d+)"`, "g"), "$1");
}
