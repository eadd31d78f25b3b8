// Places for the labels of lines: none covers a box or another label.

export const LABEL = { width: 56, height: 15 };
const ABOVE = 9; // a label's middle is so far above its line
const STRIDE = 2;

/** Give each line a `label`: the middle of a free place on its course, or null if there is none. */
export function labelled(lines, boxes) {
  const taken = boxes.map(({ x, y, width, height }) => [x, y, x + width, y + height]);
  const passed = lines.filter((line) => !line.link.quiet);
  for (const line of lines) {
    const isAlone = !lines.some((other) => isTwin(line.link, other.link));
    const places = candidates(isAlone ? line.points : line.own).filter((place) => !taken.some((box) => overlap(box, place.box)));
    line.label = null;
    let least = Infinity;
    for (const place of places) {
      const cost = place.cost + crossings(place.box, passed, line);
      if (cost < least) [least, line.label] = [cost, place.middle];
    }
    if (line.label) taken.push(around(line.label));
  }
}

/** Say whether two lines with rates share their way: a label there would name neither. */
const isTwin = (one, other) =>
  one !== other && one.from === other.from && one.to === other.to && other.kind !== "read";

/** Return places along a line, the middle of the line first choice. */
function candidates(points) {
  const found = [];
  for (let at = STRIDE; at < points.length - 1; at += STRIDE) {
    const middle = { x: points[at].x, y: points[at].y - ABOVE };
    const cost = Math.abs(at / points.length - 0.5);
    found.push({ middle, box: around(middle), cost });
  }
  return found;
}

function crossings(box, lines, own) {
  let count = 0;
  for (const line of lines)
    if (line !== own && line.points.some(({ x, y }) => isIn(box, x, y))) count += 1;
  return count;
}

const around = ({ x, y }) => [
  x - LABEL.width / 2,
  y - LABEL.height / 2,
  x + LABEL.width / 2,
  y + LABEL.height / 2,
];
const isIn = ([left, top, right, bottom], x, y) => x > left && x < right && y > top && y < bottom;
const overlap = (one, other) =>
  one[0] < other[2] && other[0] < one[2] && one[1] < other[3] && other[1] < one[3];
