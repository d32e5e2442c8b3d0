//! What the builder writes, what it refuses, and where it says so.

use super::*;
use crate::model::{
    ChannelTable, ChannelType, GroupSlice, OpKind, RankGroup, RefBase, RemoteBuffer,
};

fn pair() -> ProgramBuilder {
    ProgramBuilder::new("pair", Collective::SendRecv, 2).paired(false)
}

fn kinds(plan: &Plan, rank: usize, block: usize) -> String {
    let ops = &plan.gpus[rank].threadblocks[block].ops;
    ops.iter().map(|op| op.kind.name()).collect::<Vec<_>>().join(" ")
}

/// Build a program of two ranks; its operations of rank 0 block 0.
fn written(program: impl FnOnce(&ProgramBuilder)) -> String {
    let p = pair();
    program(&p);
    kinds(&p.build().unwrap_or_else(|e| panic!("{e}")), 0, 0)
}

#[test]
fn mistakes_are_collected_with_their_lines() {
    let p = pair();
    let tb = p.block(0);
    let line = line!();
    tb.copy(p.input(7).all(), p.output(0).all());
    tb.put(p.input(0).chunk(1), p.output(1).all());
    tb.put(p.input(0).all(), p.output(0).all());
    let error = p.build().unwrap_err();
    let text = error.to_string();
    let found: Vec<_> = error.problems.iter().map(|p| p.location.line() - line).collect();
    assert_eq!(found, [1, 2, 3]);
    assert!(error.problems.iter().all(|p| p.location.file() == file!()));
    for part in [
        "cannot build program `pair`:\n",
        "cannot name rank 7: allowed 0..2",
        "cannot name chunks 1..2 of buffer i of rank 0: allowed non-empty ranges in 0..1",
        "cannot put on rank 0: saw a destination chunk of rank 0, allowed those of other ranks",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn settings_that_make_no_program_are_refused() {
    let p = pair().instances(0);
    p.block(0).copy(p.input(0).all(), p.output(0).all());
    let text = p.build().unwrap_err().to_string();
    assert!(text.contains("cannot replicate: saw 0 instances, allowed 1 or more"), "{text}");
}

#[test]
fn a_program_cannot_name_what_does_not_exist() {
    type Mistake = (&'static str, fn(&ProgramBuilder));
    let cases: &[Mistake] = &[
        ("cannot name rank 2", |p| {
            let _ = p.block(2).rank();
        }),
        ("cannot name rank 5", |p| {
            let _ = p.channel(0, 5);
        }),
        ("cannot name rank 9", |p| {
            let _ = p.scratch(9, 1);
        }),
        ("cannot name rank 4", |p| {
            let _ = p.semaphore(4, 0);
        }),
        ("cannot name rank 3", |p| {
            let _ = p.switch(&[0, 3], Buffer::Input);
        }),
        ("switch channel over ranks [1, 1]", |p| {
            let _ = p.switch(&[1, 1], Buffer::Input);
        }),
        ("channel from rank 1 to itself", |p| {
            let _ = p.channel(1, 1);
        }),
        ("thread block 0 of rank 1", |p| {
            let _ = p.block_at(1, 0).rank();
        }),
        ("slice 2 of 2", |p| {
            let _ = p.block(0).slice(2, 2).rank();
        }),
        ("chunks 0..0", |p| {
            let _ = p.input(0).chunks(0..0);
        }),
        ("runs of 1 and 2 chunks", |p| {
            p.block(0).copy(p.input(0).all(), p.scratch(0, 2).all());
        }),
        ("chunks 0..3 of buffer s of rank 0: allowed non-empty ranges in 0..1", |p| {
            let other = pair();
            let foreign = other.scratch(0, 3).all();
            p.block(0).copy(foreign, p.scratch(0, 1).all());
        }),
        ("cannot put_packets with packets in buffer o", |p| {
            p.block(0).put_packets(p.input(0).all(), p.output(1).all());
        }),
        ("cannot reduce: saw no operands", |p| p.block(0).reduce(&[], p.output(0).all())),
        ("cannot signal: saw no operands", |p| p.block(0).signal(&[])),
        ("cannot wait twice", |p| {
            let channel = p.channel(0, 1);
            p.block(0).wait(&[channel, channel]);
        }),
        ("use this channel on rank 0", |p| {
            let other = ProgramBuilder::new("other", Collective::Test, 3);
            p.block(0).signal(&[other.channel(1, 2)]);
        }),
        ("use this channel on rank 0", |p| p.block(0).signal(&[pair().channel(0, 1)])),
        ("use this semaphore on rank 0", |p| p.block(0).acquire(&[p.semaphore(1, 0)])),
        ("use this switch channel on rank 0", |p| {
            let switch = p.switch(&[1], Buffer::Input);
            p.block(0).switch_store(p.input(0).all(), &switch, 0);
        }),
        ("chunks 1..2 of buffer i of rank 0", |p| {
            let switch = p.switch(&[0, 1], Buffer::Input);
            p.block(0).switch_reduce(&switch, 1, p.output(0).all());
        }),
        ("cannot switch_store_packets with packets in buffer o", |p| {
            let switch = p.switch(&[0, 1], Buffer::Output);
            p.block(0).switch_store_packets(p.scratch(0, 1).all(), &switch, 0);
        }),
        ("Nested", |p| p.pipeline(64, 1, || p.pipeline(64, 1, || ()))),
        ("windows of 0 bytes", |p| p.pipeline(0, 1, || ())),
        ("saw no thread blocks", |p| p.barrier(&[])),
        ("blocks of several ranks", |p| p.barrier(&[p.block(0), p.block(1)])),
        ("use this block on rank 0", |p| p.barrier(&[pair().block(0)])),
    ];
    for (part, mistake) in cases {
        let p = pair();
        mistake(&p);
        let error = p.build().expect_err(part);
        assert!(error.to_string().contains(part), "{part}\n{error}");
        assert_eq!(error.problems.len(), 1, "{error}");
        assert_eq!(error.problems[0].location.file(), file!());
    }
    for bad in [pair().chunk_factor(0), pair().chunk_counts(0, 0)] {
        assert!(bad.build().unwrap_err().to_string().contains("cannot divide the buffers"));
    }
    let nobody = ProgramBuilder::new("nobody", Collective::Test, 0);
    assert!(nobody.build().unwrap_err().to_string().contains("saw 0 ranks"));
}

#[test]
fn chunk_counts_follow_the_collective() {
    let cases = [
        (Collective::AllReduce, (12, 12)),
        (Collective::AllGather, (3, 12)),
        (Collective::ReduceScatter, (12, 3)),
        (Collective::AllToAll, (12, 12)),
        (Collective::Broadcast, (3, 3)),
        (Collective::SendRecv, (3, 3)),
    ];
    for (collective, expected) in cases {
        let plan = ProgramBuilder::new("p", collective, 4).chunk_factor(3).build().expect("a plan");
        for gpu in &plan.gpus {
            assert_eq!((gpu.input_chunks, gpu.output_chunks), expected, "{}", plan.collective);
        }
    }
}

#[test]
fn settings_reach_the_plan() {
    let p = pair().in_place(true).protocol(Protocol::LL).double_scratch(true);
    let p = p.threads_per_block(256).alignment(32).sizes(16..=64).reduce_op(ReduceOp::Max);
    let tb = p.block(0);
    tb.reduce(&[p.input(0).all(), p.output(0).all()], p.output(0).all());
    tb.copy(p.output(0).all(), p.input(0).all());
    let plan = p.build().expect("a plan");
    assert!(plan.in_place && plan.use_double_scratch_buffer && plan.protocol == Protocol::LL);
    assert_eq!((plan.num_threads_per_block, plan.buffer_alignment), (256, 32));
    assert_eq!((plan.min_message_size, plan.max_message_size), (16, 64));
    let operators: Vec<_> =
        plan.gpus[0].threadblocks[0].ops.iter().map(|op| op.reduce_op).collect();
    assert_eq!(operators, [Some(ReduceOp::Max), None, None]);
}

#[test]
fn tables_are_made_on_first_use_and_in_local_numbers() {
    let p = ProgramBuilder::new("tables", Collective::AllReduce, 3).paired(false);
    let (a, b, c) = (p.channel(0, 1), p.channel(0, 2), p.channel(1, 0));
    let switch = p.switch(&[0, 1, 2], Buffer::Output);
    let slots = [p.scratch(1, 2), p.scratch(1, 1)];
    p.block(0).signal(&[c]);
    let tb = p.block(0).slice(1, 2);
    tb.signal(&[b, a]);
    tb.put(p.input(0).chunk(0), slots[1].all());
    tb.switch_store(p.input(0).chunk(1), &switch, 2);
    tb.reduce_send(
        &[p.output(2).chunk(1), p.input(0).chunk(1)],
        p.output(0).chunk(1),
        &[p.output(2).chunk(1), slots[0].chunk(1)],
    );
    let plan = p.build().expect("a plan");
    let gpu = &plan.gpus[0];
    let peers =
        ChannelTable::Peers { channel_type: ChannelType::Memory, connected_to: vec![1, 2, 1] };
    let group = RankGroup { size: 3, ranks: vec![0, 1, 2] };
    let multicast = ChannelTable::Switch { buffer: Buffer::Output, groups: vec![group] };
    assert_eq!(gpu.channels, [peers, multicast]);
    let remote = |rank, buffer| RemoteBuffer { rank, buffer, access: vec![ChannelType::Memory] };
    assert_eq!(gpu.remote_buffers, [remote(1, Buffer::Scratch), remote(2, Buffer::Output)]);
    assert_eq!(plan.gpus[1].scratch_chunks, 3);

    let [first, second] = &gpu.threadblocks[..] else { panic!("two blocks") };
    assert_eq!(first.channels, [(ChannelType::Memory, vec![2])]);
    assert_eq!(first.ops[0].channel_ids, [0]);
    let tables = [(ChannelType::Memory, vec![1, 0]), (ChannelType::Switch, vec![0])];
    assert_eq!(second.channels, tables);
    assert_eq!(second.remote_buffer_refs, [(ChannelType::Memory, vec![0, 1])]);
    assert_eq!(second.ops[0].channel_ids, [0, 1]);
    // The reduction writes memory that, in place, the store reads.
    let [.., store, nop, reduce] = &second.ops[..] else { panic!("two data operations") };
    assert_eq!(nop.kind, OpKind::Nop);
    assert_eq!(store.channel_type, ChannelType::Switch);
    assert_eq!(reduce.kind, OpKind::ReadReduceSend);
    assert_eq!(reduce.channel_type, ChannelType::Memory);
    assert_eq!(reduce.group, Some(GroupSlice { tb_id: 1, tbg_size: 2 }));
    let bases: Vec<_> =
        reduce.src.iter().chain(&reduce.dst).map(|r| (r.base, r.index, r.size)).collect();
    assert_eq!(
        bases,
        [
            (RefBase::Remote(1), 1, 1),
            (RefBase::Local(Buffer::Input), 1, 1),
            (RefBase::Local(Buffer::Output), 1, 1),
            (RefBase::Remote(1), 1, 1),
            (RefBase::Remote(0), 1, 1),
        ]
    );
}

#[test]
fn threads_meet_where_they_must_and_only_there() {
    type Case = (&'static str, fn(&ProgramBuilder));
    let cases: &[Case] = &[
        ("put nop signal wait nop put", |p| {
            let (tb, channel) = (p.block(0), p.channel(0, 1));
            tb.put(p.input(0).all(), p.output(1).all());
            tb.signal(&[channel]);
            tb.wait(&[channel]);
            tb.put(p.input(0).all(), p.output(1).all());
        }),
        ("wait nop signal", |p| {
            let (tb, channel) = (p.block(0), p.channel(0, 1));
            tb.wait(&[channel]);
            tb.signal(&[channel]);
        }),
        // Input and output may be the same memory, so they count as one.
        ("copy nop copy", |p| {
            let (tb, scratch) = (p.block(0), p.scratch(0, 1).all());
            tb.copy(p.input(0).all(), scratch);
            tb.copy(scratch, p.output(0).all());
        }),
        ("put copy nop put", |p| {
            let (tb, scratch) = (p.block(0), p.scratch(0, 2));
            tb.put(p.input(0).all(), p.output(1).all());
            tb.copy(p.input(0).all(), scratch.chunk(0));
            tb.put(scratch.chunk(0), p.output(1).all());
        }),
        // Packets carry flags; raw scratch of the same number is other memory.
        ("cpkt upkt", |p| {
            let (tb, scratch) = (p.block(0), p.scratch(0, 2));
            tb.copy_packets(p.input(0).all(), scratch.chunk(0));
            tb.unpack_packets(scratch.chunk(0), scratch.chunk(1));
        }),
        ("copy nop sem_release sem_acquire nop copy", |p| {
            let (tb, semaphore) = (p.block(0), p.semaphore(0, 0));
            tb.copy(p.input(0).all(), p.scratch(0, 1).all());
            tb.release(&[semaphore]);
            tb.acquire(&[semaphore]);
            tb.copy(p.input(0).all(), p.scratch(0, 1).all());
        }),
        ("copy barrier copy nop", |p| {
            let (tb, other, scratch) = (p.block(0), p.block(0), p.scratch(0, 1).all());
            tb.copy(p.input(0).all(), scratch);
            p.barrier(&[tb, other]);
            tb.copy(scratch, p.output(0).all());
            p.barrier(&[tb]);
        }),
        ("copy pipeline nop copy", |p| {
            let (tb, channel) = (p.block(0), p.channel(0, 1));
            tb.copy(p.input(0).all(), p.scratch(0, 1).all());
            p.pipeline(64, 1, || tb.wait(&[channel]));
            tb.copy(p.input(0).all(), p.scratch(0, 1).all());
        }),
    ];
    for (expected, program) in cases {
        assert_eq!(written(program), *expected);
    }
    let p = pair().auto_sync(false);
    let (tb, channel) = (p.block(0), p.channel(0, 1));
    tb.put(p.input(0).all(), p.output(1).all());
    tb.nop();
    tb.signal(&[channel]);
    tb.wait(&[channel]);
    tb.copy(p.input(0).all(), p.output(0).all());
    assert_eq!(kinds(&p.build().expect("a plan"), 0, 0), "put nop signal wait copy");
}

#[test]
fn blocks_of_data_in_place_meet_where_they_share_memory() {
    for (collective, block, expected) in [
        (Collective::AllGather, 0, "copy copy"),
        (Collective::AllGather, 1, "copy nop copy"),
        (Collective::AllToAll, 0, "copy nop copy"),
    ] {
        let p = ProgramBuilder::new("p", collective, 2);
        // Rank 1's input is block 1 of its output in an allgather in place.
        let (tb, scratch) = (p.block(1), p.scratch(1, 2));
        tb.copy(p.input(1).chunk(0), scratch.chunk(0));
        tb.copy(scratch.chunk(1), p.output(1).chunk(block));
        assert_eq!(kinds(&p.build().expect("a plan"), 1, 0), expected, "{block}");
    }
}

#[test]
fn every_operation_has_its_name() {
    let all = |p: &ProgramBuilder| {
        let (tb, s) = (p.block(0), p.scratch(0, 2));
        let theirs = p.scratch(1, 1).all();
        let (i, o) = (p.input(0).all(), p.output(0).all());
        let (here, there) = (s.chunk(0), s.chunk(1));
        tb.get(p.input(1).all(), o);
        tb.reduce(&[i, here], o);
        tb.reduce(&[i, p.input(1).all()], o);
        tb.reduce_send(&[i, here], o, &[theirs]);
        tb.read_put_packets(here, &[theirs]);
        tb.reduce_packets(i, &[here], o);
        tb.reduce_send_packets(i, &[here], o, &[theirs]);
        tb.reduce_copy_send_packets(i, &[here], o, there, &[]);
        tb.reduce_copy_send_packets(i, &[here], o, there, &[theirs]);
        let inputs = p.switch(&[0, 1], Buffer::Input);
        tb.switch_reduce(&inputs, 0, here);
        tb.switch_reduce_store(&inputs, &inputs, 0, 1);
        tb.switch_store(here, &inputs, 0);
        tb.switch_store_packets(there, &p.switch(&[0, 1], Buffer::Scratch), 0);
        let channel = p.channel(0, 1);
        tb.signal_relaxed(&[channel]);
        tb.wait_relaxed(&[channel]);
    };
    let written = written(all).replace("nop ", "");
    assert_eq!(
        written,
        "get re rre res rppkt repkt respkt recpkt recspkt glre glres gstore gstorepkt rlxsignal rlxwait"
    );
}

#[test]
fn port_channels_carry_transfers_signals_and_flushes() {
    let all = |p: &ProgramBuilder| {
        let (tb, port, s) = (p.block(0), p.port(0, 1), p.scratch(0, 2));
        let (i, theirs) = (p.input(0).all(), p.scratch(1, 4).part(1..3));
        tb.put_over(&port, i, p.output(1).all());
        tb.put_with_signal(&port, i, theirs.chunk(0));
        tb.put_with_signal_and_flush(&port, i, theirs.chunk(1));
        tb.copy_packets(i, s.chunk(0));
        tb.put_packets_over(&port, s.chunk(0), theirs.chunk(0));
        tb.read_put_packets_over(&port, s.chunk(1), theirs.chunk(1));
        tb.signal(&[port]);
        tb.wait(&[port]);
        tb.flush(&[port]);
    };
    let written = written(all).replace("nop ", "");
    assert_eq!(written, "put pws pwsf cpkt ppkt rppkt signal wait flush");

    type Misuse = fn(&ProgramBuilder);
    let refusals: [(&str, Misuse); 5] = [
        ("cannot put_with_signal over a memory channel", |p| {
            p.block(0).put_with_signal(&p.channel(0, 1), p.input(0).all(), p.output(1).all());
        }),
        ("flush", |p| p.block(0).flush(&[p.channel(0, 1)])),
        ("cannot put_over on rank 0", |p| {
            p.block(0).put_over(&p.port(0, 1), p.input(0).all(), p.output(0).all());
        }),
        ("belongs to", |p| {
            let (other, tb) = (pair(), p.block(0));
            other.port(0, 1);
            let (_, foreign) = (other.port(1, 0), other.port(0, 1));
            tb.put_over(&foreign, p.input(0).all(), p.output(1).all());
        }),
        ("chunks 1..3", |p| assert!(p.scratch(0, 2).part(1..3).is_empty())),
    ];
    for (expected, program) in refusals {
        let p = pair();
        program(&p);
        let text = p.build().expect_err(expected).to_string();
        assert!(text.contains(expected), "{text}");
    }
}
