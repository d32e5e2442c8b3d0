//! Tests of the checker: what it accepts is safe to index, and each rule finds what it is for.

use super::*;
use crate::model::*;
use crate::real_samples::real_plans;
use crate::{Read, read};
use antiphon_types::ReduceOp;
use proptest::prelude::*;
use std::cell::Cell;

/// Two ranks; every operation but those of switches, pipelines and semaphores.
const OPERATIONS: &str = include_str!("../json/samples/legacy-operations.json");
/// Two ranks with two switch channels.
const SWITCH: &str = include_str!("../json/samples/switch-reduce.json");
/// Two ranks, packets over memory.
const PACKETS: &str = include_str!("../json/samples/packets.json");
/// One rank, two blocks that pass windows through a semaphore, and thread-block groups.
const WINDOWS: &str = include_str!("samples/windows.json");

fn plan(text: &str) -> Plan {
    read(text.as_bytes()).unwrap().plan
}

#[test]
fn sound_plans_have_no_faults() {
    for text in [OPERATIONS, SWITCH, PACKETS, WINDOWS] {
        let plan = plan(text);
        assert_eq!(check(&plan), Ok(()), "{}", plan.name);
        assert_eq!(pairing(&plan), [], "{}", plan.name);
        index_everything(&plan);
    }
}

#[test]
fn real_plans_have_no_faults() {
    // Those that never end have defects that only show when they run; in two of them counting suffices.
    let unbalanced = [
        "multi_node.allgather_tbg-ns4-ge2-te4.json",
        "unit_tests.signal_wait.relaxed_signal_wait_fuse_test.json",
        "unit_tests.signal_wait.signal_wait_fuse_test.json",
    ];
    for (name, bytes) in real_plans() {
        let Read { plan, .. } = read(&bytes).unwrap();
        check(&plan).unwrap_or_else(|faults| panic!("{name}: {faults}"));
        assert_eq!(pairing(&plan).is_empty(), !unbalanced.contains(&name.as_str()), "{name}");
        index_everything(&plan);
    }
}

/// A change to a plan.
type Change = fn(&mut Plan);

fn op(plan: &mut Plan, block: usize, op: usize) -> &mut Op {
    &mut plan.gpus[0].threadblocks[block].ops[op]
}

fn local(buffer: Buffer, index: u64, size: u64) -> ChunkRef {
    ChunkRef { base: RefBase::Local(buffer), index, size }
}

fn peers(plan: &mut Plan, rank: usize, table: usize) -> &mut Vec<u64> {
    match &mut plan.gpus[rank].channels[table] {
        ChannelTable::Peers { connected_to, .. } => connected_to,
        other => panic!("{other:?}"),
    }
}

fn groups(plan: &mut Plan, rank: usize, table: usize) -> &mut Vec<RankGroup> {
    match &mut plan.gpus[rank].channels[table] {
        ChannelTable::Switch { groups, .. } => groups,
        other => panic!("{other:?}"),
    }
}

/// Changes, each to a sound plan, and what they are about. The faults they make are in the snapshot.
const CHANGES: &[(&str, &str, Change)] = &[
    ("no rank", PACKETS, |p| p.gpus.clear()),
    ("rank id", PACKETS, |p| p.gpus[1].id = 5),
    ("no threads", PACKETS, |p| p.num_threads_per_block = 0),
    ("too many threads", PACKETS, |p| p.num_threads_per_block = 1025),
    ("alignment 0", PACKETS, |p| p.buffer_alignment = 0),
    ("alignment 12", PACKETS, |p| p.buffer_alignment = 12),
    ("empty size range", PACKETS, |p| p.min_message_size = u64::MAX),
    ("block id", OPERATIONS, |p| p.gpus[0].threadblocks.swap(0, 1)),
    ("peer out of range", OPERATIONS, |p| peers(p, 0, 1)[1] = 2),
    ("switch channels with peers", PACKETS, |p| {
        let connected_to = vec![1];
        p.gpus[0]
            .channels
            .push(ChannelTable::Peers { channel_type: ChannelType::Switch, connected_to });
    }),
    ("owner out of range", PACKETS, |p| p.gpus[0].remote_buffers[0].rank = 2),
    ("access by switch", PACKETS, |p| p.gpus[0].remote_buffers[0].access.push(ChannelType::Switch)),
    ("block channel out of range", PACKETS, |p| p.gpus[0].threadblocks[0].channels[0].1[0] = 1),
    ("block channels of no type", PACKETS, |p| {
        p.gpus[0].threadblocks[0].channels.push((ChannelType::None, vec![0]));
    }),
    ("block remote buffer out of range", PACKETS, |p| {
        p.gpus[0].threadblocks[0].remote_buffer_refs[0].1[0] = u64::MAX;
    }),
    ("block remote buffer by switch", PACKETS, |p| {
        p.gpus[0].threadblocks[0].remote_buffer_refs[0].0 = ChannelType::Switch;
    }),
    ("remote buffer of another access type", PACKETS, |p| {
        p.gpus[0].remote_buffers[0].access = vec![ChannelType::Port];
    }),
    ("group member out of range", SWITCH, |p| groups(p, 0, 0)[0].ranks[1] = 2),
    ("group member twice", SWITCH, |p| groups(p, 0, 0)[0].ranks.push(1)),
    ("group without its rank", SWITCH, |p| groups(p, 0, 0)[0].ranks = vec![1]),
    ("group of one end only", SWITCH, |p| groups(p, 1, 1).clear()),
    ("groups in another order", SWITCH, |p| {
        for gpu in &mut p.gpus {
            gpu.threadblocks[0].ops.clear();
        }
        let third = Gpu { id: 2, ..Gpu::default() };
        p.gpus.push(third);
        let ranks = |ranks: &[u64]| RankGroup { size: 2, ranks: ranks.to_vec() };
        *groups(p, 0, 0) = vec![ranks(&[0, 1, 2]), ranks(&[0, 1])];
        *groups(p, 1, 0) = vec![ranks(&[0, 1]), ranks(&[2, 0, 1])];
        let buffer = Buffer::Input;
        p.gpus[2].channels.push(ChannelTable::Switch { buffer, groups: vec![ranks(&[0, 1, 2])] });
    }),
    ("chunk beyond a member's buffer", SWITCH, |p| p.gpus[1].output_chunks = 1),
    ("switch channel out of range", SWITCH, |p| op(p, 0, 0).src[0].base = RefBase::Switch(2)),
    ("channel type of a put", OPERATIONS, |p| op(p, 0, 3).channel_type = ChannelType::Switch),
    ("channel type of a get", OPERATIONS, |p| op(p, 0, 5).channel_type = ChannelType::Port),
    ("signal without channel", OPERATIONS, |p| op(p, 0, 0).channel_ids.clear()),
    ("channel of a signal out of range", OPERATIONS, |p| op(p, 0, 0).channel_ids[1] = 5),
    ("flush over memory", OPERATIONS, |p| op(p, 1, 8).channel_type = ChannelType::Memory),
    ("port put without channel", OPERATIONS, |p| op(p, 1, 6).channel_ids.clear()),
    ("port put to another rank", OPERATIONS, |p| {
        p.gpus.push(Gpu { id: 2, ..Gpu::default() });
        peers(p, 0, 1)[0] = 2;
    }),
    ("put of two chunks to one", OPERATIONS, |p| op(p, 0, 4).dst.truncate(1)),
    ("put of unequal sizes", OPERATIONS, |p| op(p, 0, 4).dst[1].size = 2),
    ("put to itself", OPERATIONS, |p| op(p, 0, 3).dst[0] = local(Buffer::Input, 0, 1)),
    ("put from a remote chunk", OPERATIONS, |p| op(p, 0, 3).src[0].base = RefBase::Remote(0)),
    ("put of nothing", OPERATIONS, |p| {
        op(p, 0, 3).src.clear();
        op(p, 0, 3).dst.clear();
    }),
    ("remote buffer out of range", OPERATIONS, |p| op(p, 0, 3).dst[0].base = RefBase::Remote(9)),
    ("chunk out of range", OPERATIONS, |p| op(p, 0, 6).src[0].index = 3),
    ("remote chunk out of range", OPERATIONS, |p| p.gpus[1].output_chunks = 2),
    ("index and size overflow", OPERATIONS, |p| op(p, 0, 6).src[0].index = u64::MAX),
    ("chunk of a buffer without chunks", OPERATIONS, |p| p.gpus[0].output_chunks = 0),
    ("copy of two chunks", OPERATIONS, |p| op(p, 0, 6).src.push(local(Buffer::Input, 0, 2))),
    ("copy without destination", OPERATIONS, |p| op(p, 0, 6).dst.clear()),
    ("nop with a chunk", OPERATIONS, |p| op(p, 0, 2).src.push(local(Buffer::Input, 0, 2))),
    ("sum of unequal sizes", OPERATIONS, |p| op(p, 0, 7).src[2].size = 0),
    ("sum that averages", OPERATIONS, |p| op(p, 0, 7).reduce_op = Some(ReduceOp::Avg)),
    ("sum into two chunks", OPERATIONS, |p| op(p, 0, 7).dst.push(local(Buffer::Output, 0, 1))),
    ("sum of remote chunks without channel type", OPERATIONS, |p| {
        op(p, 0, 7).src[1].base = RefBase::Remote(0);
    }),
    ("packets in the input", OPERATIONS, |p| op(p, 1, 0).dst[0] = local(Buffer::Input, 0, 1)),
    ("packets from the output", OPERATIONS, |p| op(p, 1, 3).src[1] = local(Buffer::Output, 0, 1)),
    ("raw chunks as packets over a port", OPERATIONS, |p| {
        op(p, 1, 1).src[0] = local(Buffer::Input, 0, 1);
    }),
    ("packets to a remote input", PACKETS, |p| p.gpus[0].remote_buffers[0].buffer = Buffer::Input),
    ("packets stored through a switch over the input", SWITCH, |p| {
        op(p, 0, 2).kind = OpKind::GroupStorePackets;
        op(p, 0, 2).src[0] = local(Buffer::Scratch, 0, 1);
    }),
    ("barrier without number", OPERATIONS, |p| {
        op(p, 0, 11).barrier_id = None;
        op(p, 0, 11).num_threadblocks = None;
    }),
    ("barrier of different numbers", OPERATIONS, |p| op(p, 1, 12).num_threadblocks = Some(3)),
    ("barrier that waits for too many", OPERATIONS, |p| {
        op(p, 0, 11).num_threadblocks = Some(3);
        op(p, 1, 12).num_threadblocks = Some(3);
    }),
    ("barrier of one block, twice", OPERATIONS, |p| {
        *op(p, 1, 12) = op(p, 0, 11).clone();
        let barrier = op(p, 1, 12).clone();
        *op(p, 0, 11) = Op::new(OpKind::Nop);
        *op(p, 1, 2) = barrier;
    }),
    ("semaphore out of range", WINDOWS, |p| {
        op(p, 0, 0).pipeline.as_mut().unwrap().ops[2].semaphore_ids[0] = 1;
    }),
    ("no semaphore", WINDOWS, |p| {
        op(p, 0, 0).pipeline.as_mut().unwrap().ops[2].semaphore_ids.clear();
    }),
    ("window of no bytes", WINDOWS, |p| op(p, 0, 0).pipeline.as_mut().unwrap().unit_size = 0),
    ("pipeline in a pipeline", WINDOWS, |p| {
        let inner = op(p, 0, 0).clone();
        op(p, 0, 0).pipeline.as_mut().unwrap().ops.push(inner);
    }),
    ("pipeline without body", WINDOWS, |p| op(p, 0, 0).pipeline = None),
    ("body without pipeline", WINDOWS, |p| op(p, 0, 0).kind = OpKind::Nop),
    ("fault inside a pipeline", WINDOWS, |p| {
        op(p, 0, 0).pipeline.as_mut().unwrap().ops[0].src[0].index = 7;
    }),
    ("slice out of range", WINDOWS, |p| {
        op(p, 0, 1).group = Some(GroupSlice { tb_id: 2, tbg_size: 2 });
    }),
    ("no slices", WINDOWS, |p| op(p, 0, 1).group = Some(GroupSlice { tb_id: 0, tbg_size: 0 })),
];

#[test]
fn each_rule_finds_its_fault() {
    let mut all = String::new();
    for (name, text, change) in CHANGES {
        let mut plan = plan(text);
        change(&mut plan);
        let faults = check(&plan).expect_err(name).into_vec();
        all += &format!("{name}\n");
        faults.iter().for_each(|fault| all += &format!("  {fault}\n"));
    }
    insta::assert_snapshot!("faults", all);
}

#[test]
fn all_faults_are_reported_at_once() {
    let mut plan = plan(OPERATIONS);
    let changes = CHANGES.iter().filter(|(name, ..)| {
        ["alignment 12", "signal without channel", "chunk out of range", "flush over memory"]
            .contains(name)
    });
    changes.for_each(|(.., change)| change(&mut plan));
    let faults = check(&plan).unwrap_err();
    assert_eq!(faults.as_slice().len(), 4, "{faults}");
    assert!(
        faults
            .to_string()
            .starts_with("cannot run the plan: it has 4 faults\n  buffer_alignment: ")
    );
}

#[test]
fn wider_rules_than_the_format_s_own() {
    let accepted: &[(&str, &str, Change)] = &[
        ("remote first", OPERATIONS, |p| op(p, 0, 9).src.reverse()),
        ("re of remote chunks", OPERATIONS, |p| {
            op(p, 0, 9).kind = OpKind::Reduce;
            op(p, 0, 10).kind = OpKind::ReduceSend;
        }),
        ("rre of local chunks", OPERATIONS, |p| op(p, 0, 9).src[1] = local(Buffer::Scratch, 0, 1)),
        ("no chunks at the end", OPERATIONS, |p| {
            op(p, 0, 6).src[0] = local(Buffer::Input, 4, 0);
            op(p, 0, 6).dst[0] = local(Buffer::Output, 0, 0);
        }),
        ("no constraint on the output", PACKETS, |p| p.gpus[0].output_chunks = 0),
        ("channel to itself", PACKETS, |p| peers(p, 0, 0).push(0)),
        ("group listed in another order", SWITCH, |p| groups(p, 1, 0)[0].ranks.reverse()),
        ("empty pipeline", WINDOWS, |p| op(p, 0, 0).pipeline.as_mut().unwrap().ops.clear()),
        ("lists in parts", OPERATIONS, |p| {
            let block = &mut p.gpus[0].threadblocks[0];
            let tail = block.channels[0].1.split_off(2);
            block.channels.push((ChannelType::Memory, tail));
        }),
    ];
    for (name, text, change) in accepted {
        let mut plan = plan(text);
        change(&mut plan);
        check(&plan).unwrap_or_else(|faults| panic!("{name}: {faults}"));
        index_everything(&plan);
    }
}

#[test]
fn pairing_compares_the_ends_of_each_channel() {
    let changes: &[(&str, &str, Change)] = &[
        ("a signal too many", OPERATIONS, |p| op(p, 0, 0).channel_ids.push(3)),
        ("a put that signals no more", OPERATIONS, |p| op(p, 1, 7).kind = OpKind::Put),
        ("an end without other end", OPERATIONS, |p| {
            peers(p, 1, 1).truncate(1);
            p.gpus[1].threadblocks[1] = ThreadBlock { id: 1, ..ThreadBlock::default() };
        }),
        ("windows against one", WINDOWS, |p| {
            let body = op(p, 1, 0).pipeline.take().unwrap().ops;
            p.gpus[0].threadblocks[1].ops = body;
        }),
        ("windows of another length", WINDOWS, |p| {
            op(p, 1, 0).pipeline.as_mut().unwrap().num_chunks = 3
        }),
    ];
    let mut all = String::new();
    for (name, text, change) in changes {
        let mut plan = plan(text);
        change(&mut plan);
        all += &format!("{name}\n");
        pairing(&plan).iter().for_each(|fault| all += &format!("  {fault}\n"));
    }
    insta::assert_snapshot!("pairing", all);
    let mut same = plan(WINDOWS);
    let half = op(&mut same, 1, 0).pipeline.as_mut().unwrap();
    (half.num_chunks, half.unit_size) = (half.num_chunks * 3, half.unit_size * 3);
    assert_eq!(pairing(&same), [], "equal numbers of windows");
}

/// Follows every id of a plan without asking whether it is there, as an engine would.
fn index_everything(plan: &Plan) {
    let at = |id: u64| usize::try_from(id).unwrap();
    for (rank, gpu) in plan.gpus.iter().enumerate() {
        assert_eq!(at(gpu.id), rank);
        let list = |wanted: ChannelType| -> Vec<u64> {
            let tables = gpu.channels.iter().flat_map(|table| match table {
                ChannelTable::Peers { channel_type, connected_to } if *channel_type == wanted => {
                    connected_to.as_slice()
                }
                _ => &[],
            });
            tables.copied().collect()
        };
        let groups: Vec<(Buffer, &RankGroup)> = gpu
            .channels
            .iter()
            .flat_map(|table| match table {
                ChannelTable::Switch { buffer, groups } => {
                    groups.iter().map(|group| (*buffer, group)).collect()
                }
                ChannelTable::Peers { .. } => Vec::new(),
            })
            .collect();
        for block in &gpu.threadblocks {
            let inner = block.ops.iter().flat_map(|op| op.pipeline.iter().flat_map(|p| &p.ops));
            for op in block.ops.iter().chain(inner) {
                for &id in &op.channel_ids {
                    let peers = list(op.channel_type);
                    let peer = peers[at(block.channel(op.channel_type, id).unwrap())];
                    assert!(at(peer) < plan.gpus.len());
                }
                for &id in &op.semaphore_ids {
                    let _: i64 = gpu.semaphores[at(id)];
                }
                for chunk in op.src.iter().chain(&op.dst) {
                    let end = chunk.index + chunk.size;
                    match chunk.base {
                        RefBase::Local(buffer) => {
                            assert!(end <= super::tables::chunks(gpu, buffer))
                        }
                        RefBase::Remote(id) => {
                            let id = block.remote_buffer(op.channel_type, id).unwrap();
                            let remote = &gpu.remote_buffers[at(id)];
                            assert!(remote.access.contains(&op.channel_type));
                            let owner = &plan.gpus[at(remote.rank)];
                            assert!(end <= super::tables::chunks(owner, remote.buffer));
                        }
                        RefBase::Switch(id) => {
                            let id = block.channel(ChannelType::Switch, id).unwrap();
                            let (buffer, group) = groups[at(id)];
                            assert!(group.ranks.contains(&gpu.id));
                            assert!(end <= super::tables::chunks(gpu, buffer));
                            assert!(group.ranks.iter().all(|&rank| at(rank) < plan.gpus.len()));
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn what_is_accepted_can_be_indexed() {
    let mut samples: Vec<Vec<u8>> = [OPERATIONS, SWITCH, PACKETS, WINDOWS]
        .iter()
        .map(|text| text.as_bytes().to_vec())
        .collect();
    samples.extend(
        real_plans().into_iter().map(|(_, bytes)| bytes).filter(|bytes| bytes.len() < 8_000),
    );
    let (accepted, refused) = (Cell::new(0), Cell::new(0));
    proptest!(ProptestConfig::with_cases(2_000), |(which in any::<usize>(), edits in
        proptest::collection::vec((any::<usize>(), b'0'..=b'9'), 1..4))| {
        let mut bytes = samples[which % samples.len()].clone();
        let digits: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at].is_ascii_digit()).collect();
        for (at, digit) in edits {
            bytes[digits[at % digits.len()]] = digit;
        }
        let Ok(Read { plan, .. }) = read(&bytes) else { return Ok(()) };
        match check(&plan) {
            Ok(()) => {
                index_everything(&plan);
                accepted.set(accepted.get() + 1);
            }
            Err(_) => refused.set(refused.get() + 1),
        }
    });
    let (accepted, refused) = (accepted.get(), refused.get());
    assert!(accepted > 100 && refused > 100, "{accepted} accepted, {refused} refused");
}
