//! The first step: what operations become, whatever the sizes.

use crate::model::{Buffer, ChannelTable, ChannelType, Collective, Op, OpKind, Plan};
use crate::program::{Access, Area, Instruction, Layout, RankLayout};
use crate::samples::*;
use antiphon_types::ReduceOp;

/// A move as its sources and destinations.
fn moves(rank: &RankLayout) -> Vec<(Vec<Access>, Vec<Access>)> {
    let sides = |instruction: &Instruction| match *instruction {
        Instruction::Move { sources, destinations, .. } => Some((
            rank.accesses[sources.range()].to_vec(),
            rank.accesses[destinations.range()].to_vec(),
        )),
        _ => None,
    };
    rank.instructions.iter().filter_map(sides).collect()
}

#[test]
fn operations_become_moves_of_raw_bytes_and_packets() {
    use Area::{Input as I, Output as O, Packets as P, Scratch as S};
    let i = local(Buffer::Input, 0, 1);
    let o = local(Buffer::Output, 0, 1);
    let s = |at| local(Buffer::Scratch, at, 1);
    let ri = remote(0, 1, Buffer::Input, 0, 1);
    let ro = remote(0, 1, Buffer::Output, 0, 1);
    let rs = |at| remote(0, 1, Buffer::Scratch, at, 1);
    type Sides = &'static [(u32, Area)];
    // Operation, its references, and the accesses of each move it becomes.
    let table: Vec<(Op, Vec<(Sides, Sides)>)> = vec![
        (
            data(OpKind::Put, &[i, s(0)], &[ro, rs(1)]),
            vec![(&[(0, I)], &[(1, O)]), (&[(0, S)], &[(1, S)])],
        ),
        (data(OpKind::Get, &[ri], &[o]), vec![(&[(1, I)], &[(0, O)])]),
        (data(OpKind::Copy, &[i], &[s(0)]), vec![(&[(0, I)], &[(0, S)])]),
        (data(OpKind::Reduce, &[i, s(0)], &[o]), vec![(&[(0, I), (0, S)], &[(0, O)])]),
        (
            data(OpKind::ReduceSend, &[i, s(0)], &[o, ro]),
            vec![(&[(0, I), (0, S)], &[(0, O), (1, O)])],
        ),
        (data(OpKind::ReadReduce, &[i, ri], &[i]), vec![(&[(0, I), (1, I)], &[(0, I)])]),
        (
            data(OpKind::ReadReduceSend, &[i, ri], &[i, ri]),
            vec![(&[(0, I), (1, I)], &[(0, I), (1, I)])],
        ),
        (
            data(OpKind::PutPackets, &[i, i], &[rs(0), rs(1)]),
            vec![(&[(0, I)], &[(1, P)]), (&[(0, I)], &[(1, P)])],
        ),
        (
            data(OpKind::ReadPutPackets, &[s(0)], &[rs(0), rs(1)]),
            vec![(&[(0, P)], &[(1, P), (1, P)])],
        ),
        (data(OpKind::CopyPackets, &[i], &[s(0)]), vec![(&[(0, I)], &[(0, P)])]),
        (data(OpKind::UnpackPackets, &[s(0)], &[o]), vec![(&[(0, P)], &[(0, O)])]),
        (data(OpKind::ReducePackets, &[s(0), s(1)], &[o]), vec![(&[(0, P), (0, S)], &[(0, O)])]),
        (
            data(OpKind::ReduceSendPackets, &[i, s(0)], &[o, rs(0), rs(1)]),
            vec![(&[(0, P), (0, I)], &[(0, O), (1, P), (1, P)])],
        ),
        (
            data(OpKind::ReduceCopySendPackets, &[i, s(0)], &[o, s(1), rs(0)]),
            vec![(&[(0, P), (0, I)], &[(0, O), (0, P), (1, P)])],
        ),
    ];
    for (op, wanted) in table {
        let mut plan = plan(Collective::Test, 2, [1, 1, 2]);
        connect(&mut plan);
        let kind = op.kind;
        block(&mut plan, 0, vec![op]);
        let layout = Layout::new(&plan).unwrap();
        let plain = |sides: &[Access]| sides.iter().map(|a| (a.rank, a.area)).collect::<Vec<_>>();
        let saw: Vec<_> =
            moves(&layout.ranks[0]).iter().map(|(s, d)| (plain(s), plain(d))).collect();
        let wanted: Vec<_> = wanted.into_iter().map(|(s, d)| (s.to_vec(), d.to_vec())).collect();
        assert_eq!(saw, wanted, "{kind}");
        let packets = wanted.iter().any(|(s, d)| s.iter().chain(d).any(|&(_, area)| area == P));
        assert_eq!((layout.packets, layout.double_scratch), (packets, packets), "{kind}");
    }
}

#[test]
fn the_kth_channel_of_a_pair_meets_the_kth_of_the_other() {
    let mut plan = plan(Collective::Test, 3, [1, 1, 0]);
    let lists: [&[u64]; 3] = [&[1, 2, 1, 1], &[2, 0, 0], &[0, 1, 0]];
    for (gpu, list) in plan.gpus.iter_mut().zip(lists) {
        // Two memory tables with a port table between them: ids count over the memory ones alone.
        let table = |channel_type, peers: &[u64]| ChannelTable::Peers {
            channel_type,
            connected_to: peers.to_vec(),
        };
        gpu.channels = vec![
            table(ChannelType::Memory, &list[..1]),
            table(ChannelType::Port, &[0, 1]),
            table(ChannelType::Memory, &list[1..]),
        ];
    }
    let layout = Layout::new(&plan).unwrap();
    let saw = layout.ranks.iter().map(|rank| {
        let ends = rank.channels.iter().filter(|channel| !channel.port);
        ends.map(|channel| (channel.peer, channel.paired)).collect::<Vec<_>>()
    });
    assert_eq!(
        saw.collect::<Vec<_>>(),
        [
            vec![(1, Some(1)), (2, Some(0)), (1, Some(2)), (1, None)],
            vec![(2, Some(1)), (0, Some(0)), (0, Some(2))],
            vec![(0, Some(1)), (1, Some(0)), (0, None)],
        ]
    );
    // Port channels come after the memory ones and are paired among themselves.
    let ports = layout.ranks.iter().map(|rank| {
        let ends = rank.channels.iter().filter(|channel| channel.port);
        ends.map(|channel| (channel.peer, channel.paired)).collect::<Vec<_>>()
    });
    assert_eq!(
        ports.collect::<Vec<_>>(),
        [
            vec![(0, Some(4)), (1, Some(3))],
            vec![(0, Some(5)), (1, Some(4))],
            vec![(0, None), (1, None)],
        ]
    );
    assert_eq!(layout.ranks[0].channel_id(2), (ChannelType::Memory, 2));
    assert_eq!(layout.ranks[0].channel_id(5), (ChannelType::Port, 1));
}

#[test]
fn block_local_lists_choose_the_channels_and_buffers() {
    let mut plan = plan(Collective::Test, 3, [1, 1, 1]);
    connect(&mut plan);
    let put =
        data(OpKind::Put, &[local(Buffer::Input, 0, 1)], &[remote(0, 1, Buffer::Input, 0, 1)]);
    block(&mut plan, 0, vec![sync(OpKind::Signal, &[1, 0]), put]);
    let tb = &mut plan.gpus[0].threadblocks[0];
    tb.channels = vec![(ChannelType::Memory, vec![1]), (ChannelType::Memory, vec![0])];
    // Local id 0 is gpu id 5: the scratch of rank 2.
    tb.remote_buffer_refs = vec![(ChannelType::Memory, vec![5])];
    let layout = Layout::new(&plan).unwrap();
    let rank = &layout.ranks[0];
    assert_eq!(
        rank.instructions[..2],
        [0, 1].map(|channel| Instruction::Signal { channel, release: true })
    );
    assert_eq!(moves(rank)[0].1, [Access { rank: 2, area: Area::Scratch }]);
    assert_eq!((&rank.buffer_peers[..], &rank.scratch_peers[..]), (&[][..], &[1, 2][..]));
}

#[test]
fn pipelines_bracket_their_bodies() {
    let layout = Layout::new(&pipelined_exchange(3, 64)).unwrap();
    let rank = &layout.ranks[1];
    for (index, block) in (0..).zip(&rank.blocks) {
        let code = &rank.instructions[block.code.range()];
        assert_eq!(code[0], Instruction::LoopBegin { end: 5, unit: 64, chunks: 3, index });
        assert_eq!(code[5], Instruction::LoopEnd { begin: 0 });
    }
    assert_eq!((rank.moves, rank.loops, rank.scratch_chunks), (2, 2, 3));
    assert_eq!(rank.origins[3].inner, Some(2));
}

#[test]
fn barriers_are_dense_and_those_of_one_block_synchronise_it() {
    let mut plan = plan(Collective::Test, 1, [1, 1, 0]);
    block(&mut plan, 0, vec![barrier(90, 2), barrier(4, 1), barrier(12, 2)]);
    block(&mut plan, 0, vec![barrier(90, 2), barrier(12, 2)]);
    let layout = Layout::new(&plan).unwrap();
    let rank = &layout.ranks[0];
    assert_eq!(rank.barriers, [2, 2]);
    let wait = |barrier| Instruction::Barrier { barrier, blocks: 2 };
    assert_eq!(rank.instructions, [wait(0), Instruction::BlockSync, wait(1), wait(0), wait(1)]);
}

#[test]
fn a_channel_knows_whether_several_blocks_signal_on_it() {
    let mut plan = plan(Collective::Test, 3, [1, 1, 0]);
    connect(&mut plan);
    block(&mut plan, 0, vec![sync(OpKind::Signal, &[0, 0, 1])]);
    block(&mut plan, 0, vec![sync(OpKind::RelaxedSignal, &[1])]);
    let layout = Layout::new(&plan).unwrap();
    let saw: Vec<_> = layout.ranks[0].channels.iter().map(|c| c.single_signaller).collect();
    assert_eq!(saw, [true, false]);
}

#[test]
fn what_must_keep_its_order_is_one_threads() {
    use OpKind::{SemaphoreAcquire, SemaphoreRelease, Signal, Wait};
    for (name, operations, expected) in [
        ("side by side", vec![sync(Wait, &[0, 1]), sync(Signal, &[1, 0])], vec![0, 1, 0, 1]),
        ("a channel again", vec![sync(Wait, &[0, 1]), sync(Wait, &[1, 0])], vec![0, 1, 1, 0]),
        ("twice in a list", vec![sync(Wait, &[0, 0, 1])], vec![0, 0, 2]),
        (
            "semaphores",
            [(SemaphoreAcquire, [0, 1]), (SemaphoreRelease, [1, 0])]
                .into_iter()
                .flat_map(|(kind, ids)| ids.map(|id| semaphore(kind, id)))
                .collect(),
            vec![0; 4],
        ),
    ] {
        let mut plan = plan(Collective::Test, 3, [1, 1, 0]);
        connect(&mut plan);
        plan.gpus[0].semaphores = vec![0; 2];
        block(&mut plan, 0, operations);
        let layout = Layout::new(&plan).unwrap();
        assert_eq!(layout.ranks[0].threads(), expected, "{name}");
    }
}

/// `r` and `R` are relaxed and releasing signals, `w` and `W` waits, digits the channel they use; `m` moves data,
/// `b` is a barrier, `a` and `e` take from and give to a semaphore, brackets are a pipeline.
fn ordered(program: &str) -> (String, usize) {
    let mut plan = plan(Collective::Test, 3, [1, 1, 0]);
    connect(&mut plan);
    plan.gpus[0].semaphores = vec![0];
    let (mut ops, mut body, mut inside) = (Vec::new(), Vec::new(), false);
    let mut letters = program.chars().peekable();
    while let Some(letter) = letters.next() {
        let kind = match letter {
            'r' => OpKind::RelaxedSignal,
            'R' => OpKind::Signal,
            'w' => OpKind::RelaxedWait,
            'W' => OpKind::Wait,
            _ => OpKind::Nop,
        };
        let channel = letters.next_if(char::is_ascii_digit).and_then(|digit| digit.to_digit(10));
        let op = match letter {
            'm' => {
                data(OpKind::Copy, &[local(Buffer::Input, 0, 1)], &[local(Buffer::Output, 0, 1)])
            }
            'b' => barrier(0, 2),
            'a' => semaphore(OpKind::SemaphoreAcquire, 0),
            'e' => semaphore(OpKind::SemaphoreRelease, 0),
            '[' => {
                inside = true;
                continue;
            }
            ']' => {
                inside = false;
                pipeline(16, 1, std::mem::take(&mut body))
            }
            _ => sync(kind, &[u64::from(channel.unwrap())]),
        };
        if inside { &mut body } else { &mut ops }.push(op);
    }
    block(&mut plan, 0, ops);
    let layout = Layout::new(&plan).unwrap();
    let rank = &layout.ranks[0];
    let write = |instruction: &Instruction| match *instruction {
        Instruction::Signal { channel, release } => {
            format!("{}{channel}", if release { 'R' } else { 'r' })
        }
        Instruction::Wait { channel, acquire } => {
            format!("{}{channel}", if acquire { 'W' } else { 'w' })
        }
        Instruction::Move { .. } | Instruction::MoveBlock { .. } => "m".to_owned(),
        Instruction::Post { .. } => "p".to_owned(),
        Instruction::Flush { .. } => "f".to_owned(),
        Instruction::Barrier { .. } => "b".to_owned(),
        Instruction::Acquire { .. } => "a".to_owned(),
        Instruction::Release { .. } => "e".to_owned(),
        Instruction::LoopBegin { .. } => "[".to_owned(),
        Instruction::LoopEnd { .. } => "]".to_owned(),
        Instruction::BlockSync => String::new(),
    };
    (rank.instructions.iter().map(write).collect(), rank.strengthened.len())
}

#[test]
fn relaxed_operations_become_ordered_where_data_needs_it() {
    let table = [
        // A handshake before any data keeps its signal; what follows it relies on the wait.
        ("r0w0mR0W0", "r0W0mR0W0"),
        ("r0w0", "r0w0"),
        // Signals after data release it, once to each peer.
        ("mr0r0r1", "mR0r0R1"),
        ("mR0r0", "mR0r0"),
        ("mR0r1", "mR0R1"),
        // Other blocks' accesses count, wherever this one may have learnt of them.
        ("br0", "bR0"),
        ("ar0", "aR0"),
        ("er0", "er0"),
        ("W0r1", "W0R1"),
        // Handing on counts as relying.
        ("w0b", "W0b"),
        ("w0e", "W0e"),
        ("w0a", "w0a"),
        ("w0R1", "W0R1"),
        ("w0r1", "w0r1"),
        // A later acquire of the same channel covers the earlier wait; one of another does not.
        ("w0W0m", "w0W0m"),
        ("w0W1m", "W0W1m"),
        ("mw0", "mw0"),
        // A body follows itself.
        ("[r0m]", "[R0m]"),
        ("[mw0]", "[mW0]"),
        ("[r0]m", "[r0]m"),
        ("m[r0]", "m[R0]"),
        ("[m]r0", "[m]R0"),
        ("w0[m]", "W0[m]"),
    ];
    for (program, wanted) in table {
        let changed = program.chars().zip(wanted.chars()).filter(|(a, b)| a != b).count();
        assert_eq!(ordered(program), (wanted.to_owned(), changed), "{program}");
    }
}

#[test]
fn fingerprints_are_the_same_in_every_build() {
    // A change here breaks every pair of ranks that run different versions: it must be meant.
    let plans = [packet_allreduce(), allgather(2, 2, true), pipelined_exchange(3, 64)];
    let saw = plans.map(|plan| format!("{:016x}", Layout::new(&plan).unwrap().fingerprint));
    insta::assert_debug_snapshot!(saw);
}

#[test]
fn fingerprints_tell_plans_apart_but_not_names() {
    let base = pipelined_exchange(3, 64);
    let of = |plan: &Plan| Layout::new(plan).unwrap().fingerprint;
    let mut renamed = base.clone();
    renamed.name = "other".to_owned();
    assert_eq!(of(&base), of(&renamed));
    fn body(plan: &mut Plan, block: usize) -> &mut Vec<Op> {
        &mut plan.gpus[0].threadblocks[block].ops[0].pipeline.as_mut().unwrap().ops
    }
    let changes: [fn(&mut Plan); 13] = [
        |plan| plan.collective = Collective::Test,
        |plan| plan.in_place = true,
        |plan| plan.buffer_alignment = 32,
        |plan| plan.min_message_size = 1,
        |plan| plan.max_message_size = 1 << 40,
        |plan| plan.use_double_scratch_buffer = true,
        |plan| plan.gpus[1].scratch_chunks = 4,
        |plan| plan.gpus[1].semaphores[0] = 1,
        |plan| plan.gpus[0].threadblocks.swap(0, 1),
        |plan| body(plan, 0)[0].reduce_op = Some(ReduceOp::Max),
        |plan| body(plan, 0)[0].group = Some(crate::model::GroupSlice { tb_id: 0, tbg_size: 2 }),
        |plan| body(plan, 0)[2].kind = OpKind::RelaxedSignal,
        |plan| body(plan, 1).swap(0, 1),
    ];
    let mut seen = vec![of(&base)];
    for change in changes {
        let mut plan = base.clone();
        change(&mut plan);
        let fingerprint = of(&plan);
        assert!(!seen.contains(&fingerprint), "change {} made no difference", seen.len());
        seen.push(fingerprint);
    }
}
