// Layered layout of a directed graph: ranks from left to right, few crossings, straight long edges.
// After Sugiyama, Tagawa & Toda, 1981: break circles, rank, part long edges, order, place.

import { placed } from "./bands.js";

const SWEEPS = 12;
const ROW_GAP = 22;
const LANE_GAP = 15;

/**
 * Place nodes `{id, width, height}` and edges `{from, to}` (one for each pair, none to itself).
 *
 * The nodes of a column get the same width. `source` is the id of a node whose edges may begin at
 * any height, so that it does not pull its neighbours towards itself.
 *
 * Returns `{width, height, places, ways, ranks}`: the box and the column of each node by id, and for each edge, under
 * `from>to`, the points that it passes between its ends. A point with `turns` is a fold: the line goes on in the
 * next band.
 */
export function layered(nodes, edges, source = null) {
  const forward = withoutCircles(nodes, edges);
  const ranks = rankedBy(nodes, forward);
  const { layers, links, dummies } = withDummies(nodes, forward, ranks);
  order(layers, links);
  const pulls = links.filter((link) => link.from !== source);
  const picture = placed(layers, links, middlesOf(layers, pulls));
  return { ...picture, ways: waysOf(picture, { edges, forward, dummies }), ranks };
}

function withoutCircles(nodes, edges) {
  const ahead = new Map(nodes.map((node) => [node.id, []]));
  for (const edge of edges) ahead.get(edge.from).push(edge);
  const state = new Map();
  const turned = new Set();
  const visit = (id) => {
    state.set(id, "open");
    for (const edge of ahead.get(id)) {
      if (state.get(edge.to) === "open") turned.add(edge);
      else if (!state.has(edge.to)) visit(edge.to);
    }
    state.set(id, "done");
  };
  for (const node of nodes) if (!state.has(node.id)) visit(node.id);
  return edges.map((edge) =>
    turned.has(edge)
      ? { from: edge.to, to: edge.from, name: `${edge.from}>${edge.to}`, turned: true }
      : { from: edge.from, to: edge.to, name: `${edge.from}>${edge.to}`, turned: false },
  );
}

function rankedBy(nodes, edges) {
  const ranks = new Map(nodes.map((node) => [node.id, 0]));
  for (let pass = 0; pass < nodes.length; pass += 1) {
    let changed = false;
    for (const { from, to } of edges)
      if (ranks.get(to) <= ranks.get(from)) {
        ranks.set(to, ranks.get(from) + 1);
        changed = true;
      }
    if (!changed) break;
  }
  return ranks;
}

function withDummies(nodes, edges, ranks) {
  const layers = [];
  const at = (rank) => (layers[rank] ??= []);
  for (const node of nodes) at(ranks.get(node.id)).push({ ...node });
  const links = [];
  const dummies = new Map();
  for (const edge of edges) {
    let last = edge.from;
    const passed = [];
    for (let rank = ranks.get(edge.from) + 1; rank < ranks.get(edge.to); rank += 1) {
      const id = `${edge.name}@${rank}`;
      at(rank).push({ id, width: 0, height: 0, dummy: true });
      links.push({ from: last, to: id, name: `${edge.name}@${id}` });
      passed.push(id);
      last = id;
    }
    links.push({ from: last, to: edge.to, name: `${edge.name}@${edge.to}` });
    dummies.set(edge.name, passed);
  }
  return { layers, links, dummies };
}

function neighbours(links) {
  const before = new Map();
  const after = new Map();
  for (const { from, to } of links) {
    before.set(to, [...(before.get(to) ?? []), from]);
    after.set(from, [...(after.get(from) ?? []), to]);
  }
  return { before, after };
}

function order(layers, links) {
  const { before, after } = neighbours(links);
  const position = new Map();
  const number = (layer) => layer.forEach((node, index) => position.set(node.id, index));
  layers.forEach(number);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const down = sweep % 2 === 0;
    const beside = down ? before : after;
    for (const layer of down ? layers.slice(1) : layers.slice(0, -1).reverse()) {
      const weight = new Map(layer.map((node) => [node.id, mean(beside.get(node.id), position)]));
      layer.sort(
        (one, other) =>
          weight.get(one.id) - weight.get(other.id) ||
          position.get(one.id) - position.get(other.id),
      );
      number(layer);
    }
  }
}

function mean(ids, values) {
  if (!ids?.length) return Number.MAX_SAFE_INTEGER;
  return ids.reduce((sum, id) => sum + values.get(id), 0) / ids.length;
}

/** Return the points that each edge passes between its ends, by the name of the edge. */
function waysOf({ places, folds }, { edges, forward, dummies }) {
  const ways = new Map();
  forward.forEach((edge, index) => {
    const points = [];
    for (const id of [...dummies.get(edge.name), edge.to]) {
      if (folds.has(`${edge.name}@${id}`)) points.push(folds.get(`${edge.name}@${id}`));
      const { x, y, width } = places.get(id);
      if (id !== edge.to) points.push({ x, y }, { x: x + width, y });
    }
    ways.set(`${edges[index].from}>${edges[index].to}`, edge.turned ? backwards(points) : points);
  });
  return ways;
}

const backwards = (points) =>
  points.reverse().map((point) => (point.turns ? { ...point, turns: [...point.turns].reverse() } : point));

/** Return the height of each node's middle: near its neighbours', apart from others of its layer. */
function middlesOf(layers, links) {
  const { before, after } = neighbours(links);
  const middles = new Map();
  for (const layer of layers) {
    let y = 0;
    for (const node of layer) {
      middles.set(node.id, y + node.height / 2);
      y += node.height + ROW_GAP;
    }
  }
  for (let sweep = 0; sweep < SWEEPS * 2; sweep += 1) {
    for (const layer of sweep % 2 ? [...layers].reverse() : layers) {
      const wanted = layer.map((node) => {
        const near = [...(before.get(node.id) ?? []), ...(after.get(node.id) ?? [])];
        return near.length ? mean(near, middles) : middles.get(node.id);
      });
      apart(layer, wanted).forEach((y, index) => middles.set(layer[index].id, y));
    }
  }
  return middles;
}

/** Return heights close to the wanted ones that keep order and gaps: the mean of both extremes. */
function apart(layer, wanted) {
  const gap = (one, other) => (one.dummy && other.dummy ? LANE_GAP : ROW_GAP);
  const room = (index) => {
    const [one, other] = [layer[index], layer[index + 1]];
    return (one.height + other.height) / 2 + gap(one, other);
  };
  const pushed = [...wanted];
  for (let i = 1; i < pushed.length; i += 1)
    pushed[i] = Math.max(pushed[i], pushed[i - 1] + room(i - 1));
  const pulled = [...wanted];
  for (let i = pulled.length - 2; i >= 0; i -= 1)
    pulled[i] = Math.min(pulled[i], pulled[i + 1] - room(i));
  return pushed.map((y, index) => (y + pulled[index]) / 2);
}
