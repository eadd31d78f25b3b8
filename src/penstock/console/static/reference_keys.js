// Keys of existing entities, as suggestions for an input that takes a reference.

import { literal, quoted, sql } from "./api.js";
import { live } from "./live.js";
import { Suggestions } from "./suggestions.js";
import { keyText } from "./value.js";

const KEYS_MAX = 20;
const PAUSE_MS = 150;

/** Return the query of the keys that contain a text; those that begin with it are first. */
export function keyQuery(entity, keyName, text) {
  const key = `CAST(${quoted(keyName)} AS VARCHAR)`;
  const begins = `starts_with(lower(${key}), lower(${literal(text)}))`;
  const fits = `contains(lower(${key}), lower(${literal(text)}))`;
  return `SELECT ${quoted(keyName)} FROM ${quoted(entity)} WHERE ${fits}
    ORDER BY ${begins} DESC, ${quoted(keyName)} LIMIT ${KEYS_MAX + 1}`;
}

/** Let an input suggest the keys of the class that `entityOf()` names; return the node of the input and its list. */
export function keySuggestions(input, entityOf) {
  let timer = 0;
  const find = async () => {
    const entity = entityOf();
    const plan = await live.ready();
    const key = plan.operators.find((operator) => operator.name === entity)?.key;
    if (!key) return null;
    const { rows } = await sql(keyQuery(entity, key.name, input.value.trim()));
    const items = rows.slice(0, KEYS_MAX).map(([one]) => ({ name: keyText(one), kind: "" }));
    const more = rows.length > KEYS_MAX ? "There are more: type a part of the key." : null;
    return { items, more };
  };
  const suggestions = new Suggestions(input, {
    label: `Keys of ${entityOf()}`,
    isFree: true,
    find: () => find().catch(() => null), // without the SQL view, the key is typed
    take: (item) => {
      input.value = item.name;
      input.dispatchEvent(new Event("change", { bubbles: true }));
    },
  });
  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(() => suggestions.open(), PAUSE_MS);
  };
  input.addEventListener("input", later);
  input.addEventListener("click", () => suggestions.open(true));
  return suggestions.element;
}
