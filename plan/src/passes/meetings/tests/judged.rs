//! Random programs: every meeting that a thread could miss is there, none is there for nothing, and there are no more
//! than the rules of the format give.
//!
//! The judge knows nothing of runs of chunks or of states: it unrolls pipelines and compares every two operations.

use super::super::insert;
use crate::model::{Collective, OpKind, RefBase};
use crate::passes::notation::{steps, surroundings, text};
use crate::passes::{Step, data_sync, dependencies};
use proptest::collection::vec;
use proptest::prelude::*;

/// An operation and, if it is a pipeline's, the pipeline's position and the iteration.
type Done<'a> = (&'a Step, Option<(usize, usize)>);

/// Iterations of the first pipeline, the second and so on, over and over. Those over no bytes have none.
const ITERATIONS: [&[usize]; 11] = [
    &[1],
    &[2],
    &[3],
    &[0],
    &[0, 1],
    &[1, 0],
    &[0, 2],
    &[2, 0],
    &[0, 0, 1],
    &[1, 0, 0],
    &[0, 0, 2],
];

/// What runs if pipelines have these iterations.
fn unroll<'a>(steps: &'a [Step], iterations: &[usize]) -> Vec<Done<'a>> {
    let mut done = Vec::new();
    let mut iterations = iterations.iter().cycle();
    for (position, step) in steps.iter().enumerate() {
        if step.kind() != OpKind::Pipeline {
            done.push((step, None));
            continue;
        }
        for iteration in 0..*iterations.next().unwrap() {
            done.extend(step.body.iter().map(|inner| (inner, Some((position, iteration)))));
        }
    }
    done
}

/// A raw chunk that an operation touches.
struct Touch {
    /// First chunk and size of the reference.
    run: (u64, u64),
    chunk: (RefBase, u64),
    write: bool,
}

fn touched(step: &Step) -> Vec<Touch> {
    let raw = match step.kind() {
        OpKind::PutPackets | OpKind::CopyPackets => [usize::MAX, 0],
        OpKind::UnpackPackets => [0, usize::MAX],
        OpKind::ReducePackets => [1, 1],
        _ => [usize::MAX; 2],
    };
    let sides = [(&step.op.src, raw[0], false), (&step.op.dst, raw[1], true)];
    let mut chunks = Vec::new();
    for (side, raw, write) in sides {
        for chunk in side.iter().take(raw).filter(|c| matches!(c.base, RefBase::Local(_))) {
            let run = chunk.index..chunk.index + chunk.size;
            let touch =
                |at| Touch { run: (chunk.index, chunk.size), chunk: (chunk.base, at), write };
            chunks.extend(run.map(touch));
        }
    }
    chunks
}

fn depend((first, a): Done<'_>, (second, b): Done<'_>) -> bool {
    let windowed = |step: &Step| !step.kind().name().contains("pkt");
    let other_iteration = a.zip(b).is_some_and(|(a, b)| a.0 == b.0 && a.1 != b.1);
    let other_window = other_iteration && windowed(first) && windowed(second);
    touched(first).iter().any(|a| {
        touched(second).iter().any(|b| {
            let apart = other_window && a.run == b.run;
            a.chunk == b.chunk && (a.write || b.write) && !apart
        })
    })
}

/// The first two operations that need a meeting between them and have none.
fn unmet(steps: &[Step], iterations: &[usize]) -> Option<String> {
    let done = unroll(steps, iterations);
    for (position, &later) in done.iter().enumerate() {
        let lets_go_on = later.0.carries_data_sync() && !later.0.waits();
        for (gap, &earlier) in done[..position].iter().enumerate().rev() {
            if matches!(earlier.0.kind(), OpKind::Nop | OpKind::Barrier) {
                break;
            }
            let between = &done[gap + 1..position];
            let split =
                |step: &Step| step.carries_data_sync() && (step.sync.before() || step.sync.after());
            let needed = (earlier.0.moves() && later.0.moves() && depend(earlier, later))
                || (earlier.0.waits() && earlier.0.sync.after() && (later.0.moves() || lets_go_on))
                || (earlier.0.waits() && later.0.sync.before() && lets_go_on)
                || (earlier.0.waits()
                    && (later.0.moves() || lets_go_on)
                    && between
                        .iter()
                        .any(|(step, _)| step.carries_data_sync() && step.sync.before()))
                || (earlier.0.moves()
                    && later.0.sync.before()
                    && (lets_go_on || later.0.kind() == OpKind::Flush))
                || (earlier.0.moves()
                    && (later.0.moves() || lets_go_on)
                    && between.iter().any(|(step, _)| split(step)));
            if needed {
                let (earlier, later) = (earlier.0.clone(), later.0.clone());
                return Some(format!("{} and {}", text(&[earlier]).trim(), text(&[later]).trim()));
            }
        }
    }
    None
}

fn chunk(buffers: &'static [&'static str]) -> impl Strategy<Value = String> {
    (prop::sample::select(buffers), 0..6_u64, 1..4_u64)
        .prop_map(|(buffer, index, size)| format!("{buffer}{index}+{size}"))
}

fn line() -> impl Strategy<Value = String> {
    let any = || chunk(&["i", "o", "s"]);
    let sync = || prop::sample::select(vec!["none", "before", "after", "both"]);
    let name = |names: Vec<&'static str>| prop::sample::select(names);
    prop_oneof![
        4 => (any(), any()).prop_map(|(to, from)| format!("copy {to} <- {from}")),
        3 => any().prop_map(|from| format!("put @0.0 <- {from}")),
        1 => any().prop_map(|to| format!("get {to} <- @0.0")),
        2 => (any(), any()).prop_map(|(to, from)| format!("re {to} <- {to}, {from}")),
        1 => (name(vec!["ppkt @0.0 <-", "cpkt s9 <-"]), any()).prop_map(|(op, from)| format!("{op} {from}")),
        1 => any().prop_map(|to| format!("upkt {to} <- s9")),
        1 => any().prop_map(|to| format!("repkt {to} <- {to}, s9")),
        5 => (name(vec!["signal", "rlxsignal", "wait", "rlxwait", "flush", "sem_acquire", "sem_release"]), sync())
            .prop_map(|(op, sync)| format!("{op} {sync}")),
        1 => Just("nop".to_owned()),
        1 => Just("barrier".to_owned()),
    ]
}

fn lines(most: usize) -> impl Strategy<Value = String> {
    vec(line(), 0..most).prop_map(|lines| lines.join("\n"))
}

fn program(last: &'static str) -> impl Strategy<Value = String> {
    let pipeline = lines(7).prop_map(move |body| format!("pipeline {{\n{body}\n{last}\n}}"));
    let part = prop_oneof![2 => lines(6), 1 => pipeline];
    vec(part, 0..4).prop_map(|parts| parts.join("\n"))
}

/// The steps without one of their meetings, for each of them.
fn one_less(steps: &[Step]) -> Vec<Vec<Step>> {
    let mut less = Vec::new();
    for (position, step) in steps.iter().enumerate() {
        if step.kind() == OpKind::Nop {
            let mut without = steps.to_vec();
            without.remove(position);
            less.push(without);
        }
        for body in one_less(&step.body) {
            let mut without = steps.to_vec();
            without[position].body = body;
            less.push(without);
        }
    }
    less
}

fn count(steps: &[Step]) -> usize {
    steps.iter().map(Step::meetings).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn all_meetings_are_there(program in program("")) {
        let around = surroundings(&Collective::Test, false);
        let program = insert(steps(&program), &around);
        for iterations in ITERATIONS {
            prop_assert_eq!(unmet(&program, iterations), None, "{:?} iterations of\n{}", iterations, text(&program));
        }
    }

    #[test]
    fn none_is_there_for_nothing(program in program("")) {
        let around = surroundings(&Collective::Test, false);
        let own_left_out = program.replace("nop", "");
        let with = insert(steps(&own_left_out), &around);
        for without in one_less(&with) {
            let needed = ITERATIONS.iter().any(|iterations| unmet(&without, iterations).is_some());
            prop_assert!(needed, "{}\n---\n{}", text(&with), text(&without));
        }
    }

    #[test]
    fn no_more_than_the_rules_of_the_format(program in program("barrier")) {
        let around = surroundings(&Collective::Test, false);
        let compatible = dependencies::insert(data_sync::insert(steps(&program)));
        let minimal = insert(steps(&program), &around);
        // Those rules overlook things and may give too few. Named tests show what.
        if ITERATIONS.iter().all(|iterations| unmet(&compatible, iterations).is_none()) {
            let (minimal, compatible) = (&minimal, &compatible);
            prop_assert!(count(minimal) <= count(compatible), "{}\n---\n{}", text(minimal), text(compatible));
        }
    }

    #[test]
    fn a_second_time_changes_nothing(program in program("")) {
        let around = surroundings(&Collective::Test, false);
        let once = insert(steps(&program), &around);
        prop_assert_eq!(insert(once.clone(), &around), once);
    }
}
