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
  /** Only a request that is sent can be delayed. */
  delayS?: never;
}

/** Options of an operation that is no request of its own: a read, or a question about a request that was sent. */
export interface ReadOptions extends Omit<Options, "requestId"> {
  /** It has no id: it is not recorded. */
  requestId?: never;
}

/** Options of a request that is sent without waiting for its result. */
export interface SendOptions extends Omit<Options, "delayS"> {
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
  async result(options: ReadOptions = {}): Promise<T> {
    return (await this.#gateway.reply(this.requestId, options)) as T;
  }

  /** Cancel a request that is not due yet. Afterwards its result is the error `cancelled`. */
  async cancel(options: ReadOptions = {}): Promise<void> {
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

/** A state of an entity. */
export interface EntityState<Attributes> {
  /** The attributes and the key; null if the entity does not exist. */
  entity: Attributes | null;
  /** The epoch at which it is so; -1 before the first epoch. */
  epoch: number;
}

/** The states of an entity: the present one, and the newest one after each change. */
export type States<Attributes> = AsyncGenerator<EntityState<Attributes>, void, undefined>;

/** Options of a subscription. */
export interface SubscribeOptions extends ReadOptions {
  /** The longest that it takes to make a connection, in milliseconds; as `ClientOptions.timeoutMs`. */
  timeoutMs?: number;
  /** Ends the subscription: the loop gets the reason of the signal as its error. */
  signal?: AbortSignal;
}

/** Where to begin, and how to end. */
export interface FollowOptions extends ReadOptions {
  /** The number of the first atom; `earliest`, the default, is the oldest one that is held, `latest` the next new one. */
  from?: number | bigint | "earliest" | "latest";
  /** The values that fields of the events must have; other events, and atoms without events, are left out. */
  where?: PageOf["where"];
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
      const fields = fieldsOf(options.where);
      fields.append("from", String(from));
      fields.append("wait", String(this.gateway.pollS(options)));
      const path = `/streams/${segment(this.name)}?${fields.toString()}`;
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
  async *follow(options: ReadOptions & { after?: string } = {}): AsyncGenerator<Page<Change>, void, undefined> {
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
export interface SqlOptions extends ReadOptions {
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
/** A connection that brings nothing for this time is dead: a gateway sends a heartbeat each 15 seconds. */
const SILENCE_MS = 37_500;
const EVENTS = "text/event-stream";
const RETRY_MAX_MS = 60_000;
const EVENT_LENGTH_MAX = 64 << 20;
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
  /** Whether the request may be delayed. */
  delays?: boolean;
  /** Whether the answer must be of the newest epoch that this client has seen. */
  reads?: boolean;
  /** The subscription whose states are the answer. */
  subscription?: Subscription<unknown>;
  /** Ends the connection of a response that lasts longer than the operation. */
  connection?: AbortController;
}

const CLIENT_OPTIONS = ["key", "timeoutMs", "retries", "fresh", "fetch"];
const OPERATION_OPTIONS = ["requestId", "timeoutMs", "signal", "delayS", "from", "where", "after", "asOf"];

/** Refuse an option that no operation has: a misspelt one would be ignored. */
function checkNames(options: object, known: string[]): void {
  const unknown = Object.keys(options).find((name) => !known.includes(name));
  if (unknown !== undefined) throw new TypeError(`there is no option ${unknown}; there are ${known.join(", ")}`);
}

/** The way to the gateway: sends a request again, with the same id, until its answer is final. */
class Gateway {
  /** The newest epoch that an answer has named. */
  epoch = -1;
  readonly #url: string;
  readonly #options: ClientOptions;

  constructor(url: string, options: ClientOptions) {
    checkNames(options, CLIENT_OPTIONS);
    this.#url = url.replace(/\/+$/, "");
    this.#options = options;
  }

  async call(path: string, body: unknown, options: SendOptions): Promise<unknown> {
    const requestId = options.requestId ?? crypto.randomUUID();
    return await this.ask({ verb: "POST", path, body, requestId, waits: true }, options);
  }

  /** A call that changes nothing: without an id it is not recorded. */
  async read(path: string, body: unknown, options: SendOptions): Promise<unknown> {
    if (options.requestId !== undefined) return await this.call(path, body, options);
    return await this.ask({ verb: "POST", path, body, waits: true, reads: true }, options);
  }

  async send<T>(path: string, body: unknown, options: SendOptions): Promise<Pending<T>> {
    const requestId = options.requestId ?? crypto.randomUUID();
    const query = options.delayS === undefined ? "" : `?delay=${options.delayS}`;
    await this.ask({ verb: "POST", path: path + query, body, requestId, delays: true }, options);
    return new Pending<T>(this, requestId);
  }

  /** Return the function that reads the attributes of the entities of a class. */
  reading<Attributes>(entity: string): (key: Key, options?: ReadOptions) => Promise<Attributes> {
    return async (key, options = {}) => {
      const path = `/entities/${segment(entity)}/${segment(key)}`;
      return (await this.ask({ verb: "GET", path, reads: true }, options)) as Attributes;
    };
  }

  /** Return the function that lists the entities of a class in pages. */
  listing<Attributes>(entity: string): (page?: PageOf, options?: ReadOptions) => Promise<EntityPage<Attributes>> {
    return async ({ after, limit, where } = {}, options = {}) => {
      const fields = fieldsOf(where);
      if (after !== undefined && after !== null) fields.append("after", after);
      if (limit !== undefined) fields.append("limit", String(limit));
      const path = `/entities/${segment(entity)}?${fields.toString()}`;
      return (await this.ask({ verb: "GET", path, reads: true }, options)) as EntityPage<Attributes>;
    };
  }

  /** Return the function that subscribes to an entity of a class. */
  subscribing<Attributes>(entity: string): (key: Key, options?: SubscribeOptions) => States<Attributes> {
    return (key, options = {}) =>
      this.#states(new Subscription<Attributes>(`/entities/${segment(entity)}/${segment(key)}/changes`), options);
  }

  /** Yield the states of a subscription, over as many connections as it takes. */
  async *#states<Attributes>(subscription: Subscription<Attributes>, options: SubscribeOptions): States<Attributes> {
    for (let attempt = 0; ; attempt++) {
      const connection = new AbortController();
      try {
        const reader = await this.#connected(subscription, connection, options);
        for (;;) {
          const chunk = await chunkOf(reader, connection);
          options.signal?.throwIfAborted();
          if (chunk === undefined) break;
          for (const state of subscription.states(chunk)) {
            this.epoch = Math.max(this.epoch, state.epoch);
            attempt = 0;
            yield state;
            options.signal?.throwIfAborted();
          }
        }
      } finally {
        connection.abort();
      }
      await pause(pauseAfter(attempt, subscription.pauseMs), options.signal);
    }
  }

  /** Make a connection that brings the states of a subscription; return the reader of its bytes. */
  async #connected(
    subscription: Subscription<unknown>,
    connection: AbortController,
    options: SubscribeOptions,
  ): Promise<ReadableStreamDefaultReader<Uint8Array>> {
    const asked: Asked = { verb: "GET", path: subscription.path, reads: true, subscription, connection };
    const endMs = performance.now() + this.#timeoutMs(options);
    const response = await this.#received(asked, options, endMs);
    if (!response.ok) {
      const timer = setTimeout(() => connection.abort(), endMs - performance.now());
      await this.#final(asked, response, endMs - performance.now()).finally(() => clearTimeout(timer));
    }
    const type = response.headers.get("content-type") ?? "";
    if (response.body === null || !type.startsWith(EVENTS)) {
      throw strange(`${this.#url}: the response is no event stream of a gateway`, response.status);
    }
    subscription.begin();
    return response.body.getReader();
  }

  async sql(query: string, parameters: unknown[], options: SqlOptions): Promise<Rows> {
    const { asOf } = options;
    const past = asOf === undefined ? {} : { as_of: typeof asOf === "string" ? { timestamp: asOf } : { epoch: asOf } };
    const fresh = this.epoch >= 0 && (this.#options.fresh ?? true) && asOf === undefined;
    const body = { query, parameters, ...past, ...(fresh ? { min_epoch: this.epoch } : {}) };
    return (await this.ask({ verb: "POST", path: "/sql", body }, options)) as Rows;
  }

  async reply(requestId: string, options: ReadOptions): Promise<unknown> {
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
      if (error !== undefined) throw errorOf({ ...error, status: statusOf(error.code), requestId, epoch: this.epoch });
      if (status === "answered") return value;
      // The gateway answers at once if the request is not due yet.
      await pause(Math.min(leftMs, lookMs), options.signal);
      lookMs = Math.min(2 * lookMs, LOOK_MAX_MS);
    }
  }

  async ask(asked: Asked, options: SendOptions): Promise<unknown> {
    const endMs = performance.now() + this.#timeoutMs(options);
    const response = await this.#received(asked, options, endMs);
    return await this.#final(asked, response, endMs - performance.now());
  }

  /** Send a request until its response is final, or no time or attempt is left; return the response. */
  async #received(asked: Asked, options: SendOptions, endMs: number): Promise<Response> {
    // The types refuse these options, too, but a program in JavaScript has no types.
    checkNames(options, OPERATION_OPTIONS);
    if (options.requestId !== undefined && options.requestId !== asked.requestId) {
      throw new TypeError(`${asked.verb} ${asked.path} takes no requestId: only calls and sends have one`);
    }
    if (options.delayS !== undefined && !asked.delays) {
      throw new TypeError(`${asked.verb} ${asked.path} takes no delayS: only sends have one`);
    }
    const retries = this.#options.retries ?? 8;
    for (let attempt = 0; ; attempt++) {
      const leftMs = endMs - performance.now();
      if (leftMs <= 0) throw this.#late(asked.requestId);
      const received = await this.#once(asked, leftMs, options.signal);
      if (received instanceof Response && !RETRIED.includes(received.status)) return received;
      const leastMs = received instanceof Response ? 1_000 * Number(received.headers.get("retry-after") ?? 0) : 0;
      const pauseMs = pauseAfter(attempt, Number.isFinite(leastMs) ? leastMs : 0);
      if (attempt >= retries || performance.now() + pauseMs >= endMs) {
        if (received instanceof Response) return received;
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
    const { subscription } = asked;
    const headers: Record<string, string> = { Accept: subscription === undefined ? "application/json" : EVENTS };
    if (this.#options.key !== undefined) headers["Authorization"] = `Bearer ${this.#options.key}`;
    if (asked.verb === "POST") headers["Content-Type"] = "application/json";
    if (asked.verb === "POST" && asked.requestId !== undefined) headers["Idempotency-Key"] = asked.requestId;
    // A gateway that is behind the last one would go back in time.
    const leastEpoch = Math.max(asked.reads && (this.#options.fresh ?? true) ? this.epoch : -1, subscription?.epoch ?? -1);
    if (leastEpoch >= 0) headers["Penstock-Min-Epoch"] = String(leastEpoch);
    if (subscription !== undefined && subscription.epoch >= 0) headers["Last-Event-ID"] = String(subscription.epoch);
    const sign = asked.path.includes("?") ? "&" : "?";
    const wait = asked.waits ? `${sign}timeout=${(leftMs / 1_000).toFixed(3)}` : "";
    const limitMs = Math.ceil(leftMs) + SLACK_MS;
    const { connection } = asked;
    const timer = connection === undefined ? undefined : setTimeout(() => connection.abort(), limitMs);
    const limit = connection === undefined ? AbortSignal.timeout(limitMs) : connection.signal;
    const init: RequestInit = {
      method: asked.verb,
      headers,
      redirect: "error", // the key goes to the given gateway and nowhere else
      signal: signal === undefined ? limit : AbortSignal.any([signal, limit]),
    };
    if (asked.verb === "POST") init.body = written(asked.body ?? {});
    if (subscription !== undefined) init.cache = "no-store";
    try {
      return await (this.#options.fetch ?? fetch)(this.#url + asked.path + wait, init);
    } catch (error) {
      if (signal?.aborted) throw signal.reason;
      const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
      return cause instanceof Error ? cause.message : String(cause);
    } finally {
      clearTimeout(timer);
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
    const error = describedError(text);
    if (error !== undefined) throw errorOf({ ...error, status: response.status, requestId: asked.requestId ?? "", epoch });
    const message = `${this.#url} answers ${response.status} without the body of an error: ${text.slice(0, 200)}`;
    throw strange(message, response.status, asked.requestId, epoch);
  }

  /** The seconds that the gateway may wait for news. */
  pollS(options: ReadOptions): number {
    return Math.min(LONG_POLL_S, this.#timeoutMs(options) / 2_000);
  }

  #timeoutMs(options: SendOptions): number {
    const timeoutMs: unknown = options.timeoutMs ?? this.#options.timeoutMs ?? 60_000;
    if (typeof timeoutMs === "number" && timeoutMs >= 0) return timeoutMs;
    throw new TypeError(`timeoutMs is a number of milliseconds, 0 or more, and not ${String(timeoutMs)}`);
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

/** The place of a subscriber in the states of an entity; it outlives the connections. */
class Subscription<Attributes> {
  readonly path: string;
  /** The epoch of the newest state; -1 before the first. */
  epoch = -1;
  /** The pause before a further connection that the gateway asks for. */
  pauseMs = 0;
  #shown: string | undefined;
  #decoder = new TextDecoder();
  #rest = "";
  #event = new SentEvent();

  constructor(path: string) {
    this.path = path;
  }

  /** Begin to read a further connection. */
  begin(): void {
    // An event that was cut off is not continued.
    this.#decoder = new TextDecoder();
    this.#rest = "";
    this.#event = new SentEvent();
  }

  /** Yield the states that are complete with the next bytes of the connection. */
  *states(chunk: Uint8Array): Generator<EntityState<Attributes>, void, undefined> {
    const [first = "", ...others] = this.#decoder.decode(chunk, { stream: true }).split("\n");
    this.#rest += first;
    for (const next of others) {
      const line = this.#rest.endsWith("\r") ? this.#rest.slice(0, -1) : this.#rest;
      this.#rest = next;
      if (line !== "") {
        this.#take(line);
        continue;
      }
      const event = this.#event;
      this.#event = new SentEvent();
      const state = event.data === undefined ? undefined : this.#stateOf(event.kind, event.number, event.data);
      if (state !== undefined) yield state;
    }
    if (this.#rest.length + (this.#event.data ?? "").length > EVENT_LENGTH_MAX) {
      throw strange(`an event of ${this.path} has more than ${EVENT_LENGTH_MAX >> 20} million characters`);
    }
  }

  #take(line: string): void {
    const [name = ""] = line.split(":", 1);
    const value = line.slice(name.length + 1).replace(/^ /, "");
    if (name === "event") this.#event.kind = value;
    else if (name === "id") this.#event.number = value;
    else if (name === "data") this.#event.data = this.#event.data === undefined ? value : `${this.#event.data}\n${value}`;
    else if (name === "retry") this.pauseMs = Math.min(this.#whole(value), RETRY_MAX_MS);
  }

  /** Return the state of an event; undefined for the state that was given last, which follows a cut. */
  #stateOf(kind: string, number: string, data: string): EntityState<Attributes> | undefined {
    if (kind === "refused") {
      const error = describedError(data);
      if (error === undefined) throw strange(`${this.path}: the refusal cannot be read: ${data.slice(0, 200)}`);
      const status = statusOf(error.code);
      // The response ends, and the next request tries again, or gets this error.
      if (RETRIED.includes(status)) return undefined;
      throw errorOf({ ...error, status, requestId: "", epoch: this.epoch });
    }
    if (kind !== "message") return undefined; // a later gateway may send further kinds
    const epoch = number === "" ? -1 : this.#whole(number);
    const isKnown = data === this.#shown;
    const entity = isKnown ? null : this.#entityOf(data);
    this.epoch = epoch;
    this.#shown = data;
    return isKnown ? undefined : { entity, epoch };
  }

  #entityOf(data: string): Attributes | null {
    try {
      return read(data) as Attributes | null;
    } catch (error) {
      if (error instanceof RangeError) throw error; // a number that JavaScript cannot hold
      throw strange(`${this.path}: a state cannot be read: ${data.slice(0, 200)}`);
    }
  }

  #whole(text: string): number {
    if (!/^\d{1,18}$/.test(text)) throw strange(`${this.path}: "${text.slice(0, 40)}" is not a number`);
    return Number(text);
  }
}

/** The fields of a server-sent event. */
class SentEvent {
  kind = "message";
  number = "";
  data: string | undefined;
}

/** Return the next bytes of a connection; undefined if it has ended, or was silent for too long. */
async function chunkOf(
  reader: ReadableStreamDefaultReader<Uint8Array>,
  connection: AbortController,
): Promise<Uint8Array | undefined> {
  const timer = setTimeout(() => connection.abort(), SILENCE_MS);
  try {
    return (await reader.read()).value;
  } catch {
    return undefined;
  } finally {
    clearTimeout(timer);
  }
}

type Make = (path: string, body: unknown, options: SendOptions | undefined, reads?: boolean) => any;

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

/** Return the error that the body of a response describes; undefined if it describes none. */
function describedError(text: string): ErrorAnswer | undefined {
  try {
    const { error } = JSON.parse(text) as { error?: ErrorAnswer };
    return typeof error?.code === "string" ? error : undefined;
  } catch {
    return undefined;
  }
}

/** An answer that no gateway gives. */
function strange(message: string, status = 0, requestId = "", epoch = -1): PenstockError {
  return errorOf({ code: "operational", kind: "OperationalError", message, status, requestId, epoch });
}

/** The HTTP status of a code; errors of the application have 400. */
function statusOf(code: string): number {
  return STATUSES[code] ?? 400;
}

function hint(requestId: string | undefined): string {
  return requestId === undefined
    ? ""
    : `; the request may have been accepted, and takes effect once: ask again with requestId "${requestId}"`;
}

/** Return the filters of a page or a stream as fields of a query string. */
function fieldsOf(where: PageOf["where"] = {}): URLSearchParams {
  const fields = new URLSearchParams();
  for (const [name, value] of Object.entries(where)) fields.append(name, filterText(value));
  return fields;
}

/** Return the text of a filter: without quotation marks, the text `null` would be None. */
function filterText(value: Key | boolean | null): string {
  const needsMarks = typeof value === "string" && (value === "null" || /^".*"$/s.test(value));
  return needsMarks ? JSON.stringify(value) : String(value);
}

/** A part of a path. A URL cannot hold the parts `.` and `..`, and an empty part is no key. */
function segment(key: Key): string {
  // A program in JavaScript has no types, and `undefined` would be the key "undefined".
  if (!["string", "number", "bigint"].includes(typeof key)) {
    throw new TypeError(`a key is a string, a number or a bigint, and not ${key === null ? "null" : typeof key}`);
  }
  if (typeof key === "string" && /\p{Surrogate}/u.test(key)) {
    throw new RangeError(`the key ${JSON.stringify(key)} has half of a surrogate pair, which no URL can hold`);
  }
  if (typeof key === "number" && !Number.isSafeInteger(key)) {
    throw new RangeError(`${key} is no whole number that JavaScript holds exactly; give the key as a bigint or as text`);
  }
  const text = encodeURIComponent(String(key));
  if (text === "" || text === "." || text === "..") throw new RangeError(`"${key}" cannot be a part of a URL`);
  return text;
}

/** The pause after an attempt; at least `leastMs`. */
function pauseAfter(attempt: number, leastMs: number): number {
  const usualMs = Math.min(PAUSE_MAX_MS, PAUSE_MIN_MS * 2 ** Math.min(attempt, 10));
  // Half of it is at random, so that clients that failed together do not come back together.
  return Math.max(leastMs, usualMs / 2) + (Math.random() * usualMs) / 2;
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

/**
 * Write JSON: a `bigint` is a number, and floats that are no numbers have the texts of Python.
 *
 * A whole `number` that JavaScript does not hold exactly has an exponent: its digits would be those of another number. An
 * attribute that is a whole number refuses it.
 */
function written(value: unknown): string {
  const mark = crypto.randomUUID();
  const text = JSON.stringify(value, (_, item) => {
    if (typeof item === "bigint") return `${mark}${item}`;
    if (typeof item !== "number") return item;
    if (!Number.isFinite(item)) return String(item);
    return Number.isInteger(item) && !Number.isSafeInteger(item) ? `${mark}${item.toExponential()}` : item;
  });
  return text.replaceAll(new RegExp(`"${mark}(-?[\\d.]+(?:e\\+\\d+)?)"`, "g"), "$1");
}
