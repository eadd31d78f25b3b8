// The picture of a dataflow graph as numbers: boxes with rows, lines with their courses, labels.
// Nothing here draws.

import { boxesOf } from "./boxes.js";
import { bent, looped, straight, trunk } from "./course.js";
import { labelled } from "./label.js";
import { layered } from "./layout.js";
import { entriesOf, linksOf, OUTSIDE, UNKNOWN } from "./links.js";

export const HEADER = 46;
export const ROW = 26;
export const LETTER = 7.4;
const SMALL_LETTER = 7; // of the second line of a box
const PADDING = 28;
const LOG = { width: 92, height: 56 };
const RAIL = 18; // from the log's box to the rail from which requests branch off
const LOG_TOP_MAX = 200;
const BOX_GAP = 84; // between boxes of the classes that have no links: room for a label
const ROW_GAP = 36;
const WIDTH_WANTED = 1_000;
const BOTTOM = 6;

/**
 * Return `{width, height, log, boxes, lines}` of a plan.
 *
 * `boxes` are those of `boxesOf`, with `{x, y, width, height}`; `lines` are
 * `{link, start, end, d, points, label}`. A line begins and ends at the middle of the row of its
 * method, or of the header where it means the class. `label` is the middle of the line's label, or
 * null if there is no free place. Classes without links stand in rows below the others. Lines for
 * requests begin at `log.rail`, at any height.
 */
export function sceneOf(plan) {
  const links = linksOf(plan);
  const between = links.filter((link) => link.from !== link.to);
  const joined = new Set(between.flatMap((link) => [link.from, link.to]));
  const nodes = nodesOf(plan, links);
  const entries = entriesOf(plan, links);
  const main = nodes.filter((node) => joined.has(node.id));
  const picture = layered(
    [{ id: OUTSIDE, ...LOG }, ...main],
    pairs([...entries.filter((link) => joined.has(link.to)), ...between]),
    OUTSIDE,
  );
  const alone = nodes.filter((node) => !joined.has(node.id));
  // Above a row runs the trunk to its boxes behind the first column, with the label of the trunk.
  const below = main.length ? picture.height + ROW_GAP : alone.length > 1 ? ROW_GAP : 0;
  const boxes = [
    ...main.map((node) => ({ ...node, ...picture.places.get(node.id) })),
    ...inRows(alone, below, Math.max(WIDTH_WANTED, picture.width)),
  ];
  const byId = new Map(boxes.map((box) => [box.id, box]));
  const loops = new Map();
  const lines = [...links, ...entries].map((link) =>
    lineOf(link, byId, link.from === link.to ? loopsOf(loops, link) : picture),
  );
  const entered = lines.filter((line) => line.link.from === OUTSIDE);
  const shown = entered.filter((line) => !line.link.quiet);
  const drawn = shown.length ? shown : entered;
  const level = (Math.min(...drawn.map(startOf)) + Math.max(...drawn.map(startOf)) - LOG.height) / 2;
  const log = { x: 0, y: Math.max(0, Math.min(level, LOG_TOP_MAX)), ...LOG, rail: LOG.width + RAIL };
  labelled(lines, [...boxes, log]);
  const width = Math.max(picture.width, ...boxes.map((box) => box.x + box.width));
  const height = Math.max(picture.height, ...boxes.map((box) => box.y + box.height));
  return { width, height, log, boxes, lines };
}

const startOf = (line) => line.start.y;

function nodesOf(plan, links) {
  return boxesOf(plan, links).map((box) => {
    const texts = [box.title.length + 4, ...box.rows.map((row) => row.text.length)];
    const about = box.about.length * SMALL_LETTER + PADDING;
    const wanted = Math.max(176, Math.max(...texts) * LETTER + 96, about);
    return {
      ...box,
      width: box.id === UNKNOWN ? 90 : Math.min(300, wanted),
      height: HEADER + box.rows.length * ROW + (box.rows.length ? BOTTOM : 0),
    };
  });
}

function pairs(links) {
  const found = new Map();
  for (const { from, to } of links) found.set(`${from}>${to}`, { from, to });
  return [...found.values()];
}

/** Place boxes in rows of equal boxes, to the right of the log. */
function inRows(nodes, top, widthWanted) {
  const width = Math.max(0, ...nodes.map((node) => node.width));
  const left = LOG.width + RAIL + BOX_GAP;
  const columns = Math.max(1, Math.floor((widthWanted - left + BOX_GAP) / (width + BOX_GAP)));
  const boxes = [];
  let y = top;
  for (let at = 0; at < nodes.length; at += columns) {
    const row = nodes.slice(at, at + columns);
    row.forEach((node, index) =>
      boxes.push({ ...node, x: left + index * (width + BOX_GAP), y, width, column: index }),
    );
    y += Math.max(...row.map((node) => node.height)) + ROW_GAP;
  }
  return boxes;
}

function loopsOf(loops, link) {
  const number = loops.get(link.from) ?? 0;
  loops.set(link.from, number + 1);
  return number;
}

/** Return the course of a line; `picture` is the number of the loop if the line leads to its own box. */
function lineOf(link, boxes, picture) {
  const to = boxes.get(link.to);
  const level = levelOf(to, link.toRow);
  if (link.from === OUTSIDE) return { link, ...entryCourse(to, level, picture.ways.get(`>${link.to}`)) };
  const from = boxes.get(link.from);
  const start = { x: from.x + from.width, y: levelOf(from, link.fromRow) };
  if (link.from === link.to) return { link, ...looped(start, { x: start.x, y: level }, picture) };
  const isBack = picture.ranks.get(link.to) < picture.ranks.get(link.from); // it closes a circle: from the left side to a right side
  const end = { x: isBack ? to.x + to.width : to.x, y: level };
  if (isBack) start.x = from.x;
  return { link, ...bent([start, ...picture.ways.get(`${link.from}>${link.to}`), end]) };
}

function entryCourse(to, level, way) {
  const end = { x: to.x, y: level };
  const x = LOG.width + RAIL;
  if (way?.length) return bent([{ x, y: way[0].y }, ...way, end]);
  if (to.column) return trunk(x, to.y - ROW_GAP / 2, to.x - BOX_GAP + 12, end);
  return straight({ x, y: level }, end);
}

/** Return the height of the middle of a row; without such a row, that of the header. */
function levelOf(box, row) {
  if (!box.rows.length) return box.y + box.height / 2;
  const index = box.rows.findIndex((each) => each.name === row);
  return box.y + (index < 0 ? HEADER / 2 : HEADER + index * ROW + ROW / 2);
}
