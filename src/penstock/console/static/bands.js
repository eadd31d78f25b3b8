// Places of the columns of a layered graph. A wide picture has bands below each other, as a text has lines.
//
// A line that goes on in the next band leaves its band at the right, passes in a lane above the next
// band, and enters it at the left. Lanes are nested, so that they do not cross each other.

const COLUMN_GAP = 84;
const GAP_OF_LINK = 6; // a column gap grows with the number of its links,
const LINKS_MAX = 16; // up to this number of them
const BAND_WIDTH = 1_000; // fits into a window of 1280 pixels
const BAND_GAP = 44;
const ROW_GAP = 22;
const LANES_MAX = 7; // a picture whose bands were joined by more lines stays in one band
const LANE_GAP = 24; // room for a label
const LANE_APART = 9;
const SIDE = 20; // between the boxes of a band and the first lane beside them

/**
 * Return `{width, height, places, folds}`: the box of each node by id, and the fold of each link, by the
 * link's name, whose ends are in different bands.
 */
export function placed(layers, links, middles) {
  const gaps = layers.map((layer) => COLUMN_GAP + GAP_OF_LINK * Math.min(LINKS_MAX, linksAfter(layer, links).length));
  const places = new Map();
  const folds = new Map();
  let [top, width, lanes] = [0, 0, []];
  for (const [from, to] of bandsOf(layers, links, gaps)) {
    const band = layers.slice(from, to);
    const own = withoutEmptyStripes(band, middles);
    const left = besideOf(lanes);
    top += lanes.length && BAND_GAP + lanes.length * LANE_GAP;
    const right = placeBand(band, { gaps: gaps.slice(from, to), left, top, middles: own, places });
    lanes.forEach((link, lane) => folds.get(link.name).turns.push({ x: left - SIDE - lane * LANE_APART }));
    top += heightOf(band, own);
    lanes = to < layers.length ? lanesOf(linksAfter(layers[to - 1], links), middles) : [];
    lanes.forEach((link, lane) => {
      const inner = lanes.length - 1 - lane; // the highest line is the outermost
      const y = top + BAND_GAP / 2 + (inner + 0.5) * LANE_GAP;
      folds.set(link.name, { y, turns: [{ x: right + SIDE + inner * LANE_APART }] });
    });
    width = Math.max(width, right + besideOf(lanes));
  }
  return { width, height: top, places, folds };
}

/** Return the links that begin in a layer. */
function linksAfter(layer, links) {
  const ids = new Set(layer.map((node) => node.id));
  return links.filter((link) => ids.has(link.from));
}

const lanesOf = (links, middles) =>
  [...links].sort((one, other) => middles.get(one.from) - middles.get(other.from) || middles.get(one.to) - middles.get(other.to));

/** Return the room that lanes need beside a band. */
const besideOf = (lanes) => lanes.length && SIDE + lanes.length * LANE_APART;

const widthOf = (layer) => Math.max(...layer.map((node) => node.width));

/** Return the first and the last column of each band; one band if there are too many lines between bands. */
function bandsOf(layers, links, gaps) {
  const isFold = layers.map((layer, at) => at > 1 && linksAfter(layers[at - 1], links).length <= LANES_MAX);
  const bands = [];
  let from = 0;
  let end = 0;
  for (let at = 0; at < layers.length; at += 1) {
    const needed = end + widthOf(layers[at]);
    if (needed > BAND_WIDTH) {
      const fold = isFold.lastIndexOf(true, at);
      if (fold <= from) return [[0, layers.length]];
      bands.push([from, fold]);
      [from, end, at] = [fold, besideOf(linksAfter(layers[fold - 1], links)), fold];
    }
    end += widthOf(layers[at]) + gaps[at];
  }
  return [...bands, [from, layers.length]];
}

/** Place the nodes of a band; return its right border. */
function placeBand(band, { gaps, left, top, middles, places }) {
  const highest = highestOf(band, middles);
  let [x, right] = [left, left];
  band.forEach((layer, at) => {
    const width = widthOf(layer);
    for (const node of layer) {
      const y = top + middles.get(node.id) - node.height / 2 - highest;
      places.set(node.id, { x, y, width, height: node.height });
    }
    right = x + width;
    x = right + gaps[at];
  });
  return right;
}

const highestOf = (band, middles) =>
  Math.min(...band.flat().map((node) => middles.get(node.id) - node.height / 2));

const heightOf = (band, middles) =>
  Math.max(...band.flat().map((node) => middles.get(node.id) + node.height / 2)) - highestOf(band, middles);

/** Move nodes up where a stripe over the whole band is empty; the order of all heights stays. */
function withoutEmptyStripes(layers, middles) {
  const top = (node) => middles.get(node.id) - node.height / 2;
  const nodes = layers.flat().sort((one, other) => top(one) - top(other));
  const moved = new Map();
  let reached = top(nodes[0]);
  let empty = 0;
  for (const node of nodes) {
    empty += Math.max(0, top(node) - reached - ROW_GAP);
    reached = Math.max(reached, top(node) + node.height);
    moved.set(node.id, middles.get(node.id) - empty);
  }
  return moved;
}
