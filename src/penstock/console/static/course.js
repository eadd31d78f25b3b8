// The courses of lines: the path that SVG draws, and points along it. `own` are the points that
// no other line between the same two boxes passes.

const STEPS = 16;
const CORNER = 7;
const LOOP = 34;
const LOOP_APART = 9;

const course = (d, points, own = points) => ({
  d,
  points,
  start: points[0],
  end: points.at(-1),
  own,
});

/** Return a horizontal line. */
export function straight(start, end) {
  return course(`M${start.x} ${start.y} H${end.x}`, sampled(start, end));
}

/**
 * Return a curve through points that is horizontal in each; `own` is its part after the last bend.
 *
 * In place of a point may be a fold `{y, turns}`: the line goes to the first turn, at the height `y` to the second
 * one, and from there to the next point.
 */
export function bent(points) {
  let d = `M${points[0].x} ${points[0].y}`;
  const passed = [points[0]];
  for (let index = 1; index < points.length; index += 1) {
    const [from, to] = [points[index - 1], points[index]];
    if (to.turns) continue;
    const part = from.turns ? folded(points[index - 2], from, to) : swung(from, to);
    d += part.d;
    passed.push(...part.points);
  }
  return course(d, passed, passed.slice(-STEPS - 1));
}

/** Return the part of a line from a point to the next one. */
function swung(from, to) {
  const middle = (from.x + to.x) / 2;
  const points = curve(from, { x: middle, y: from.y }, { x: middle, y: to.y }, to);
  return { d: ` C${middle} ${from.y} ${middle} ${to.y} ${to.x} ${to.y}`, points };
}

/** Return the part of a line from a point of one band to a point of the next one, with corners. */
function folded(from, { y, turns: [first, second] }, to) {
  const corners = [
    from,
    { x: first.x, y: from.y },
    { x: first.x, y },
    { x: second.x, y },
    { x: second.x, y: to.y },
    to,
  ];
  const points = corners.slice(1).flatMap((corner, index) => sampled(corners[index], corner).slice(1));
  return { d: rounded(corners), points };
}

/** Return lines from corner to corner, which are round but for the first and the last one. */
function rounded(corners) {
  let d = "";
  for (let index = 1; index < corners.length - 1; index += 1) {
    const at = corners[index];
    const [before, after] = [toward(at, corners[index - 1]), toward(at, corners[index + 1])];
    d += ` L${before.x} ${before.y} Q${at.x} ${at.y} ${after.x} ${after.y}`;
  }
  return `${d} L${corners.at(-1).x} ${corners.at(-1).y}`;
}

/** Return the point in the direction of another one, a corner's radius away. */
function toward(from, to) {
  const length = Math.hypot(to.x - from.x, to.y - from.y);
  return length === 0 ? from : between(from, to, Math.min(CORNER, length / 2) / length);
}

/** Return a curve on the right side of a box; `number` of them are inside of it. */
export function looped(from, to, number) {
  const apart = from.y === to.y ? 6 : 0; // a method that calls itself: both ends in one row
  const [start, end] = [
    { x: from.x, y: from.y - apart },
    { x: to.x, y: to.y + apart },
  ];
  const x = from.x + LOOP + number * LOOP_APART;
  const d = `M${start.x} ${start.y} C${x} ${start.y} ${x} ${end.y} ${end.x} ${end.y}`;
  return course(d, [start, ...curve(start, { x, y: start.y }, { x, y: end.y }, end)]);
}

/** Return a line with corners: along a channel, down beside the box, and into it. */
export function trunk(x, channel, turn, end) {
  const d =
    `M${x} ${channel} H${turn - CORNER} Q${turn} ${channel} ${turn} ${channel + CORNER}` +
    ` V${end.y - CORNER} Q${turn} ${end.y} ${turn + CORNER} ${end.y} H${end.x}`;
  const corners = [{ x, y: channel }, { x: turn, y: channel }, { x: turn, y: end.y }, end];
  const points = corners.slice(1).flatMap((corner, index) => sampled(corners[index], corner));
  return course(d, points);
}

function sampled(from, to) {
  return Array.from({ length: STEPS + 1 }, (_, step) => between(from, to, step / STEPS));
}

function curve(from, one, other, to) {
  return Array.from({ length: STEPS }, (_, step) => {
    const share = (step + 1) / STEPS;
    const [a, b, c] = [between(from, one, share), between(one, other, share), between(other, to, share)];
    return between(between(a, b, share), between(b, c, share), share);
  });
}

const between = (from, to, share) => ({
  x: from.x + (to.x - from.x) * share,
  y: from.y + (to.y - from.y) * share,
});
