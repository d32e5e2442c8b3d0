//! Small plans built by hand, for the tests of this crate.

use crate::model::{
    Buffer, ChannelTable, ChannelType, ChunkRef, Collective, Gpu, GroupSlice, Op, OpKind, Pipeline,
    Plan, Protocol, RefBase, RemoteBuffer, ThreadBlock,
};

/// A plan of `ranks` ranks with these chunk counts and no blocks.
pub(crate) fn plan(collective: Collective, ranks: usize, chunks: [u64; 3]) -> Plan {
    let gpu = |id| Gpu {
        id,
        input_chunks: chunks[0],
        output_chunks: chunks[1],
        scratch_chunks: chunks[2],
        ..Gpu::default()
    };
    Plan {
        name: collective.name().to_owned(),
        collective,
        protocol: Protocol::Simple,
        in_place: false,
        reuse_resources: false,
        gpus: (0..ranks as u64).map(gpu).collect(),
        num_threads_per_block: 1024,
        use_double_scratch_buffer: false,
        buffer_alignment: 16,
        min_message_size: 0,
        max_message_size: u64::MAX,
        runtime_sizes: false,
    }
}

/// Gives every rank one memory channel to each other rank, and every other rank's three buffers: see [`remote`].
pub(crate) fn connect(plan: &mut Plan) {
    let ranks = plan.gpus.len() as u64;
    for gpu in &mut plan.gpus {
        let others: Vec<u64> = (0..ranks).filter(|&peer| peer != gpu.id).collect();
        for &rank in &others {
            gpu.remote_buffers.extend(Buffer::ALL.map(|buffer| RemoteBuffer {
                rank,
                buffer,
                access: vec![ChannelType::Memory],
            }));
        }
        let channel_type = ChannelType::Memory;
        gpu.channels.push(ChannelTable::Peers { channel_type, connected_to: others });
    }
}

/// Adds a block with these operations, which may use every channel and remote buffer of the rank by its own id.
pub(crate) fn block(plan: &mut Plan, rank: usize, ops: Vec<Op>) {
    let gpu = &mut plan.gpus[rank];
    let memory = gpu.channels.iter().map(|table| match table {
        ChannelTable::Peers { connected_to, .. } => connected_to.len() as u64,
        ChannelTable::Switch { .. } => 0,
    });
    let switch = gpu.channels.iter().map(|table| match table {
        ChannelTable::Peers { .. } => 0,
        ChannelTable::Switch { groups, .. } => groups.len() as u64,
    });
    let channels = vec![
        (ChannelType::Memory, (0..memory.sum()).collect()),
        (ChannelType::Switch, (0..switch.sum()).collect()),
    ];
    let remotes = (0..gpu.remote_buffers.len() as u64).collect();
    gpu.threadblocks.push(ThreadBlock {
        id: gpu.threadblocks.len() as u64,
        ops,
        channels,
        remote_buffer_refs: vec![(ChannelType::Memory, remotes)],
    });
}

/// The channel from `rank` to `peer`, after [`connect`].
pub(crate) fn channel(rank: usize, peer: usize) -> u64 {
    (if peer < rank { peer } else { peer - 1 }) as u64
}

/// A reference of `rank` to a buffer of `peer`, after [`connect`].
pub(crate) fn remote(rank: usize, peer: usize, buffer: Buffer, index: u64, size: u64) -> ChunkRef {
    let base = RefBase::Remote(3 * channel(rank, peer) + buffer as u64);
    ChunkRef { base, index, size }
}

pub(crate) fn local(buffer: Buffer, index: u64, size: u64) -> ChunkRef {
    ChunkRef { base: RefBase::Local(buffer), index, size }
}

pub(crate) fn switch(id: u64, index: u64, size: u64) -> ChunkRef {
    ChunkRef { base: RefBase::Switch(id), index, size }
}

pub(crate) fn data(kind: OpKind, src: &[ChunkRef], dst: &[ChunkRef]) -> Op {
    let mut op = Op::new(kind);
    op.channel_type = ChannelType::Memory;
    op.src = src.to_vec();
    op.dst = dst.to_vec();
    op
}

pub(crate) fn sync(kind: OpKind, channel_ids: &[u64]) -> Op {
    let mut op = Op::new(kind);
    op.channel_type = ChannelType::Memory;
    op.channel_ids = channel_ids.to_vec();
    op
}

pub(crate) fn semaphore(kind: OpKind, id: u64) -> Op {
    let mut op = Op::new(kind);
    op.semaphore_ids = vec![id];
    op
}

pub(crate) fn barrier(id: u64, blocks: u64) -> Op {
    let mut op = Op::new(OpKind::Barrier);
    op.barrier_id = Some(id);
    op.num_threadblocks = Some(blocks);
    op
}

pub(crate) fn pipeline(unit_size: u64, num_chunks: u64, ops: Vec<Op>) -> Op {
    let mut op = Op::new(OpKind::Pipeline);
    op.pipeline = Some(Pipeline { unit_size, num_chunks, ops });
    op
}

pub(crate) fn sliced(mut op: Op, tb_id: u64, tbg_size: u64) -> Op {
    op.group = Some(GroupSlice { tb_id, tbg_size });
    op
}

/// `signal` to all peers, then `wait` for all.
pub(crate) fn meet(rank: usize, ranks: usize, kinds: [OpKind; 2]) -> Vec<Op> {
    let all: Vec<u64> = (0..ranks).filter(|&p| p != rank).map(|p| channel(rank, p)).collect();
    vec![sync(kinds[0], &all), sync(kinds[1], &all), Op::new(OpKind::Nop)]
}

const RELAXED: [OpKind; 2] = [OpKind::RelaxedSignal, OpKind::RelaxedWait];
const ORDERED: [OpKind; 2] = [OpKind::Signal, OpKind::Wait];

/// A zero-copy plan over input and output: a handshake, `moves` of each rank, and a closing handshake.
fn zero_copy(mut plan: Plan, moves: impl Fn(usize) -> Vec<Op>) -> Plan {
    connect(&mut plan);
    let ranks = plan.gpus.len();
    for rank in 0..ranks {
        let mut ops = meet(rank, ranks, RELAXED);
        ops.extend(moves(rank));
        ops.push(Op::new(OpKind::Nop));
        ops.extend(meet(rank, ranks, ORDERED));
        block(&mut plan, rank, ops);
    }
    plan
}

fn others(rank: usize, ranks: usize) -> impl Iterator<Item = usize> {
    (0..ranks).filter(move |&peer| peer != rank)
}

/// Every rank stores its input in every output. `together` makes one operation of a rank's `f` chunks.
pub(crate) fn allgather(ranks: usize, f: u64, together: bool) -> Plan {
    let chunks = [f, ranks as u64 * f, 0];
    zero_copy(plan(Collective::AllGather, ranks, chunks), |rank| {
        let mut ops = Vec::new();
        for (index, size) in pieces(f, together) {
            let (source, to) = (local(Buffer::Input, index, size), rank as u64 * f + index);
            ops.push(data(OpKind::Copy, &[source], &[local(Buffer::Output, to, size)]));
            for peer in others(rank, ranks) {
                let target = remote(rank, peer, Buffer::Output, to, size);
                ops.push(data(OpKind::Put, &[source], &[target]));
            }
        }
        ops
    })
}

/// Every rank reads and adds its block of every input.
pub(crate) fn reduce_scatter(ranks: usize, f: u64, together: bool) -> Plan {
    let chunks = [ranks as u64 * f, f, 0];
    zero_copy(plan(Collective::ReduceScatter, ranks, chunks), |rank| {
        let reduce = |(index, size)| {
            let from = rank as u64 * f + index;
            let mut sources = vec![local(Buffer::Input, from, size)];
            sources.extend(others(rank, ranks).map(|p| remote(rank, p, Buffer::Input, from, size)));
            data(OpKind::ReadReduce, &sources, &[local(Buffer::Output, index, size)])
        };
        pieces(f, together).map(reduce).collect()
    })
}

/// Every rank adds its block of every input and stores the sum in every output.
pub(crate) fn allreduce(ranks: usize, f: u64, together: bool) -> Plan {
    let chunks = [ranks as u64 * f, ranks as u64 * f, 0];
    zero_copy(plan(Collective::AllReduce, ranks, chunks), |rank| {
        let reduce = |(index, size)| {
            let at = rank as u64 * f + index;
            let side = |own, buffer| {
                let rest = others(rank, ranks).map(move |p| remote(rank, p, buffer, at, size));
                std::iter::once(local(own, at, size)).chain(rest).collect::<Vec<_>>()
            };
            let sources = side(Buffer::Input, Buffer::Input);
            let targets = side(Buffer::Output, Buffer::Output);
            data(OpKind::ReadReduceSend, &sources, &targets)
        };
        pieces(f, together).map(reduce).collect()
    })
}

/// Every rank stores block p of its input in the output of rank p.
pub(crate) fn alltoall(ranks: usize, f: u64, together: bool) -> Plan {
    let chunks = [ranks as u64 * f, ranks as u64 * f, 0];
    zero_copy(plan(Collective::AllToAll, ranks, chunks), |rank| {
        let mut ops = Vec::new();
        for (index, size) in pieces(f, together) {
            for peer in 0..ranks {
                let source = local(Buffer::Input, peer as u64 * f + index, size);
                let to = rank as u64 * f + index;
                ops.push(if peer == rank {
                    data(OpKind::Copy, &[source], &[local(Buffer::Output, to, size)])
                } else {
                    let target = remote(rank, peer, Buffer::Output, to, size);
                    data(OpKind::Put, &[source], &[target])
                });
            }
        }
        ops
    })
}

fn pieces(f: u64, together: bool) -> impl Iterator<Item = (u64, u64)> {
    let size = if together { f } else { 1 };
    (0..f / size).map(move |piece| (piece * size, size))
}

/// The format description's first worked example: LL allreduce of two ranks, in place.
pub(crate) fn packet_allreduce() -> Plan {
    let mut plan = plan(Collective::AllReduce, 2, [2, 2, 2]);
    plan.name = "ar2".to_owned();
    plan.protocol = Protocol::LL;
    plan.in_place = true;
    plan.num_threads_per_block = 512;
    plan.use_double_scratch_buffer = true;
    plan.max_message_size = 1_048_576;
    connect(&mut plan);
    for rank in 0..2usize {
        let peer = 1 - rank;
        let own = |index| local(Buffer::Input, index, 1);
        let slot = |index| local(Buffer::Scratch, index, 1);
        let theirs = |index| remote(rank, peer, Buffer::Scratch, index, 1);
        let (mine, other) = (rank as u64, peer as u64);
        let ops = vec![
            data(OpKind::PutPackets, &[own(other)], &[theirs(0)]),
            data(OpKind::ReduceSendPackets, &[own(mine), slot(0)], &[own(mine), theirs(1)]),
            Op::new(OpKind::Nop),
            data(OpKind::UnpackPackets, &[slot(1)], &[own(other)]),
        ];
        block(&mut plan, rank, ops);
    }
    plan
}

/// Two ranks exchange their inputs through scratch, in windows, one block to send and one to receive.
pub(crate) fn pipelined_exchange(chunks: u64, unit: u64) -> Plan {
    let mut plan = plan(Collective::SendRecv, 2, [chunks, chunks, chunks]);
    connect(&mut plan);
    for rank in 0..2 {
        plan.gpus[rank].semaphores = vec![0];
        let all = |buffer| local(buffer, 0, chunks);
        let send = vec![
            data(
                OpKind::Put,
                &[all(Buffer::Input)],
                &[remote(rank, 1 - rank, Buffer::Scratch, 0, chunks)],
            ),
            Op::new(OpKind::Nop),
            sync(OpKind::Signal, &[0]),
            semaphore(OpKind::SemaphoreRelease, 0),
        ];
        let receive = vec![
            semaphore(OpKind::SemaphoreAcquire, 0),
            sync(OpKind::Wait, &[0]),
            Op::new(OpKind::Nop),
            data(OpKind::Copy, &[all(Buffer::Scratch)], &[all(Buffer::Output)]),
        ];
        block(&mut plan, rank, vec![pipeline(unit, chunks, send)]);
        block(&mut plan, rank, vec![pipeline(unit, chunks, receive)]);
    }
    plan
}
