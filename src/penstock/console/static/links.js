// The lines of the dataflow graph: who does what to whom, one for each kind, source and target.

/** The name of the place that requests come from. */
export const OUTSIDE = "";

/** The name of the operator that the source does not tell. */
export const UNKNOWN = "?";

const VERBS = {
  call: "calls",
  read: "reads",
  write: "writes",
  create: "creates",
  delete: "deletes",
  exists: "asks for",
  find: "finds by",
  emit: "emits to",
  send: "sends",
  ask: "asks",
  reply: "reaches",
  feed: "feeds",
};
const KINDS = {
  call: "call",
  read: "read",
  write: "change",
  create: "change",
  delete: "change",
  exists: "read",
  find: "read",
  emit: "feed",
  send: "call",
  ask: "ask",
  reply: "ask",
  feed: "feed",
};
const PATH = /^(generator|stream|workflow|splitter|sequencer|portal)s\/(.*)$/;

const textOf = ({ operator, member }) => (operator === member ? member : `${operator}.${member}`);

/** Return an end of a line as a person says it: `stream orders`, `task digest.Desk`, `Item.add`. */
function wordsOf(end) {
  const [, kind, name] = PATH.exec(end.operator) ?? [];
  if (!kind) return textOf(end);
  if (end.operator === end.member) return `${kind} ${name}`;
  const [, , stream] = PATH.exec(end.member) ?? [];
  return stream ? `stream ${stream}` : `task ${name}.${end.member}`;
}

/** Return what a reader takes for one line of the graph: same source, same target, same kind. */
export function linksOf(plan) {
  const links = new Map();
  for (const edge of plan.edges) {
    const own = edge.source.operator === edge.target.operator && edge.origin === "self";
    if (own) continue;
    const kind = KINDS[edge.action];
    const isOfAttributes = kind === "read" || edge.action === "write";
    const member = isOfAttributes ? edge.action : edge.target.member; // of many attributes one line
    const name = `${textOf(edge.source)}>${textOf({ operator: edge.target.operator, member })}`;
    const link = links.get(name) ?? {
      name,
      kind,
      verb: VERBS[edge.action],
      from: edge.source.operator,
      to: edge.target.operator,
      fromRow: edge.source.member,
      toRow: kind === "change" || kind === "read" ? null : edge.target.member,
      stream: kind === "feed" ? streamOf(edge) : null,
      ends: [wordsOf(edge.source), wordsOf({ operator: edge.target.operator, member })],
      says: [],
    };
    const how = [
      edge.dynamic ? "known only by the run" : "",
      edge.looped ? "in a loop" : "",
      edge.conditional ? "perhaps" : "",
    ];
    const target =
      isOfAttributes ? textOf(edge.target) : wordsOf({ operator: edge.target.operator, member });
    const line = [
      `${wordsOf(edge.source)} ${VERBS[edge.action]} ${target}`,
      ...how.filter(Boolean),
    ].join(", ");
    link.says.push(`${line} (${edge.where.file}:${edge.where.line})`);
    links.set(name, link);
  }
  return [...links.values(), ...plan.views.flatMap(feedsOf)];
}

/** Return a line from each operator to each table of a view that it feeds. */
function feedsOf(view) {
  const lines = view.tables.flatMap((table) => table.sources.map((source) => ({ table, source })));
  return lines.map(({ table, source }) => {
    const target = `table ${view.name}.${table.name}`;
    const where = `${table.where.file}:${table.where.line}`;
    return {
      name: `${textOf(source)}>${view.path}.${table.name}`,
      kind: "feed",
      verb: VERBS.feed,
      from: source.operator,
      to: view.path,
      fromRow: source.member,
      toRow: table.name,
      stream: PATH.test(source.operator) ? source.member.replace(/^sequencers/, "streams") : null,
      ends: [wordsOf(source), target],
      says: [`${wordsOf(source)} feeds ${target} (${where})`],
    };
  });
}

/** Return the path of the stream whose atoms take a line. */
function streamOf({ action, source, target }) {
  const isSource = action === "emit" || source.operator.startsWith("generators/");
  return isSource ? target.operator : source.member.replace(/^sequencers/, "streams");
}

/**
 * Return lines from outside: one to each operator, to each method that a request can name, and to each stream that
 * takes appends.
 *
 * A quiet line is drawn only while requests take it. The line to an operator stands for the requests
 * that create or delete; it is always drawn if there is no other line to the operator.
 */
export function entriesOf(plan, links) {
  const called = new Set(links.filter((link) => link.from !== link.to).map((link) => link.to));
  const entry = (name, to, toRow, quiet) => ({
    name: `>${name}`,
    kind: "call",
    verb: VERBS.call,
    from: OUTSIDE,
    to,
    fromRow: null,
    toRow,
    stream: null,
    ends: ["a request", name],
    says: [`Requests from outside to ${name}`],
    quiet,
  });
  const appends = plan.stream_operators
    .filter(({ kind }) => kind === "stream")
    .map(({ path, name }) => ({
      ...entry(path, path, null, called.has(path)),
      kind: "feed",
      verb: "appends to",
      ends: ["a request", `stream ${name}`],
      says: [`Appends from outside to stream ${name}`],
    }));
  const requests = plan.operators.flatMap(({ name, key, methods }) => [
    entry(name, name, null, called.has(name)),
    ...(key ? methods : [])
      .filter((method) => !method.is_property && !method.name.startsWith("_"))
      .map((method) => entry(`${name}.${method.name}`, name, method.name, true)),
  ]);
  return [...requests, ...appends];
}
