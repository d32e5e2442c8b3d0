// The part of the page that is elements: head, legend, findings, details, tables. Texts of the plan only ever become text
// nodes.

const byId = (id) => document.getElementById(id);

function element(tag, properties, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties || {})) {
    if (name === "style") node.style.cssText = value;
    else if (name.startsWith("aria-")) node.setAttribute(name, value);
    else node[name] = value;
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

const row = (name, value) => (value ? element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, value)) : null);
const familyStyle = (f) => `--c: var(--f${f}); --on: var(--on${f}, var(--ink))`;
const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

function fillHead() {
  const item = (name, value, main) => element("div", main ? { className: "main" } : {}, element("dt", {}, name), element("dd", {}, value));
  byId("facts").append(
    facts.timed ? item("predicted", formatTime(wholeTime === 1 ? facts.end : wholeTime), true) : item("order only", facts.clock, true),
    item("collective", facts.collective + (facts.in_place ? ", in place" : "")),
    item("ranks", String(facts.ranks)),
    item("blocks", String(model.laneCount)),
    item("operations", model.opCount.toLocaleString("en")),
    item("in", formatBytes(facts.input)),
    item("out", formatBytes(facts.output)),
    ...(facts.timed ? [item("on", facts.clock)] : []),
  );
}

function fillLegend() {
  const counts = new Array(FAMILIES).fill(0);
  for (let op = 0; op < model.opCount; op++) counts[model.family[op]]++;
  data.families.forEach((name, f) => {
    if (!counts[f] || name === "pipeline") return;
    const button = element("button", { type: "button", className: "toggle", style: familyStyle(f), "aria-pressed": "true", title: `Show or hide ${name}` },
      element("span", { className: "swatch" }), name, element("span", { className: "count" }, counts[f].toLocaleString("en")));
    button.dataset.family = f;
    button.addEventListener("click", () => {
      view.hidden[f] = view.hidden[f] ? 0 : 1;
      button.setAttribute("aria-pressed", String(!view.hidden[f]));
      redraw();
    });
    byId("legend").append(button);
  });
  byId("legend").append(element("span", { className: "key" }, element("span", { className: "hatch" }), "waiting"));
}

function opLink(op, span, text) {
  const button = element("button", { type: "button", className: "link" }, text);
  button.addEventListener("click", () => select(span, op));
  return button;
}

function relatedList(title, className, list, describe) {
  if (!list.length) return [];
  const items = Array.from(list.subarray(0, 12), (span) =>
    element("li", {}, opLink(model.spanOp[span], span, describe(span))));
  if (list.length > 12) items.push(element("li", { className: "empty" }, `and ${list.length - 12} more`));
  return [element("p", { className: `sub ${className}` }, `${title} ${plural(list.length, "operation")}`), element("ul", { className: "list" }, ...items)];
}

function operationTable(op, span, most) {
  const rows = [row("reads", chunksOf(op, false, most)), row("writes", chunksOf(op, true, most)), row("with", noteOf(op))];
  if (span >= 0) {
    const wait = model.ready[span] - model.start[span], run = model.end[span] - model.ready[span], bytes = data.spans.bytes[span];
    const rate = bytes && run && facts.timed ? `, ${formatRate(bytes / (run * facts.tick))}` : "";
    const turns = data.ops.inner[op] ? String(iterationOf(span)) : "";
    rows.push(row("iteration", turns), row("starts", formatTime(model.start[span])));
    if (facts.timed) rows.push(row("waits", wait ? formatTime(wait) : ""), row("runs", formatTime(run)));
    rows.push(row("ends", formatTime(model.end[span])), row("moves", bytes ? formatBytes(bytes) + rate : ""));
  } else if (model.family[op] !== data.families.indexOf("pipeline")) {
    rows.push(row("runs", "never"));
  }
  return element("table", {}, element("tbody", {}, ...rows.filter(Boolean)));
}

function opTitle(op) {
  return element("div", { className: "op-title", style: familyStyle(model.family[op]) },
    element("span", { className: "chip" }, kindOf(op)), element("span", {}, shortPlace(op)));
}

const markTexts = (op) => (marksOf.get(op) || []).map(([f, m]) => `${f + 1}. ${faults[f].kind}: ${faults[f].marks[m][2]}`);

function showDetails(op, span) {
  const box = byId("details");
  if (op < 0) {
    box.replaceChildren(element("p", { className: "empty" }, "Click an operation to keep it here; hover for a glance."));
    return;
  }
  const waits = span >= 0 ? relatedList("waited for", "in", model.inbound(span), (s) => `${kindOf(model.spanOp[s])}, ${shortPlace(model.spanOp[s])}`) : [];
  const lets = span >= 0 ? relatedList("lets go on", "out", model.outbound(span), (s) => `${kindOf(model.spanOp[s])}, ${shortPlace(model.spanOp[s])}`) : [];
  box.replaceChildren(opTitle(op), element("div", { className: "place" }, placeOf(op)), operationTable(op, span, 24), ...waits, ...lets,
    ...markTexts(op).map((text) => element("p", { className: "fault" }, text)));
}

function showTip(span, x, y) {
  const tip = byId("tip");
  tip.hidden = span < 0;
  if (span < 0) return;
  const op = model.spanOp[span];
  tip.replaceChildren(opTitle(op), element("div", { className: "place" }, placeOf(op)), operationTable(op, span, 4),
    ...markTexts(op).map((text) => element("p", { className: "bad" }, text)));
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(x + 16 + box.width > view.width ? x - box.width - 12 : x + 16, 4)}px`;
  tip.style.top = `${Math.max(Math.min(y + 16, view.height - box.height - 6), AXIS)}px`;
}

function select(span, op, least) {
  view.selected = span;
  const own = op === undefined ? (span >= 0 ? model.spanOp[span] : -1) : op;
  if (span >= 0) reveal(span, least);
  showDetails(own, span);
  redraw();
}

function selectFault(f) {
  view.fault = view.fault === f ? -1 : f;
  document.querySelectorAll("#findings .fault").forEach((card, i) => card.classList.toggle("current", i === view.fault));
  const fault = faults[f], spans = fault.marks.map(([op, iteration]) => spanOf(op, iteration)).filter((span) => span >= 0);
  if (view.fault >= 0 && spans.length) {
    const from = Math.min(...spans.map((s) => model.start[s])), to = Math.max(...spans.map((s) => model.end[s]));
    view.scale = Math.min((plotWidth() * 0.6) / Math.max(to - from, 1), view.scale * 1e6);
    clampView();
    view.from = (from + to) / 2 - plotWidth() / view.scale / 2;
    clampView();
    view.selected = spans[0];
    reveal(spans[0], 0);
    showDetails(model.spanOp[spans[0]], spans[0]);
  }
  redraw();
}

function fillFindings() {
  const report = data.report;
  if (!report) return;
  byId("findings").hidden = false;
  const badge = byId("verdict");
  badge.hidden = false;
  badge.classList.add(report.verdict.replace(" ", "-"));
  badge.textContent = { proven: "✓ proven", refuted: `✗ refuted: ${faults.map((fault) => fault.kind).filter((kind, i, all) => all.indexOf(kind) === i).join(", ")}`, "not proven": "? not proven" }[report.verdict];
  badge.addEventListener("click", () => (faults.length ? selectFault(0) : byId("findings").scrollIntoView()));
  const body = byId("findings-body");
  if (report.verdict === "proven") body.append(element("p", { className: "note" }, "No schedule of any valid size deadlocks, races or computes something else."));
  faults.forEach((fault, f) => {
    const title = element("button", { type: "button", className: "link title" }, `${f + 1}. ${fault.kind}`);
    title.addEventListener("click", () => selectFault(f));
    const steps = fault.steps.map(([text, op]) =>
      element("li", {}, op === null ? text : opLink(op, spanOf(op, 0), text)));
    // Lines that a mark is about are links to it; marks that no line is about come after.
    const link = ([op, iteration, text]) => opLink(op, spanOf(op, iteration), text.includes(shortPlace(op)) ? text : `${shortPlace(op)} ${text}`);
    const [first, ...lines] = fault.text.split("\n").map((line) => line.trim());
    const told = new Set(lines), markOf = (line) => fault.marks.find((mark) => mark[2] === line);
    const rest = fault.marks.filter((mark) => !told.has(mark[2]));
    const items = lines.map((line) => element("li", {}, markOf(line) ? link(markOf(line)) : line));
    const others = rest.map((mark) => element("li", {}, link(mark)));
    const many = others.length > 4;
    body.append(element("div", { className: "fault" }, title, element("p", {}, first.startsWith(`${fault.kind}: `) ? first.slice(fault.kind.length + 2) : first),
      items.length ? element("ul", { className: "list" }, ...items) : null,
      many ? element("details", {}, element("summary", {}, `${others.length} more operations`), element("ul", { className: "list" }, ...others)) : null,
      others.length && !many ? element("ul", { className: "list" }, ...others) : null,
      element("p", { className: "empty" }, `with ${fault.case}`),
      steps.length ? element("p", { className: "sub" }, "it shows in this order") : null,
      steps.length ? element("ol", {}, ...steps) : null));
  });
  for (const reason of report.reasons) body.append(element("p", { className: "note" }, reason));
  if (report.same_bits !== null) {
    body.append(element("p", { className: "note" }, report.same_bits ? "Every rank gets the same bits." : "Ranks may get different bits: they combine in different orders."));
  }
  if (report.notes.length) {
    const notes = report.notes.map(([about, text]) => element("p", { className: "note" }, element("b", {}, `${about} `), text));
    body.append(element("details", { open: report.notes.length < 5 }, element("summary", {}, plural(report.notes.length, "note")), ...notes));
  }
}

function share(value, className) {
  const part = Math.min(Math.max(value, 0), 1);
  return element("span", { className: "bar", title: `${Math.round(part * 100)} %` }, element("i", { className: className || "", style: `width: ${part * 100}%` }));
}

function table(columns, rows) {
  const head = element("tr", {}, ...columns.map((name) => element("th", { scope: "col" }, name)));
  return element("table", { className: "columns" }, element("thead", {}, head), element("tbody", {}, ...rows));
}

function fillLinks() {
  if (!data.links.length) return;
  byId("links-section").hidden = false;
  const links = data.links.slice().sort((a, b) => b[2] - a[2] || b[1] - a[1]);
  const seconds = facts.end * facts.tick || 1, most = 200;
  const rows = links.slice(0, most).map(([name, bytes, busy, bandwidth]) => element("tr", { title: `${formatRate(bandwidth)} at most` },
    element("td", {}, name), element("td", {}, formatBytes(bytes)), element("td", {}, share(busy / seconds), ` ${Math.round((busy / seconds) * 100)} %`)));
  byId("links").append(table(["link", "carried", "busy"], rows));
  if (links.length > most) byId("links").append(element("p", { className: "empty" }, `and ${links.length - most} that are less busy`));
}

function fillPath() {
  const path = data.critical;
  if (!path.length) return;
  byId("path-section").hidden = false;
  const total = new Map();
  let own = 0;
  for (const span of path) {
    const kind = kindOf(model.spanOp[span]), run = model.end[span] - model.ready[span];
    total.set(kind, (total.get(kind) || 0) + run);
    own += run;
  }
  const rows = [...total].sort((a, b) => b[1] - a[1]).slice(0, 8).map(([kind, time]) =>
    element("tr", {}, element("td", { className: "mono" }, kind), element("td", {}, formatTime(time)), element("td", {}, share(time / wholeTime))));
  const rest = Math.max(wholeTime - own, 0);
  rows.push(element("tr", {}, element("td", {}, "on the way"), element("td", {}, formatTime(rest)), element("td", {}, share(rest / wholeTime, "wait"))));
  byId("path").append(element("p", { className: "note" }, `${plural(path.length, "operation")} that the whole time hangs on.`), table(["operation", "time", "share"], rows));
}

function fillRanks() {
  const byRank = new Map();
  for (const lane of model.lanes) {
    const sum = byRank.get(lane.rank) || { lane: lane.number, blocks: 0, ops: 0, run: 0, wait: 0 };
    sum.blocks++;
    sum.ops += lane.ops;
    for (let i = lane.first; i < lane.last; i++) {
      sum.wait += model.ready[i] - model.start[i];
      sum.run += model.end[i] - model.ready[i];
    }
    byRank.set(lane.rank, sum);
  }
  const rows = [...byRank].map(([rank, sum]) => {
    const button = element("button", { type: "button", className: "link" }, `rank ${rank}`);
    button.addEventListener("click", () => { view.top = lanesTop[sum.lane] - 8; if (view.lane < 16) zoomLanes(20 / view.lane, AXIS); view.top = lanesTop[sum.lane] - 8; clampView(); redraw(); });
    const whole = wholeTime * sum.blocks;
    return element("tr", {}, element("td", {}, button), element("td", {}, String(sum.blocks)), element("td", {}, sum.ops.toLocaleString("en")),
      element("td", {}, share(sum.run / whole)), element("td", {}, share(sum.wait / whole, "wait")));
  });
  byId("ranks").append(table(["rank", "blocks", "ops", "busy", "waits"], rows));
}

function showStatus() {
  const seen = formatTime(Math.min(plotWidth() / view.scale, wholeTime));
  const all = plural(arrowsInSight, "arrow");
  const some = arrowsInSight <= arrowsShown ? "" : arrowsShown ? `, ${arrowsShown.toLocaleString("en")} of ${all} drawn` : `, ${all}: hover, or zoom in`;
  const text = facts.timed ? `${seen} in sight${some}` : `not timed${some}`;
  if (byId("status").textContent !== text) byId("status").textContent = text;
}
