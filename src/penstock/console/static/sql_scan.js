// Reads a query that is being written: its words, its tables with their short names, what the caret is in.

import { FUNCTIONS, KEYWORDS, nameText } from "./sql_words.js";

const TOKEN =
  /--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)|'(?:[^']|'')*(?:'|$)|"(?:[^"]|"")*(?:"|$)|[\p{L}_][\p{L}\p{N}_]*|\d[\w.]*|\s+|./gu;
const NAME = /^["\p{L}_]/u;
const BEFORE_TABLE = new Set(["from", "join", "describe", "summarize", "into"]);
const AFTER_TABLE = new Set(
  `where group order having limit offset join left right full inner cross natural on using union except
  intersect qualify window as select positional asof sample`.split(/\s+/),
);
const SUGGESTIONS_MAX = 40;

/** Return the tokens of a query: `{text, from, to}`. */
export function tokensOf(text) {
  return [...text.matchAll(TOKEN)].map(({ 0: found, index }) => ({
    text: found,
    from: index,
    to: index + found.length,
  }));
}

const isSpace = ({ text }) => /^(\s|--|\/\*)/.test(text);
const isName = (token) => token !== undefined && NAME.test(token.text);
const bare = (text) => text.replace(/^"/, "").replace(/"$/, "").replaceAll('""', '"');
const same = (one, other) => one.toLowerCase() === other.toLowerCase();

/**
 * Return the tables that a query names: `{schema, name, alias}`.
 *
 * A table stands behind FROM or JOIN, or behind the comma after another table.
 */
export function tablesIn(text) {
  const words = tokensOf(text).filter((each) => !isSpace(each));
  const tables = [];
  let expects = false;
  for (let at = 0; at < words.length; at += 1) {
    const word = words[at].text.toLowerCase();
    if (BEFORE_TABLE.has(word)) expects = true;
    else if (expects && isName(words[at])) {
      const read = tableAt(words, at);
      tables.push(read.table);
      at = read.last;
      expects = words[at + 1]?.text === ",";
      if (expects) at += 1;
    } else expects = false;
  }
  return tables;
}

function tableAt(words, start) {
  let last = start;
  let schema = "";
  if (words[last + 1]?.text === "." && isName(words[last + 2])) {
    schema = bare(words[last].text);
    last += 2;
  }
  const name = bare(words[last].text);
  let alias = "";
  const next = words[last + 1]?.text.toLowerCase();
  if (next === "as" && isName(words[last + 2]) && !same(words[last + 2].text, "of")) {
    alias = bare(words[last + 2].text);
    last += 2;
  } else if (isName(words[last + 1]) && !AFTER_TABLE.has(next)) {
    alias = bare(words[last + 1].text);
    last += 1;
  }
  return { table: { schema, name, alias }, last };
}

/** Return the tables of a schema that a query names, each with its short name. */
function known(text, schema) {
  return tablesIn(text).flatMap(({ schema: given, name, alias }) => {
    const table = schema.find(
      (each) => same(each.name, name) && (given === "" || same(each.schema, given)),
    );
    return table ? [{ table, alias: alias || name }] : [];
  });
}

/**
 * Return what fits at the caret: `{from, items}`, or null in a string, a comment or a number.
 *
 * `schema` is a list of `{schema, name, columns: [{name, type}]}`. Each item has the text that is
 * written, `name` and `kind` for the list. With `wanted`, an empty word gets suggestions, too.
 */
export function suggestionsAt(text, caret, schema, wanted = false) {
  const before = tokensOf(text.slice(0, caret));
  const last = before.at(-1);
  const isWord = last !== undefined && isName(last) && !/^".*"$/s.test(last.text);
  if (last !== undefined && /^('|--|\/\*|\d)/.test(last.text)) return null;
  const typed = isWord ? bare(last.text) : "";
  const rest = (isWord ? before.slice(0, -1) : before).filter((one) => !isSpace(one));
  const from = isWord ? last.from : caret;
  const owner = rest.at(-1)?.text === "." ? bare(rest.at(-2)?.text ?? "") : null;
  const isNewName = rest.at(-1)?.text.toLowerCase() === "as";
  if (!wanted && (isNewName || (!typed && owner === null))) return null;
  const candidates =
    owner === null
      ? all(text, schema, BEFORE_TABLE.has(rest.at(-1)?.text.toLowerCase()))
      : ownedBy(owner, text, schema);
  const items = ranked(candidates, typed).slice(0, SUGGESTIONS_MAX);
  const isDone = items.length === 1 && typed !== "" && same(items[0].text, text.slice(from, caret));
  return items.length && !isDone ? { from, items } : null;
}

/** Return what may follow `owner.`: columns of a table, or tables of a schema. */
function ownedBy(owner, text, schema) {
  const named = known(text, schema).filter(({ alias }) => same(alias, owner));
  const tables = named.length ? named.map((each) => each.table) : schema.filter((each) => same(each.name, owner));
  const inside = schema.filter((each) => same(each.schema, owner)).map((one) => tableItem(one, false));
  return [...tables.flatMap((table) => table.columns.map(columnItem)), ...inside];
}

function all(text, schema, isTable) {
  const tables = schema.map((each) => tableItem(each, true));
  if (isTable) return tables;
  const used = known(text, schema);
  const columns = used.flatMap(({ table }) => table.columns.map(columnItem));
  const aliases = used
    .filter(({ table, alias }) => !same(alias, table.name))
    .map(({ table, alias }) => ({ text: nameText(alias), name: alias, kind: `alias of ${table.name}` }));
  return [
    ...columns.filter((one, at) => columns.findIndex((other) => other.text === one.text) === at),
    ...aliases,
    ...tables,
    ...KEYWORDS.map((each) => ({ text: each, name: each, kind: "keyword" })),
    ...FUNCTIONS.map((one) => ({ text: `${one}(`, name: `${one}()`, kind: "function" })),
  ];
}

const columnItem = ({ name, type }) => ({ text: nameText(name), name, kind: type });

function tableItem({ schema, name }, isFull) {
  const prefix = isFull && schema !== "main" ? `${nameText(schema)}.` : "";
  return { text: prefix + nameText(name), name: prefix + name, kind: "table" };
}

/** Return the candidates that begin with a word, then those with a part that begins with it. */
function ranked(candidates, typed) {
  const word = typed.toLowerCase();
  const rank = ({ name }) => {
    const found = name.toLowerCase();
    if (found.startsWith(word)) return 0;
    return found.split(/[_.\s]/).some((part) => part.startsWith(word)) ? 1 : 2;
  };
  return candidates
    .map((candidate) => [rank(candidate), candidate])
    .filter(([at]) => at < 2)
    .sort(([one], [other]) => one - other)
    .map(([, one]) => one);
}
