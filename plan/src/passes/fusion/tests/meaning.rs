//! Fused programs do what the recorded ones do: random programs, run by the interpreter, and by a model of one block
//! whose threads take the elements of an operation in any order.

use super::super::super::text::print;
use super::super::*;
use crate::interpret::{Interpreter, Memory, Turns};
use crate::model::{
    Buffer, ChannelTable, ChannelType, ChunkRef, Collective, Gpu, Op, Plan, Protocol, RefBase,
    RemoteBuffer, ThreadBlock,
};
use crate::program::{CallSizes, Layout};
use antiphon_types::ReduceOp;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::cell::Cell;
use std::collections::BTreeMap;

const CHUNKS: u64 = 4;
const PEER_SCRATCH: u64 = 1;
const LOCALS: [Buffer; 3] = [Buffer::Input, Buffer::Output, Buffer::Scratch];

fn local(buffer: Buffer, index: u64, size: u64) -> ChunkRef {
    ChunkRef { base: RefBase::Local(buffer), index, size }
}

fn remote(id: u64, index: u64, size: u64) -> ChunkRef {
    ChunkRef { base: RefBase::Remote(id), index, size }
}

/// What random numbers make of an operation.
fn operation(kind: OpKind, size: u64, picks: [u64; 6], reduce: ReduceOp) -> Op {
    use OpKind::*;
    // Two buffers and few positions: most neighbours have to do with each other.
    let at = |pick: u64| (pick / 4) % (CHUNKS + 1 - size);
    let own = |pick: u64| local(LOCALS[(pick % 2) as usize * 2], at(pick), size);
    let far = |pick: u64| remote(pick % 2, at(pick), size);
    let scratch = |pick: u64| local(Buffer::Scratch, at(pick), size);
    let far_scratch = |pick: u64| remote(PEER_SCRATCH, at(pick), size);
    let [a, b, c, d, ..] = picks;
    let result = if d % 3 == 0 { own(c) } else { own(a) };
    let (src, dst) = match kind {
        Get => (vec![far(a)], vec![own(b)]),
        Put => (vec![own(a)], vec![far(b)]),
        PutPackets => (vec![own(a)], vec![far_scratch(b)]),
        ReadPutPackets => (vec![scratch(a)], vec![far_scratch(b)]),
        CopyPackets => (vec![own(a)], vec![scratch(b)]),
        UnpackPackets => (vec![scratch(a)], vec![own(b)]),
        Reduce => (vec![own(a), own(b)], vec![result]),
        ReadReduce => (vec![own(a), far(b)], vec![result]),
        ReducePackets => (vec![own(a), scratch(b)], vec![result]),
        _ => (vec![own(a)], vec![own(b)]),
    };
    let mut op = Op::new(kind);
    (op.src, op.dst) = (src, dst);
    if matches!(kind, Get | Put | PutPackets | ReadPutPackets | ReadReduce) {
        op.channel_type = ChannelType::Memory;
    }
    if kind == Get {
        op.channel_ids = vec![0];
    }
    if matches!(kind, Reduce | ReadReduce | ReducePackets) {
        op.reduce_op = Some(reduce);
    }
    op
}

/// Whether the result of an operation alone depends on which element is first.
fn has_one_result(op: &Op) -> bool {
    let shifted = |(i, src): (usize, &ChunkRef)| {
        let same_area = reads_packets(op, i) == writes_packets(op, 0);
        same_area && src.base == op.dst[0].base && {
            let distance = src.index.abs_diff(op.dst[0].index);
            distance > 0 && distance < src.size
        }
    };
    !op.src.iter().enumerate().any(shifted)
}

fn programs() -> impl Strategy<Value = Vec<Step>> {
    use OpKind::*;
    let kinds = vec![
        Copy,
        Get,
        Put,
        PutPackets,
        ReadPutPackets,
        CopyPackets,
        UnpackPackets,
        Reduce,
        ReadReduce,
        ReducePackets,
    ];
    let one = (
        prop::sample::select(kinds),
        any::<[u64; 6]>(),
        prop::bool::weighted(0.3),
        prop::bool::weighted(0.1),
    );
    let base = (prop::collection::vec(one, 1..24), prop::bool::ANY);
    base.prop_map(|(picks, max)| {
        let reduce = if max { ReduceOp::Max } else { ReduceOp::Sum };
        let mut ops: Vec<Op> = Vec::new();
        for (kind, numbers, wide, other_size) in picks {
            // Often once more what came before, with one reference of its own, or something with its result.
            let last = ops.last().cloned();
            let size = if wide { 2 } else { 1 };
            let mut op = operation(kind, size, numbers, reduce);
            if let (Some(last), false) = (last, other_size) {
                let follow = match numbers[4] % 3 {
                    0 => last.kind,
                    1 => match last.kind {
                        Reduce | ReadReduce => Put,
                        ReducePackets => [PutPackets, CopyPackets][(numbers[5] % 2) as usize],
                        CopyPackets => ReadPutPackets,
                        other => other,
                    },
                    _ => kind,
                };
                op = operation(follow, last.src[0].size, numbers, reduce);
                match follow {
                    Put | PutPackets | CopyPackets if last.reduce_op.is_some() => {
                        op.src[0] = last.dst[0];
                    }
                    PutPackets if last.kind == CopyPackets => op.src[0] = last.src[0],
                    ReadPutPackets if last.kind == CopyPackets => op.src[0] = last.dst[0],
                    Reduce | ReadReduce | ReducePackets if follow == last.kind => {
                        (op.src[0], op.dst) = (last.src[0], last.dst);
                    }
                    ReadPutPackets if last.kind == follow => op.src = last.src,
                    _ => {}
                }
            }
            if has_one_result(&op) {
                ops.push(op);
            }
        }
        ops.into_iter().map(Step::new).collect()
    })
}

/// Two ranks, of which the first runs the steps, after packets are everywhere and before everything is in the outputs.
fn plan(steps: &[Step]) -> Plan {
    let copy = |kind, from, to| {
        let mut op = Op::new(kind);
        (op.src, op.dst) = (vec![from], vec![to]);
        op
    };
    let each = |op: &dyn Fn(u64) -> Op| (0..CHUNKS).map(op).collect::<Vec<_>>();
    let (input, scratch) = (|k| local(Buffer::Input, k, 1), |k| local(Buffer::Scratch, k, 1));
    let output = |k| local(Buffer::Output, k, 1);
    let packed = each(&|k| copy(OpKind::CopyPackets, input(k), scratch(k)));
    let sent = each(&|k| {
        let op = copy(OpKind::PutPackets, input(k), remote(PEER_SCRATCH, k, 1));
        Op { channel_type: ChannelType::Memory, ..op }
    });
    let shown = [
        each(&|k| copy(OpKind::Copy, scratch(k), output(CHUNKS + k))),
        each(&|k| copy(OpKind::UnpackPackets, scratch(k), output(2 * CHUNKS + k))),
    ];
    let own = steps.iter().cloned().map(Step::into_op);
    let gpu = |id: u64, ops: Vec<Op>| Gpu {
        id,
        input_chunks: CHUNKS,
        output_chunks: 3 * CHUNKS,
        scratch_chunks: CHUNKS,
        threadblocks: vec![ThreadBlock {
            id: 0,
            ops,
            channels: vec![(ChannelType::Memory, vec![0])],
            remote_buffer_refs: vec![(ChannelType::Memory, vec![0, 1])],
        }],
        channels: vec![ChannelTable::Peers {
            channel_type: ChannelType::Memory,
            connected_to: vec![1 - id],
        }],
        remote_buffers: [Buffer::Input, Buffer::Scratch]
            .map(|buffer| RemoteBuffer { rank: 1 - id, buffer, access: vec![ChannelType::Memory] })
            .into(),
        semaphores: Vec::new(),
    };
    let shown = shown.concat();
    Plan {
        name: "random".to_owned(),
        collective: Collective::Test,
        protocol: Protocol::Simple,
        in_place: false,
        reuse_resources: false,
        gpus: vec![
            gpu(0, [packed, sent].concat().into_iter().chain(own).chain(shown.clone()).collect()),
            gpu(1, shown),
        ],
        num_threads_per_block: 1024,
        use_double_scratch_buffer: false,
        buffer_alignment: 16,
        min_message_size: 0,
        max_message_size: u64::MAX,
        runtime_sizes: false,
    }
}

/// What both ranks' memory holds in the end.
fn interpreted(steps: &[Step]) -> Vec<Memory<i128>> {
    const ELEMENTS: u64 = 2; // Of a chunk.
    let plan = plan(steps);
    crate::check(&plan).unwrap_or_else(|faults| panic!("{}: {faults}", print(steps)));
    let layout = Layout::new(&plan).unwrap_or_else(|error| panic!("{}: {error}", print(steps)));
    let bytes = |chunks: u64| chunks * ELEMENTS * 8;
    let (input, output) = (bytes(CHUNKS), bytes(3 * CHUNKS));
    let sizes = CallSizes { input, output, element: 8, strict: false };
    let values = |rank: u64, bytes: u64| {
        (0..bytes / 8).map(|at| i128::from(scramble(rank * 100 + at, 7))).collect::<Vec<_>>()
    };
    let mut memories: Vec<_> = (0..2)
        .map(|rank| Memory::separate(values(rank, input), values(rank + 2, output)))
        .collect();
    // The second rank shows its memory when the first is done.
    let mut machine = Interpreter::new(&layout).with_turns(Turns::FirstFirst);
    machine.launch(sizes, &mut memories).unwrap_or_else(|e| panic!("{}: {e}", print(steps)));
    memories
}

fn scramble(value: u64, seed: u64) -> u64 {
    let mixed = (value ^ seed.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 32)
}

/// Memory by buffer, packets or raw, and chunk.
type Chunks = BTreeMap<(String, bool, u64), i128>;

/// Runs steps one after another, and the chunks of each in the order that `seed` makes of them.
fn modelled(steps: &[Step], seed: u64) -> Chunks {
    let mut memory = Chunks::new();
    for step in steps {
        let op = &step.op;
        let place = |chunk: &ChunkRef, packets, element| {
            (format!("{:?}", chunk.base), packets, chunk.index + element)
        };
        let source = |i: usize, e| place(&op.src[i], reads_packets(op, i), e);
        let destination = |i: usize, e| place(&op.dst[i], writes_packets(op, i), e);
        let paired = matches!(op.kind, OpKind::Get | OpKind::Put | OpKind::PutPackets);
        let mut tasks = Vec::new();
        for element in 0..op.src[0].size {
            let sides = |src: std::ops::Range<usize>, dst: std::ops::Range<usize>| {
                let reads: Vec<_> = src.map(|i| source(i, element)).collect();
                let writes: Vec<_> = dst.map(|i| destination(i, element)).collect();
                (reads, writes)
            };
            if paired {
                tasks.extend((0..op.src.len()).map(|i| sides(i..i + 1, i..i + 1)));
            } else {
                tasks.push(sides(0..op.src.len(), 0..op.dst.len()));
            }
        }
        let mut order: Vec<usize> = (0..tasks.len()).collect();
        order
            .sort_by_key(|&task| if seed == 0 { task as u64 } else { scramble(task as u64, seed) });
        for task in order {
            let (reads, writes) = &tasks[task];
            let value = |key: &(String, bool, u64)| {
                let fresh = || {
                    let text = key.0.bytes().map(u64::from).sum::<u64>();
                    i128::from(scramble(key.2 * 4096 + text * 2 + u64::from(key.1), 3))
                };
                memory.get(key).copied().unwrap_or_else(fresh)
            };
            let values = reads.iter().map(value);
            let result = match op.reduce_op {
                Some(ReduceOp::Max) => values.max(),
                _ => Some(values.sum()),
            };
            for key in writes {
                memory.insert(key.clone(), result.expect("a source"));
            }
        }
    }
    memory
}

#[test]
fn fusing_never_changes_the_result() {
    let (fewer, hazards, overwrites) = (Cell::new(0), Cell::new(0), Cell::new(0));
    let config = ProptestConfig { cases: 4000, ..ProptestConfig::default() };
    let run = TestRunner::new(config).run(&programs(), |steps| {
        let mut report = Report::default();
        let fused = fuse(steps.clone(), &mut report);
        fewer.set(fewer.get() + steps.len() - fused.len());
        let refused = |why| report.refusals.iter().filter(|((.., seen), _)| *seen == why).count();
        hazards.set(hazards.get() + refused(Refusal::Hazard));
        overwrites.set(overwrites.get() + refused(Refusal::Overwrites));
        let context = format!("{}\nbecomes {}", print(&steps), print(&fused));
        prop_assert_eq!(interpreted(&steps), interpreted(&fused), "{}", context);
        let expected = modelled(&steps, 0);
        for seed in 1..8 {
            prop_assert_eq!(&expected, &modelled(&fused, seed), "order {}: {}", seed, context);
        }
        Ok(())
    });
    run.unwrap_or_else(|error| panic!("{error}"));
    // The programs are such that the rules and what they refuse are both met often.
    println!("{} fewer, {} hazards, {} overwrites", fewer.get(), hazards.get(), overwrites.get());
    assert!(fewer.get() > 10_000 && hazards.get() > 1000 && overwrites.get() > 100);
}
