// Streams: a table of all streams, and the atoms of one stream while they come.

import { ask } from "./api.js";
import { el, empty, problem, show } from "./dom.js";
import { exportButtons } from "./exports.js";
import { count, rate } from "./format.js";
import { encode } from "./json.js";
import { live } from "./live.js";
import { streamLink } from "./references.js";
import { dataTable, valueText } from "./table.js";
import { microsecondsOf, momentNode } from "./times.js";
import { button, lines, row } from "./widgets.js";

const SHOWN = 50;
const KEPT = 500;
const WAIT_S = 20;
const PAUSE_MS = 2_000;
const EVENTS_SHOWN = 20;

/** Show the list of streams, or one of them. */
export function open(body, { rest }, heading) {
  show(body, el("p", { class: "waiting" }, "Asking the gateway …"));
  const shown = rest.length ? new StreamPage(body, rest[0], heading) : new StreamList(body);
  shown.start();
  return { close: () => shown.close() };
}

class StreamList {
  #body;
  #look = () => this.load();
  #before = "";

  constructor(body) {
    this.#body = body;
  }

  start() {
    live.addEventListener("change", this.#look);
    this.load();
  }

  close() {
    live.removeEventListener("change", this.#look);
  }

  async load() {
    try {
      const { value } = await ask("/streams");
      const found = encode(value);
      if (found === this.#before || this.#body.contains(document.activeElement)) return; // a link in use stays
      this.#before = found;
      show(this.#body, value.streams.length ? table(value.streams) : nothing());
    } catch (failure) {
      this.#before = "";
      show(this.#body, problem(failure));
    }
  }
}

const nothing = () =>
  empty("There are no streams that this key may follow.", "A key needs the scope follow, or follow: and a name.");

function table(streams) {
  return dataTable({
    caption: "Streams",
    sortable: true,
    columns: [
      { name: "Stream", cell: (name) => el("a", { href: streamLink(name) }, name) },
      { name: "Events", cell: (type) => el("code", {}, type) },
      { name: "Published by" },
      { name: "Taken by" },
      { name: "Oldest atom", numeric: true, cell: count },
      { name: "Next atom", numeric: true, cell: count },
      { name: "Atoms", numeric: true, cell: rate },
    ],
    rows: streams.map((stream) => [
      stream.name,
      stream.events,
      stream.publisher,
      stream.subscribers.join(", ") || "–",
      stream.oldest,
      stream.next,
      stream.rate,
    ]),
    rowHead: true,
  });
}

/** The atoms of one stream: the newest first, the new ones as they come. */
class StreamPage {
  #body;
  #name;
  #heading;
  #atoms = [];
  #next = 0;
  #oldest = 0;
  #failure = null;
  #older = button("Older atoms", () => this.#showOlder(), { hidden: true });
  #leaving = new AbortController();

  constructor(body, name, heading) {
    this.#body = body;
    this.#name = name;
    this.#heading = heading;
  }

  close() {
    this.#leaving.abort();
  }

  async start() {
    this.#heading.textContent = this.#name;
    try {
      const { value } = await ask("/streams");
      const described = value.streams.find((stream) => stream.name === this.#name);
      if (!described) await this.#ask("from=latest"); // it tells why: no such stream, or no right
      this.#oldest = described.oldest;
      this.#next = Math.max(described.oldest, described.next - SHOWN);
      this.#layOut(described);
    } catch (failure) {
      if (!this.#leaving.signal.aborted) show(this.#body, problem(failure));
      return;
    }
    this.#follow();
  }

  async #ask(query) {
    const path = `/streams/${encodeURIComponent(this.#name)}?${query}`;
    return (await ask(path, { exact: true, signal: this.#leaving.signal })).value;
  }

  async #follow() {
    let wait = 0;
    while (!this.#leaving.signal.aborted) {
      try {
        const { atoms, next } = await this.#ask(`from=${this.#next}&wait=${wait}`);
        this.#next = next;
        wait = WAIT_S;
        this.#take(atoms, null);
      } catch (failure) {
        if (this.#leaving.signal.aborted) return;
        this.#take([], failure);
        await new Promise((go) => setTimeout(go, PAUSE_MS));
      }
    }
  }

  #take(atoms, failure) {
    const same = !atoms.length && failure?.message === this.#failure?.message;
    this.#failure = failure;
    if (same) return;
    this.#atoms = [...this.#atoms, ...atoms].slice(-KEPT);
    this.#fill();
  }

  async #showOlder() {
    const first = this.#atoms[0]?.atom ?? this.#next;
    const from = Math.max(this.#oldest, first - SHOWN);
    try {
      const { atoms } = await this.#ask(`from=${from}&limit=${first - from}`);
      this.#atoms = [...atoms, ...this.#atoms];
    } catch (failure) {
      this.#failure = failure;
    }
    this.#fill();
  }

  #layOut({ events, publisher, subscribers, open: isOpen }) {
    const append = `#/try?path=${encodeURIComponent(`/streams/${this.#name}`)}&verb=post`;
    const facts = [
      ["Events", el("code", {}, events)],
      ["Published by", publisher],
      ["Taken by", subscribers.join(", ") || "no consumer"],
    ];
    show(
      this.#body,
      lines(facts),
      row(
        el("a", { href: "#/streams" }, "All streams"),
        isOpen ? el("a", { href: append }, "Append events") : null,
      ),
      el("div", { id: "atoms" }),
      row(this.#older),
      exportButtons(this.#name, "streams/"),
    );
    this.#fill();
  }

  #fill() {
    const place = this.#body.querySelector("#atoms");
    if (!place) return;
    const first = this.#atoms[0]?.atom ?? this.#next;
    show(
      place,
      this.#failure ? problem(this.#failure) : null,
      this.#atoms.length ? atomsTable(this.#atoms) : noAtoms(),
    );
    this.#older.hidden = first <= this.#oldest || this.#atoms.length >= KEPT;
  }
}

const noAtoms = () => empty("There are no atoms yet.", "New atoms appear here.");

function atomsTable(atoms) {
  return dataTable({
    caption: "Atoms, the newest first",
    columns: [
      { name: "Atom", numeric: true, cell: count },
      { name: "Time", cell: (time) => momentNode(microsecondsOf(time)) },
      { name: "Epoch", numeric: true, cell: count },
      { name: "Events", cell: eventsOf },
    ],
    rows: atoms.map((atom) => [atom.atom, atom.time, atom.epoch, atom.events]).reverse(),
    rowHead: true,
  });
}

function eventsOf(events) {
  if (!events.length) return el("span", { class: "null" }, "no events");
  const more = events.length - EVENTS_SHOWN;
  return [
    el(
      "ul",
      { class: "plain" },
      events.slice(0, EVENTS_SHOWN).map((event) => el("li", {}, el("code", {}, valueText(encode(event))))),
    ),
    more > 0 ? el("p", { class: "hint" }, `and ${count(more)} more`) : null,
  ];
}
