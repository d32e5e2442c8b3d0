//! The page's data block: numbers in columns, so that thousands of operations stay small and fast to read.

use super::faults::{Findings, findings};
use super::scene::Scene;
use super::{Clock, Family, Picture, words};
use crate::model::Buffer;
use serde::Serialize;
use std::collections::HashMap;

/// Ticks of a whole timeline, at most: nine digits.
const MOST_TICKS: f64 = 1e9;

/// Everything the page knows.
#[derive(Serialize)]
struct Data<'a> {
    plan: Facts<'a>,
    families: [&'static str; Family::ALL.len()],
    /// Names of operations, each with its family.
    kinds: Vec<(&'static str, u8)>,
    /// Rank, block, number of operations, number of spans.
    lanes: Vec<(u32, u32, u32, u32)>,
    ops: Ops,
    /// Texts that operations point to.
    notes: Vec<String>,
    spans: Spans,
    /// Two positions in the spans for each arrow.
    arrows: Vec<u32>,
    critical: &'a [u32],
    /// Name, bytes, busy seconds, bytes a second.
    links: Vec<(&'a str, u64, f64, f64)>,
    report: Option<Findings>,
}

/// The head of the page.
#[derive(Serialize)]
struct Facts<'a> {
    name: &'a str,
    collective: &'a str,
    protocol: &'static str,
    in_place: bool,
    ranks: usize,
    input: u64,
    output: u64,
    /// Whether the times are predictions.
    timed: bool,
    /// The topology, or why there are no times.
    clock: &'a str,
    fingerprint: String,
    /// Seconds of a tick.
    tick: f64,
    /// Ticks of the whole timeline.
    end: u64,
}

/// One entry for each operation, lane after lane.
#[derive(Default, Serialize)]
struct Ops {
    kind: Vec<u32>,
    at: Vec<u32>,
    /// Position in the pipeline plus one, 0 outside.
    inner: Vec<u32>,
    /// Position in the notes plus one, 0 for none.
    note: Vec<u32>,
    reads: Vec<u32>,
    writes: Vec<u32>,
    /// For each reference read, then written: buffer (plus 3 for a switch channel), owner, first chunk, chunks.
    refs: Vec<u64>,
}

/// One entry for each span, lane after lane.
#[derive(Default, Serialize)]
struct Spans {
    /// Counts from the lane's first operation.
    op: Vec<u32>,
    /// Ticks between the end of the lane's last span and this one's start; negative where they overlap.
    gap: Vec<i64>,
    /// Ticks waited.
    wait: Vec<u64>,
    /// Ticks from then on.
    run: Vec<u64>,
    bytes: Vec<u64>,
    /// Empty where no pipeline turns twice.
    iteration: Vec<u64>,
}

/// The data block as JSON that may stand inside a `script` element: no `<` is left in it.
pub(super) fn json(picture: &Picture<'_>) -> String {
    let scene = Scene::new(picture);
    let plan = picture.plan;
    let (timed, clock) = match picture.clock {
        Clock::Simulated(topology) => (true, topology),
        Clock::Order(why) => (false, why),
    };
    let ends = picture.timeline.spans.iter().map(|span| span.end);
    let end = ends.fold(picture.timeline.end, f64::max);
    let tick = tick(end);
    let (ops, kinds, notes) = ops(&scene);
    let data = Data {
        plan: Facts {
            name: &plan.name,
            collective: plan.collective.name(),
            protocol: plan.protocol.name(),
            in_place: plan.in_place,
            ranks: plan.gpus.len(),
            input: picture.sizes.input,
            output: picture.sizes.output,
            timed,
            clock,
            fingerprint: format!("{:016x}", picture.layout.fingerprint),
            tick,
            end: ticks(end, tick),
        },
        families: Family::ALL.map(Family::name),
        kinds,
        lanes: scene
            .lanes
            .iter()
            .map(|lane| (lane.rank, lane.tb, lane.ops, lane.spans.1 - lane.spans.0))
            .collect(),
        ops,
        notes,
        spans: spans(&scene, tick),
        arrows: scene.arrows.iter().flat_map(|&(from, to)| [from, to]).collect(),
        critical: &scene.critical,
        links: picture
            .timeline
            .links
            .iter()
            .map(|link| (&link.name[..], link.bytes, link.busy, link.bandwidth))
            .collect(),
        report: picture.report.map(|report| findings(&scene, report)),
    };
    let text = serde_json::to_string(&data).expect("no map of the data has keys that are no text");
    text.replace('<', "\\u003c")
}

/// A power of ten of seconds that divides `end` into at most [`MOST_TICKS`].
fn tick(end: f64) -> f64 {
    let finest = 1e-12;
    if !end.is_finite() || end <= finest * MOST_TICKS {
        return finest;
    }
    10f64.powi((end / MOST_TICKS).log10().ceil() as i32)
}

fn ticks(seconds: f64, tick: f64) -> u64 {
    (seconds / tick).round().max(0.0) as u64
}

fn ops(scene: &Scene<'_>) -> (Ops, Vec<(&'static str, u8)>, Vec<String>) {
    let (mut ops, mut kinds, mut notes) = (Ops::default(), Vec::new(), Vec::new());
    let mut known_kinds = HashMap::new();
    let mut known_notes = HashMap::new();
    for lane in &scene.lanes {
        let own = lane.first_op as usize..(lane.first_op + lane.ops) as usize;
        for named in &scene.ops[own] {
            let op = named.op;
            let kind = (op.kind.name(), Family::of(op) as u8);
            ops.kind.push(*known_kinds.entry(kind).or_insert_with(|| {
                kinds.push(kind);
                kinds.len() as u32 - 1
            }));
            ops.at.push(named.at);
            ops.inner.push(named.inner.map_or(0, |inner| inner + 1));
            let note = words::note(lane, named);
            ops.note.push(if note.is_empty() {
                0
            } else if let Some(&known) = known_notes.get(&note) {
                known
            } else {
                notes.push(note.clone());
                known_notes.insert(note, notes.len() as u32);
                notes.len() as u32
            });
            for (list, count) in [(&op.src, &mut ops.reads), (&op.dst, &mut ops.writes)] {
                let before = ops.refs.len();
                for chunk in list.iter().filter_map(|chunk| words::resolve(lane, op, chunk)) {
                    let buffer = match chunk.buffer {
                        Buffer::Input => 0,
                        Buffer::Output => 1,
                        Buffer::Scratch => 2,
                    };
                    let buffer = if chunk.switch { buffer + 3 } else { buffer };
                    ops.refs.extend([buffer, chunk.owner, chunk.index, chunk.size]);
                }
                count.push((ops.refs.len() - before) as u32 / 4);
            }
        }
    }
    (ops, kinds, notes)
}

fn spans(scene: &Scene<'_>, tick: f64) -> Spans {
    let mut spans = Spans::default();
    let iterates = scene.spans.iter().any(|(_, span)| span.iteration > 0);
    for lane in &scene.lanes {
        let mut last = 0;
        for &(op, span) in &scene.spans[lane.spans.0 as usize..lane.spans.1 as usize] {
            let start = ticks(span.start, tick);
            let ready = ticks(span.ready, tick).max(start);
            let end = ticks(span.end, tick).max(ready);
            spans.op.push(op - lane.first_op);
            spans.gap.push(start as i64 - last as i64);
            spans.wait.push(ready - start);
            spans.run.push(end - ready);
            spans.bytes.push(span.bytes);
            if iterates {
                spans.iteration.push(span.iteration);
            }
            last = end;
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_have_at_most_nine_digits() {
        for (end, expected) in
            [(0.0, 1e-12), (1e-6, 1e-12), (1e-3, 1e-12), (2e-3, 1e-11), (5.0, 1e-8)]
        {
            let tick = tick(end);
            assert!((tick / expected - 1.0).abs() < 1e-9, "{end}: {tick}");
            assert!(ticks(end, tick) <= MOST_TICKS as u64 + 1);
        }
        assert_eq!(tick(f64::INFINITY), 1e-12);
    }
}
