//! Plans made to take the verifier's memory, time or arithmetic: it gives up, quickly.

use super::*;
use crate::model::Buffer::{Input, Output, Scratch};
use crate::verify::prove::verify_within;
use proptest::prelude::*;

fn copies(input: u64, output: u64, scratch: u64) -> Plan {
    let op = data(OpKind::Copy, &[local(Input, 0, 1)], &[local(Output, 0, 1)]);
    pair([input, output, scratch], &[&[vec![op]], &[]])
}

#[test]
fn very_many_chunks_are_given_up() {
    let mut cases = vec![("few", copies(2, 2, 2), "proven")];
    for bits in [27, 31, 32, 33, 40] {
        cases.push(("scratch", copies(1, 1, 1 << bits), "not proven"));
        cases.push(("buffers", copies(1 << bits, 1 << bits, 0), "not proven"));
    }
    expect(&cases);
}

#[test]
fn very_large_messages_and_small_windows_are_given_up() {
    let window = |min: u64, unit: u64| {
        let op = data(OpKind::Copy, &[local(Input, 0, 1)], &[local(Output, 0, 1)]);
        let mut plan = pair([1, 1, 0], &[&[vec![pipeline(unit, 1, vec![op])]], &[]]);
        plan.min_message_size = min;
        plan
    };
    let mut odd = window(1 << 40, 16);
    odd.gpus[1].input_chunks = 3;
    odd.gpus[1].output_chunks = 3;
    expect(&[
        ("small windows", window(0, 16), "proven"),
        // Few windows stand for many, whether or not a call may have so few.
        ("many windows", window(1 << 40, 16), "proven"),
        ("and ranks that divide differently", odd, "not proven"),
    ]);
}

#[test]
fn plans_without_a_size_at_which_chunks_are_equal_are_not_refuted_for_it() {
    let put = |rank: usize, chunk: u64| {
        let mut ops = vec![
            data(OpKind::Copy, &[local(Input, 0, 1)], &[local(Scratch, 0, 1)]),
            nop(),
            data(OpKind::Put, &[local(Scratch, 0, 1)], &[remote(rank, 1 - rank, Output, chunk, 1)]),
            nop(),
        ];
        ops.extend(meet(rank, 2, [OpKind::Signal, OpKind::Wait]));
        ops
    };
    for scratch in [1, 7] {
        for in_place in [false, true] {
            let mut plan = pair([2, 2, scratch], &[&[put(0, 0)], &[put(1, 1)]]);
            plan.gpus[1].input_chunks = 3;
            plan.gpus[1].output_chunks = 3;
            plan.in_place = in_place;
            let report = judge(&plan);
            assert_ne!(word(&report), "proven", "{report}");
            let raced = matches!(&report.verdict, Verdict::Refuted(_));
            assert!(in_place || !raced, "{scratch} slots: {report}");
        }
    }
}

/// With a chunk more that nobody uses, inputs are not cut where the blocks of outputs are.
#[test]
fn plans_without_a_size_at_which_chunks_are_equal_are_judged_by_whole_pieces() {
    let more = |mut plan: Plan, side: usize| {
        for gpu in &mut plan.gpus {
            *[&mut gpu.input_chunks, &mut gpu.output_chunks][side] += 1;
        }
        plan
    };
    let mut wrong = more(allgather(2, 2, true), 0);
    wrong.gpus[0].threadblocks[0].ops.retain(|op| op.kind != OpKind::Copy);
    expect(&[
        ("all", more(allgather(2, 2, true), 0), "not proven"),
        ("each", more(allgather(2, 3, false), 0), "not proven"),
        ("of three", more(allgather(3, 2, true), 0), "not proven"),
        ("blocks", more(alltoall(2, 3, false), 1), "not proven"),
        ("sums", more(reduce_scatter(2, 2, false), 1), "not proven"),
        ("wrong", wrong, "wrong"),
    ]);
}

#[test]
fn plans_that_touch_more_memory_than_allowed_are_given_up() {
    for plan in [allgather(2, 2, true), packet_allreduce(), allreduce(3, 1, true)] {
        let layout = Layout::new(&plan).unwrap();
        let within = |bits| verify_within(1u64 << bits, &plan, &layout, Options::default());
        let reports: Vec<Report> = (0..32).map(within).collect();
        let verdicts: Vec<&str> = reports.iter().map(word).collect();
        let (short, enough): (Vec<_>, Vec<_>) =
            reports.iter().partition(|report| word(report) == "not proven");
        assert!(verdicts.is_sorted() && enough.iter().all(|report| word(report) == "proven"));
        let why = |report: &&Report| report.to_string().contains("touches memory too often");
        assert!(short.iter().any(why) && !enough.is_empty(), "{verdicts:?}");
    }
}

#[test]
fn contention_without_end_is_given_up() {
    let mut plan = pair([1, 1, 1], &[&[], &[]]);
    plan.gpus[0].semaphores = vec![4];
    for _ in 0..8 {
        let ops = [OpKind::SemaphoreAcquire, OpKind::SemaphoreRelease].repeat(8);
        block(&mut plan, 0, ops.into_iter().map(|kind| semaphore(kind, 0)).collect());
    }
    expect(&[("eight blocks", plan, "not proven")]);
}

#[test]
fn semaphores_at_the_ends_of_their_range_get_a_verdict() {
    const KINDS: [OpKind; 2] = [OpKind::SemaphoreAcquire, OpKind::SemaphoreRelease];
    for initial in [i64::MIN, i64::MIN + 1, -1, i64::MAX - 1, i64::MAX] {
        for kinds in [&KINDS[..], &KINDS[..1], &KINDS[1..]] {
            for blocks in 1..3 {
                let mut plan = pair([1, 1, 1], &[&[], &[]]);
                plan.gpus[0].semaphores = vec![initial];
                for _ in 0..blocks {
                    block(&mut plan, 0, kinds.iter().map(|&kind| semaphore(kind, 0)).collect());
                }
                if crate::check(&plan).is_ok() {
                    let report = judge(&plan);
                    let expected: &[&str] = match kinds {
                        [OpKind::SemaphoreAcquire, ..] if initial == -1 => &["deadlock"],
                        // One below the least is the most.
                        [OpKind::SemaphoreAcquire, ..] if initial < 0 => {
                            &["deadlock", "not proven", "proven"]
                        }
                        [OpKind::SemaphoreAcquire] => &["not proven"],
                        [OpKind::SemaphoreAcquire, _] => &["proven"],
                        _ => &["not proven", "proven"],
                    };
                    let name = format!("{blocks} blocks of {kinds:?} from {initial}");
                    assert!(expected.contains(&word(&report)), "{name}: {report}");
                }
            }
        }
    }
}

#[test]
fn slices_far_longer_than_their_pipeline_are_given_up() {
    for (unit, size) in [(16, 1 << 40), (1 << 63, 1 << 40), (!15, 2), (1 << 63, 2)] {
        let mut op = data(OpKind::Copy, &[local(Input, 0, size)], &[local(Output, 0, size)]);
        op.group = Some(crate::model::GroupSlice { tb_id: 0, tbg_size: 2 });
        let mut other = op.clone();
        other.group = Some(crate::model::GroupSlice { tb_id: 1, tbg_size: 2 });
        let ops = [op, other].map(|op| vec![pipeline(unit, 1, vec![op])]);
        let plan = pair([size, size, 0], &[&ops, &[]]);
        if crate::check(&plan).is_ok() {
            assert_eq!(word(&judge(&plan)), "not proven", "windows of {unit}, {size} chunks");
        }
    }
}

/// Plans that make sense, with one number replaced by another.
fn altered(base: usize, field: usize, at: usize, number: u64) -> Plan {
    let mut plan = match base {
        0 => allgather(2, 2, true),
        1 => packet_allreduce(),
        2 => pipelined_exchange(2, 64),
        _ => allreduce(3, 1, true),
    };
    let rank = at % plan.gpus.len();
    let gpu = &mut plan.gpus[rank];
    let block = at % gpu.threadblocks.len();
    let ops = &mut gpu.threadblocks[block].ops;
    let position = at % ops.len();
    let op = match &mut ops[position].pipeline {
        Some(pipeline) if at.is_multiple_of(2) => {
            let inner = at % pipeline.ops.len();
            &mut pipeline.ops[inner]
        }
        _ => &mut ops[position],
    };
    match field {
        0 => gpu.scratch_chunks = number,
        1 => gpu.input_chunks = number,
        2 => gpu.output_chunks = number,
        3 => plan.min_message_size = number,
        4 => plan.max_message_size = number,
        5 => plan.buffer_alignment = number,
        6 => op.group = Some(crate::model::GroupSlice { tb_id: number / 2, tbg_size: number }),
        7 => op.src.iter_mut().for_each(|chunk| chunk.index = number),
        8 => op.dst.iter_mut().for_each(|chunk| chunk.size = number),
        9 => gpu.semaphores = vec![number as i64],
        10 => op.pipeline.iter_mut().for_each(|pipeline| pipeline.unit_size = number),
        _ => op.pipeline.iter_mut().for_each(|pipeline| pipeline.num_chunks = number),
    }
    plan
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_passes_the_checks_gets_a_verdict(
        base in 0..4_usize,
        field in 0..12_usize,
        at in 0..64_usize,
        number in prop_oneof![0..9_u64, (0..64_u32).prop_map(|bits| 1 << bits), Just(u64::MAX), any::<u64>()],
    ) {
        let plan = altered(base, field, at, number);
        if crate::check(&plan).is_ok()
            && let Ok(layout) = Layout::new(&plan)
        {
            let report = verify(&plan, &layout, Options { results: true, promise: None });
            let text = report.to_string();
            match &report.verdict {
                Verdict::Proven => prop_assert!(text.starts_with("proven")),
                Verdict::NotProven(doubts) => {
                    prop_assert!(!doubts.is_empty());
                    prop_assert!(doubts.iter().all(|doubt| text.contains(doubt)), "{text}");
                }
                Verdict::Refuted(found) => {
                    prop_assert!(!found.is_empty());
                    prop_assert!(found.iter().all(|one| text.contains(&one.fault.to_string())), "{text}");
                }
            }
        }
    }
}
