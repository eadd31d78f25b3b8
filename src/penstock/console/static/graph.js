// The dataflow graph: operators with their methods, who calls whom, and how often just now.

import { el, svg, show } from "./dom.js";
import { rate } from "./format.js";
import { OUTSIDE, UNKNOWN } from "./links.js";
import { HEADER, LETTER, ROW, sceneOf } from "./scene.js";
import { button } from "./widgets.js";

const HEADS = ["Caller", "Does", "Callee", "Per second"];
const MARGIN = 14;
const LOOPS = 40; // room for lines on the right side of the last boxes
const CORNERS = { function: 22, stream: 14, portal: 22 };
const READABLE = 0.8; // of a picture that is drawn smaller, a button shows the actual size

/** Draws a plan once; `update` then changes numbers and motion only. */
export class Graph {
  #plan;
  #scene;
  #drawing;
  #rail = svg("path", { class: "rail" });
  #rates = new Map();
  #streams = new Map();
  #rows = new Map();
  #heads = new Map();
  #lines = new Map();
  #table = el("tbody", { role: "rowgroup" });
  #enlarge = button("Actual size", () => this.#turnSize(), { "aria-pressed": "false", hidden: true });

  constructor(plan) {
    this.#plan = plan;
    this.#scene = sceneOf(plan);
    this.#drawing = this.#draw();
    const width = Number(this.#drawing.getAttribute("width"));
    const frame = el(
      "div",
      { class: "graph-scroll", tabindex: 0, role: "region", "aria-label": "Dataflow graph, scrollable" },
      this.#drawing,
    );
    new ResizeObserver(([{ contentRect }]) => {
      this.#enlarge.hidden = contentRect.width >= width * READABLE;
    }).observe(frame);
    this.element = el(
      "div",
      { class: "graph" },
      frame,
      this.#enlarge,
      legend(plan),
      this.#asTable(),
    );
    this.update(new Map());
  }

  /** Show calls per second, by `caller>callee`, and events per second, by the path of the stream. */
  update(rates, streams = new Map()) {
    this.#rates = rates;
    this.#streams = streams;
    for (const [row, text] of this.#rows) {
      const perSecond = this.#streamRate(row) ?? this.#into((callee) => callee === row);
      text.textContent = perSecond ? rate(perSecond) : "·";
      text.classList.toggle("idle", !perSecond);
    }
    for (const [operator, text] of this.#heads) {
      const perSecond = streams.get(operator) ?? this.#into((callee) => this.#isWhole(callee, operator));
      text.textContent = perSecond ? rate(perSecond) : "";
    }
    for (const line of this.#lines.values()) moveLine(line, this.#rateOf(line.link));
    this.#moveRail();
    this.#fillTable();
  }

  /** Draw the rail from the log to all lines for requests that are visible. */
  #moveRail() {
    const { log, lines } = this.#scene;
    const isDrawn = ({ link }) =>
      link.from === OUTSIDE && !this.#lines.get(link.name).group.classList.contains("quiet");
    const level = log.y + log.height / 2;
    const heights = [level, ...lines.filter(isDrawn).map((line) => line.start.y)];
    const along = `M${log.rail} ${Math.min(...heights)} V${Math.max(...heights)}`;
    this.#rail.setAttribute("d", `M${log.x + log.width} ${level} H${log.rail} ${along}`);
  }

  /** Say whether a call means the operator as a whole: a function, or the creation of an entity. */
  #isWhole(callee, operator) {
    return callee.split(".")[0] === operator && !this.#rows.has(callee);
  }

  #into(wanted) {
    let sum = 0;
    for (const [call, perSecond] of this.#rates)
      if (wanted(call.slice(call.indexOf(">") + 1))) sum += perSecond;
    return sum;
  }

  /** Return the rate of a row that is a stream: `workflows/digest.streams/titles`. */
  #streamRate(row) {
    return this.#streams.get(row.slice(row.indexOf(".") + 1));
  }

  #rateOf({ name, from, to, toRow, stream }) {
    if (stream) return this.#streams.get(stream) ?? 0;
    if (from !== OUTSIDE || toRow) return this.#rates.get(name) ?? 0;
    let sum = 0;
    for (const [call, perSecond] of this.#rates)
      if (call.startsWith(">") && this.#isWhole(call.slice(1), to)) sum += perSecond;
    return sum;
  }

  /** Draw the graph in its own size, which scrolls, or fit it to the width again. */
  #turnSize() {
    const isLarge = this.element.classList.toggle("large");
    this.#enlarge.setAttribute("aria-pressed", String(isLarge));
  }

  #draw() {
    const { width, height, boxes, lines, log } = this.#scene;
    const size = [width + 2 * MARGIN + LOOPS, height + 2 * MARGIN].map(Math.ceil);
    const drawing = svg(
      "svg",
      {
        viewBox: `${-MARGIN} ${-MARGIN} ${size.join(" ")}`,
        width: size[0],
        height: size[1],
        role: "group",
        "aria-label": `Dataflow graph of ${this.#plan.app}`,
      },
      svg("defs", {}, arrow("arrow"), arrow("arrow-moving")),
      lines.map((line) => this.#line(line)),
      this.#rail,
      outside(log),
      boxes.map((box) => this.#box(box)),
      lines.map(({ link }) => this.#lines.get(link.name).text), // above all lines
    );
    return drawing;
  }

  #box(box) {
    const { id, title, about, shape, href, does, width, height, x, y, rows } = box;
    const total = svg("text", { class: "rate", x: width - 12, y: 20 });
    this.#heads.set(id, total);
    const group = svg(
      "g",
      {
        class: `node ${shape}`,
        transform: `translate(${x} ${y})`,
        "data-node": id,
        onpointerenter: () => this.#point(id),
        onpointerleave: () => this.#point(null),
      },
      svg("rect", { class: "box", width, height, rx: CORNERS[shape] ?? 5 }),
      svg("text", { class: "name", x: 14, y: 20 }, cut(title, width - 76)),
      svg("text", { class: "key", x: 14, y: 36 }, cut(about, width - 24)),
      rows.length
        ? svg("line", { class: "rule", x1: 0, x2: width, y1: HEADER - 2, y2: HEADER - 2 })
        : null,
      total,
      rows.map((row, index) => this.#row(box, row, index)),
    );
    if (id === UNKNOWN) return group;
    const points = { onfocus: () => this.#point(id), onblur: () => this.#point(null) };
    if (href) return svg("a", { href, "aria-label": `${does} ${title}`, ...points }, group);
    const label = [`${about.split(" ")[0]} ${title}`, ...rows.map((row) => row.title)].join(", ");
    return svg("g", { tabindex: 0, role: "img", class: "stop", "aria-label": label, ...points }, group);
  }

  #row({ id, width }, { name, text, title }, index) {
    const level = HEADER + index * ROW + 17;
    const perSecond = svg("text", { class: "rate", x: width - 12, y: level });
    this.#rows.set(`${id}.${name}`, perSecond);
    return svg(
      "g",
      { "data-method": `${id}.${name}` },
      svg("title", {}, title),
      svg("text", { class: "method", x: 14, y: level }, cut(text, width - 96)),
      perSecond,
    );
  }

  #line({ link, d, label }) {
    const line = {
      link,
      group: svg(
        "g",
        { class: `link ${link.kind}${link.quiet ? " quiet" : ""}`, "data-edge": link.name },
        svg("title", {}, link.says.join("\n")),
        svg("path", { class: "course", d }),
        svg("path", { class: "flow", d }),
      ),
      text: svg("text", { class: "flow-rate", x: label?.x, y: label && label.y + 4 }),
      isLabelled: label !== null,
    };
    this.#lines.set(link.name, line);
    return line.group;
  }

  /** Let the lines of an operator stand out; null ends this. */
  #point(operator) {
    this.#drawing.classList.toggle("pointed", operator !== null);
    for (const { link, group, text } of this.#lines.values()) {
      const isNear = link.from === operator || link.to === operator;
      group.classList.toggle("near", isNear);
      text.classList.toggle("near", isNear);
    }
  }

  #asTable() {
    return el(
      "details",
      { class: "as-table" },
      el("summary", {}, "The graph as a table"),
      el(
        "div",
        { class: "table-scroll", tabindex: 0, role: "region", "aria-label": "The graph as a table" },
        el(
          "table",
          { role: "table", class: "stacked" },
          el("caption", { class: "hidden" }, "Who calls, creates and reads what, and how often in the last five seconds"),
          el(
            "thead",
            {},
            el(
              "tr",
              {},
              HEADS.map((name, at) =>
                el("th", { scope: "col", class: at === 3 ? "number" : null }, name),
              ),
            ),
          ),
          this.#table,
        ),
      ),
    );
  }

  #fillTable() {
    const calls = [...this.#rates.keys()].map((name) => {
      const [caller, callee] = name.split(">");
      return { name, verb: "calls", ends: [caller || "a request", callee] };
    });
    const known = this.#scene.lines.map(({ link }) => link).filter((link) => !link.quiet);
    const all = new Map([...calls, ...known].map((link) => [link.name, link]));
    const names = [...all.keys()].sort();
    show(
      this.#table,
      names.map((name) => {
        const link = all.get(name);
        const perSecond = link.stream ? this.#rateOf(link) : (this.#rates.get(name) ?? 0);
        const values = [link.ends[0], link.verb, link.ends[1], rate(perSecond)];
        return el("tr", { role: "row" }, values.map(cell));
      }),
    );
  }
}

/** Return a cell of the table; a narrow window shows the name of its column before it. */
const cell = (value, at) =>
  el("td", { role: "cell", class: at === 3 ? "number" : null, "data-label": HEADS[at] }, el("div", {}, value));

function moveLine({ group, text, link, isLabelled }, perSecond) {
  const isMoving = perSecond > 0;
  text.textContent = isMoving && isLabelled ? rate(perSecond) : "";
  group.classList.toggle("moving", isMoving);
  group.classList.toggle("quiet", Boolean(link.quiet) && !isMoving);
  const pace = isMoving ? Math.max(0.5, 2.5 - Math.round(Math.log10(perSecond)) * 0.5) : 0;
  const flow = group.querySelector(".flow");
  if (flow.dataset.pace !== String(pace)) {
    flow.dataset.pace = String(pace);
    flow.style.animationDuration = `${pace}s`;
    flow.style.strokeWidth = String(Math.min(5, 2 + Math.log10(1 + perSecond) * 0.8));
  }
  group.dataset.rate = String(perSecond);
}

const arrow = (id) =>
  svg(
    "marker",
    {
      id,
      viewBox: "0 0 8 8",
      refX: 7,
      refY: 4,
      markerWidth: 7,
      markerHeight: 7,
      markerUnits: "userSpaceOnUse",
      orient: "auto",
    },
    svg("path", { d: "M0 0.6 L7.4 4 L0 7.4 z" }),
  );

function outside(log) {
  return svg(
    "g",
    { class: "node outside" },
    svg("rect", { class: "box", x: log.x, y: log.y, width: log.width, height: log.height, rx: 2 }),
    svg("text", { class: "name middle", x: log.x + log.width / 2, y: log.y + 25 }, "Log"),
    svg("text", { class: "key middle", x: log.x + log.width / 2, y: log.y + 42 }, "requests in"),
  );
}

function cut(text, width) {
  const most = Math.floor(width / LETTER);
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}

function legend({ edges, stream_operators: streams, views }) {
  const hasUnknown = edges.some(({ target }) => target.operator === UNKNOWN);
  const sample = (kind) =>
    svg(
      "svg",
      { width: 34, height: 10, "aria-hidden": true, class: `link ${kind}` },
      svg("path", { class: "course", d: "M0 5 H34" }),
    );
  const entry = (kind, words) => el("li", {}, sample(kind), words);
  return el(
    "ul",
    { class: "legend" },
    entry("call", "calls"),
    entry("change", "creates, writes or deletes"),
    entry("read", "reads"),
    streams.length || views.length ? entry("feed", views.length ? "events, and changes for views" : "events") : null,
    streams.length ? entry("ask", "asks a portal") : null,
    hasUnknown ? el("li", { class: "hint" }, `${UNKNOWN}: the source does not tell what is called`) : null,
    el("li", { class: "hint" }, "rates over the last 5 s"),
  );
}
