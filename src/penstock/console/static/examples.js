// Queries that an application's entities can answer, made from its plan.

import { quoted } from "./api.js";

const NUMBERS = ["int", "float", "Decimal"];
const MOST = 10;

/** Return pairs of name and query. */
export function examplesOf(plan) {
  const classes = plan.operators.filter((operator) => operator.key);
  const found = [
    ...classes.map(allOf),
    ...classes.flatMap(distributionOf),
    ...classes.flatMap((each) => joinOf(each, classes)),
  ];
  return [...found.slice(0, MOST - 1), RECENT];
}

const RECENT = [
  "newest requests",
  "SELECT *\nFROM penstock.requests\nORDER BY epoch DESC\nLIMIT 50",
];

const allOf = ({ name, key }) => [
  `all of ${name}`,
  `SELECT *\nFROM ${quoted(name)}\nORDER BY ${quoted(key.name)}\nLIMIT 50`,
];

function distributionOf({ name, attributes }) {
  const number = attributes.find((attribute) => NUMBERS.includes(attribute.type));
  if (!number) return [];
  const column = quoted(number.name);
  const query = `SELECT ${column}, count(*) AS entities\nFROM ${quoted(name)}\nGROUP BY ${column}`;
  return [[`${name} by ${number.name}`, `${query}\nORDER BY ${column}\nLIMIT 200`]];
}

function joinOf({ name, attributes }, classes) {
  const others = classes.filter((each) => each.name !== name);
  const reference = attributes.find((attribute) => others.some((other) => other.name === attribute.type));
  if (!reference) return [];
  const other = others.find((other) => other.name === reference.type);
  const join = `JOIN ${quoted(other.name)} AS b ON a.${quoted(reference.name)} = b.${quoted(other.key.name)}`;
  return [[`${name} with ${other.name}`, `SELECT *\nFROM ${quoted(name)} AS a\n${join}\nLIMIT 50`]];
}
