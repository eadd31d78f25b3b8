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

/** Return lines from outside to every operator; quiet where others call it too, until it is used. */
export function entriesOf(plan, links) {
  const called = new Set(links.filter((link) => link.from !== link.to).map((link) => link.to));
  return plan.operators.map(({ name }) => ({
    name: `>${name}`,
    kind: "call",
    from: OUTSIDE,
    to: name,
    fromRow: null,
    toRow: null,
    says: [`Requests from outside to ${name}`],
    quiet: called.has(name),
  }));
}
