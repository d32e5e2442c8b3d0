// The data block, decoded into typed arrays, and everything as text.

const data = JSON.parse(document.getElementById("data").textContent);
const facts = data.plan;
const FAMILIES = data.families.length;

const model = (() => {
  const laneCount = data.lanes.length;
  const opCount = data.ops.kind.length;
  const spanCount = data.spans.op.length;
  const lanes = [];
  const opLane = new Uint32Array(opCount), opRefs = new Uint32Array(opCount + 1);
  const spanOp = new Uint32Array(spanCount), spanLane = new Uint32Array(spanCount);
  const start = new Float64Array(spanCount), ready = new Float64Array(spanCount), end = new Float64Array(spanCount);
  const opFirst = new Int32Array(opCount).fill(-1);
  const family = new Uint8Array(opCount);
  for (let op = 0; op < opCount; op++) {
    family[op] = data.kinds[data.ops.kind[op]][1];
    opRefs[op + 1] = opRefs[op] + data.ops.reads[op] + data.ops.writes[op];
  }
  let op = 0, span = 0;
  for (let number = 0; number < laneCount; number++) {
    const [rank, tb, ops, spans] = data.lanes[number];
    lanes.push({ number, rank, tb, firstOp: op, ops, first: span, last: span + spans });
    opLane.fill(number, op, op + ops);
    let clock = 0;
    for (let i = span; i < span + spans; i++) {
      spanLane[i] = number;
      spanOp[i] = op + data.spans.op[i];
      start[i] = clock + data.spans.gap[i];
      ready[i] = start[i] + data.spans.wait[i];
      clock = end[i] = ready[i] + data.spans.run[i];
      if (opFirst[spanOp[i]] < 0) opFirst[spanOp[i]] = i;
    }
    op += ops;
    span += spans;
  }
  // Arrows in and out of every span, as positions in one list each.
  const adjacency = (own, other) => {
    const first = new Uint32Array(spanCount + 1), list = new Uint32Array(data.arrows.length / 2);
    for (let i = own; i < data.arrows.length; i += 2) first[data.arrows[i] + 1]++;
    for (let i = 0; i < spanCount; i++) first[i + 1] += first[i];
    const next = first.slice();
    for (let i = 0; i < data.arrows.length; i += 2) list[next[data.arrows[i + own]]++] = data.arrows[i + other];
    return (i) => list.subarray(first[i], first[i + 1]);
  };
  return {
    lanes, laneCount, opCount, spanCount, opLane, opRefs, opFirst, family, spanOp, spanLane, start, ready, end,
    inbound: adjacency(1, 0), outbound: adjacency(0, 1), arrowCount: data.arrows.length / 2,
    critical: data.critical.reduce((on, span) => { on[span] = 1; return on; }, new Uint8Array(spanCount)),
  };
})();

const faults = data.report ? data.report.faults : [];
// Operation -> [fault, mark] pairs.
const marksOf = new Map();
faults.forEach((fault, f) => fault.marks.forEach(([op], m) => {
  if (!marksOf.has(op)) marksOf.set(op, []);
  marksOf.get(op).push([f, m]);
}));

// The span in which an iteration of an operation is drawn; the operation's first, if that one never ran; else -1.
function spanOf(op, iteration) {
  const first = model.opFirst[op];
  if (first < 0 || !iteration || !data.spans.iteration.length) return first;
  const lane = model.lanes[model.opLane[op]];
  for (let i = first; i < lane.last; i++) {
    if (model.spanOp[i] === op && data.spans.iteration[i] === iteration) return i;
  }
  return first;
}

const kindOf = (op) => data.kinds[data.ops.kind[op]][0];
const noteOf = (op) => (data.ops.note[op] ? data.notes[data.ops.note[op] - 1] : "");
const iterationOf = (span) => data.spans.iteration[span] || 0;

function placeOf(op) {
  const lane = model.lanes[model.opLane[op]], inner = data.ops.inner[op];
  const outer = `gpus[${lane.rank}].threadblocks[${lane.tb}].ops[${data.ops.at[op]}]`;
  return inner ? `${outer}.ops[${inner - 1}]` : outer;
}

function shortPlace(op) {
  const lane = model.lanes[model.opLane[op]], inner = data.ops.inner[op];
  return `rank ${lane.rank} tb ${lane.tb} op ${data.ops.at[op]}${inner ? "." + (inner - 1) : ""}`;
}

function chunksOf(op, writes, most) {
  const from = model.opRefs[op] + (writes ? data.ops.reads[op] : 0);
  const count = writes ? data.ops.writes[op] : data.ops.reads[op];
  const rank = model.lanes[model.opLane[op]].rank;
  const parts = [];
  for (let i = 0; i < Math.min(count, most); i++) {
    const [buffer, owner, index, size] = data.ops.refs.slice(4 * (from + i), 4 * (from + i) + 4);
    const name = ["i", "o", "s"][buffer % 3];
    const where = buffer >= 3 ? `switch #${owner} ` : owner === rank ? "" : `rank ${owner} `;
    parts.push(`${where}${name}[${size === 1 ? index : `${index}..${index + size}`}]`);
  }
  if (count > most) parts.push(`${count - most} more`);
  return parts.join(", ");
}

function digits(value) {
  const text = value.toFixed(Math.abs(value) >= 99.95 ? 0 : Math.abs(value) >= 9.995 ? 1 : 2);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

function formatBytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let unit = 0;
  while (count >= 1024 && unit + 1 < units.length) { count /= 1024; unit++; }
  return `${digits(count)} ${units[unit]}`;
}

function formatTime(ticks) {
  if (!facts.timed) return `step ${digits(ticks * facts.tick * 1e6)}`;
  const seconds = ticks * facts.tick;
  if (seconds === 0) return "0 s";
  const [factor, unit] = seconds < 1e-6 ? [1e9, "ns"] : seconds < 1e-3 ? [1e6, "µs"] : seconds < 1 ? [1e3, "ms"] : [1, "s"];
  return `${digits(seconds * factor)} ${unit}`;
}

const formatRate = (rate) => (rate >= 1e9 ? `${digits(rate / 1e9)} GB/s` : `${digits(rate / 1e6)} MB/s`);
