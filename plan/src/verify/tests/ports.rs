//! Port channels: a proxy works off what it was given, in order, some time.

use super::*;
use crate::model::Buffer::{Input, Output, Scratch};
use crate::model::{ChannelTable, ChannelType, ChunkRef};

/// Two ranks with a port channel to each other too, which every block may use.
fn ported(chunks: [u64; 3], blocks: &[&[Vec<Op>]]) -> Plan {
    let mut plan = plan(Collective::SendRecv, 2, chunks);
    connect(&mut plan);
    for (rank, blocks) in blocks.iter().enumerate() {
        let gpu = &mut plan.gpus[rank];
        let connected_to = vec![1 - rank as u64];
        gpu.channels.push(ChannelTable::Peers { channel_type: ChannelType::Port, connected_to });
        for buffer in &mut gpu.remote_buffers {
            buffer.access.push(ChannelType::Port);
        }
        for ops in *blocks {
            block(&mut plan, rank, ops.clone());
            let gpu = &mut plan.gpus[rank];
            let ids = (0..gpu.remote_buffers.len() as u64).collect();
            let block = gpu.threadblocks.last_mut().unwrap();
            block.channels = vec![(ChannelType::Memory, vec![0]), (ChannelType::Port, vec![0])];
            block.remote_buffer_refs.push((ChannelType::Port, ids));
        }
    }
    plan
}

fn port(kind: OpKind) -> Op {
    Op { channel_type: ChannelType::Port, ..sync(kind, &[0]) }
}

fn post(kind: OpKind, from: ChunkRef, to: ChunkRef) -> Op {
    Op { channel_type: ChannelType::Port, channel_ids: vec![0], ..data(kind, &[from], &[to]) }
}

fn put() -> Op {
    post(OpKind::Put, local(Input, 0, 1), remote(0, 1, Output, 0, 1))
}

#[test]
fn what_was_posted_is_flushed_before_the_source_may_change_and_signalled_before_it_is_read() {
    let receive = vec![port(OpKind::Wait), nop()];
    let plan = |ops: Vec<Op>| ported([1, 1, 0], &[&[ops], std::slice::from_ref(&receive)]);
    let (flush, signal) = (port(OpKind::Flush), port(OpKind::Signal));
    expect(&[
        ("flushed", plan(vec![put(), signal.clone(), flush.clone()]), "proven"),
        ("flushed, then signalled", plan(vec![put(), flush, signal.clone()]), "proven"),
        ("not flushed", plan(vec![put(), signal]), "race"),
    ]);
}

/// Engines rely on it: whoever has completed a launch may free its buffers, and nobody writes there any more.
#[test]
fn what_comes_into_a_buffer_of_the_user_is_waited_for_in_its_launch() {
    let send = vec![put(), port(OpKind::Signal), port(OpKind::Flush)];
    let spoil = vec![
        post(OpKind::Put, local(Input, 0, 1), remote(0, 1, Input, 0, 1)),
        port(OpKind::Signal),
        port(OpKind::Flush),
    ];
    let wait = vec![port(OpKind::Wait), nop()];
    expect(&[
        ("waited for", ported([1, 1, 0], &[std::slice::from_ref(&send), &[wait]]), "proven"),
        ("into the output", ported([1, 1, 0], &[&[send], &[vec![nop()]]]), "race"),
        ("into the input", ported([1, 1, 0], &[&[spoil], &[vec![nop()]]]), "race"),
    ]);
}

#[test]
fn signals_of_a_port_come_after_what_was_posted_and_those_of_memory_do_not() {
    let kinds = |signal: Op, wait: Op| {
        ported([1, 1, 0], &[&[vec![put(), signal, port(OpKind::Flush)]], &[vec![wait, nop()]]])
    };
    expect(&[
        ("port", kinds(port(OpKind::Signal), port(OpKind::Wait)), "proven"),
        ("memory", kinds(sync(OpKind::Signal, &[0]), sync(OpKind::Wait, &[0])), "race"),
    ]);
}

#[test]
fn a_proxy_sends_flags_as_they_are() {
    let send = post(OpKind::PutPackets, local(Scratch, 0, 1), remote(0, 1, Scratch, 0, 1));
    let make = data(OpKind::CopyPackets, &[local(Input, 0, 1)], &[local(Scratch, 0, 1)]);
    let receive = vec![
        data(OpKind::UnpackPackets, &[local(Scratch, 0, 1)], &[local(Output, 0, 1)]),
        nop(),
        sync(OpKind::Signal, &[0]),
    ];
    let plan = |mut ops: Vec<Op>| {
        ops.extend([port(OpKind::Flush), sync(OpKind::Wait, &[0])]);
        let mut plan = ported([1, 1, 1], &[&[ops], std::slice::from_ref(&receive)]);
        plan.use_double_scratch_buffer = true;
        plan
    };
    expect(&[
        ("made, met, sent", plan(vec![make.clone(), nop(), send.clone()]), "proven"),
        ("made and sent without meeting", plan(vec![make, send.clone()]), "race"),
        ("never made", plan(vec![send]), "deadlock"),
    ]);
}

#[test]
fn blocks_that_share_a_proxy_are_in_no_order() {
    let signal = port(OpKind::Signal);
    let flush = port(OpKind::Flush);
    let receive = vec![port(OpKind::Wait), nop()];
    let plan = |blocks: &[Vec<Op>]| ported([1, 1, 0], &[blocks, std::slice::from_ref(&receive)]);
    expect(&[
        ("one block", plan(&[vec![put(), signal.clone(), flush.clone()]]), "proven"),
        // The other block's signal may come first.
        ("two", plan(&[vec![put(), flush], vec![signal]]), "not proven"),
    ]);
}

#[test]
fn an_old_flag_takes_the_place_of_a_packet() {
    // Rank 0 sends what it made in an earlier launch to where rank 1 has just made a packet.
    let make = data(OpKind::CopyPackets, &[local(Input, 0, 1)], &[local(Scratch, 0, 1)]);
    let unpack = data(OpKind::UnpackPackets, &[local(Scratch, 0, 1)], &[local(Output, 0, 1)]);
    let plan = |sent_first: bool, middle: &[Op], last: &[Op]| {
        let send = post(OpKind::PutPackets, local(Scratch, 0, 1), remote(0, 1, Scratch, 0, 1));
        let send = vec![send, port(OpKind::Flush), nop()];
        let make_own = vec![make.clone(), nop()];
        let mut zero = vec![sync(OpKind::Wait, &[0]), nop()];
        let order = if sent_first { [send, make_own] } else { [make_own, send] };
        zero.extend(order.into_iter().flatten());
        zero.extend([nop(), sync(OpKind::Signal, &[0])]);
        let mut one = vec![make.clone()];
        one.extend_from_slice(middle);
        one.extend([nop(), sync(OpKind::Signal, &[0]), sync(OpKind::Wait, &[0]), nop()]);
        one.extend_from_slice(last);
        one.extend([nop(), sync(OpKind::Signal, &[0])]);
        zero.push(sync(OpKind::Wait, &[0]));
        let mut plan = ported([1, 1, 1], &[&[zero], &[one]]);
        plan.use_double_scratch_buffer = true;
        plan
    };
    let (read, again) = ([unpack.clone()], [make.clone(), unpack.clone()]);
    expect(&[
        ("read before", plan(true, &read, &[]), "proven"),
        ("waited for after", plan(true, &[], &read), "deadlock"),
        ("the flag of this launch", plan(false, &read, &[]), "race"),
        ("made again", plan(true, &read, &again), "race"),
    ]);
}
