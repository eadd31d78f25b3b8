// The list of requests: newest first, a page at a time, filtered, and live if that is wanted.

import { sql } from "./api.js";
import { el, empty, problem, show } from "./dom.js";
import { count, plural } from "./format.js";
import { live } from "./live.js";
import { RequestFilter } from "./request_filter.js";
import { argumentsOf, callOf, idOf, outcomeOf } from "./request_cells.js";
import { dataTable } from "./table.js";
import { microsecondsOf, shortMoment } from "./times.js";
import { between, button, row, tick } from "./widgets.js";

const PAGE = 25;
const ARGUMENTS_SHOWN = 600;
const MESSAGE_SHOWN = 200;
const COLUMNS = [
  ["Time", "short"],
  ["Call", "call"],
  ["Arguments", "text"],
  ["Outcome", "outcome"],
  ["Request id", "id"],
  ["Epoch", "epoch"],
];
const CODES = `
  SELECT error FROM penstock.replies WHERE error IS NOT NULL
  GROUP BY error ORDER BY count(*) DESC, error LIMIT 20`;

/**
 * Return the query of a page.
 *
 * `place` is where the page begins: `{before: [epoch, lsn]}`, `{after: …}`, or `{}` for the newest.
 * A page has one row more than it shows, which tells whether another page follows. The first part
 * reads narrow columns only, so that a page costs the same whatever the arguments hold. Requests that
 * handlers have sent have the position of their parent, so its page lists them.
 */
export function queryOf(conditions, { before, after }) {
  const all = ["parent IS NULL", ...conditions];
  if (before) all.push(`(epoch, lsn) < (${before.join(", ")})`);
  if (after) all.push(`(epoch, lsn) > (${after.join(", ")})`);
  const where = `\n  WHERE ${all.join("\n    AND ")}`;
  const order = after ? "epoch, lsn" : "epoch DESC, lsn DESC";
  return `WITH found AS (
  SELECT epoch, lsn, request_id FROM penstock.requests${where}
  ORDER BY ${order} LIMIT ${PAGE + 1})
SELECT r.time, r.entity, r.key, r.method, left(r.arguments, ${ARGUMENTS_SHOWN}) AS arguments,
  a.error, a.kind, left(a.message, ${MESSAGE_SHOWN}) AS message, request_id, epoch, lsn
FROM found JOIN penstock.requests AS r USING (epoch, lsn, request_id)
  JOIN penstock.replies AS a USING (epoch, lsn, request_id)
ORDER BY epoch DESC, lsn DESC`;
}

/** The list with its filter. `path` is its address, to which the fields are added. */
export class RequestList {
  #path;
  #shown;
  #filter;
  #live;
  #place;
  #operators;
  #list = el("div", { id: "recent", class: "stack" }, el("p", { class: "waiting" }, "Asking the SQL view …"));
  #told = el("p", { role: "status" });
  #query = el("a", { href: "#/sql" }, "This list as SQL");
  #asked = 0;
  #epoch = null;
  #loading = false;
  #isAwaited = false;

  /** Begin with the fields of an address; `fixed` are fields of the filter that cannot be changed, with their values. */
  constructor(path, search, operators, codes, fixed = {}) {
    this.#path = path;
    this.#shown = search.get("show");
    this.#operators = new Map(operators.map((operator) => [operator.name, operator]));
    this.#filter = new RequestFilter(search, { operators, codes, fixed }, () => this.#turn({}));
    this.#live = tick("Live: show new requests as they come", search.has("live"), () =>
      this.#turn({}),
    );
    this.#place = placeOf(search);
    this.element = el(
      "section",
      { "aria-label": fixed.outcome ? "All failed requests" : "Recent requests", class: "stack" },
      fixed.outcome ? el("h2", {}, "All failed requests") : null,
      this.#filter.element,
      between(row(this.#live.element, this.#told), row(this.#query, button("Refresh", () => this.load()))),
      this.#list,
    );
  }

  /** Follow the application; returns the function that ends it. */
  follow() {
    const change = () => {
      const isNew = (live.status?.view_epoch ?? this.#epoch) !== this.#epoch;
      const isWanted = this.#isAwaited || (this.#live.input.checked && !isMarked(this.#list));
      if (isWanted && isNew && !this.#loading) this.load();
    };
    live.addEventListener("change", change);
    return () => {
      live.removeEventListener("change", change);
      this.#filter.close();
      this.#asked += 1; // an answer that is on its way is not shown
    };
  }

  /** Ask for the page once more when the view has a new epoch. */
  loadNext() {
    this.#isAwaited = true;
  }

  /** Ask for the page that is wanted now; an answer that comes too late is not shown. */
  async load() {
    this.#isAwaited = false;
    this.#asked += 1;
    const mine = this.#asked;
    const query = queryOf(this.#filter.conditions, this.#place);
    this.#remember();
    this.#query.setAttribute("href", `#/sql?${new URLSearchParams({ q: query })}`);
    this.#loading = true;
    let found, failure;
    try {
      found = await sql(query);
    } catch (one) {
      failure = one;
    }
    if (mine !== this.#asked) return;
    this.#loading = false;
    if (failure) this.#showFailure(failure);
    else if (this.#place.after && found.rows.length <= PAGE) this.#turn({});
    else this.#show(found);
  }

  #turn(place) {
    this.#place = place;
    if (place.before || place.after) this.#live.input.checked = false;
    this.load();
  }

  #remember() {
    const fields = new URLSearchParams(this.#shown ? { show: this.#shown } : {});
    for (const [name, text] of Object.entries(this.#filter.chosen)) fields.set(name, text);
    for (const [name, place] of Object.entries(this.#place)) fields.set(name, place.join("."));
    if (this.#live.input.checked) fields.set("live", "yes");
    history.replaceState(null, "", fields.size ? `${this.#path}?${fields}` : this.#path);
  }

  #showFailure(failure) {
    this.#told.textContent = "";
    show(this.#list, problem(failure));
  }

  #show({ rows, epoch }) {
    const hasMore = rows.length > PAGE;
    const { before, after } = this.#place;
    const shown = after ? rows.slice(-PAGE) : rows.slice(0, PAGE);
    const told = `${plural(shown.length, "request")} at epoch ${count(epoch)}`;
    this.#epoch = epoch;
    if (!this.#live.input.checked || !shown.length) this.#told.textContent = told;
    else this.#told.textContent = "Live: the newest requests are first.";
    const held = document.activeElement;
    const link = this.#list.contains(held) ? held.getAttribute("href") : null;
    const turns = () => [
      button("Newest", () => this.#turn({}), { disabled: !before && !after }),
      button("Newer", () => this.#turn({ after: shown[0].slice(-2) }), {
        disabled: !before && !(after && hasMore),
      }),
      button("Older", () => this.#turn({ before: shown.at(-1).slice(-2) }), {
        disabled: !after && !hasMore,
      }),
    ];
    show(this.#list, shown.length ? [this.#table(shown), row(turns())] : this.#nothing());
    // A row that moved down under the reader keeps the focus.
    if (link) [...this.#list.querySelectorAll("a")].find((one) => one.getAttribute("href") === link)?.focus();
  }

  #table(rows) {
    return dataTable({
      caption: "Requests, the newest first",
      columns: COLUMNS.map(([name, part]) => ({ name, part, cell: (node) => node, numeric: name === "Epoch" })),
      lined: true,
      rows: rows.map((row) => this.#cells(row)),
    });
  }

  #cells([time, entity, key, method, held, error, kind, message, id, epoch, lsn]) {
    const operator = this.#operators.get(entity ?? method);
    const names = new Set([...this.#operators.values()].filter((one) => one.key).map((one) => one.name));
    return [
      shortMoment(microsecondsOf(time)),
      callOf({ entity, key, method }, operator),
      argumentsOf(held, { cut: held?.length >= ARGUMENTS_SHOWN, method, operator, names }),
      outcomeOf({ error, kind, message }),
      idOf(id),
      el("span", { title: `position ${lsn} in the log` }, count(epoch)),
    ];
  }

  #nothing() {
    if (Object.keys(this.#filter.chosen).length)
      return empty(
        "No such request is in the SQL view.",
        "Clear a filter. The view keeps the newest requests, as many as view.requests_max says.",
      );
    const trying = el("a", { href: "#/try" }, "Try it");
    return empty("No request has been processed yet.", "Send one from ", trying, ".");
  }
}

/** Return the codes of errors that the view holds, the most frequent first. */
export async function codesHeld() {
  try {
    return (await sql(CODES)).rows.map(([code]) => code);
  } catch {
    return []; // the list itself says what is wrong
  }
}

/** Read where a page begins from `before=epoch.lsn` or `after=epoch.lsn`. */
function placeOf(search) {
  for (const name of ["before", "after"]) {
    const found = /^(\d{1,15})\.(\d{1,15})$/.exec(search.get(name) ?? "");
    if (found) return { [name]: found.slice(1).map(Number) };
  }
  return {};
}

/** Say whether a part of a place is selected. */
function isMarked(place) {
  const marked = getSelection();
  return !marked.isCollapsed && place.contains(marked.anchorNode);
}
