// The canvases. Spans narrower than a pixel are drawn as the pixels they fall on, so that a frame costs what is seen, not
// what there is.

const canvas = document.getElementById("timeline"), ctx = canvas.getContext("2d", { alpha: false });
const overview = document.getElementById("overview"), octx = overview.getContext("2d", { alpha: false });
const theme = {};
const FONT = "11px system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";
const LETTER = 6.3, MOST_ARROWS = 3000, FEW_ARROWS = 260;
let arrowsShown = 0, arrowsInSight = 0;
let activityImage = null;

function readTheme() {
  activityImage = null;
  const style = getComputedStyle(document.documentElement);
  for (const name of ["bg", "panel", "ink", "muted", "faint", "line", "accent", "lane-a", "lane-b", "grid", "band-a", "band-b", "bad", "in", "out", "gold", "arrow"]) {
    theme[name] = style.getPropertyValue(`--${name}`).trim();
  }
  theme.fill = []; theme.on = []; theme.hatch = []; theme.dim = [];
  for (let f = 0; f < FAMILIES; f++) {
    theme.fill.push(style.getPropertyValue(`--f${f}`).trim());
    theme.on.push(style.getPropertyValue(`--on${f}`).trim());
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const t = tile.getContext("2d");
    t.strokeStyle = theme.fill[f];
    t.globalAlpha = 0.75;
    t.lineWidth = 1.3;
    for (const d of [-8, 0, 8]) { t.beginPath(); t.moveTo(d - 1, 9); t.lineTo(d + 9, -1); t.stroke(); }
    theme.hatch.push(ctx.createPattern(tile, "repeat"));
  }
}

function resize() {
  const ratio = window.devicePixelRatio || 1;
  for (const element of [canvas, overview]) {
    const box = element.getBoundingClientRect();
    element.width = Math.max(Math.round(box.width * ratio), 1);
    element.height = Math.max(Math.round(box.height * ratio), 1);
    element.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
    if (element === canvas) { view.width = box.width; view.height = box.height; }
  }
}

// Rectangles by style: for each family solid and hatched, and both again for what the filter leaves out.
const buckets = Array.from({ length: 4 * FAMILIES }, () => []);

function lanesInSight() {
  const low = Math.max(laneAt(AXIS + 0.5) - 1, 0);
  let first = low;
  while (first < model.laneCount && yOf(first) + view.lane < AXIS) first++;
  let last = first;
  while (last < model.laneCount && yOf(last) < view.height) last++;
  return [first, last];
}

function drawLanes(first, last) {
  for (let i = first; i < last; i++) {
    ctx.fillStyle = model.lanes[i].rank % 2 ? theme["lane-b"] : theme["lane-a"];
    ctx.fillRect(GUTTER, yOf(i), view.width - GUTTER, view.lane);
  }
}

function drawGrid() {
  const step = tickStep();
  ctx.fillStyle = theme.grid;
  for (let t = Math.max(Math.ceil(view.from / step), 0) * step; xOf(t) < view.width && t <= wholeTime; t += step) {
    ctx.fillRect(Math.round(xOf(t)), AXIS, 1, view.height - AXIS);
  }
  ctx.fillStyle = theme.line;
  ctx.fillRect(Math.round(xOf(wholeTime)), AXIS, 1, view.height - AXIS);
}

function tickStep() {
  const least = 100 / view.scale, power = 10 ** Math.floor(Math.log10(least));
  return (([1, 2, 5].find((f) => f * power >= least * 0.999)) || 10) * power;
}

function drawIterations(first, last) {
  if (!data.spans.iteration.length) return;
  const until = tickAt(view.width);
  ctx.font = FONT;
  for (let l = first; l < last; l++) {
    const lane = model.lanes[l], y = yOf(l);
    let i = firstAfter(lane, view.from);
    // A run that begins left of the edge is drawn from its beginning.
    while (i > lane.first && data.ops.inner[model.spanOp[i]] && iterationOf(i - 1) === iterationOf(i) && data.ops.inner[model.spanOp[i - 1]]) i--;
    while (i < lane.last && model.start[i] < until) {
      if (!data.ops.inner[model.spanOp[i]]) { i++; continue; }
      const from = i, turn = iterationOf(i), at = data.ops.at[model.spanOp[i]];
      while (i < lane.last && data.ops.inner[model.spanOp[i]] && iterationOf(i) === turn && data.ops.at[model.spanOp[i]] === at) i++;
      const x0 = Math.max(xOf(model.start[from]), GUTTER - 2), x1 = Math.min(xOf(model.end[i - 1]), view.width + 2);
      if (x1 - x0 < 1.5) continue;
      ctx.fillStyle = turn % 2 ? theme["band-b"] : theme["band-a"];
      ctx.fillRect(x0, y, x1 - x0, view.lane);
      ctx.fillStyle = theme.faint;
      ctx.fillRect(x0, y, 1, view.lane);
      if (view.lane >= 30 && x1 - x0 > 20) { ctx.textAlign = "left"; ctx.textBaseline = "top"; ctx.font = "9px " + FONT.slice(5); ctx.fillText(`#${turn}`, x0 + 3, y + 1); }
    }
  }
}

function drawSpans(first, last) {
  const { start, ready, end, spanOp, family } = model, until = tickAt(view.width), matches = view.matches;
  const pad = view.lane >= 30 ? 5 : view.lane >= 12 ? 2 : view.lane >= 8 ? 1 : 0, labels = [];
  // Room above for the numbers of iterations.
  const above = view.lane >= 30 && data.spans.iteration.length ? 11 : pad;
  for (let l = first; l < last; l++) {
    const lane = model.lanes[l], y = yOf(l) + above, h = view.lane - above - pad + (above > pad ? 2 : 0);
    for (let i = firstAfter(lane, view.from); i < lane.last && start[i] < until;) {
      const op = spanOp[i], f = family[op];
      if (view.hidden[f]) { i++; continue; }
      const dim = (matches && !matches[op]) || (view.showCritical && !model.critical[i]) ? 2 * FAMILIES : 0;
      const x0 = xOf(start[i]), xr = xOf(ready[i]), x1 = xOf(end[i]);
      if (x1 - x0 < 1.2) {
        const column = Math.floor(x0), waits = xr - x0 > x1 - xr;
        buckets[dim + f + (waits ? FAMILIES : 0)].push(column, y, 1, h);
        i = nextAfter(lane, i + 1, tickAt(column + 1));
        continue;
      }
      if (xr - x0 > 0.7) buckets[dim + FAMILIES + f].push(x0, y + h * 0.22, Math.min(xr, view.width) - x0, h * 0.56);
      const gap = x1 - xr > 3 ? 0.6 : 0, from = Math.max(xr, GUTTER - 4), to = Math.min(x1, view.width + 4);
      if (to > from) buckets[dim + f].push(from, y, Math.max(to - from - gap, 0.7), h);
      if (!dim && h >= 10 && to - from > 24) labels.push(op, f, from, to, y, h);
      i++;
    }
  }
  for (let b = 0; b < buckets.length; b++) {
    const rects = buckets[b], waits = Math.floor(b / FAMILIES) % 2, f = b % FAMILIES;
    if (!rects.length) continue;
    const faded = b >= 2 * FAMILIES ? 0.22 : 1;
    if (waits) {
      ctx.globalAlpha = 0.16 * faded;
      ctx.fillStyle = theme.fill[f];
      for (let i = 0; i < rects.length; i += 4) ctx.fillRect(rects[i], rects[i + 1], rects[i + 2], rects[i + 3]);
      ctx.globalAlpha = 0.8 * faded;
      ctx.fillStyle = theme.hatch[f];
      for (let i = 0; i < rects.length; i += 4) if (rects[i + 2] > 2.5) ctx.fillRect(rects[i], rects[i + 1], rects[i + 2], rects[i + 3]);
    } else {
      ctx.globalAlpha = faded;
      ctx.fillStyle = theme.fill[f];
      for (let i = 0; i < rects.length; i += 4) ctx.fillRect(rects[i], rects[i + 1], rects[i + 2], rects[i + 3]);
    }
    rects.length = 0;
  }
  ctx.globalAlpha = 1;
  drawLabels(labels);
}

function drawLabels(labels) {
  ctx.font = FONT;
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  for (let i = 0; i < labels.length; i += 6) {
    const op = labels[i], f = labels[i + 1], x0 = Math.max(labels[i + 2], GUTTER), x1 = labels[i + 3], y = labels[i + 4], h = labels[i + 5];
    const kind = kindOf(op), room = (x1 - x0 - 8) / LETTER;
    if (room < kind.length * 0.95) continue;
    const sources = data.ops.reads[op], targets = data.ops.writes[op];
    let text = kind;
    if (room > kind.length + 10 && sources + targets > 0) {
      const long = `${kind}  ${chunksOf(op, false, 3)} → ${chunksOf(op, true, 3)}`;
      text = long.length <= room ? long : kind;
    } else if (room > kind.length + 6 && noteOf(op) && `${kind}  ${noteOf(op)}`.length <= room) {
      text = `${kind}  ${noteOf(op)}`;
    }
    ctx.fillStyle = theme.on[f] || theme.ink;
    ctx.fillText(text, x0 + 4, y + h / 2 + 0.5);
  }
}

// The path of an arrow from where a span ends to where another could go on.
function arrowPath(from, to) {
  const a = model.spanLane[from], b = model.spanLane[to];
  const x0 = xOf(Math.min(model.end[from], model.ready[to])), x1 = xOf(model.ready[to]);
  const down = b >= a, y0 = yOf(a) + view.lane * (down ? 0.8 : 0.2), y1 = yOf(b) + view.lane * (down ? 0.2 : 0.8);
  return [x0, y0, x1, y1];
}

function strokeArrow(from, to, heads) {
  const [x0, y0, x1, y1] = arrowPath(from, to), bend = Math.min(Math.abs(y1 - y0) * 0.4, 46) * Math.sign(y1 - y0 || 1);
  ctx.moveTo(x0, y0);
  ctx.bezierCurveTo(x0, y0 + bend, x1, y1 - bend, x1, y1);
  if (heads) {
    const d = Math.sign(y1 - y0 || 1) * 5;
    ctx.moveTo(x1 - 3.2, y1 - d);
    ctx.lineTo(x1, y1);
    ctx.lineTo(x1 + 3.2, y1 - d);
  }
}

function drawArrows() {
  arrowsShown = arrowsInSight = 0;
  if (view.arrows === "off" || !model.arrowCount) return;
  const seen = [], until = tickAt(view.width), [first, last] = lanesInSight();
  for (let i = 0; i < data.arrows.length; i += 2) {
    const from = data.arrows[i], to = data.arrows[i + 1], a = model.spanLane[from], b = model.spanLane[to];
    if (model.ready[to] < view.from || model.end[from] > until || Math.max(a, b) < first || Math.min(a, b) >= last) continue;
    if (!visible(from) || !visible(to)) continue;
    seen.push(from, to);
  }
  arrowsInSight = seen.length / 2;
  if (view.arrows === "auto" && arrowsInSight > FEW_ARROWS) return;
  const every = Math.max(Math.ceil(arrowsInSight / MOST_ARROWS), 1);
  ctx.beginPath();
  for (let i = 0; i < seen.length; i += 2 * every) { strokeArrow(seen[i], seen[i + 1], arrowsInSight <= FEW_ARROWS); arrowsShown++; }
  ctx.strokeStyle = theme.arrow;
  ctx.lineWidth = arrowsInSight > FEW_ARROWS ? 0.5 : 1;
  ctx.stroke();
}

function outline(span, colour, width, grow) {
  const x0 = xOf(model.start[span]), x1 = Math.max(xOf(model.end[span]), x0 + 3), y = yOf(model.spanLane[span]);
  ctx.strokeStyle = colour;
  ctx.lineWidth = width;
  ctx.strokeRect(x0 - grow, y + 1 - grow / 2, x1 - x0 + 2 * grow, view.lane - 2 + grow);
}

function drawCritical() {
  if (!view.showCritical) return;
  const path = data.critical;
  ctx.beginPath();
  for (let i = 1; i < path.length; i++) {
    if (model.spanLane[path[i - 1]] !== model.spanLane[path[i]]) strokeArrow(path[i - 1], path[i], true);
  }
  ctx.strokeStyle = theme.gold;
  ctx.lineWidth = 2;
  ctx.stroke();
  for (const span of path) {
    const y = yOf(model.spanLane[span]);
    if (y + view.lane < AXIS || y > view.height) continue;
    const x0 = xOf(model.ready[span]), x1 = Math.max(xOf(model.end[span]), x0 + 1.5);
    ctx.fillStyle = theme.gold;
    ctx.fillRect(x0, y + view.lane - 3, x1 - x0, 3);
    ctx.fillRect(x0, y, x1 - x0, view.lane > 12 ? 2 : 1);
  }
}

function drawRelated(span) {
  if (span < 0) return;
  for (const [list, colour, inward] of [[model.inbound(span), theme.in, true], [model.outbound(span), theme.out, false]]) {
    ctx.beginPath();
    for (const other of list) inward ? strokeArrow(other, span, true) : strokeArrow(span, other, true);
    ctx.strokeStyle = colour;
    ctx.lineWidth = list.length > 40 ? 0.9 : 1.7;
    ctx.stroke();
    for (const other of list) outline(other, colour, 1.5, 1);
  }
}

function badge(x, y, text, colour) {
  ctx.beginPath();
  ctx.arc(x, y, 7.5, 0, 2 * Math.PI);
  ctx.fillStyle = colour;
  ctx.fill();
  ctx.fillStyle = theme.panel;
  ctx.font = "bold 10px " + FONT.slice(5);
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  ctx.fillText(text, x, y + 0.5);
}

function drawFaults() {
  faults.forEach((fault, f) => {
    if (view.fault >= 0 && view.fault !== f) return;
    const centres = fault.marks.map(([op, iteration]) => {
      const span = spanOf(op, iteration);
      if (span < 0) return null;
      outline(span, theme.bad, 2.2, 2);
      const x0 = Math.max(xOf(model.start[span]), GUTTER), x1 = Math.min(Math.max(xOf(model.end[span]), x0), view.width);
      return [(x0 + x1) / 2, yOf(model.spanLane[span]) + view.lane / 2, x1, yOf(model.spanLane[span])];
    });
    ctx.strokeStyle = theme.bad;
    ctx.lineWidth = 1.8;
    ctx.setLineDash([6, 4]);
    ctx.beginPath();
    for (const [a, b] of fault.edges) {
      if (!centres[a] || !centres[b]) continue;
      ctx.moveTo(centres[a][0], centres[a][1]);
      ctx.lineTo(centres[b][0], centres[b][1]);
    }
    ctx.stroke();
    ctx.setLineDash([]);
    for (const centre of centres) if (centre) badge(centre[2], centre[3] + 3, String(f + 1), theme.bad);
    if (view.fault === f) {
      fault.steps.forEach(([, op], s) => {
        const span = op === null ? -1 : spanOf(op, 0);
        if (span >= 0) badge(Math.max(xOf(model.start[span]), GUTTER) + 4, yOf(model.spanLane[span]) + view.lane - 4, String(s + 1), theme.accent);
      });
    }
  });
}

function drawAxis() {
  ctx.fillStyle = theme.panel;
  ctx.fillRect(0, 0, view.width, AXIS);
  ctx.fillStyle = theme.line;
  ctx.fillRect(0, AXIS - 1, view.width, 1);
  ctx.font = FONT;
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  ctx.fillStyle = theme.muted;
  const step = tickStep();
  for (let t = Math.max(Math.ceil(view.from / step), 0) * step; xOf(t) < view.width && t <= wholeTime; t += step) {
    ctx.fillRect(Math.round(xOf(t)), AXIS - 6, 1, 5);
    const label = formatTime(t);
    if (xOf(t) + 4 + label.length * LETTER < view.width) ctx.fillText(label, xOf(t) + 4, AXIS / 2);
  }
}

function drawGutter(first, last) {
  ctx.fillStyle = theme.panel;
  ctx.fillRect(0, 0, GUTTER, view.height);
  ctx.fillStyle = theme.line;
  ctx.fillRect(GUTTER - 1, 0, 1, view.height);
  ctx.textBaseline = "middle";
  const hovered = view.hover >= 0 ? model.spanLane[view.hover] : -1;
  let lastName = -Infinity, lastTb = -Infinity;
  ctx.save();
  ctx.beginPath();
  ctx.rect(0, AXIS, GUTTER, view.height - AXIS);
  ctx.clip();
  for (let i = first; i < last; i++) {
    const lane = model.lanes[i], middle = yOf(i) + view.lane / 2;
    const opens = i === 0 || model.lanes[i - 1].rank !== lane.rank || i === first;
    // A rank that is scrolled half out of sight keeps its name in sight while its next lane is.
    const stays = i + 1 < model.laneCount && model.lanes[i + 1].rank === lane.rank;
    const y = stays ? Math.max(middle, AXIS + 8) : middle;
    if (opens && y - lastName >= 13) {
      ctx.font = "600 " + FONT;
      ctx.textAlign = "left";
      ctx.fillStyle = theme.ink;
      ctx.fillText(`rank ${lane.rank}`, 10, y);
      lastName = y;
    }
    if (middle - lastTb >= 12 || i === hovered) {
      ctx.font = FONT;
      ctx.textAlign = "right";
      ctx.fillStyle = i === hovered ? theme.accent : theme.muted;
      ctx.fillText(`tb ${lane.tb}`, GUTTER - 9, middle);
      lastTb = middle;
    }
  }
  ctx.restore();
  ctx.fillStyle = theme.panel;
  ctx.fillRect(0, 0, GUTTER - 1, AXIS - 1);
}

function draw() {
  const [first, last] = lanesInSight();
  ctx.fillStyle = theme.panel;
  ctx.fillRect(0, 0, view.width, view.height);
  drawLanes(first, last);
  drawGrid();
  drawIterations(first, last);
  drawSpans(first, last);
  drawArrows();
  drawCritical();
  drawRelated(view.selected);
  if (view.hover !== view.selected) drawRelated(view.hover);
  if (view.selected >= 0) outline(view.selected, theme.ink, 2, 1.5);
  if (view.hover >= 0) outline(view.hover, theme.ink, 1.2, 1);
  drawFaults();
  drawAxis();
  drawGutter(first, last);
  if (!model.spanCount) {
    ctx.fillStyle = theme.muted;
    ctx.textAlign = "center";
    ctx.font = FONT;
    ctx.fillText("This plan runs no operation at this size.", view.width / 2, view.height / 2);
  }
  drawOverview();
  showStatus();
}

// How much of every moment each family fills, over all lanes; waiting on top.
let activity = null;
function measureActivity(width) {
  const sums = Array.from({ length: FAMILIES + 1 }, () => new Float32Array(width + 2));
  const add = (row, from, to) => {
    const a = (from / wholeTime) * width, b = (to / wholeTime) * width, i = Math.floor(a), j = Math.min(Math.floor(b), width);
    if (i === j) { row[i] += b - a; return; }
    row[i] += i + 1 - a;
    for (let k = i + 1; k < j; k++) row[k] += 1;
    row[j] += b - j;
  };
  for (let i = 0; i < model.spanCount; i++) {
    if (model.ready[i] > model.start[i]) add(sums[FAMILIES], model.start[i], model.ready[i]);
    if (model.end[i] > model.ready[i]) add(sums[model.family[model.spanOp[i]]], model.ready[i], model.end[i]);
  }
  return { width, sums };
}

function paintActivity(width, height) {
  const image = document.createElement("canvas"), c = image.getContext("2d");
  image.width = width;
  image.height = height;
  const usable = height - 8, lanes = Math.max(model.laneCount, 1), below = new Float32Array(width);
  for (let f = 0; f <= FAMILIES; f++) {
    c.fillStyle = f === FAMILIES ? theme.line : theme.fill[f];
    const row = activity.sums[f];
    for (let x = 0; x < width; x++) {
      if (!row[x]) continue;
      const h = (row[x] / lanes) * usable;
      c.fillRect(x, height - 3 - below[x] - h, 1, h);
      below[x] += h;
    }
  }
  return image;
}

function drawOverview() {
  const width = Math.round(plotWidth()), height = 46;
  if (!activity || activity.width !== width) { activity = measureActivity(width); activityImage = null; }
  if (!activityImage) activityImage = paintActivity(width, height);
  octx.fillStyle = theme.panel;
  octx.fillRect(0, 0, width + GUTTER, height);
  octx.drawImage(activityImage, GUTTER, 0);
  octx.fillStyle = theme.muted;
  octx.font = FONT;
  octx.textAlign = "left";
  octx.textBaseline = "middle";
  octx.fillText("all lanes", 10, height / 2);
  const x0 = GUTTER + Math.max(view.from, 0) / wholeTime * width, x1 = GUTTER + Math.min(tickAt(view.width), wholeTime) / wholeTime * width;
  octx.globalAlpha = 0.55;
  octx.fillStyle = theme.bg;
  octx.fillRect(GUTTER, 0, x0 - GUTTER, height);
  octx.fillRect(x1, 0, GUTTER + width - x1, height);
  octx.globalAlpha = 1;
  octx.strokeStyle = theme.accent;
  octx.lineWidth = 1.5;
  octx.strokeRect(x0 + 0.75, 1, Math.max(x1 - x0 - 1.5, 2), height - 2);
}

let scheduled = false;
function redraw() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => { scheduled = false; draw(); });
}
