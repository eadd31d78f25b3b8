// Calls the application of bakery_app.py by its client; each line that it prints is a fact that the test expects.
import { Aborted, Client, PenstockError, SoldOut, TooSweet } from "./bakery.js";
import type { Loaf, Options, Pending, SendOptions } from "./bakery.js";
import { Client as Big, type Client_ } from "./big/bakery.js";
import { Client as Quick } from "./quick/bakery.js";

declare const process: { argv: string[]; exitCode: number };

const [url, failing, mute, cutting, commands, key, reader] = process.argv.slice(2) as [
  string,
  string,
  string,
  string,
  string,
  string,
  string,
];
const told: { [name: string]: unknown } = {};

async function refused(asked: Promise<unknown>): Promise<PenstockError> {
  try {
    await asked;
  } catch (error) {
    if (error instanceof PenstockError) return error;
    throw error;
  }
  throw new Error("it was not refused");
}

async function main(): Promise<void> {
  const client = new Client(url, { key });
  const baked: number = await client.call.bake([["rye", "spelt"], 7]);
  told["baked"] = baked;
  const left: number = await client.Loaf("rye").take({ pieces: 2, promise: { pieces: 1, price: "2.50" } });
  told["left"] = left;
  const rye: Loaf = await client.Loaf.get("rye");
  told["rye"] = rye;
  const page = await client.pages.Loaf({ limit: 1, where: { kind: rye.kind } });
  told["page"] = [page.entities.length, page.after !== null, page.epoch >= 0];
  told["kinds"] = [await client.Loaf.create("a/b ü?#", { kind: "cake" }), await client.Loaf("a/b ü?#").exists()];
  const made = await client.Loaf.create(null);
  told["derived"] = made.length > 8;
  const number: string = await client.Client.create(2n ** 63n - 1n);
  const one: Client_ = await new Big(url, { key }).Client.get(number);
  told["number"] = one.number.toString();
  told["pair"] = await client.Loaf("rye").pair([1]);
  told["weight"] = await client.Loaf("rye").weigh({ grams: NaN });

  const sold = await refused(client.Loaf("rye").take({ pieces: 99 }));
  told["sold"] = [sold instanceof SoldOut, sold instanceof Aborted, sold.code, sold.kind, sold.message, sold.status, sold.name];
  const sweet = await refused(client.Loaf("rye").sweeten());
  told["sweet"] = [sweet instanceof TooSweet, sweet.code, sweet.kind];
  const missing = await refused(client.Loaf.get("none"));
  told["missing"] = [missing instanceof Aborted, missing.code, missing.status];
  // @ts-expect-error -- the compiler knows the arguments
  told["wrong"] = (await refused(client.Loaf("rye").take({ loaves: 1 }))).code;

  told["once"] = [
    await client.Loaf("rye").take({}, { requestId: "r1" }),
    await client.Loaf("rye").take({}, { requestId: "r1" }),
  ];
  told["conflict"] = (await refused(client.Loaf("rye").take({ pieces: 2 }, { requestId: "r1" }))).code;
  const sent: Pending<number> = await client.send.Loaf("rye").take({ pieces: 1 });
  told["sent"] = [await sent.result(), await client.pending<number>(sent.requestId).result()];
  told["sentRefused"] = (await refused((await client.send.Loaf("rye").take({ pieces: 99 })).result())).code;
  const later = await client.send.Loaf("rye").take({}, { delayS: 3600 });
  await later.cancel();
  told["cancelled"] = (await refused(later.result())).code;
  told["read"] = [await client.Loaf("rye").count(), client.epoch >= 0];

  const message = (error: Error) => `${error.name}: ${error.message}`;
  const named: Options = { requestId: "r2" };
  const delayed: SendOptions = { delayS: 60 };
  told["optionless"] = [
    // @ts-expect-error -- a read has no request id
    await client.Loaf.get("rye", { requestId: "r2" }).catch(message),
    // @ts-expect-error -- also not one in a variable
    await client.pages.Loaf({ limit: 1 }, named).catch(message),
    // @ts-expect-error
    await client.streams.shouts.follow({ from: 0, requestId: "r2" }).next().catch(message),
    // @ts-expect-error
    await client.tables.loaves.follow(named).next().catch(message),
    // @ts-expect-error
    await client.Loaf.subscribe("rye", named).next().catch(message),
    // @ts-expect-error
    await client.sql("SELECT 1", [], named).catch(message),
    // @ts-expect-error -- the pending request has one
    await sent.result(named).catch(message),
    // @ts-expect-error -- a call is not delayed
    await client.Loaf("rye").take({}, delayed).catch(message),
  ];

  const broken = new Client(failing, { key });
  told["broken"] = [await broken.Loaf("spelt").take(), await broken.Loaf("spelt").take(), await broken.Loaf("spelt").take()];
  const nobody = await refused(new Client("http://127.0.0.1:1", { retries: 1 }).Loaf("rye").take());
  told["nobody"] = [nobody.code, nobody.message.includes(nobody.requestId)];
  const silent = await refused(new Client(mute, { key }).Loaf("spelt").take({}, { timeoutMs: 300 }));
  told["silent"] = silent.code;
  const ended = new AbortController();
  ended.abort(new Error("enough"));
  told["ended"] = await client.Loaf("rye").take({}, { signal: ended.signal }).catch((error: Error) => error.message);
  told["dots"] = await (async () => await client.Loaf("..").count())().catch((error: Error) => error.message);

  told["unsafe"] = await client.Loaf("rye").grains().catch((error: Error) => error.name);
  told["inexact"] = [
    await client.Loaf("rye").take({ pieces: 2 ** 60 }).catch(message),
    await client.Loaf("rye").weigh({ grams: 2 ** 60 }).catch(message),
    await client.Loaf("rye").weigh({ grams: -(2 ** 53) - 2 }).catch(message),
  ];
  const given = undefined as unknown as string;
  told["untyped"] = [
    await (async () => await client.Loaf.create(given))().catch(message),
    await (async () => await client.Loaf.create("half \ud800"))().catch(message),
    await client.Loaf("rye").count({ timeoutMs: given as unknown as number }),
    await client.Loaf("rye").count({ timeoutMs: "5" as unknown as number }).catch(message),
    await client.Loaf("rye").count({ timeoutMS: 5 } as unknown as { timeoutMs: number }).catch(message),
    await (async () => new Client(url, { retrys: 1 } as unknown as { retries: number }))().catch(message),
  ];
  const big: bigint = await new Big(url, { key }).Loaf("rye").grains();
  told["grains"] = big.toString();
  const bigLeft: bigint = await new Big(url, { key }).Loaf("spelt").take({ pieces: 1n });
  told["bigLeft"] = bigLeft.toString();

  const count: number = await client.streams["oven-runs"].append([{ loaf: "rye", at_degrees: 220 }, { loaf: "spelt", at_degrees: 200 }]);
  const next = await client.streams["oven-runs"].send([{ loaf: "x", at_degrees: 1 }]);
  told["appended"] = [count, await next.result()];
  const shouts: string[] = [];
  for await (const { atom, events } of client.streams.shouts.follow()) {
    shouts.push(...events.map((event) => `${atom} ${event}`));
    if (shouts.length === 3) break;
  }
  told["shouts"] = shouts;
  for await (const { atom, events } of client.streams["oven-runs"].follow({ where: { loaf: "spelt" } })) {
    told["spelt"] = [atom, events.map((event) => event.at_degrees)];
    break;
  }
  for await (const page of client.tables.loaves.follow()) {
    told["table"] = page.changes.map((change) => ("row" in change ? change.row.loaf_id : "")).sort();
    if (page.complete) break;
  }
  await subscribe(client, number);
}

async function next<T>(states: AsyncGenerator<T, void, undefined>): Promise<T> {
  const { value } = await states.next();
  if (value === undefined) throw new Error("the states have ended");
  return value;
}

async function subscribe(client: Client, largeKey: string): Promise<void> {
  const seen: (number | null)[] = [];
  const epochs: number[] = [];
  for await (const { entity, epoch } of client.Loaf.subscribe("followed")) {
    const loaf: Loaf | null = entity;
    seen.push(loaf && loaf.pieces);
    epochs.push(epoch);
    if (seen.length === 1) await client.Loaf.create("followed", { pieces: 4 });
    if (seen.length === 2) await client.Loaf("followed").take({ pieces: 3 });
    if (seen.length === 3) await client.Loaf("followed").delete();
    if (seen.length === 4) break;
  }
  told["states"] = seen;
  told["rising"] = epochs.every((epoch, place) => place === 0 || epoch > epochs[place - 1]!) && client.epoch >= epochs[3]!;
  let count = 0;
  for await (const _ of client.Loaf.subscribe("rye")) if (++count) break;
  told["left loop"] = count;

  const ended = new AbortController();
  const stopped = client.Loaf.subscribe("rye", { signal: ended.signal });
  await next(stopped);
  setTimeout(() => ended.abort(new Error("enough")), 50);
  const reason = await next(stopped).catch((error: Error) => error.message);
  told["stopped"] = [reason, (await stopped.next()).done];
  told["dotted"] = (() => {
    try {
      return client.Loaf.subscribe("..");
    } catch (error) {
      return (error as Error).message;
    }
  })();

  const named: Headers[] = [];
  const noting: typeof fetch = (input, init) => {
    named.push(new Headers(init?.headers));
    return fetch(input, init);
  };
  const overCuts = new Quick(cutting, { key, fetch: noting }).Loaf.subscribe("cut");
  const first = await next(overCuts);
  await fetch(`${commands}cut`);
  await client.Loaf.create("cut", { pieces: 3 });
  const made = await next(overCuts);
  await fetch(`${commands}cut`);
  await client.Loaf("cut").take();
  const taken = await next(overCuts);
  await fetch(`${commands}silence`);
  await client.Loaf("cut").take();
  const last = await next(overCuts);
  await overCuts.return();
  told["over cuts"] = [first, made, taken, last].map(({ entity }) => entity && entity.pieces);
  const ids = named.slice(1).map((headers) => Number(headers.get("last-event-id")));
  told["named"] = [
    ids.length >= 3,
    ids.every((id, place) => id >= Math.max(first.epoch, ids[place - 1] ?? 0)),
    named.slice(1).every((headers, place) => Number(headers.get("penstock-min-epoch")) >= ids[place]!),
  ];

  const eve = new Client(url, { key: reader });
  const forbidden = await refused(next(eve.Client.subscribe(largeKey)));
  told["forbidden"] = [forbidden.code, forbidden.status, forbidden.name];
  const revoked = eve.Loaf.subscribe("rye");
  await next(revoked);
  await fetch(`${commands}revoke`);
  const unknown = await refused(
    (async () => {
      for (let grams = 1; ; grams++) {
        await client.Loaf("rye").weigh({ grams });
        await next(revoked);
      }
    })(),
  );
  told["revoked"] = [unknown.code, unknown.status, unknown.name, (await revoked.next()).done];
  const held = new Big(url, { key }).Client.subscribe(largeKey);
  const big = await next(held);
  await held.return(); // or its connection would keep this program from its end
  const unsafe = await next(client.Client.subscribe(largeKey)).catch((error: Error) => error.name);
  told["largeKey"] = [unsafe, big.entity?.number.toString()];
}

main().then(
  () => console.log(JSON.stringify(told)),
  (error: unknown) => {
    console.error(error, JSON.stringify(told));
    process.exitCode = 1;
  },
);
