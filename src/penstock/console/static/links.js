// The lines of the dataflow graph: who does what to whom, one for each kind, source and target.

/** The name of the place that requests come from. */
export const OUTSIDE = "";

const VERBS = {
  call: "calls",
  read: "reads",
  write: "writes",
  create: "creates",
  delete: "deletes",
  exists: "asks for",
};
const KINDS = {
  call: "call",
  read: "read",
  write: "read",
  create: "change",
  delete: "change",
  exists: "read",
};

const textOf = ({ operator, member }) => (operator === member ? member : `${operator}.${member}`);

/** Return what a reader takes for one line of the graph: same source, same target, same kind. */
export function linksOf(plan) {
  const links = new Map();
  for (const edge of plan.edges) {
    const own = edge.source.operator === edge.target.operator && edge.origin === "self";
    if (own) continue;
    const kind = KINDS[edge.action];
    const member = kind === "read" ? edge.action : edge.target.member; // of many attributes one line
    const name = `${textOf(edge.source)}>${textOf({ operator: edge.target.operator, member })}`;
    const link = links.get(name) ?? {
      name,
      kind,
      verb: VERBS[edge.action],
      from: edge.source.operator,
      to: edge.target.operator,
      fromRow: edge.source.member,
      toRow: kind === "call" ? edge.target.member : null,
      says: [],
    };
    const how = [
      edge.dynamic ? "known only by the run" : "",
      edge.looped ? "in a loop" : "",
      edge.conditional ? "perhaps" : "",
    ];
    const target =
      kind === "read" ? textOf(edge.target) : textOf({ operator: edge.target.operator, member });
    const line = [
      `${textOf(edge.source)} ${VERBS[edge.action]} ${target}`,
      ...how.filter(Boolean),
    ].join(", ");
    link.says.push(`${line} (${edge.where.file}:${edge.where.line})`);
    links.set(name, link);
  }
  return [...links.values()];
}

/**
 * Return lines for requests: one to each operator, and one to each method that a request can name.
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
    says: [`Requests from outside to ${name}`],
    quiet,
  });
  return plan.operators.flatMap(({ name, key, methods }) => [
    entry(name, name, null, called.has(name)),
    ...(key ? methods : [])
      .filter((method) => !method.name.startsWith("_"))
      .map((method) => entry(`${name}.${method.name}`, name, method.name, true)),
  ]);
}
