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

/** Return a curve through points that is horizontal in each; `own` is its part after the last bend. */
export function bent(points) {
  let d = `M${points[0].x} ${points[0].y}`;
  const passed = [points[0]];
  for (let index = 1; index < points.length; index += 1) {
    const [from, to] = [points[index - 1], points[index]];
    const middle = (from.x + to.x) / 2;
    d += ` C${middle} ${from.y} ${middle} ${to.y} ${to.x} ${to.y}`;
    passed.push(...curve(from, { x: middle, y: from.y }, { x: middle, y: to.y }, to));
  }
  return course(d, passed, passed.slice(-STEPS - 1));
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
