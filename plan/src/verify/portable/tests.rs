//! Every limit by a plan just beyond it and one just within, and the plans that the runtime itself ships.

use super::*;
use crate::model::{ChunkRef, GroupSlice, Pipeline, RankGroup, RemoteBuffer};
use crate::real_samples::real_plans;
use crate::{read, samples};

const LOCAL: ChunkRef = ChunkRef { base: RefBase::Local(Buffer::Input), index: 0, size: 1 };
const REMOTE: ChunkRef = ChunkRef { base: RefBase::Remote(0), index: 0, size: 1 };
const SWITCH: ChunkRef = ChunkRef { base: RefBase::Switch(0), index: 0, size: 1 };

/// Two ranks, the second with one block of one operation, as the limits allow.
fn within() -> Plan {
    let mut plan = samples::plan(Collective::AllReduce, 2, [1, 1, 1]);
    plan.max_message_size = 1 << 20;
    plan.gpus[1].threadblocks =
        vec![ThreadBlock { ops: vec![Op::new(OpKind::Nop)], ..ThreadBlock::default() }];
    plan
}

fn operation(kind: OpKind, source: &[ChunkRef], destination: &[ChunkRef]) -> Op {
    Op { src: source.to_vec(), dst: destination.to_vec(), ..Op::new(kind) }
}

fn pipeline(unit_size: u64, num_chunks: u64, ops: Vec<Op>) -> Op {
    let pipeline = Some(Pipeline { unit_size, num_chunks, ops });
    Op { pipeline, ..Op::new(OpKind::Pipeline) }
}

fn over(channel_type: ChannelType, op: Op) -> Op {
    Op { channel_type, ..op }
}

/// The texts of the notes on a plan.
fn texts(plan: &Plan) -> Vec<String> {
    let notes = notes(plan);
    assert!(notes.iter().all(|note| note.about == About::Portability));
    notes.into_iter().map(|note| note.text).collect()
}

type Change = fn(&mut Plan, &mut Vec<Op>, bool);

/// For each limit a change of [`within`] that exceeds it, or (with `false`) only just does not; and the one note.
const CASES: &[(&str, Change, &str)] = &[
    (
        "extensions",
        |plan, _, exceed| plan.runtime_sizes = exceed,
        "extensions: saw runtime_sizes, allowed by the format's own runtime no extensions",
    ),
    (
        "chunks",
        |plan, _, exceed| plan.gpus[1].input_chunks = if exceed { 0 } else { 1 },
        "gpus[1].input_chunks: saw 0,",
    ),
    (
        "message",
        |plan, _, exceed| {
            (plan.min_message_size, plan.max_message_size) =
                ((1 << 32) - u64::from(!exceed), u64::MAX);
        },
        "min_message_size: saw 4294967296,",
    ),
    (
        "alignment",
        |plan, _, exceed| plan.buffer_alignment = if exceed { 8 } else { 32 },
        "buffer_alignment: saw 8, allowed by the format's own runtime multiples of 16",
    ),
    (
        "packets in single scratch",
        |plan, ops, exceed| {
            plan.use_double_scratch_buffer = !exceed;
            ops.push(operation(OpKind::CopyPackets, &[LOCAL], &[LOCAL]));
        },
        "gpus[1].threadblocks[0].ops[1]: saw `cpkt`,",
    ),
    (
        "raw bytes in double scratch",
        |plan, ops, exceed| {
            plan.use_double_scratch_buffer = exceed;
            let access = vec![ChannelType::Memory];
            plan.gpus[1].remote_buffers =
                vec![RemoteBuffer { rank: 0, buffer: Buffer::Scratch, access }];
            plan.gpus[1].threadblocks[0].remote_buffer_refs = vec![(ChannelType::Memory, vec![0])];
            ops.push(over(ChannelType::Memory, operation(OpKind::Put, &[LOCAL], &[REMOTE])));
        },
        "gpus[1].threadblocks[0].ops[1].dst_buff[0]: saw raw bytes in another rank's scratch,",
    ),
    (
        "raw bytes in a group's double scratch",
        |plan, ops, exceed| {
            plan.use_double_scratch_buffer = true;
            let groups = vec![RankGroup { size: 1, ranks: vec![0, 1] }];
            let buffer = if exceed { Buffer::Scratch } else { Buffer::Output };
            plan.gpus[1].channels = vec![ChannelTable::Switch { buffer, groups }];
            plan.gpus[1].threadblocks[0].channels = vec![(ChannelType::Switch, vec![0])];
            ops.push(over(ChannelType::Switch, operation(OpKind::GroupStore, &[LOCAL], &[SWITCH])));
        },
        "gpus[1].threadblocks[0].ops[1].dst_buff[0]: saw raw bytes",
    ),
    (
        "glre",
        |_, ops, exceed| {
            ops.push(Op::new(if exceed {
                OpKind::GroupLoadReduce
            } else {
                OpKind::GroupLoadReduceStore
            }))
        },
        "ops[1]: saw `glre`, allowed by the format's own runtime other operations",
    ),
    (
        "reduction",
        |_, ops, exceed| {
            let reduce_op = Some(if exceed { ReduceOp::Max } else { ReduceOp::Sum });
            ops.push(Op { reduce_op, ..operation(OpKind::Reduce, &[LOCAL, LOCAL], &[LOCAL]) });
        },
        "ops[1].reduce_op: saw max, allowed by the format's own runtime sum",
    ),
    (
        "remote sources of re",
        |_, ops, exceed| {
            let second = if exceed { REMOTE } else { LOCAL };
            ops.push(operation(OpKind::Reduce, &[LOCAL, second], &[LOCAL]));
        },
        "ops[1].src_buff[1]: saw a remote source,",
    ),
    (
        "order of sources",
        |_, ops, exceed| {
            let last = if exceed { LOCAL } else { REMOTE };
            ops.push(operation(OpKind::ReadReduce, &[LOCAL, REMOTE, last], &[LOCAL]));
        },
        "ops[1].src_buff[2]: saw a local source,",
    ),
    (
        "remote first",
        |_, ops, exceed| {
            let first = if exceed { REMOTE } else { LOCAL };
            ops.push(operation(OpKind::ReadReduceSend, &[first, REMOTE], &[LOCAL]));
        },
        "ops[1].src_buff[0]: saw a remote source,",
    ),
    (
        "operations",
        |_, ops, exceed| {
            *ops = vec![Op::new(OpKind::Nop); 61 + usize::from(exceed)];
            ops.push(pipeline(4096, 1, vec![Op::new(OpKind::Nop); 2]));
        },
        "gpus[1].threadblocks[0].ops: saw 65 operations,",
    ),
    (
        "channels of a block",
        |plan, _, exceed| {
            let ids = |count| (0..count).collect();
            let lists = vec![
                (ChannelType::Memory, ids(8)),
                (ChannelType::Memory, ids(8 + u64::from(exceed))),
                (ChannelType::Port, ids(16)),
            ];
            plan.gpus[1].threadblocks[0].channels = lists;
        },
        "gpus[1].threadblocks[0].channels: saw 17 memory channels,",
    ),
    (
        "remote buffers of a block",
        |plan, _, exceed| {
            let ids = (0..16 + u64::from(exceed)).collect();
            plan.gpus[1].threadblocks[0].remote_buffer_refs = vec![(ChannelType::Port, ids)];
        },
        "gpus[1].threadblocks[0].remote_buffer_refs: saw 17 buffers accessed over port channels,",
    ),
    (
        "channels",
        |_, ops, exceed| {
            let channel_ids = vec![0; 8 + usize::from(exceed)];
            ops.push(Op { channel_ids, ..Op::new(OpKind::Signal) });
        },
        "ops[1].channel_ids: saw 9 channels,",
    ),
    (
        "sources",
        |_, ops, exceed| {
            ops.push(operation(OpKind::Reduce, &[LOCAL; 11][..10 + usize::from(exceed)], &[LOCAL]));
        },
        "ops[1].src_buff: saw 11 references,",
    ),
    (
        "destinations",
        |_, ops, exceed| {
            ops.push(operation(
                OpKind::ReduceSend,
                &[LOCAL],
                &[LOCAL; 11][..10 + usize::from(exceed)],
            ));
        },
        "ops[1].dst_buff: saw 11 references,",
    ),
    (
        "semaphores",
        |_, ops, exceed| {
            let semaphore_ids = vec![0; 16 + usize::from(exceed)];
            ops.push(Op { semaphore_ids, ..Op::new(OpKind::SemaphoreRelease) });
        },
        "ops[1].semaphore_ids: saw 17 semaphores,",
    ),
    (
        "barriers",
        |_, ops, exceed| {
            ops.push(Op { barrier_id: Some(15 + u64::from(exceed)), ..Op::new(OpKind::Barrier) });
        },
        "ops[1].barrier_id: saw 16, allowed by the format's own runtime 0 to 15",
    ),
    (
        "iterations",
        |plan, ops, exceed| {
            plan.max_message_size = 16 * (65535 + u64::from(exceed));
            ops.push(pipeline(16, 1, Vec::new()));
        },
        "ops[1]: saw 65536 iterations for the largest message,",
    ),
    (
        "windows",
        |_, ops, exceed| ops.push(pipeline(if exceed { 4104 } else { 4096 }, 1, Vec::new())),
        "ops[1].iter_context.unit_size: saw 4104,",
    ),
    (
        "packets in pipelines",
        |plan, ops, exceed| {
            plan.use_double_scratch_buffer = true;
            let kind = if exceed { OpKind::UnpackPackets } else { OpKind::Copy };
            ops.push(pipeline(4096, 1, vec![operation(kind, &[LOCAL], &[LOCAL])]));
        },
        "gpus[1].threadblocks[0].ops[1].ops[0]: saw `upkt`,",
    ),
    (
        "short operations",
        |_, ops, exceed| {
            let copy = operation(OpKind::Copy, &[LOCAL], &[LOCAL]);
            ops.push(pipeline(4096, 1 + u64::from(exceed), vec![Op::new(OpKind::Nop), copy]));
        },
        "gpus[1].threadblocks[0].ops[1].ops[1]: saw 1 of 2 chunks,",
    ),
    (
        "sliced operations",
        |_, ops, exceed| {
            let group = Some(GroupSlice { tb_id: 0, tbg_size: 1 + u64::from(exceed) });
            let copy = Op { group, ..operation(OpKind::Copy, &[LOCAL], &[LOCAL]) };
            ops.push(pipeline(4096, 1, vec![copy]));
        },
        "gpus[1].threadblocks[0].ops[1].ops[0]: saw 1 of 1 chunks in slices,",
    ),
    (
        "port channels",
        |plan, _, exceed| {
            let connected_to = vec![0; 1024 + usize::from(exceed)];
            plan.gpus[1].channels =
                vec![ChannelTable::Peers { channel_type: ChannelType::Port, connected_to }];
        },
        "gpus[1].channels: saw 1025 port channels,",
    ),
    (
        "memories of ports",
        |plan, _, exceed| {
            let buffer =
                RemoteBuffer { rank: 0, buffer: Buffer::Output, access: vec![ChannelType::Port] };
            plan.gpus[1].remote_buffers = vec![buffer; 509 + usize::from(exceed)];
        },
        "gpus[1].remote_buffers: saw 510 buffers accessed over ports,",
    ),
];

#[test]
fn each_limit_is_noted_beyond_it_and_not_before() {
    assert_eq!(texts(&within()), [] as [String; 0]);
    for (name, change, expected) in CASES {
        let changed = |exceed| {
            let mut plan = within();
            let mut ops = std::mem::take(&mut plan.gpus[1].threadblocks[0].ops);
            change(&mut plan, &mut ops, exceed);
            plan.gpus[1].threadblocks[0].ops = ops;
            texts(&plan)
        };
        assert_eq!(changed(false), [] as [String; 0], "{name}");
        let exceeded = changed(true);
        let [text] = &exceeded[..] else { panic!("{name}: {exceeded:?}") };
        assert!(text.contains(expected), "{name}: {text}");
    }
}

#[test]
fn a_limit_is_noted_once_with_the_first_place_and_their_number() {
    let mut plan = within();
    plan.gpus[0].output_chunks = 0;
    let text = |plan: &Plan| texts(plan).join("\n");
    assert!(!text(&plan).contains("more"), "{}", text(&plan));
    plan.gpus[1].input_chunks = 0;
    assert!(
        text(&plan).starts_with("gpus[0].output_chunks: ")
            && text(&plan).ends_with("; and 1 place more"),
        "{}",
        text(&plan)
    );
    plan.gpus[1].output_chunks = 0;
    assert!(text(&plan).ends_with("; and 2 places more"), "{}", text(&plan));
}

#[test]
fn a_largest_message_that_is_not_given_has_no_iterations() {
    let mut plan = within();
    plan.max_message_size = u64::MAX;
    plan.gpus[1].threadblocks[0].ops.push(pipeline(16, 1, Vec::new()));
    assert_eq!(texts(&plan), [] as [String; 0]);
    // The largest there could be is only counted.
    plan.max_message_size = u64::MAX - 1;
    assert_eq!(texts(&plan).len(), 1);
}

/// Plans of the runtime's own that exceed a limit, by what they start with and what the note says.
const KNOWN: &[(&str, &str)] = &[
    // They are generated and checked, but not run, where they come from.
    ("unit_tests.", "_chunks: saw 0,"),
    ("unit_tests.switch_reduce_test", "saw `glre`,"),
    // One launch of a program that says nothing of the next.
    ("unit_tests.", "use_double_scratch_buffer"),
    ("single_node.allreduce_naivy-", "use_double_scratch_buffer"),
];

#[test]
fn the_runtimes_own_plans_exceed_what_is_known_and_nothing_else() {
    let plans = real_plans();
    let mut met = vec![plans.is_empty(); KNOWN.len()];
    for (name, bytes) in plans {
        for text in texts(&read(&bytes).unwrap().plan) {
            let known = KNOWN
                .iter()
                .position(|(start, word)| name.starts_with(start) && text.contains(word));
            met[known.unwrap_or_else(|| panic!("{name}: {text}"))] = true;
        }
    }
    assert_eq!(met, vec![true; KNOWN.len()], "each is met");
}
