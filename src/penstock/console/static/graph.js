// The dataflow graph: operators with their methods, who calls whom, and how often just now.

import { el, svg, show } from "./dom.js";
import { rate } from "./format.js";
import { layered } from "./layout.js";
import { entriesOf, linksOf, OUTSIDE } from "./links.js";

const HEADER = 46;
const ROW = 26;
const LETTER = 7.4;
const MARGIN = 14;

/** Draws a plan once; `update` then changes numbers and motion only. */
export class Graph {
  #plan;
  #links;
  #rates = new Map();
  #rows = new Map();
  #heads = new Map();
  #lines = new Map();
  #table = el("tbody");

  constructor(plan) {
    this.#plan = plan;
    this.#links = linksOf(plan);
    this.element = el("div", { class: "graph" }, this.#drawing(), legend(), this.#asTable());
    this.update(new Map());
  }

  /** Show calls per second, by `caller>callee`. */
  update(rates) {
    this.#rates = rates;
    for (const [method, text] of this.#rows) {
      const perSecond = this.#into((callee) => callee === method);
      text.textContent = perSecond ? rate(perSecond) : "·";
      text.classList.toggle("idle", !perSecond);
    }
    for (const [operator, text] of this.#heads) {
      const other = (callee) => callee.split(".")[0] === operator && !this.#rows.has(callee);
      const perSecond = this.#into(other); // a function, or what has no row: creations
      text.textContent = perSecond ? rate(perSecond) : "";
    }
    for (const [name, line] of this.#lines) moveLine(line, this.#rateOf(name));
    this.#fillTable();
  }

  #into(wanted) {
    let sum = 0;
    for (const [call, perSecond] of this.#rates)
      if (wanted(call.slice(call.indexOf(">") + 1))) sum += perSecond;
    return sum;
  }

  #rateOf(name) {
    if (!name.startsWith(">")) return this.#rates.get(name) ?? 0;
    let sum = 0;
    for (const [call, perSecond] of this.#rates)
      if (call.startsWith(">") && call.slice(1).split(".")[0] === name.slice(1)) sum += perSecond;
    return sum;
  }

  #nodes() {
    const nodes = this.#plan.operators.map((operator) => {
      const rows = operator.key ? operator.methods.filter((one) => !one.name.startsWith("_")) : [];
      const longest = Math.max(operator.name.length + 4, ...rows.map((row) => row.name.length));
      const width = Math.min(300, Math.max(176, longest * LETTER + 96));
      return {
        id: operator.name,
        operator,
        rows,
        width,
        height: HEADER + rows.length * ROW + (rows.length ? 6 : 0),
      };
    });
    if (this.#links.some((link) => link.to === "?"))
      nodes.push({
        id: "?",
        operator: { name: "?", key: null, attributes: [] },
        rows: [],
        width: 90,
        height: HEADER,
      });
    return [{ id: OUTSIDE, rows: [], width: 92, height: 56 }, ...nodes];
  }

  #drawing() {
    const nodes = this.#nodes();
    const all = [...entriesOf(this.#plan, this.#links), ...this.#links];
    const pairs = new Map(
      all
        .filter((link) => link.from !== link.to)
        .map((link) => [`${link.from}>${link.to}`, { from: link.from, to: link.to }]),
    );
    const placed = layered(nodes, [...pairs.values()]);
    const size = [placed.width + 2 * MARGIN + 40, placed.height + 2 * MARGIN];
    const drawing = svg(
      "svg",
      {
        viewBox: `${-MARGIN} ${-MARGIN} ${size.join(" ")}`,
        width: size[0],
        role: "group",
        "aria-label": `Dataflow graph of ${this.#plan.app}`,
      },
      svg(
        "defs",
        {},
        svg(
          "marker",
          {
            id: "arrow",
            viewBox: "0 0 8 8",
            refX: 7,
            refY: 4,
            markerWidth: 7,
            markerHeight: 7,
            orient: "auto",
          },
          svg("path", { d: "M0 0.6 L7.4 4 L0 7.4 z" }),
        ),
      ),
      all.map((link) => this.#line(link, placed)),
      nodes.map((node) => this.#node(node, placed.places.get(node.id))),
    );
    return el(
      "div",
      {
        class: "graph-scroll",
        tabindex: 0,
        role: "region",
        "aria-label": "Dataflow graph, scrollable",
      },
      drawing,
    );
  }

  #node(node, { x, y }) {
    if (node.id === OUTSIDE) return outside(node, x, y);
    const { operator } = node;
    const isEntity = Boolean(operator.key);
    const total = svg("text", { class: "rate", x: node.width - 12, y: 20 });
    this.#heads.set(operator.name, total);
    const box = svg(
      "g",
      {
        class: isEntity ? "node entity" : "node function",
        transform: `translate(${x} ${y})`,
        "data-node": operator.name,
      },
      svg("rect", { class: "box", width: node.width, height: node.height, rx: isEntity ? 5 : 22 }),
      svg("text", { class: "name", x: 14, y: 20 }, cut(operator.name, node.width - 76)),
      svg(
        "text",
        { class: "key", x: 14, y: 36 },
        isEntity ? `key ${operator.key.name}: ${operator.key.type}` : "function",
      ),
      node.rows.length
        ? svg("line", { class: "rule", x1: 0, x2: node.width, y1: HEADER - 2, y2: HEADER - 2 })
        : null,
      total,
      node.rows.map((method, index) => this.#row(node, method, index)),
    );
    if (operator.name === "?") return box;
    const call = `#/try?path=${encodeURIComponent(`/call/${operator.name}`)}`;
    const href = isEntity ? `#/entities/${encodeURIComponent(operator.name)}` : call;
    return svg("a", { href, "aria-label": `${isEntity ? "Browse" : "Try"} ${operator.name}` }, box);
  }

  #row({ operator, width }, { name, parameters, returns }, index) {
    const level = HEADER + index * ROW + 17;
    const text = svg("text", { class: "rate", x: width - 12, y: level });
    this.#rows.set(`${operator.name}.${name}`, text);
    const taken = parameters.map((one) => `${one.name}: ${one.type}`).join(", ");
    return svg(
      "g",
      { "data-method": `${operator.name}.${name}` },
      svg("title", {}, `${name}(${taken}) -> ${returns}`),
      svg("text", { class: "method", x: 14, y: level }, cut(name, width - 96)),
      text,
    );
  }

  #line(link, { places, ways }) {
    const from = places.get(link.from);
    const to = places.get(link.to);
    const start = {
      x: from.x + from.width,
      y: from.y + this.#level(link.from, link.fromRow, from),
    };
    const end = { x: to.x, y: to.y + this.#level(link.to, link.toRow, to) };
    let path;
    let label;
    if (link.from === link.to) {
      end.x = start.x;
      path = `M${start.x} ${start.y} C${start.x + 46} ${start.y} ${start.x + 46} ${end.y} ${end.x + 2} ${end.y}`;
      label = { x: start.x + 44, y: (start.y + end.y) / 2 };
    } else {
      const points = [start, ...ways.get(`${link.from}>${link.to}`), end];
      path = `M${start.x} ${start.y}${points
        .slice(1)
        .map((point, index) => bend(points[index], point))
        .join("")}`;
      const [one, other] = longest(points);
      label = { x: (one.x + other.x) / 2, y: (one.y + other.y) / 2 - 6 };
    }
    const line = {
      link,
      group: svg(
        "g",
        { class: `link ${link.kind}${link.quiet ? " quiet" : ""}`, "data-edge": link.name },
        svg("title", {}, link.says.join("\n")),
        svg("path", { class: "course", d: path, "marker-end": "url(#arrow)" }),
        svg("path", { class: "flow", d: path }),
      ),
      text: svg("text", { class: "flow-rate", x: label.x, y: label.y }),
    };
    line.group.append(line.text);
    this.#lines.set(link.name, line);
    return line.group;
  }

  #level(id, row, place) {
    const operator = this.#plan.operators.find((one) => one.name === id);
    if (!operator?.key) return place.height / 2;
    const index = operator.methods
      .filter((one) => !one.name.startsWith("_"))
      .findIndex((one) => one.name === row);
    return index < 0 ? 20 : HEADER + index * ROW + 13;
  }

  #asTable() {
    return el(
      "details",
      { class: "as-table" },
      el("summary", {}, "Calls as a table"),
      el(
        "div",
        { class: "table-scroll", tabindex: 0, role: "region", "aria-label": "Calls per second" },
        el(
          "table",
          {},
          el("caption", { class: "hidden" }, "Calls in the last five seconds"),
          el(
            "thead",
            {},
            el(
              "tr",
              {},
              ["Caller", "Callee", "Calls per second"].map((name, at) =>
                el("th", { scope: "col", class: at === 2 ? "number" : null }, name),
              ),
            ),
          ),
          this.#table,
        ),
      ),
    );
  }

  #fillTable() {
    const names = new Set([
      ...this.#links.filter((link) => link.kind === "call").map((link) => link.name),
      ...this.#rates.keys(),
    ]);
    show(
      this.#table,
      [...names].sort().map((name) => {
        const [caller, callee] = name.split(">");
        return el(
          "tr",
          {},
          el("td", {}, caller || "a request"),
          el("td", {}, callee),
          el("td", { class: "number" }, rate(this.#rates.get(name) ?? 0)),
        );
      }),
    );
  }
}

function moveLine({ group, text, link }, perSecond) {
  text.textContent = perSecond ? rate(perSecond) : "";
  group.classList.toggle("moving", perSecond > 0);
  if (perSecond > 0) group.classList.remove("quiet");
  const pace = perSecond > 0 ? Math.max(0.5, 2.5 - Math.round(Math.log10(perSecond)) * 0.5) : 0;
  const flow = group.querySelector(".flow");
  if (flow.dataset.pace !== String(pace)) {
    flow.dataset.pace = String(pace);
    flow.style.animationDuration = `${pace}s`;
    flow.style.strokeWidth = String(Math.min(5, 2 + Math.log10(1 + perSecond) * 0.8));
  }
  group.dataset.rate = String(perSecond);
  group.setAttribute("aria-label", link.name);
}

function outside(node, x, y) {
  return svg(
    "g",
    { class: "node outside", transform: `translate(${x} ${y})` },
    svg("rect", { class: "box", width: node.width, height: node.height, rx: 2 }),
    svg("text", { class: "name middle", x: node.width / 2, y: 25 }, "Log"),
    svg("text", { class: "key middle", x: node.width / 2, y: 42 }, "requests in"),
  );
}

/** Return the two neighbouring points that lie farthest apart: where there is room for a number. */
function longest(points) {
  const pairs = points.slice(1).map((point, index) => [points[index], point]);
  return pairs.reduce((best, pair) =>
    pair[1].x - pair[0].x > best[1].x - best[0].x ? pair : best,
  );
}

const bend = (from, to) => {
  const half = (to.x - from.x) / 2;
  return ` C${from.x + half} ${from.y} ${to.x - half} ${to.y} ${to.x} ${to.y}`;
};

function cut(text, width) {
  const most = Math.floor(width / LETTER);
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}

function legend() {
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
    entry("change", "creates or deletes"),
    entry("read", "reads"),
    el("li", { class: "hint" }, "rates over the last 5 s"),
  );
}
