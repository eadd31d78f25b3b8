// One look at all inputs of a form: their values, and what is wrong with them.

/** The problems that inputs have told while they were read: `{input, message}`. */
export class Reading {
  problems = [];

  /** Note that an input's value does not fit. */
  refuse(input, message) {
    this.problems.push({ input, message });
    return { given: false };
  }

  /** Return the problems as texts. */
  get texts() {
    return this.problems.map(({ input, message }) => `${input.name} ${message}`);
  }
}

/**
 * Return the path of the value that an error of the gateway is about; null if it names none.
 *
 * `Trip.plan: nights: Invalid date - at `$[0].day`` becomes `["nights", 0, "day"]`, and
 * `stream sales: events[3].copies: Expected `int`` becomes `[3, "copies"]`.
 */
export function pathIn(message) {
  const event = /^stream \S+: events(\S*): /.exec(message)?.[1];
  if (event !== undefined) return partsOf(event);
  const argument = /^[^:\s]+: (\w+): /.exec(message)?.[1];
  if (!argument) return null;
  const inside = /at `\$([^`]*)`/.exec(message)?.[1] ?? "";
  return [argument, ...partsOf(inside)];
}

/** Return the parts of a path: `[3].item` becomes `[3, "item"]`. */
function partsOf(path) {
  const parts = path.match(/\.\.\.|[^.[\]]+/g) ?? [];
  return parts.map((part) => (/^\d+$/.test(part) ? Number(part) : part));
}
