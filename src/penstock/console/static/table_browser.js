// The tables that a query can read, with their columns; a click writes a name into the query.

import { sql } from "./api.js";
import { el } from "./dom.js";
import { plural } from "./format.js";
import { nameText } from "./sql_words.js";

const COLUMNS = `
  SELECT table_schema, table_name, column_name, data_type FROM information_schema.columns
  WHERE table_schema IN ('main', 'tasks', 'streams', 'penstock')
  ORDER BY list_position(['main', 'tasks', 'streams', 'penstock'], table_schema), table_name, ordinal_position`;

/** Read all tables: `{schema, name, columns: [{name, type}]}`, those of the entities first, then those of tasks and streams. */
export async function readTables() {
  return tablesOf((await sql(COLUMNS)).rows);
}

/** Return the tables of rows of schema, table, column and type; `main` has short names of others. */
export function tablesOf(rows) {
  const tables = new Map();
  for (const [schema, name, column, type] of rows) {
    const known = tables.get(`${schema}.${name}`) ?? { schema, name, columns: [] };
    known.columns.push({ name: column, type: type.toLowerCase() });
    tables.set(`${schema}.${name}`, known);
  }
  const isCopy = ({ schema, name, columns }) => {
    const other = schema === "main" ? tables.get(`penstock.${name}`) : undefined;
    return other !== undefined && String(other.columns.map((column) => column.name)) === String(columns.map((column) => column.name));
  };
  return [...tables.values()].filter((one) => !isCopy(one));
}

/** Return the browser's node; `onname` is called with a name as a query writes it. */
export function tableBrowser(tables, onname) {
  const name = (text, written) =>
    el(
      "button",
      { type: "button", class: "name-button", title: `Write ${written}`, onclick: () => onname(written) },
      text,
    );
  const item = ({ schema, name: table, columns }) => {
    const prefix = schema === "main" ? "" : `${schema}.`;
    return el(
      "li",
      {},
      name(prefix + table, prefix + nameText(table)),
      el(
        "details",
        {},
        el("summary", {}, plural(columns.length, "column"), el("span", { class: "hidden" }, ` of ${table}`)),
        el(
          "ul",
          {},
          columns.map((column) =>
            el("li", {}, name(column.name, nameText(column.name)), el("span", { class: "type" }, column.type)),
          ),
        ),
      ),
    );
  };
  return el("ul", { class: "tables" }, tables.map(item));
}
