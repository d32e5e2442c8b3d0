// What part of the picture is seen, and what is under a point.

const GUTTER = 96, AXIS = 24, PAD = 5, MIN_LANE = 5, MAX_LANE = 72;
// Between the lanes of two ranks, where ranks have several.
const RANK_GAP = new Set(model.lanes.map((lane) => lane.rank)).size < model.laneCount ? 6 : 0;

const view = {
  width: 0, height: 0,
  from: 0, scale: 1, // the tick at the left edge of the lanes, pixels per tick
  top: 0, lane: 20, // pixels scrolled down, height of a lane
  hover: -1, selected: -1, fault: -1,
  showCritical: false, arrows: "auto",
  hidden: new Uint8Array(FAMILIES), matches: null,
};

const lanesTop = new Float64Array(model.laneCount + 1);
const wholeTime = Math.max(facts.end, 1);

function layLanes() {
  let y = PAD;
  model.lanes.forEach((lane, i) => {
    if (i > 0 && lane.rank !== model.lanes[i - 1].rank) y += Math.min(RANK_GAP, view.lane / 2);
    lanesTop[i] = y;
    y += view.lane;
  });
  lanesTop[model.laneCount] = y;
}

const plotWidth = () => Math.max(view.width - GUTTER, 1);
const plotHeight = () => Math.max(view.height - AXIS, 1);
const xOf = (tick) => GUTTER + (tick - view.from) * view.scale;
const tickAt = (x) => view.from + (x - GUTTER) / view.scale;
const yOf = (lane) => AXIS + lanesTop[lane] - view.top;

const fitScale = () => (plotWidth() - 16) / wholeTime;

function clampView() {
  const least = fitScale(), most = Math.max(60, least);
  view.scale = Math.min(Math.max(view.scale, least * 0.8), most);
  view.lane = Math.min(Math.max(view.lane, MIN_LANE), MAX_LANE);
  const seen = plotWidth() / view.scale, slack = seen * 0.25;
  view.from = Math.min(Math.max(view.from, -slack), Math.max(wholeTime - seen + slack, -slack));
  view.top = Math.min(Math.max(view.top, 0), Math.max(lanesTop[model.laneCount] + PAD - plotHeight(), 0));
}

function fit() {
  const gaps = new Set(model.lanes.map((lane) => lane.rank)).size * RANK_GAP;
  view.lane = Math.min(Math.max((plotHeight() - gaps - 3 * PAD) / Math.max(model.laneCount, 1), 9), 52);
  layLanes();
  view.scale = fitScale();
  view.from = 0;
  view.top = 0;
  clampView();
}

function zoom(factor, x) {
  const tick = tickAt(x);
  view.scale *= factor;
  clampView();
  view.from = tick - (x - GUTTER) / view.scale;
  clampView();
}

function zoomLanes(factor, y) {
  const before = lanesTop[model.laneCount], at = y - AXIS + view.top;
  view.lane *= factor;
  clampView();
  layLanes();
  view.top = at * (lanesTop[model.laneCount] / Math.max(before, 1)) - (y - AXIS);
  clampView();
}

function panBy(dx, dy) {
  view.from -= dx / view.scale;
  view.top -= dy;
  clampView();
}

// The first span of a lane that ends after a tick.
function firstAfter(lane, tick) {
  let low = lane.first, high = lane.last;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (model.end[middle] > tick) high = middle; else low = middle + 1;
  }
  return low;
}

// The first span of a lane, from `low` on, that ends after a tick: in strides that double, as it is near.
function nextAfter(lane, low, tick) {
  let stride = 1, high = low;
  while (high < lane.last && model.end[high] <= tick) { low = high + 1; high += stride; stride *= 2; }
  high = Math.min(high, lane.last);
  while (low < high) {
    const middle = (low + high) >> 1;
    if (model.end[middle] > tick) high = middle; else low = middle + 1;
  }
  return low;
}

function laneAt(y) {
  const inside = y - AXIS + view.top;
  if (y < AXIS || inside < 0) return -1;
  let low = 0, high = model.laneCount;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (lanesTop[middle] + view.lane > inside) high = middle; else low = middle + 1;
  }
  return low < model.laneCount && lanesTop[low] <= inside ? low : -1;
}

const visible = (span) => !view.hidden[model.family[model.spanOp[span]]];

// The span under a point; of several in reach the longest.
function hit(x, y) {
  const number = x < GUTTER ? -1 : laneAt(y);
  if (number < 0) return -1;
  const lane = model.lanes[number], low = tickAt(x - 2.5), high = tickAt(x + 2.5), at = tickAt(x);
  let best = -1, length = -1;
  for (let i = firstAfter(lane, low - 1e-9), n = 0; i < lane.last && model.start[i] <= high && n < 4000; i++, n++) {
    if (!visible(i)) continue;
    if (model.start[i] <= at && at < model.end[i] && (model.end[i] - model.start[i]) * view.scale > 3) return i;
    if (model.end[i] - model.start[i] > length) { best = i; length = model.end[i] - model.start[i]; }
  }
  return best;
}

// Brings a span into sight, at least so many pixels wide.
function reveal(span, least = 56) {
  const lane = model.spanLane[span], length = Math.max(model.end[span] - model.start[span], 1);
  if (view.lane < 14) { view.lane = 18; layLanes(); }
  if (length * view.scale < least) view.scale = (1.6 * least) / length;
  clampView();
  const x0 = xOf(model.start[span]), x1 = xOf(model.end[span]);
  if (x0 < GUTTER + 20 || x1 > view.width - 20) {
    view.from = (model.start[span] + model.end[span]) / 2 - plotWidth() / view.scale / 2;
  }
  const y = yOf(lane);
  if (y < AXIS + view.lane || y + 2 * view.lane > view.height) view.top = lanesTop[lane] - plotHeight() / 2;
  clampView();
}
