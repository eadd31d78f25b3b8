// Paths with places in braces, such as `/call/Item/{key}/add`, and the values that a real path has there.

const PLACE = /^\{(.+)\}$/;

/** Return the text of a segment of an address; a percent sign that escapes nothing stands for itself. */
export function decoded(segment) {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

/** Return the values that a path has at the places of a template, by their names; null if it does not fit. */
export function valuesIn(template, path) {
  const wanted = template.split("/");
  const given = path.split("/");
  if (wanted.length !== given.length) return null;
  const values = new Map();
  for (const [at, segment] of wanted.entries()) {
    const name = PLACE.exec(segment)?.[1];
    if (!name && segment !== given[at] && segment !== decoded(given[at])) return null;
    if (name && given[at] !== segment) values.set(name, decoded(given[at]));
  }
  return values;
}

/** Return what fits a path best: `{choice, values}`, where the fewest places are filled; or null. */
export function bestFit(choices, path) {
  const fits = choices
    .map((choice) => ({ choice, values: valuesIn(choice.path, path) }))
    .filter(({ values }) => values);
  const filled = ({ values }) => values.size;
  return fits.reduce((best, fit) => (best && filled(best) <= filled(fit) ? best : fit), null);
}
