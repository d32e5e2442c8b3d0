// Pointer, wheel, keyboard, and the filter.

function hoverAt(x, y) {
  const span = hit(x, y);
  if (span !== view.hover) { view.hover = span; redraw(); }
  showTip(span, x, y);
}

let drag = null;
canvas.addEventListener("pointerdown", (event) => {
  if (event.button !== 0) return;
  drag = { x: event.offsetX, y: event.offsetY, moved: false };
  try { canvas.setPointerCapture(event.pointerId); } catch { /* a pointer that is gone again */ }
});
canvas.addEventListener("pointermove", (event) => {
  const { offsetX: x, offsetY: y } = event;
  if (!drag) { hoverAt(x, y); return; }
  if (!drag.moved && Math.hypot(x - drag.x, y - drag.y) < 4) return;
  drag.moved = true;
  canvas.classList.add("dragging");
  byId("tip").hidden = true;
  panBy(x - drag.x, y - drag.y);
  [drag.x, drag.y] = [x, y];
  redraw();
});
canvas.addEventListener("pointerup", (event) => {
  if (drag && !drag.moved) {
    const span = hit(event.offsetX, event.offsetY);
    view.selected = span;
    showDetails(span < 0 ? -1 : model.spanOp[span], span);
    redraw();
  }
  drag = null;
  canvas.classList.remove("dragging");
});
canvas.addEventListener("pointercancel", () => { drag = null; canvas.classList.remove("dragging"); });
canvas.addEventListener("pointerleave", () => { view.hover = -1; byId("tip").hidden = true; redraw(); });
canvas.addEventListener("dblclick", (event) => {
  const span = hit(event.offsetX, event.offsetY);
  if (span < 0) { fit(); redraw(); return; }
  const length = Math.max(model.end[span] - model.start[span], 1);
  view.scale = (plotWidth() * 0.5) / length;
  clampView();
  view.from = (model.start[span] + model.end[span]) / 2 - plotWidth() / view.scale / 2;
  select(span);
});

// Lines and pages of a wheel, in pixels.
const wheelUnit = (event) => [1, 16, 400][event.deltaMode] || 1;
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  const unit = wheelUnit(event), dx = event.deltaX * unit, dy = event.deltaY * unit;
  const overflows = lanesTop[model.laneCount] + PAD > plotHeight() + 1;
  if (event.altKey) zoomLanes(Math.exp(-dy * 0.002), event.offsetY);
  else if (event.ctrlKey || event.metaKey) zoom(Math.exp(-dy * (Math.abs(dy) < 30 ? 0.012 : 0.0025)), event.offsetX);
  else if (event.shiftKey) panBy(-(dx || dy), 0);
  else if (!overflows && Math.abs(dy) > Math.abs(dx)) zoom(Math.exp(-dy * 0.0025), event.offsetX);
  else panBy(-dx, -dy);
  hoverAt(event.offsetX, event.offsetY);
  redraw();
}, { passive: false });

function step(by) {
  if (!model.spanCount) return;
  if (view.selected < 0) { select(0); return; }
  const lane = model.lanes[model.spanLane[view.selected]];
  let next = view.selected;
  do next += by; while (next >= lane.first && next < lane.last && (!visible(next) || (view.matches && !view.matches[model.spanOp[next]])));
  if (next >= lane.first && next < lane.last) select(next, undefined, 10);
}

function stepLane(by) {
  if (view.selected < 0) { panBy(0, -by * 60); redraw(); return; }
  const number = model.spanLane[view.selected] + by;
  if (number < 0 || number >= model.laneCount) return;
  const lane = model.lanes[number];
  if (lane.first === lane.last) return;
  select(Math.min(firstAfter(lane, model.start[view.selected]), lane.last - 1), undefined, 10);
}

// Along the arrow that counts: the latest cause, the first effect.
function follow(list, better) {
  if (!list.length) return;
  select(Array.from(list).reduce((best, span) => (better(span, best) ? span : best)), undefined, 10);
}

const middle = () => GUTTER + plotWidth() / 2;
const keys = {
  ArrowLeft: () => panBy(plotWidth() * 0.12, 0), ArrowRight: () => panBy(-plotWidth() * 0.12, 0),
  ArrowUp: () => stepLane(-1), ArrowDown: () => stepLane(1),
  PageUp: () => panBy(0, plotHeight() * 0.9), PageDown: () => panBy(0, -plotHeight() * 0.9),
  Home: () => { view.from = 0; clampView(); }, End: () => { view.from = wholeTime; clampView(); },
  "+": () => zoom(1.5, middle()), "=": () => zoom(1.5, middle()), "-": () => zoom(1 / 1.5, middle()),
  f: () => fit(), 0: () => fit(), n: () => step(1), p: () => step(-1), c: () => byId("critical").click(),
  "[": () => view.selected >= 0 && follow(model.inbound(view.selected), (a, b) => model.end[a] > model.end[b]),
  "]": () => view.selected >= 0 && follow(model.outbound(view.selected), (a, b) => model.ready[a] < model.ready[b]),
  "/": () => byId("search").focus(),
  Escape: () => { view.selected = view.fault = -1; document.querySelectorAll(".fault.current").forEach((card) => card.classList.remove("current")); showDetails(-1, -1); },
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const own = event.target === canvas, typing = event.target.closest("input, select, textarea");
  const key = event.key, local = key.startsWith("Arrow") || key.startsWith("Page") || key === "Home" || key === "End";
  if (typing || (local && !own && event.target !== document.body) || !Object.hasOwn(keys, key)) return;
  event.preventDefault();
  keys[key]();
  redraw();
});

// Words that must all be met: `rank 3` and `tb 1` by number, anything else within the name, place, chunks or note.
function filter(text) {
  const words = text.toLowerCase().replace(/\b(rank|tb)\s+(?=\d)/g, "$1").split(/\s+/).filter(Boolean);
  if (!words.length) { view.matches = null; byId("matches").textContent = ""; redraw(); return; }
  const matches = new Uint8Array(model.opCount);
  let count = 0, first = -1;
  for (let op = 0; op < model.opCount; op++) {
    const lane = model.lanes[model.opLane[op]];
    let rest = null;
    const met = words.every((word) => {
      const number = /^(rank|tb)(\d+)$/.exec(word);
      if (number) return (number[1] === "rank" ? lane.rank : lane.tb) === Number(number[2]);
      if (kindOf(op) === word) return true;
      if (words.length === 1 && data.kinds.some(([name]) => name === word)) return false;
      rest = rest || `${kindOf(op)} ${placeOf(op)} ${data.families[model.family[op]]} ${noteOf(op)} ${chunksOf(op, false, 99)} ${chunksOf(op, true, 99)}`.toLowerCase();
      return rest.includes(word);
    });
    if (!met) continue;
    matches[op] = 1;
    count++;
    if (first < 0) first = op;
  }
  view.matches = matches;
  view.firstMatch = first;
  byId("matches").textContent = plural(count, "match").replace("matchs", "matches");
  redraw();
}
byId("search").addEventListener("input", (event) => filter(event.target.value));
byId("search").addEventListener("keydown", (event) => {
  if (event.key === "Escape") { event.target.value = ""; filter(""); canvas.focus(); }
  if (event.key !== "Enter" || !view.matches || view.firstMatch < 0) return;
  // Enter goes from match to match.
  const from = view.selected >= 0 ? model.spanOp[view.selected] + 1 : 0;
  let op = view.matches.indexOf(1, from);
  if (op < 0) op = view.firstMatch;
  select(model.opFirst[op], op);
});

byId("critical").addEventListener("click", () => {
  view.showCritical = !view.showCritical;
  byId("critical").setAttribute("aria-pressed", String(view.showCritical));
  redraw();
});
byId("arrows").addEventListener("change", (event) => { view.arrows = event.target.value; redraw(); });
byId("zoom-in").addEventListener("click", () => { zoom(1.5, middle()); redraw(); });
byId("zoom-out").addEventListener("click", () => { zoom(1 / 1.5, middle()); redraw(); });
byId("fit").addEventListener("click", () => { fit(); redraw(); });
byId("theme").addEventListener("click", () => {
  const root = document.documentElement, dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  readTheme();
  redraw();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readTheme(); redraw(); });

const overviewTo = (event) => {
  const at = ((event.offsetX - GUTTER) / plotWidth()) * wholeTime;
  view.from = at - plotWidth() / view.scale / 2;
  clampView();
  redraw();
};
overview.addEventListener("pointerdown", (event) => {
  try { overview.setPointerCapture(event.pointerId); } catch { /* a pointer that is gone again */ }
  overviewTo(event);
});
overview.addEventListener("pointermove", (event) => { if (event.buttons & 1) overviewTo(event); });
