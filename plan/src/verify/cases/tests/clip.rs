//! Clipping: at every size, what moves is what moves at the canonical size of the same stride, as far as it is there.

use crate::algorithms::{Algorithm, Shape};
use crate::model::{Buffer, Collective, Op, OpKind, Plan};
use crate::program::{Area, CallSizes, Instruction, Layout, Program};
use crate::samples::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Where chunks are, as the definition of chunks has it: by rank and side, chunk k starts here and is so long.
struct Chunks {
    stride: u64,
    /// By side: bytes of a block, chunks to a block, and bytes between chunks.
    sides: [Option<(u64, u64, u64)>; 2],
}

impl Chunks {
    fn new(plan: &Plan, rank: usize, sizes: CallSizes, unit: u64) -> Self {
        let gpu = &plan.gpus[rank];
        let ranks = plan.gpus.len() as u64;
        let (divided, free) = match plan.collective {
            Collective::AllGather => ([false, true], false),
            Collective::ReduceScatter => ([true, false], false),
            Collective::AllToAll => ([true, true], false),
            Collective::Test | Collective::SendRecv => ([false, false], true),
            _ => ([false, false], false),
        };
        let counts = [gpu.input_chunks, gpu.output_chunks];
        let bytes = [sizes.input, sizes.output];
        let used: Vec<usize> = (0..2).filter(|&side| counts[side] > 0).collect();
        let each: BTreeSet<Option<u64>> = used
            .iter()
            .map(|&side| {
                let (bytes, chunks) = (bytes[side], counts[side] * sizes.element);
                (bytes % chunks == 0).then(|| bytes / counts[side])
            })
            .collect();
        let even = each.iter().next().copied().flatten().filter(|_| free && each.len() == 1);
        let mut strides = BTreeSet::new();
        let mut sides = [None; 2];
        for side in used {
            let blocks = if divided[side] { ranks } else { 1 };
            let (block, per_block) = (bytes[side] / blocks, counts[side] / blocks);
            let stride = even.unwrap_or(block.div_ceil(per_block)).next_multiple_of(unit);
            strides.insert(stride);
            sides[side] = Some((block, per_block, even.unwrap_or(stride)));
        }
        assert_eq!(strides.len(), 1, "lowering accepted {sizes:?} of {}", plan.name);
        Chunks { stride: *strides.first().unwrap(), sides }
    }

    /// The byte at `position` of the canonical buffer, at the real size; `None` if it is not there.
    fn image(&self, area: Area, position: u64) -> Option<u64> {
        let side = match area {
            Area::Scratch | Area::Packets => return Some(position),
            area => self.sides[area as usize],
        };
        let Some((block, per_block, step)) = side else { return Some(position) };
        let (chunk, inside) = (position / self.stride, position % self.stride);
        let start = chunk % per_block * step;
        (inside < step && start + inside < block)
            .then(|| chunk / per_block * block + start + inside)
    }
}

/// One byte that moves: the instruction, the window, and where it is on every side.
type Byte = (usize, u64, Vec<u64>);

/// The bytes that move raw, and the positions that move as padding or packets too.
fn bytes(layout: &Layout, program: &Program) -> (BTreeSet<Byte>, BTreeSet<(usize, u64)>) {
    let (mut raw, mut padded) = (BTreeSet::new(), BTreeSet::new());
    let mut window = None;
    for (at, instruction) in layout.ranks[program.rank as usize].instructions.iter().enumerate() {
        let (index, sides) = match *instruction {
            Instruction::LoopBegin { unit, .. } => {
                window = Some(unit);
                continue;
            }
            Instruction::LoopEnd { .. } => {
                window = None;
                continue;
            }
            Instruction::Move { sources, destinations, index, .. } => {
                (index, sources.len() + destinations.len())
            }
            _ => continue,
        };
        for segment in &program.segments[program.moves[index as usize].range()] {
            let first = segment.offsets as usize;
            for byte in 0..segment.padded {
                let position = segment.position + byte;
                padded.insert((at, position));
                if byte < segment.len {
                    let sides = program.offsets[first..first + sides].iter();
                    let sides = sides.map(|offset| offset + byte).collect();
                    raw.insert((at, window.map_or(0, |unit| position / unit), sides));
                }
            }
        }
    }
    (raw, padded)
}

/// Compares a plan at `sizes` with the canonical size of the same stride. False if `sizes` are refused.
fn check(plan: &Plan, sizes: CallSizes) -> bool {
    let layout = Layout::new(plan).unwrap();
    let Ok(program) = layout.program(0, sizes) else { return false };
    let unit = layout.geometry.rules.unit(sizes.element).unwrap();
    let chunks = Chunks::new(plan, 0, sizes, unit);
    let whole = |count: u64, bytes: u64| if count == 0 { bytes } else { count * chunks.stride };
    let gpu = &plan.gpus[0];
    let canonical = CallSizes {
        input: whole(gpu.input_chunks, sizes.input),
        output: whole(gpu.output_chunks, sizes.output),
        ..sizes
    };
    assert_eq!(layout.uniform_stride(canonical), Ok(Some(chunks.stride)));
    for rank in 0..plan.gpus.len() {
        let own =
            if rank == 0 { program.clone() } else { layout.program(rank as u32, sizes).unwrap() };
        let full = layout.program_beyond(rank as u32, canonical).unwrap();
        assert_eq!(own.loops, full.loops, "iterations");
        let (raw, padded) = bytes(&layout, &own);
        let (full_raw, full_padded) = bytes(&layout, &full);
        let code = &layout.ranks[rank];
        let mut images = BTreeSet::new();
        for (at, window, positions) in full_raw {
            let Instruction::Move { sources, destinations, .. } = code.instructions[at] else {
                panic!()
            };
            let accesses =
                sources.range().chain(destinations.range()).map(|side| code.accesses[side]);
            let image: Vec<Option<u64>> =
                accesses.zip(&positions).map(|(side, &at)| chunks.image(side.area, at)).collect();
            let there: Option<Vec<u64>> = image.iter().copied().collect();
            let Some(there) = there else {
                // Bytes that end on one side end on every side of inputs and outputs.
                let accesses =
                    sources.range().chain(destinations.range()).map(|side| code.accesses[side]);
                for (side, image) in accesses.zip(&image) {
                    assert!(side.area as usize > 1 || image.is_none(), "{sizes:?} {positions:?}");
                }
                continue;
            };
            images.insert((at, window, there));
        }
        assert_eq!(raw, images, "rank {rank} of {} at {sizes:?}", plan.name);
        // Packets are waited for where they are at the canonical size; raw moves of nothing are not there at all.
        for (at, position) in &padded {
            assert!(full_padded.contains(&(*at, *position)));
        }
        for &(at, position) in &full_padded {
            let Instruction::Move { sources, destinations, .. } = code.instructions[at] else {
                panic!()
            };
            let mut sides = sources.range().chain(destinations.range());
            let packets = sides.any(|side| code.accesses[side].area == Area::Packets);
            assert!(!packets || padded.contains(&(at, position)));
        }
    }
    true
}

proptest! {
    #[test]
    fn moves_at_any_size_are_clipped_canonical_ones(
        collective in 0usize..5,
        ranks in 1u64..4,
        f in 1u64..4,
        alignment in prop::sample::select(vec![1u64, 8, 16, 24]),
        element in prop::sample::select(vec![1u64, 4, 8]),
        elements in 0u64..60,
        moves in prop::collection::vec((0usize..7, 0u64..12, 0u64..12, 1u64..6, any::<bool>()), 1..6),
        window in 1u64..6,
    ) {
        let n = ranks;
        let bytes = elements * element;
        let (collective, chunks, [input, output]) = [
            (Collective::AllGather, [f, n * f], [bytes, n * bytes]),
            (Collective::ReduceScatter, [n * f, f], [n * bytes, bytes]),
            (Collective::AllReduce, [n * f, n * f], [bytes, bytes]),
            (Collective::AllToAll, [n * f, n * f], [n * bytes, n * bytes]),
            (Collective::Test, [f, 2 * f], [bytes, 2 * bytes]),
        ][collective].clone();
        let mut plan = plan(collective, ranks as usize, [chunks[0], chunks[1], 8]);
        plan.buffer_alignment = alignment;
        for (kind, from, to, size, looped) in moves {
            let (input, output, scratch) = (Buffer::Input, Buffer::Output, Buffer::Scratch);
            let (kind, from_buffer, to_buffer) = [
                (OpKind::Copy, input, output),
                (OpKind::Copy, input, scratch),
                (OpKind::Copy, scratch, output),
                (OpKind::Copy, scratch, scratch),
                (OpKind::CopyPackets, input, scratch),
                (OpKind::UnpackPackets, scratch, output),
                (OpKind::Reduce, input, output),
            ][kind];
            let count = |buffer| match buffer {
                Buffer::Input => chunks[0],
                Buffer::Output => chunks[1],
                Buffer::Scratch => 8,
            };
            let (most_from, most_to) = (count(from_buffer), count(to_buffer));
            let size = 1 + (size - 1) % most_from.min(most_to);
            let source = local(from_buffer, from % (most_from - size + 1), size);
            let destination = local(to_buffer, to % (most_to - size + 1), size);
            let mut op = data(kind, &[source], &[destination]);
            if kind == OpKind::Reduce {
                op.src.push(local(Buffer::Scratch, 0, size));
            }
            let parts = 1 + (from + to) % 3;
            let blocks: Vec<Op> = (0..parts).map(|part| sliced(op.clone(), part, parts)).collect();
            for op in blocks {
                let ops = if looped { vec![pipeline(window * 8, 1, vec![op])] } else { vec![op] };
                block(&mut plan, 0, ops);
            }
        }
        check(&plan, CallSizes { input, output, element, strict: false });
    }

    #[test]
    fn built_in_plans_at_any_size_are_clipped_canonical_ones(
        at in any::<prop::sample::Index>(), ranks in 2usize..5, elements in 0u64..70,
        element in prop::sample::select(vec![1u64, 2, 8]), blocks in 1usize..4, in_place: bool,
    ) {
        let algorithm = *at.get(&Algorithm::ALL);
        let shape = Shape { blocks, in_place, ..Shape::new(ranks) };
        let plan = algorithm.plan(shape).unwrap();
        let (bytes, n) = (elements * element, ranks as u64);
        let (input, output) = match plan.collective {
            Collective::AllGather | Collective::Gather => (bytes, n * bytes),
            Collective::ReduceScatter | Collective::Scatter => (n * bytes, bytes),
            Collective::AllToAll => (n * bytes, n * bytes),
            _ => (bytes, bytes),
        };
        let accepted = check(&plan, CallSizes { input, output, element, strict: false });
        prop_assert!(accepted);
    }
}
