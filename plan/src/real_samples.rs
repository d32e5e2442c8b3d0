//! Plans for tests: real ones from disk, and random ones that need not make sense.

use crate::model::*;
use antiphon_types::ReduceOp;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::path::Path;

/// The plans written by another implementation, as (file name, bytes); none, with a note, where they are absent.
pub(crate) fn real_plans() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/plans"));
    let Ok(entries) = std::fs::read_dir(folder) else {
        println!("SKIP: no plans at {}", folder.display());
        return Vec::new();
    };
    let mut plans: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read(&path).unwrap())
        })
        .collect();
    plans.sort();
    plans
}

fn buffer() -> impl Strategy<Value = Buffer> + Clone {
    prop::sample::select(Buffer::ALL.to_vec())
}

fn channel_type() -> impl Strategy<Value = ChannelType> + Clone {
    use ChannelType::*;
    prop::sample::select(vec![Memory, Port, Switch, None])
}

/// Numbers as they occur, and the extremes.
fn number() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![8 => 0..8_u64, 1 => any::<u64>(), 1 => Just(u64::MAX)]
}

fn numbers() -> impl Strategy<Value = Vec<u64>> + Clone {
    vec(number(), 0..4)
}

fn chunk() -> impl Strategy<Value = ChunkRef> + Clone {
    let base = prop_oneof![
        2 => buffer().prop_map(RefBase::Local),
        1 => number().prop_map(RefBase::Remote),
        1 => number().prop_map(RefBase::Switch),
    ];
    (base, number(), number()).prop_map(|(base, index, size)| ChunkRef { base, index, size })
}

fn op() -> impl Strategy<Value = Op> {
    let flat = || {
        (
            prop::sample::select(OpKind::ALL.to_vec()),
            channel_type(),
            numbers(),
            vec(chunk(), 0..3),
            vec(chunk(), 0..3),
            option::of((number(), number())),
            option::of(prop::sample::select(ReduceOp::ALL.to_vec())),
            option::of(number()),
            option::of(number()),
            numbers(),
        )
            .prop_map(
                |(kind, channel_type, channel_ids, src, dst, group, reduce, id, num, sems)| Op {
                    kind,
                    channel_type,
                    channel_ids,
                    src,
                    dst,
                    group: group.map(|(tb_id, tbg_size)| GroupSlice { tb_id, tbg_size }),
                    reduce_op: reduce,
                    barrier_id: id,
                    num_threadblocks: num,
                    semaphore_ids: sems,
                    pipeline: None,
                },
            )
    };
    let load_reduce = (number(), number(), number(), chunk()).prop_map(|(id, index, size, dst)| {
        let src = ChunkRef { base: RefBase::Switch(id), index, size };
        Op { src: vec![src], dst: vec![dst], ..Op::new(OpKind::GroupLoadReduce) }
    });
    let simple = prop_oneof![6 => flat(), 1 => load_reduce];
    let body = (number(), number(), vec(flat(), 0..3));
    (simple, option::weighted(0.2, body)).prop_map(|(op, body)| {
        let pipeline =
            body.map(|(unit_size, num_chunks, ops)| Pipeline { unit_size, num_chunks, ops });
        Op { pipeline, ..op }
    })
}

fn table() -> impl Strategy<Value = ChannelTable> {
    let group = (number(), numbers()).prop_map(|(size, ranks)| RankGroup { size, ranks });
    let peers = channel_type().prop_filter("has groups", |&kind| kind != ChannelType::Switch);
    prop_oneof![
        (peers, numbers()).prop_map(|(channel_type, connected_to)| ChannelTable::Peers {
            channel_type,
            connected_to
        }),
        (buffer(), vec(group, 0..3))
            .prop_map(|(buffer, groups)| ChannelTable::Switch { buffer, groups }),
    ]
}

fn block() -> impl Strategy<Value = ThreadBlock> {
    let lists = || vec((channel_type(), numbers()), 0..4);
    (number(), vec(op(), 0..5), lists(), lists()).prop_map(|(id, ops, channels, refs)| {
        ThreadBlock { id, ops, channels, remote_buffer_refs: refs }
    })
}

fn gpu() -> impl Strategy<Value = Gpu> {
    let remote = (number(), buffer(), vec(channel_type(), 0..3))
        .prop_map(|(rank, buffer, access)| RemoteBuffer { rank, buffer, access });
    (
        [number(), number(), number(), number()],
        vec(block(), 0..3),
        vec(table(), 0..4),
        vec(remote, 0..3),
        vec(any::<i64>(), 0..3),
    )
        .prop_map(|(counts, threadblocks, channels, remote_buffers, semaphores)| Gpu {
            id: counts[0],
            input_chunks: counts[1],
            output_chunks: counts[2],
            scratch_chunks: counts[3],
            threadblocks,
            channels,
            remote_buffers,
            semaphores,
        })
}

/// Any plan that the format can express. Hardly ever one that makes sense.
pub(crate) fn any_plan() -> impl Strategy<Value = Plan> {
    (
        (any::<String>(), "[a-z]{0,12}", any::<[bool; 5]>()),
        vec(gpu(), 0..3),
        [number(), number(), number(), number()],
    )
        .prop_map(|((name, collective, flags), gpus, numbers)| Plan {
            name,
            collective: Collective::from_name(&collective),
            protocol: if flags[0] { Protocol::LL } else { Protocol::Simple },
            in_place: flags[1],
            reuse_resources: flags[2],
            gpus,
            num_threads_per_block: numbers[0],
            use_double_scratch_buffer: flags[3],
            buffer_alignment: numbers[1],
            min_message_size: numbers[2],
            max_message_size: numbers[3],
            runtime_sizes: flags[4],
        })
}
