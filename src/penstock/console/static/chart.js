// Charts as SVG: lines over time, stacked bars, bars by category. Each can be read with the mouse,
// with arrow keys, and as a table.

import { el, show, svg } from "./dom.js";
import { clock, short } from "./format.js";
import { dataTable } from "./table.js";

const LEFT = 52;
const RIGHT = 14;
const TOP = 12;
const BOTTOM = 26;
const BAR_MAX = 44;

/** Return rounded positions from 0 (or the least) to the greatest or more, `finest` apart or more. */
export function ticks(least, greatest, finest = 0, wanted = 4) {
  const low = Math.min(0, least);
  const span = greatest - low || 1;
  const rough = span / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(finest, power * [1, 2, 5, 10].find((one) => one * power >= rough));
  const found = [];
  for (
    let at = Math.floor(low / step) * step;
    at < greatest + step * 0.999 || found.length < 2;
    at += step
  )
    found.push(Number(at.toPrecision(12)));
  return found;
}

/**
 * A chart that is given its data by `update`.
 *
 * `kind` is `line`, `stack` (bars on each other) or `bar`; `x` is `time`, `number` or `category`;
 * `across` names the values of `x`. The key names the series, if there are several or if they are `named`.
 * Data: `{points: [x…], series: [{name, values: [y or null…]}]}`.
 */
export class Chart {
  #options;
  #data = { points: [], series: [] };
  #at = -1;
  #width = 600;
  #canvas = el("div", { class: "canvas", tabindex: 0, role: "img" });
  #tip = el("div", { class: "tip", hidden: true });
  #spoken = el("p", { class: "hidden", "aria-live": "polite" });
  #key = el("ul", { class: "chart-key" });
  #table = el("details", { class: "as-table" }, el("summary", {}, "As a table"));

  constructor({
    title,
    unit = "",
    finest = 0,
    kind = "line",
    x = "time",
    across = "Time",
    format = short,
    height = 190,
    note = "",
    nothing = "Nothing to show yet.",
    named = false,
  }) {
    this.#options = { title, finest, kind, x, across, format, height, nothing, named };
    this.element = el(
      "figure",
      { class: "chart" },
      el(
        "figcaption",
        {},
        el("h2", {}, title),
        unit ? el("span", { class: "unit" }, unit) : null,
        note ? el("p", { class: "hint" }, note) : null,
      ),
      this.#key,
      el("div", { class: "canvas-frame" }, this.#canvas, this.#tip),
      this.#spoken,
      this.#table,
    );
    this.#canvas.addEventListener("pointermove", (event) => this.#point(this.#nearest(event)));
    this.#canvas.addEventListener("pointerleave", () => this.#point(-1));
    this.#canvas.addEventListener("blur", () => this.#point(-1));
    this.#canvas.addEventListener("keydown", (event) => this.#steer(event));
    this.#table.addEventListener("toggle", () => this.#fillTable());
    new ResizeObserver(([entry]) => {
      const width = Math.round(entry.contentRect.width);
      if (width && width !== this.#width) {
        this.#width = width;
        this.#draw();
      }
    }).observe(this.#canvas);
  }

  /** Show these data. */
  update(data) {
    this.#data = data;
    this.#draw();
    this.#fillTable();
  }

  #xText(x) {
    return this.#options.x === "time" ? clock(x) : String(x);
  }

  #nearest(event) {
    const place =
      (event.clientX - this.#canvas.getBoundingClientRect().left - LEFT) / this.#plotWidth();
    const { points } = this.#data;
    let best = -1;
    points.forEach((point, index) => {
      if (best < 0 || Math.abs(this.#share(index) - place) < Math.abs(this.#share(best) - place))
        best = index;
    });
    return best;
  }

  #steer(event) {
    const last = this.#data.points.length - 1;
    const at = this.#at < 0 ? last : this.#at;
    const to = { ArrowLeft: at - (this.#at < 0 ? 0 : 1), ArrowRight: at + 1, Home: 0, End: last }[
      event.key
    ];
    if (to === undefined || last < 0) return;
    event.preventDefault();
    this.#point(Math.max(0, Math.min(last, to)));
    this.#spoken.textContent = this.#words(this.#at).join(", ");
  }

  #words(index) {
    const { points, series } = this.#data;
    const { format } = this.#options;
    return [
      this.#xText(points[index]),
      ...series.map(
        (curve) => `${curve.name} ${curve.values[index] === null ? "–" : format(curve.values[index])}`,
      ),
    ];
  }

  #plotWidth() {
    return Math.max(40, this.#width - LEFT - RIGHT);
  }

  /** Return where a point lies between left (0) and right (1). */
  #share(index) {
    const { points } = this.#data;
    if (this.#options.kind !== "line") return (index + 0.5) / points.length;
    if (this.#options.x === "category")
      return points.length < 2 ? 0.5 : index / (points.length - 1);
    const [first, last] = [points[0], points.at(-1)];
    return last === first ? 0.5 : (points[index] - first) / (last - first);
  }

  #draw() {
    const { points, series } = this.#data;
    const { height, title, nothing } = this.#options;
    this.#canvas.setAttribute(
      "aria-label",
      `${title}: ${points.length ? "use the arrow keys to read values" : nothing}`,
    );
    if (!points.length) {
      show(this.#key);
      show(this.#canvas, el("p", { class: "nothing" }, nothing));
      return;
    }
    const drawing = svg("svg", {
      viewBox: `0 0 ${this.#width} ${height}`,
      width: this.#width,
      height,
      "aria-hidden": true,
    });
    drawing.append(
      ...this.#axes(),
      ...(this.#options.kind === "line" ? this.#lines() : this.#bars()),
    );
    show(this.#canvas, drawing);
    show(
      this.#key,
      series.length > 1 || this.#options.named
        ? series.map((one, index) => el("li", {}, swatch(index, this.#options.kind), one.name))
        : null,
    );
    if (this.#at >= 0) this.#point(Math.min(this.#at, points.length - 1));
  }

  #scale() {
    const { points, series } = this.#data;
    const values =
      this.#options.kind === "stack"
        ? points.map((_, at) => series.reduce((sum, one) => sum + (one.values[at] ?? 0), 0))
        : series.flatMap((curve) => curve.values.filter((value) => value !== null));
    const marks = ticks(Math.min(0, ...values), Math.max(0, ...values) || 1, this.#options.finest);
    const room = this.#options.height - TOP - BOTTOM;
    const [low, high] = [marks[0], marks.at(-1)];
    return { marks, y: (value) => TOP + room * (1 - (value - low) / (high - low)) };
  }

  #x(index) {
    return LEFT + this.#share(index) * this.#plotWidth();
  }

  #axes() {
    const { marks, y } = this.#scale();
    const { format, height } = this.#options;
    const across = marks.flatMap((mark) => [
      svg("line", {
        class: mark === 0 ? "base" : "grid",
        x1: LEFT,
        x2: this.#width - RIGHT,
        y1: y(mark),
        y2: y(mark),
      }),
      svg(
        "text",
        { class: "tick", x: LEFT - 8, y: y(mark) + 4, "text-anchor": "end" },
        format(mark),
      ),
    ]);
    const { points } = this.#data;
    const longest = Math.max(...points.map((point) => this.#xText(point).length));
    const room = Math.min(longest, 14) * 8 + 18;
    let free = 0;
    const below = points.flatMap((point, index) => {
      if (this.#x(index) < free) return [];
      free = this.#x(index) + room * (index ? 1 : 1.5);
      const text = this.#xText(point);
      const shown = text.length > 14 ? `${text.slice(0, 13)}…` : text;
      const anchor =
        this.#share(index) > 0.97 ? "end" : this.#share(index) < 0.03 ? "start" : "middle";
      return [
        svg(
          "text",
          { class: "tick", x: this.#x(index), y: height - 7, "text-anchor": anchor },
          shown,
        ),
      ];
    });
    return [...across, ...below];
  }

  #lines() {
    const { y } = this.#scale();
    return this.#data.series.flatMap((one, index) => {
      let pen = "M";
      const path = one.values
        .map((value, at) => {
          if (value === null) {
            pen = "M";
            return "";
          }
          const step = `${pen}${this.#x(at).toFixed(1)} ${y(value).toFixed(1)}`;
          pen = "L";
          return step;
        })
        .join("");
      const dots =
        one.values.filter((value) => value !== null).length <= 24
          ? one.values.flatMap((value, at) =>
              value === null
                ? []
                : [
                    svg("circle", {
                      class: `series-${index} dot`,
                      cx: this.#x(at),
                      cy: y(value),
                      r: 2.6,
                    }),
                  ],
            )
          : [];
      return [svg("path", { class: `series-${index} line`, d: path }), ...dots];
    });
  }

  #bars() {
    const { points, series } = this.#data;
    const { y } = this.#scale();
    const slot = this.#plotWidth() / points.length;
    const wide = Math.min(BAR_MAX, Math.max(1, slot * (slot > 6 ? 0.76 : 1)));
    const stacked = this.#options.kind === "stack";
    return points.flatMap((_, at) => {
      let level = 0;
      return series.map((one, index) => {
        const value = one.values[at] ?? 0;
        const [from, to] = stacked ? [level, level + value] : [0, value];
        if (stacked) level = to;
        const each = stacked ? wide : wide / series.length;
        const x = this.#x(at) - wide / 2 + (stacked ? 0 : index * each);
        return svg("rect", {
          class: `series-${index} bar`,
          x: x.toFixed(2),
          width: each.toFixed(2),
          y: Math.min(y(from), y(to)).toFixed(2),
          height: Math.abs(y(from) - y(to)).toFixed(2),
        });
      });
    });
  }

  /** Mark a point and name its values; -1 marks none. */
  #point(index) {
    this.#at = index;
    this.#canvas.querySelector(".cursor")?.remove();
    this.#tip.hidden = index < 0 || index >= this.#data.points.length;
    if (this.#tip.hidden) return;
    const x = this.#x(index);
    this.#canvas
      .querySelector("svg")
      ?.append(
        svg("line", { class: "cursor", x1: x, x2: x, y1: TOP, y2: this.#options.height - BOTTOM }),
      );
    const { format, kind } = this.#options;
    show(
      this.#tip,
      el("p", { class: "tip-x" }, this.#xText(this.#data.points[index])),
      el(
        "ul",
        {},
        this.#data.series.map((one, at) =>
          el(
            "li",
            {},
            swatch(at, kind),
            `${one.name} `,
            el("b", {}, one.values[index] === null ? "–" : format(one.values[index])),
          ),
        ),
      ),
    );
    const right = x > this.#width / 2;
    this.#tip.style.left = right ? "auto" : `${x + 12}px`;
    this.#tip.style.right = right ? `${this.#width - x + 12}px` : "auto";
  }

  #fillTable() {
    this.#table.hidden = !this.#data.points.length;
    if (!this.#table.open) return;
    const { series, points } = this.#data;
    const { across, title, format } = this.#options;
    const columns = [
      { name: across },
      ...series.map((curve) => ({
        name: curve.name,
        numeric: true,
        cell: (value) => (value === null ? "–" : format(value)),
      })),
    ];
    const rows = points.map((point, at) => [
      this.#xText(point),
      ...series.map((curve) => curve.values[at]),
    ]);
    const focused =
      this.#table.contains(document.activeElement) &&
      document.activeElement.classList.contains("table-scroll");
    const table = dataTable({
      columns,
      rows: rows.slice(-200).reverse(),
      caption: title,
      rowHead: true,
    });
    show(this.#table, this.#table.firstElementChild, table);
    if (focused) table.focus();
  }
}

const swatch = (index, kind) =>
  svg(
    "svg",
    { width: 18, height: 10, "aria-hidden": true },
    kind === "line"
      ? svg("path", { class: `series-${index} line`, d: "M0 5 H18" })
      : svg("rect", { class: `series-${index} bar`, width: 12, height: 10, x: 3 }),
  );
