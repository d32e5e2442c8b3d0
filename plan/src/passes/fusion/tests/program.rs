//! Fusion as finished programs show it.

use crate::dsl::{Chunk, MembersChecked, On, Program, Settings, Switch};
use crate::model::{Buffer, Collective, OpKind};
use crate::passes::{Refusal, Report};
use antiphon_types::ReduceOp;

const ON: On<'static> = On::block(0);

/// Two ranks that reduce chunk 0 over a switch into `between`, store it at `offset`, and do something `more`.
fn finished(
    buffer: Buffer,
    between: Buffer,
    offset: u64,
    in_place: bool,
    more: impl Fn(&mut Program, u64, Chunk),
) -> (Vec<OpKind>, Report) {
    let settings =
        Settings { in_place, ..Settings::new("switch", Collective::Test, 2).chunks(4, 4) };
    let mut program = Program::new(settings).expect("settings");
    let scratch: Vec<Chunk> =
        (0..2).map(|rank| program.scratch(rank, 4).expect("scratch")).collect();
    let switch: Switch = program.switch(&[0, 1], buffer).expect("a switch");
    for rank in 0..2 {
        let chunk = match between {
            Buffer::Scratch => Chunk { size: 1, ..scratch[rank as usize] },
            other => program.chunk(rank, other, 0..1).expect("a chunk"),
        };
        let (id, now) = (rank as i64, MembersChecked::Now);
        program.switch_reduce(&switch, id, 0, 1, chunk, ReduceOp::Sum, now, ON).expect("glre");
        program.switch_store(&switch, id, chunk, offset, 1, false, now, ON).expect("gstore");
        more(&mut program, rank, chunk);
    }
    let compiled = program.finish().expect("a plan");
    let ops = &compiled.plan.gpus[0].threadblocks[0].ops;
    (ops.iter().map(|op| op.kind).filter(|kind| *kind != OpKind::Nop).collect(), compiled.report)
}

#[track_caller]
fn fuses((kinds, report): (Vec<OpKind>, Report), expected: bool) {
    let kept = (OpKind::GroupLoadReduce, OpKind::GroupStore, Refusal::Kept);
    assert_eq!(kinds[0] == OpKind::GroupLoadReduceStore, expected, "{kinds:?}");
    assert_eq!(report.refusals.contains_key(&kept), !expected, "{report}");
}

fn nothing(_: &mut Program, _: u64, _: Chunk) {}

#[test]
fn a_result_that_comes_back_through_the_switch_need_not_be_written() {
    fuses(finished(Buffer::Input, Buffer::Input, 0, false, nothing), true);
    fuses(finished(Buffer::Output, Buffer::Output, 0, false, nothing), true);
}

#[test]
fn a_result_in_the_same_memory_by_another_name_need_not_be_written() {
    fuses(finished(Buffer::Output, Buffer::Input, 0, true, nothing), true);
}

#[test]
fn a_result_in_a_buffer_of_the_caller_is_written() {
    fuses(finished(Buffer::Input, Buffer::Output, 0, false, nothing), false);
    fuses(finished(Buffer::Output, Buffer::Output, 1, false, nothing), false);
    fuses(finished(Buffer::Output, Buffer::Input, 1, true, nothing), false);
}

#[test]
fn a_result_in_scratch_that_nobody_reads_need_not_be_written() {
    fuses(finished(Buffer::Input, Buffer::Scratch, 2, false, nothing), true);
    let other_chunk = |program: &mut Program, rank: u64, chunk: Chunk| {
        let to = program.chunk(rank, Buffer::Output, 0..1).expect("a chunk");
        let from = Chunk { index: 3, ..chunk };
        program.copy(OpKind::Copy, rank as i64, to, from, ON).expect("copy");
    };
    fuses(finished(Buffer::Input, Buffer::Scratch, 2, false, other_chunk), true);
    let packets = |program: &mut Program, rank: u64, chunk: Chunk| {
        let to = program.chunk(rank, Buffer::Output, 0..1).expect("a chunk");
        program.copy(OpKind::UnpackPackets, rank as i64, to, chunk, ON).expect("upkt");
    };
    fuses(finished(Buffer::Input, Buffer::Scratch, 2, false, packets), true);
}

#[test]
fn a_result_in_scratch_that_a_block_reads_is_written() {
    let read = |program: &mut Program, rank: u64, chunk: Chunk| {
        let to = program.chunk(rank, Buffer::Output, 0..1).expect("a chunk");
        program.copy(OpKind::Copy, rank as i64, to, chunk, On::block(1)).expect("copy");
    };
    fuses(finished(Buffer::Input, Buffer::Scratch, 2, false, read), false);
}

#[test]
fn a_result_in_scratch_that_a_peer_reads_is_written() {
    let read = |program: &mut Program, rank: u64, chunk: Chunk| {
        let peer = 1 - rank;
        let memory = crate::model::ChannelType::Memory;
        let channel = program.channel(memory, rank as i64, peer as i64).expect("a channel");
        let to = program.chunk(peer, Buffer::Output, 0..1).expect("a chunk");
        program.transfer(crate::dsl::Transfer::Get, channel, to, chunk, On::block(1)).expect("get");
    };
    fuses(finished(Buffer::Input, Buffer::Scratch, 2, false, read), false);
}

#[test]
fn a_result_in_scratch_that_a_switch_reads_is_written() {
    let read = |program: &mut Program, rank: u64, _: Chunk| {
        let switch = Switch { buffer: Buffer::Scratch, members: vec![(0, 0), (1, 0)] };
        let to = program.chunk(rank, Buffer::Output, 0..1).expect("a chunk");
        let (id, now) = (rank as i64, MembersChecked::Now);
        program
            .switch_reduce(&switch, id, 0, 2, Chunk { size: 2, ..to }, ReduceOp::Sum, now, ON)
            .expect("glre");
    };
    fuses(finished(Buffer::Scratch, Buffer::Scratch, 2, false, read), false);
}

#[test]
fn finishing_twice_reports_the_same() {
    let mut program =
        Program::new(Settings::new("twice", Collective::Test, 1).chunks(4, 4)).expect("ok");
    let switch = program.switch(&[0], Buffer::Input).expect("a switch");
    let chunk = program.chunk(0, Buffer::Output, 0..1).expect("a chunk");
    let now = MembersChecked::Now;
    program.switch_reduce(&switch, 0, 0, 1, chunk, ReduceOp::Sum, now, ON).expect("glre");
    program.switch_store(&switch, 0, chunk, 0, 1, false, now, ON).expect("gstore");
    let first = program.finish().expect("a plan");
    assert_eq!(first, program.finish().expect("the same plan"));
    assert_eq!(first.report.refusals.values().sum::<usize>(), 1);
}
