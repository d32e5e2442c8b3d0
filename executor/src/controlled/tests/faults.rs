//! Plans from which one thing was taken away: some schedule shows it, and none shows a fault of the whole plan.

use super::*;
use antiphon_plan::algorithms::{Algorithm, Shape};
use antiphon_plan::builder::ProgramBuilder;
use antiphon_plan::model::{
    Buffer, ChannelTable, ChannelType, ChunkRef, Collective, Op, OpKind, RefBase, RemoteBuffer,
};
use antiphon_plan::program::Instruction;

fn custom(name: &str, ranks: usize) -> ProgramBuilder {
    ProgramBuilder::new(name, Collective::Other(name.to_owned()), ranks)
}

/// Rank 0's input goes through scratch of rank 1, which says when it has read it.
pub(super) fn relay() -> Plan {
    let p = custom("relay", 2);
    let (channel, between) = (p.channel(0, 1), p.scratch(1, 1));
    let (sender, receiver) = (p.block(0), p.block(1));
    sender.put(p.input(0).all(), between.all());
    sender.signal(&[channel]);
    sender.wait(&[channel]);
    receiver.wait(&[channel]);
    receiver.copy(between.all(), p.output(1).all());
    receiver.signal(&[channel]);
    p.build().unwrap()
}

/// One block hands the input to another through scratch.
fn hand_over(by_barrier: bool) -> Plan {
    let p = custom("hand over", 1);
    let between = p.scratch(0, 1);
    let (full, empty) = (p.semaphore(0, 0), p.semaphore(0, 1));
    let (first, second) = (p.block(0), p.block(0));
    if !by_barrier {
        first.acquire(&[empty]);
    }
    first.copy(p.input(0).all(), between.all());
    if by_barrier {
        p.barrier(&[first, second]);
    } else {
        first.release(&[full]);
        second.acquire(&[full]);
    }
    second.copy(between.all(), p.output(0).all());
    if !by_barrier {
        second.release(&[empty]);
    }
    p.build().unwrap()
}

/// Two blocks that each take two semaphores by one operation, in the same order, and give them back.
fn both_semaphores() -> Plan {
    let p = custom("both semaphores", 1).chunk_counts(2, 2);
    let semaphores = [p.semaphore(0, 1), p.semaphore(0, 1)];
    for at in 0..2 {
        let block = p.block(0);
        block.acquire(&semaphores);
        block.copy(p.input(0).chunk(at), p.output(0).chunk(at));
        block.release(&semaphores);
    }
    p.build().unwrap()
}

/// Ranks 1 and 2 each send packets to a slot of rank 0's scratch.
fn two_senders() -> Plan {
    let p = custom("two senders", 3).chunk_counts(1, 2).double_scratch(true);
    let slots = p.scratch(0, 2);
    let receiver = p.block(0);
    for rank in [1, 2] {
        p.block(rank).put_packets(p.input(rank).all(), slots.chunk(rank - 1));
        receiver.unpack_packets(slots.chunk(rank - 1), p.output(0).chunk(rank - 1));
    }
    p.build().unwrap()
}

/// Rank 0 sends its input through a port channel, and waits until it has left.
pub(super) fn port_send() -> Plan {
    let p = custom("port send", 2);
    p.block(0).nop();
    p.block(1).nop();
    let mut plan = p.build().unwrap();
    let channel_type = ChannelType::Port;
    for (rank, gpu) in (0u64..).zip(&mut plan.gpus) {
        (gpu.input_chunks, gpu.output_chunks) = (1, 1);
        gpu.channels = vec![ChannelTable::Peers { channel_type, connected_to: vec![1 - rank] }];
        let block = &mut gpu.threadblocks[0];
        block.channels = vec![(channel_type, vec![0])];
        let mut op;
        if rank == 0 {
            let buffer = Buffer::Output;
            gpu.remote_buffers = vec![RemoteBuffer { rank: 1, buffer, access: vec![channel_type] }];
            block.remote_buffer_refs = vec![(channel_type, vec![0])];
            op = Op::new(OpKind::PutWithSignalAndFlush);
            let whole = |base| ChunkRef { base, index: 0, size: 1 };
            op.src = vec![whole(RefBase::Local(Buffer::Input))];
            op.dst = vec![whole(RefBase::Remote(0))];
        } else {
            op = Op::new(OpKind::Wait);
        }
        (op.channel_type, op.channel_ids) = (channel_type, vec![0]);
        block.ops = vec![op];
    }
    plan
}

/// Takes away operation number `nth` of this kind from a block.
pub(super) fn without(mut plan: Plan, rank: usize, block: usize, kind: OpKind, nth: usize) -> Plan {
    let ops = &mut plan.gpus[rank].threadblocks[block].ops;
    let mut of_kind = ops.iter().enumerate().filter(|(_, op)| op.kind == kind);
    let (at, _) = of_kind.nth(nth).unwrap_or_else(|| panic!("no {kind} {nth}"));
    ops.remove(at);
    plan
}

/// Takes away every operation of this kind from a rank.
fn without_any(mut plan: Plan, rank: usize, kind: OpKind) -> Plan {
    for block in &mut plan.gpus[rank].threadblocks {
        block.ops.retain(|op| op.kind != kind);
    }
    plan
}

#[test]
fn whole_plans_pass() {
    let handed = [hand_over(true), hand_over(false), both_semaphores()];
    for plan in [relay(), two_senders(), port_send()].into_iter().chain(handed) {
        // Nobody keeps the two senders from a third launch, which writes the slots of the first.
        let launches = if plan.name == "two senders" { 2 } else { 3 };
        for chunk in [16, 64] {
            assert_eq!(fault(&plan, chunk, launches, 500), None, "{}", plan.name);
        }
    }
}

#[test]
fn whatever_is_missing_shows() {
    let gather = || Algorithm::AllGatherZeroCopy.plan(Shape::new(2)).unwrap();
    let mut port = port_send();
    port.gpus[0].threadblocks[0].ops[0].kind = OpKind::PutWithSignal;
    let mut one_slot = two_senders();
    one_slot.gpus[2].threadblocks[0].ops[0].dst[0].index = 0;
    let last = |plan: &Plan, kind| {
        plan.gpus[0].threadblocks[0].ops.iter().filter(|op| op.kind == kind).count() - 1
    };
    let (signals, waits) = (last(&gather(), OpKind::Signal), last(&gather(), OpKind::Wait));
    let no_handshake = (0..2).fold(gather(), |plan, rank| {
        without(without(plan, rank, 0, OpKind::Signal, signals), rank, 0, OpKind::Wait, waits)
    });
    let cases = [
        ("nop between put and signal", without(relay(), 0, 0, OpKind::Nop, 0)),
        ("nop between wait and copy", without(relay(), 1, 0, OpKind::Nop, 0)),
        ("nop between copy and signal", without(relay(), 1, 0, OpKind::Nop, 1)),
        ("wait before copy", without(relay(), 1, 0, OpKind::Wait, 0)),
        ("wait before the next launch", without(relay(), 0, 0, OpKind::Wait, 0)),
        ("signal", without(relay(), 0, 0, OpKind::Signal, 0)),
        ("barrier", without_any(hand_over(true), 0, OpKind::Barrier)),
        ("semaphore acquire", without(hand_over(false), 0, 1, OpKind::SemaphoreAcquire, 0)),
        ("semaphore release", without(hand_over(false), 0, 0, OpKind::SemaphoreRelease, 0)),
        ("nop before the release", without(hand_over(false), 0, 0, OpKind::Nop, 1)),
        ("second packet slot", one_slot),
        ("flush of a source that the user rewrites", port),
        ("final handshake", no_handshake),
    ];
    for (missing, plan) in cases {
        let found = fault(&plan, 64, 2, 200);
        assert!(found.is_some(), "no schedule shows the missing {missing}");
        let again = fault(&plan, 64, 2, 200);
        assert_eq!(found, again, "the same schedules show it every time");
    }
}

#[test]
fn a_relaxed_signal_releases_nothing() {
    let plan = relay();
    let mut layout = Layout::new(&plan).unwrap();
    for instruction in &mut layout.ranks[0].instructions {
        if let Instruction::Signal { channel, .. } = *instruction {
            *instruction = Instruction::Signal { channel, release: false };
        }
    }
    let mut machine = Machine::new(&layout, case(&plan, 64, 2), LANES).unwrap();
    assert!(search(&mut machine, 200, 1).is_some());
}

#[test]
fn packets_need_two_halves_of_scratch() {
    for algorithm in [Algorithm::AllGatherPackets, Algorithm::AllReduceOneShotPackets] {
        let plan = algorithm.plan(Shape::new(3)).unwrap();
        let mut layout = Layout::new(&plan).unwrap();
        layout.double_scratch = false;
        let mut machine = Machine::new(&layout, case(&plan, 64, 3), LANES).unwrap();
        assert!(search(&mut machine, 200, 1).is_some(), "{algorithm}");
    }
}

#[test]
fn blocked_blocks_say_for_what() {
    let plan = without(relay(), 0, 0, OpKind::Signal, 0);
    let layout = Layout::new(&plan).unwrap();
    let played = play(&layout, case(&plan, 64, 1), &Schedule::Held(Vec::new()), &[]).unwrap();
    let said: Vec<_> = played.blocked.iter().map(ToString::to_string).collect();
    let on = |channel, peer| {
        format!("a signal of rank {peer} on memory channel {channel}: received 0, needs 1")
    };
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].ends_with(&format!("in launch 1 for {}", on(0, 1))), "{said:?}");
    assert!(said[1].ends_with(&format!("in launch 1 for {}", on(0, 0))), "{said:?}");
}
