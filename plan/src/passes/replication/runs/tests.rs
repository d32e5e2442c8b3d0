//! Which runs are divided, into what, and which cannot be: by example, and by chance against the verifier.

use crate::dsl::{
    BlockGroup, Channel, Chunk, Compiled, MembersChecked, Misuse, On, Program, Settings, Transfer,
};
use crate::interpret::{Memory, interpret};
use crate::model::{Buffer, ChannelType, Collective, Op, OpKind, Plan};
use crate::passes::pairing::SourceLine;
use crate::passes::text::print;
use crate::passes::{DataSync, Mode, Step, replication};
use crate::program::{CallSizes, Layout};
use crate::verify::{Options, Verdict, verify};
use antiphon_types::ReduceOp;
use proptest::prelude::*;

const ON: On<'static> = On::block(0);

/// A program of two ranks with eight chunks in each buffer.
fn program(instances: i64) -> Program {
    let settings = Settings::new("p", Collective::Test, 2).chunks(8, 8);
    let mut p = Program::new(Settings { instances, ..settings }).unwrap();
    for rank in 0..2 {
        p.scratch(rank, 8).unwrap();
    }
    p
}

/// Chunks as `i0+2`, of rank 0, or `1o3`, of rank 1.
fn chunk(p: &Program, text: &str) -> Chunk {
    let (rank, text) = text.strip_prefix('1').map_or((0, text), |text| (1, text));
    let (buffer, run) = text.split_at(1);
    let buffer = match buffer {
        "i" => Buffer::Input,
        "o" => Buffer::Output,
        _ => Buffer::Scratch,
    };
    let (index, size) = run.split_once('+').unwrap_or((run, "1"));
    let (index, size): (u64, u64) = (index.parse().unwrap(), size.parse().unwrap());
    p.chunk(rank, buffer, index..index + size).unwrap()
}

fn copy(p: &mut Program, to: &str, from: &str, on: On<'_>) {
    let (to, from) = (chunk(p, to), chunk(p, from));
    p.copy(OpKind::Copy, 0, to, from, on).unwrap();
}

/// The blocks of rank 0, as text.
fn blocks(plan: &Plan) -> Vec<String> {
    let steps = |ops: &[Op]| ops.iter().cloned().map(Step::new).collect::<Vec<_>>();
    plan.gpus[0].threadblocks.iter().map(|block| print(&steps(&block.ops))).collect()
}

fn verdict(plan: &Plan) -> Verdict {
    let layout = Layout::new(plan).unwrap();
    verify(plan, &layout, Options::default()).verdict
}

/// What two instances of a program become, that only this pass keeps apart.
fn divided(write: impl Fn(&mut Program)) -> Compiled {
    let mut one = program(1);
    write(&mut one);
    let mut undivided = one.finish().unwrap().plan;
    assert_eq!(verdict(&undivided), Verdict::Proven, "by one instance");
    replication::replicate(&mut undivided, 2, replication::Policy::Interleaved);
    let found = verdict(&undivided);
    assert!(matches!(found, Verdict::Refuted(_)), "nothing to divide: {found:?}");
    let mut two = program(2);
    write(&mut two);
    let compiled = two.finish().unwrap();
    assert_eq!(verdict(&compiled.plan), Verdict::Proven, "{:?}", blocks(&compiled.plan));
    assert_eq!(two.finish_last().unwrap(), compiled);
    compiled
}

#[test]
fn runs_that_share_chunks_are_divided_at_each_others_ends() {
    let compiled = divided(|p| {
        copy(p, "s0+4", "i0+4", ON);
        copy(p, "o5", "s1", ON);
    });
    let expected = [
        "copy i0 -> s0 | copy i2 -> s2 | copy i4+2 -> s4+2 | nop | copy s2 -> o10",
        "copy i1 -> s1 | copy i3 -> s3 | copy i6+2 -> s6+2 | nop | copy s3 -> o11",
    ];
    assert_eq!(blocks(&compiled.plan), expected);
    assert_eq!((compiled.report.divided, compiled.report.pieces), (1, 3));
    let text = compiled.report.to_string();
    assert!(text.contains("divided: 1 operations into 3"), "{text}");
}

#[test]
fn what_is_moved_to_divided_chunks_is_divided_too() {
    let compiled = divided(|p| {
        copy(p, "s0+2", "i4+2", ON);
        copy(p, "o0+2", "s0+2", ON);
        copy(p, "o3", "o1", ON);
    });
    let expected = "copy i8 -> s0 | copy i10 -> s2 | nop | copy s0 -> o0 | copy s2 -> o2 | nop | copy o2 -> o6";
    assert_eq!(blocks(&compiled.plan)[0], expected);
}

#[test]
fn pieces_of_fused_operations_are_fused_again() {
    let compiled = divided(|p| {
        let [there, back] =
            [(1, 0), (0, 1)].map(|(to, from)| p.channel(ChannelType::Memory, to, from).unwrap());
        for (to, from) in [("1s0+2", "i0+2"), ("1s2+2", "i2+2")] {
            let (to, from) = (chunk(p, to), chunk(p, from));
            p.put(there, to, from, ON).unwrap();
        }
        meet_and_read(p, there, back, ("1o0", "1s3"));
    });
    // The first pair stays whole; the pieces of the second are one operation.
    let rank = &compiled.plan.gpus[0].threadblocks[0].ops;
    let puts = rank.iter().filter(|op| op.kind == OpKind::Put);
    let sizes: Vec<Vec<u64>> =
        puts.map(|op| op.dst.iter().map(|chunk| chunk.size).collect()).collect();
    assert_eq!(sizes, [vec![2], vec![1, 1]]);
}

/// Rank 0 tells rank 1 that it is done; rank 1 copies a chunk and says so.
fn meet_and_read(p: &mut Program, there: Channel, back: Channel, (to, from): (&str, &str)) {
    p.signal(there, ON, DataSync::BOTH, false).unwrap();
    read(p, back, (to, from));
    p.wait(there, ON, DataSync::BOTH, false).unwrap();
}

/// Rank 1 waits for rank 0, copies a chunk and says so.
fn read(p: &mut Program, back: Channel, (to, from): (&str, &str)) {
    p.wait(back, ON, DataSync::BOTH, false).unwrap();
    let (to, from) = (chunk(p, to), chunk(p, from));
    p.copy(OpKind::Copy, 1, to, from, ON).unwrap();
    p.signal(back, ON, DataSync::BOTH, false).unwrap();
}

#[test]
fn reductions_and_their_results_are_divided_together() {
    let compiled = divided(|p| {
        let (sum, i, s, o) = (ReduceOp::Sum, chunk(p, "i0+2"), chunk(p, "s0+2"), chunk(p, "o0+2"));
        p.copy(OpKind::Copy, 0, s, i, ON).unwrap();
        p.reduce(0, o, i, &[s], sum, false, ON).unwrap();
        copy(p, "o4", "o1", ON);
    });
    let expected = "copy i0 -> s0 | copy i2 -> s2 | nop | re sum i0 s0 -> o0 | re sum i2 s2 -> o2 | nop | copy o2 -> o8";
    assert_eq!(blocks(&compiled.plan)[0], expected);
}

#[test]
fn only_the_last_piece_signals() {
    let compiled = divided(|p| {
        let [there, back] =
            [(1, 0), (0, 1)].map(|(to, from)| p.channel(ChannelType::Port, to, from).unwrap());
        let (to, from) = (chunk(p, "1o0+2"), chunk(p, "i0+2"));
        p.transfer(Transfer::PutWithSignalAndFlush, there, to, from, ON).unwrap();
        read(p, back, ("1s0", "1o1"));
        p.wait(there, ON, DataSync::BOTH, false).unwrap();
    });
    let expected = [
        "put port @0 i0 -> r0.0 | pwsf port @0 i2 -> r0.2",
        "put port @0 i1 -> r0.1 | pwsf port @0 i3 -> r0.3",
    ];
    for (found, expected) in blocks(&compiled.plan).iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}");
    }
}

#[test]
fn pieces_of_a_transfer_over_a_port_are_posted_one_after_the_other() {
    for (kind, size, last) in [(Transfer::Put, 2, "put"), (Transfer::PutWithSignal, 3, "pws")] {
        let compiled = divided(|p| {
            let [there, back] =
                [(1, 0), (0, 1)].map(|(to, from)| p.channel(ChannelType::Port, to, from).unwrap());
            let (to, from) = (chunk(p, &format!("1s0+{size}")), chunk(p, &format!("i0+{size}")));
            p.transfer(kind, there, to, from, ON).unwrap();
            if kind == Transfer::Put {
                p.signal(there, ON, DataSync::BOTH, false).unwrap();
            }
            p.wait(back, ON, DataSync::BOTH, false).unwrap();
            for at in 1..size {
                let (to, from) = (chunk(p, &format!("1o{at}")), chunk(p, &format!("1s{at}")));
                p.copy(OpKind::Copy, 1, to, from, ON).unwrap();
            }
            p.signal(back, ON, DataSync::BOTH, false).unwrap();
            p.wait(there, ON, DataSync::BOTH, false).unwrap();
        });
        for (instance, found) in blocks(&compiled.plan)[..2].iter().enumerate() {
            let pieces = (0..size).map(|at| {
                let kind = if at + 1 == size { last } else { "put" };
                let chunk = 2 * at + instance;
                format!("{kind} port @0 i{chunk} -> r0.{chunk}")
            });
            let expected = pieces.collect::<Vec<_>>().join(" | ");
            assert!(found.starts_with(&expected), "{found}, expected {expected}");
        }
    }
}

#[test]
fn a_load_and_its_store_over_a_switch_stay_together() {
    let mut p = program(2);
    let switch = p.switch(&[0, 1], Buffer::Input).unwrap();
    let (sum, to) = (ReduceOp::Sum, chunk(&p, "i0+2"));
    let checked = MembersChecked::Now;
    p.switch_reduce(&switch, 0, 0, 2, to, sum, checked, ON).unwrap();
    p.switch_store(&switch, 0, to, 0, 2, false, checked, ON).unwrap();
    copy(&mut p, "o0", "i1", ON);
    let plan = p.finish().unwrap().plan;
    let expected =
        "glres switch sum w0.0 -> w0.0 | glres switch sum w0.2 -> w0.2 | nop | copy i2 -> o0";
    assert_eq!(blocks(&plan)[0], expected);
}

/// Where the reference is sound its plan stays: (what, instances, the program).
#[test]
fn what_instances_do_not_meet_in_stays_whole() {
    type Write = fn(&mut Program);
    let cases: [(&str, i64, Write); 5] = [
        ("one instance", 1, |p| {
            copy(p, "s0+2", "i0+2", ON);
            copy(p, "o5", "s1", ON);
        }),
        ("runs that are only read", 3, |p| {
            copy(p, "o0+2", "i0+2", ON);
            copy(p, "s0", "i1", ON);
        }),
        ("the chunk in the middle of three, of two instances", 2, |p| {
            copy(p, "s0+3", "i0+3", ON);
            copy(p, "o0", "s1", ON);
        }),
        ("packets that are waited for", 2, |p| {
            let (s, i) = (chunk(p, "s0+2"), chunk(p, "i0+2"));
            p.copy(OpKind::CopyPackets, 0, s, i, ON).unwrap();
            for (to, from) in [("o0", "s0"), ("o1", "s1")] {
                let (to, from) = (chunk(p, to), chunk(p, from));
                p.copy(OpKind::UnpackPackets, 0, to, from, ON).unwrap();
            }
        }),
        ("equal runs", 4, |p| {
            copy(p, "s0+2", "i0+2", ON);
            copy(p, "o0+2", "s0+2", ON);
        }),
    ];
    for (what, instances, write) in cases {
        for mode in [Mode::Minimal, Mode::Compatible] {
            let [mut one, mut several] = [1, instances].map(program);
            one.settings_mut().mode = mode;
            several.settings_mut().mode = mode;
            write(&mut one);
            write(&mut several);
            let mut expected = one.finish().unwrap().plan;
            replication::replicate(
                &mut expected,
                instances as u64,
                replication::Policy::Interleaved,
            );
            let found = several.finish().unwrap();
            assert_eq!(found.plan, expected, "{what}");
            assert_eq!(found.report.divided, 0, "{what}");
            assert_eq!(verdict(&found.plan), Verdict::Proven, "{what}");
        }
    }
}

#[test]
fn in_place_both_names_of_a_chunk_count() {
    let settings = Settings::new("p", Collective::AllReduce, 1).chunks(4, 4);
    for (in_place, divided) in [(true, 1), (false, 0)] {
        let mut p = Program::new(Settings { in_place, instances: 2, ..settings.clone() }).unwrap();
        p.scratch(0, 4).unwrap();
        copy(&mut p, "o0+2", "s0+2", ON);
        copy(&mut p, "s3", "i1", ON);
        assert_eq!(p.finish().unwrap().report.divided, divided, "in place: {in_place}");
    }
}

/// The refusal of a program whose lines are numbered from 1.
fn refusal(write: impl Fn(&mut Program, &mut dyn FnMut(&mut Program))) -> String {
    let mut p = program(2);
    let mut line = 0;
    let mut next = |p: &mut Program| {
        line += 1;
        p.at(Some(SourceLine { file: "prog.py".into(), line }));
    };
    write(&mut p, &mut next);
    let refused = p.finish().unwrap_err();
    assert!(matches!(refused, Misuse::Meeting { .. }), "{refused}");
    refused.to_string()
}

#[test]
fn what_has_no_pieces_is_refused_with_lines_and_runs() {
    let said = refusal(|p, next| {
        next(p);
        p.begin_pipeline(64, 2).unwrap();
        copy(p, "s0+2", "i0+2", ON);
        p.end_pipeline().unwrap();
        next(p);
        copy(p, "o0", "s1", ON);
    });
    insta::assert_snapshot!(said);
    let group = BlockGroup::new(vec![0, 1]).unwrap();
    let said = refusal(|p, next| {
        next(p);
        copy(p, "s0+2", "i0+2", On { block: None, group: Some(&group) });
        next(p);
        p.barrier(0, &[0, 1]).unwrap();
        next(p);
        copy(p, "o0", "s1", ON);
    });
    insta::assert_snapshot!(said);
    // What is in the way need not be what meets.
    let said = refusal(|p, next| {
        next(p);
        copy(p, "s0+2", "i0+2", ON);
        next(p);
        copy(p, "o0", "s1", ON);
        next(p);
        p.begin_pipeline(64, 2).unwrap();
        copy(p, "o4+2", "s0+2", ON);
        p.end_pipeline().unwrap();
    });
    assert!(said.contains("(prog.py:1)") && said.contains("(prog.py:2)"), "{said}");
}

/// One block's operations by chance: copies and sums between chunks of any runs.
fn operations() -> impl Strategy<Value = Vec<(usize, usize, u64, u64, u64, bool)>> {
    prop::collection::vec((0..3usize, 0..3usize, 0..6u64, 0..6u64, 1..4u64, any::<bool>()), 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Whatever runs a block names, its instances do together what one does, and never meet.
    #[test]
    fn instances_never_meet(operations in operations(), instances in 2..4i64) {
        const BUFFERS: [Buffer; 3] = [Buffer::Input, Buffer::Output, Buffer::Scratch];
        let write = |p: &mut Program| {
            for &(from, to, first, second, size, sum) in &operations {
                let from = p.chunk(0, BUFFERS[from], first..(first + size).min(8)).unwrap();
                let to = Chunk { index: second.min(8 - from.size), buffer: BUFFERS[to], ..from };
                // An operation that reads what it writes elsewhere is right in no order.
                if to.buffer == from.buffer && to.index != from.index
                    && to.index < from.end() && from.index < to.end() {
                    continue;
                }
                match sum {
                    true => p.reduce(0, to, to, &[from], ReduceOp::Sum, false, ON).unwrap(),
                    false => p.copy(OpKind::Copy, 0, to, from, ON).unwrap(),
                }
            }
        };
        let [mut one, mut several] = [1, instances].map(program);
        write(&mut one);
        write(&mut several);
        let (one, several) = (one.finish().unwrap().plan, several.finish().unwrap().plan);
        let refuted = |plan: &Plan| matches!(verdict(plan), Verdict::Refuted(_));
        prop_assert!(refuted(&one) || !refuted(&several), "{:?}", blocks(&several));
        let run = |plan: &Plan| {
            let layout = Layout::new(plan).unwrap();
            let bytes = 8 * 6 * 16;
            let sizes = CallSizes { input: bytes, output: bytes, element: 4, strict: false };
            let numbers = |from: u64| (from..from + bytes / 4).map(|n| n as f64).collect();
            let memories = [0, 1].map(|rank| Memory::separate(numbers(rank * 1000), numbers(5000)));
            let memories = interpret(&layout, sizes, memories.into()).unwrap();
            memories.iter().map(|m| (m.input().to_vec(), m.output().to_vec())).collect::<Vec<_>>()
        };
        prop_assert_eq!(run(&one), run(&several));
    }
}
