//! What the verifier found, tied to the operations it is about.

use super::scene::Scene;
use super::words::{self, resolve};
use crate::lower::Site;
use crate::model::Buffer;
use crate::schedule::{Actor, Case, Touch};
use crate::simulate::OpSpan;
use crate::verify::{Fault, Refutation, Report, Verdict};
use serde::Serialize;

/// The verdict, for the page.
#[derive(Serialize)]
pub(super) struct Findings {
    verdict: &'static str,
    same_bits: Option<bool>,
    reasons: Vec<String>,
    notes: Vec<(&'static str, String)>,
    cases: Vec<String>,
    faults: Vec<Finding>,
}

/// One way to go wrong.
#[derive(Serialize)]
pub(super) struct Finding {
    pub(super) kind: &'static str,
    pub(super) text: String,
    case: String,
    /// Operation, iteration, and what it does wrong.
    pub(super) marks: Vec<(u32, u64, String)>,
    /// Pairs of positions in `marks`: who waits for whom, or who collides with whom.
    pub(super) edges: Vec<(u32, u32)>,
    /// What must happen, and the operation that each step is about.
    steps: Vec<(String, Option<u32>)>,
}

/// The whole report.
pub(super) fn findings(scene: &Scene<'_>, report: &Report) -> Findings {
    let (verdict, reasons) = match &report.verdict {
        Verdict::Proven => ("proven", Vec::new()),
        Verdict::Refuted(_) => ("refuted", Vec::new()),
        Verdict::NotProven(reasons) => ("not proven", reasons.clone()),
    };
    let notes = report.notes.iter().map(|note| (note.about.name(), note.text.clone()));
    Findings {
        verdict,
        same_bits: report.same_bits,
        reasons,
        notes: notes.collect(),
        cases: report.cases.iter().map(case).collect(),
        faults: faults(scene, report),
    }
}

/// The faults alone.
pub(super) fn faults(scene: &Scene<'_>, report: &Report) -> Vec<Finding> {
    match &report.verdict {
        Verdict::Refuted(refutations) => refutations.iter().map(|r| finding(scene, r)).collect(),
        Verdict::Proven | Verdict::NotProven(_) => Vec::new(),
    }
}

fn case(case: &Case) -> String {
    let place = if case.in_place { "in place" } else { "out of place" };
    format!(
        "{} in, {} out, {place}, {} launches",
        words::bytes(case.sizes.input),
        words::bytes(case.sizes.output),
        case.launches
    )
}

fn finding(scene: &Scene<'_>, refutation: &Refutation) -> Finding {
    let Refutation { fault, steps, .. } = refutation;
    let mut finding = Finding {
        kind: "",
        text: fault.to_string(),
        case: case(&refutation.case),
        marks: Vec::new(),
        edges: Vec::new(),
        steps: steps.iter().map(|step| (step.clone(), first_op(scene, step))).collect(),
    };
    match fault {
        Fault::Deadlock { launch, blocked, cycle } => {
            finding.kind = "deadlock";
            // The lines of the text are about the circle, in its order.
            let text = finding.text.clone();
            let told: Vec<_> = cycle.iter().zip(text.lines().skip(1)).collect();
            let mut at = vec![None; blocked.len()];
            for ((position, waiter), at) in blocked.iter().enumerate().zip(&mut at) {
                let line = told.iter().find(|(of, _)| **of == position);
                let text = match line {
                    Some((_, line)) => line.trim().to_owned(),
                    None => format!("waits for ever in launch {launch} for {}", waiter.on),
                };
                *at = mark(scene, &mut finding.marks, Some(&waiter.site), 0, text);
            }
            let ends = cycle.iter().zip(cycle.iter().cycle().skip(1));
            for (&from, &to) in ends.filter(|(from, to)| from != to) {
                let ends = at.get(from).copied().flatten().zip(at.get(to).copied().flatten());
                finding.edges.extend(ends);
            }
        }
        Fault::Race { first, second } => {
            finding.kind = "race";
            let texts = finding.text.clone();
            let mut texts = texts.lines().skip(1).map(|line| line.trim().to_owned());
            let ends = [first, second].map(|touch| {
                let text = texts.next().unwrap_or_default();
                mark(scene, &mut finding.marks, touch.site.as_ref(), iteration(touch), text)
            });
            if let [Some(from), Some(to)] = ends {
                finding.edges.push((from, to));
            }
        }
        Fault::Wrong { rank, bytes, expected, found, .. } => {
            finding.kind = "wrong result";
            let text = format!(
                "the last write to the output of rank {rank}, whose bytes {}..{} hold {found}, should hold {expected}",
                bytes.start, bytes.end
            );
            if let Some((op, iteration)) = last_write(scene, *rank) {
                finding.marks.push((op, iteration, text));
            }
        }
    }
    finding
}

fn mark(
    scene: &Scene<'_>,
    marks: &mut Vec<(u32, u64, String)>,
    site: Option<&Site>,
    iteration: u64,
    text: String,
) -> Option<u32> {
    let op = scene.op(site?)?;
    marks.push((op, iteration, text));
    Some(marks.len() as u32 - 1)
}

fn iteration(touch: &Touch) -> u64 {
    match touch.actor {
        Actor::Threads(moment) | Actor::Proxy(moment) => moment.iteration,
        Actor::User { .. } => 0,
    }
}

/// The write to the output of a rank that ends last: where a wrong output is shown.
fn last_write(scene: &Scene<'_>, rank: u32) -> Option<(u32, u64)> {
    let mut last: Option<(u32, &OpSpan)> = None;
    for lane in &scene.lanes {
        for &(op, span) in &scene.spans[lane.spans.0 as usize..lane.spans.1 as usize] {
            let named = scene.ops[op as usize].op;
            let writes = || {
                named.dst.iter().filter_map(|chunk| resolve(lane, named, chunk)).any(|chunk| {
                    chunk.buffer == Buffer::Output
                        && (chunk.switch || chunk.owner == u64::from(rank))
                })
            };
            if last.is_none_or(|(_, last)| last.end < span.end) && writes() {
                last = Some((op, span));
            }
        }
    }
    last.map(|(op, span)| (op, span.iteration))
}

/// The operation that a step names first, spelled as sites are: `rank 1 tb 0 op 3.2 (put)`.
fn first_op(scene: &Scene<'_>, step: &str) -> Option<u32> {
    step.match_indices("rank ").find_map(|(at, _)| {
        let mut words = step[at..].split_whitespace();
        let mut number = |name: &str| {
            words.next().filter(|word| *word == name)?;
            let word = words.next()?;
            Some(word.trim_end_matches([',', ':', ';', ')']))
        };
        let (rank, tb, op) = (number("rank")?, number("tb")?, number("op")?);
        let (at, inner) = match op.split_once('.') {
            Some((at, inner)) if !inner.is_empty() => (at, Some(inner.parse().ok()?)),
            Some((at, _)) => (at, None),
            None => (op, None),
        };
        scene.op_at(rank.parse().ok()?, tb.parse().ok()?, at.parse().ok()?, inner)
    })
}
