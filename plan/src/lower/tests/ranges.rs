//! The second step: byte ranges at the sizes of a call.

use crate::lower::LowerError;
use crate::model::{Buffer, ChunkRef, Collective, Op, OpKind, Plan};
use crate::program::{Area, CallSizes, Instruction, Layout, Program};
use crate::samples::*;
use proptest::prelude::*;

fn sizes(input: u64, output: u64, element: u64) -> CallSizes {
    CallSizes { input, output, element, strict: false }
}

/// A segment: its raw length, padded length, position and offsets.
type Saw = (u64, u64, u64, Vec<u64>);

/// The segments of one move of a rank.
fn segments(layout: &Layout, rank: u32, index: u32, program: &Program) -> Vec<Saw> {
    let instructions = &layout.ranks[rank as usize].instructions;
    let sides = instructions.iter().find_map(|instruction| match *instruction {
        Instruction::Move { sources, destinations, index: at, .. } if at == index => {
            Some(sources.len() + destinations.len())
        }
        _ => None,
    });
    program.segments[program.moves[index as usize].range()]
        .iter()
        .map(|segment| {
            let first = segment.offsets as usize;
            let offsets = program.offsets[first..first + sides.unwrap()].to_vec();
            (segment.len, segment.padded, segment.position, offsets)
        })
        .collect()
}

/// The format's own arithmetic, as its description states it (1.8), in 128 bits.
mod format_rule {
    pub(super) fn off(size: u128, k: u128, n: u128, alignment: u128) -> u128 {
        let e = size / alignment;
        let (m, rem) = (e / n, e % n);
        (k * m + k.min(rem)) * alignment
    }

    pub(super) fn accepts(bytes: u128, chunks: u128, alignment: u128) -> bool {
        bytes.is_multiple_of(alignment) && (bytes / alignment).is_multiple_of(chunks)
    }

    /// Offset and bytes of a reference for slice `part` of `parts`.
    pub(super) fn extent(
        (bytes, chunks): (u128, u128),
        (index, size): (u128, u128),
        (part, parts): (u128, u128),
        alignment: u128,
    ) -> (u128, u128) {
        let start = off(bytes, index, chunks, alignment);
        let len = off(bytes, index + size, chunks, alignment) - start;
        let from = off(len, part, parts, alignment);
        (start + from, off(len, part + 1, parts, alignment) - from)
    }
}

proptest! {
    #[test]
    fn sizes_the_format_accepts_get_the_formats_own_ranges(
        collective in 0usize..5,
        ranks in 1u64..5,
        f in 1u64..6,
        alignment in prop::sample::select(vec![16u64, 32, 48, 4096]),
        units in 0u64..1 << 33,
        refs in prop::array::uniform2((0u64..30, 0u64..30)),
        (part, parts) in (1u64..6).prop_flat_map(|parts| (0..parts, Just(parts))),
        element in prop::sample::select(vec![1u64, 2, 4, 8]),
        packets: bool,
    ) {
        let n = ranks;
        let (collective, input_chunks, output_chunks) = [
            (Collective::AllGather, f, n * f),
            (Collective::ReduceScatter, n * f, f),
            (Collective::AllReduce, n * f, n * f),
            (Collective::AllToAll, n * f, n * f),
            (Collective::Test, f, 2 * f),
        ][collective].clone();
        let chunk = units * alignment;
        let (input, output) = (chunk * input_chunks, chunk * output_chunks);
        for (bytes, chunks) in [(input, input_chunks), (output, output_chunks)] {
            assert!(format_rule::accepts(bytes.into(), chunks.into(), alignment.into()));
        }
        let size = (refs[0].1 % input_chunks.min(output_chunks)) + 1;
        let from = refs[0].0 % (input_chunks - size + 1);
        let to = refs[1].0 % (output_chunks - size + 1);
        let (scratch_chunks, slot) = (refs[1].1 + size, refs[1].1);

        let mut plan = plan(collective, ranks as usize, [input_chunks, output_chunks, scratch_chunks]);
        plan.buffer_alignment = alignment;
        let (store, load) = if packets {
            (OpKind::CopyPackets, OpKind::UnpackPackets)
        } else {
            (OpKind::Copy, OpKind::Copy)
        };
        let input_ref = local(Buffer::Input, from, size);
        let output_ref = local(Buffer::Output, to, size);
        let slot_ref = local(Buffer::Scratch, slot, size);
        let ops = [(store, input_ref, slot_ref), (load, slot_ref, output_ref)]
            .map(|(kind, from, to)| sliced(data(kind, &[from], &[to]), part, parts));
        block(&mut plan, 0, ops.to_vec());
        let layout = Layout::new(&plan).unwrap();
        let strict = CallSizes { strict: true, ..sizes(input, output, element) };
        let program = layout.program(0, strict).unwrap();

        let extent = |index: u64| format_rule::extent(
            (input.into(), input_chunks.into()),
            (index.into(), size.into()),
            (part.into(), parts.into()),
            alignment.into(),
        );
        for (index, ends) in [(0, [from, slot]), (1, [slot, to])] {
            let wanted = ends.map(extent);
            let len = wanted[0].1 as u64;
            let offsets = wanted.iter().map(|&(start, _)| start as u64).collect();
            let wanted = if len == 0 { vec![] } else { vec![(len, len, 0, offsets)] };
            prop_assert_eq!(segments(&layout, 0, index, &program), wanted);
        }
        let scratch = (u128::from(chunk) * u128::from(scratch_chunks)).next_multiple_of(64);
        prop_assert_eq!(u128::from(program.scratch_bytes), scratch);
        prop_assert_eq!(layout.scratch_bytes(0, strict), Ok(program.scratch_bytes));
    }

    #[test]
    fn strict_refuses_what_the_format_refuses_and_nothing_else(
        chunks in 1u64..7, alignment in prop::sample::select(vec![4u64, 16, 48]), bytes in 0u64..2000,
    ) {
        let mut plan = plan(Collective::Test, 1, [chunks, 0, 0]);
        plan.buffer_alignment = alignment;
        let layout = Layout::new(&plan).unwrap();
        let strict = CallSizes { strict: true, ..sizes(bytes, 0, 1) };
        let accepted = format_rule::accepts(bytes.into(), chunks.into(), alignment.into());
        let saw = layout.program(0, strict);
        prop_assert_eq!(saw.is_ok(), accepted);
        if let Err(error) = saw {
            let refused = matches!(error, LowerError::Strict { .. });
            prop_assert!(refused, "saw {}", error);
        }
        prop_assert!(layout.program(0, sizes(bytes, 0, 1)).is_ok());
    }

    #[test]
    fn every_byte_of_every_output_is_written_exactly_once(
        ranks in 2usize..6, f in 1u64..6, count in 0u64..150, together: bool,
        element in prop::sample::select(vec![1u64, 2, 4, 8]),
    ) {
        let (n, bytes) = (ranks as u64, count * element);
        let cases = [
            (allgather(ranks, f, together), bytes, n * bytes),
            (reduce_scatter(ranks, f, together), n * bytes, bytes),
            (allreduce(ranks, f, together), bytes, bytes),
            (alltoall(ranks, f, together), n * bytes, n * bytes),
        ];
        for (plan, input, output) in cases {
            let layout = Layout::new(&plan).unwrap();
            let mut writes = vec![vec![0u8; output as usize]; ranks];
            for rank in 0..n as u32 {
                let program = layout.program(rank, sizes(input, output, element)).unwrap();
                let code = &layout.ranks[rank as usize];
                for instruction in &code.instructions {
                    let Instruction::Move { sources, destinations, index, .. } = *instruction else {
                        continue;
                    };
                    for (len, padded, _, offsets) in segments(&layout, rank, index, &program) {
                        prop_assert!(len > 0 && len <= padded && len % element == 0);
                        let sides = sources.range().chain(destinations.range());
                        for (side, &offset) in sides.zip(&offsets) {
                            let access = code.accesses[side];
                            let range = offset as usize..(offset + len) as usize;
                            if access.area == Area::Input {
                                prop_assert!(range.end as u64 <= input);
                            } else if destinations.range().contains(&side) {
                                let bytes = &mut writes[access.rank as usize][range];
                                bytes.iter_mut().for_each(|byte| *byte += 1);
                            }
                        }
                    }
                }
            }
            for bytes in writes {
                prop_assert!(bytes.iter().all(|&count| count == 1), "{}", plan.collective);
            }
        }
    }

    #[test]
    fn slices_of_a_group_tile_the_whole_move(
        chunks in 1u64..5, parts in 1u64..6, units in 0u64..100, packets: bool,
    ) {
        let size = units * 4;
        let mut plan = plan(Collective::AllToAll, 1, [chunks, chunks, chunks]);
        let kind = if packets { OpKind::CopyPackets } else { OpKind::Copy };
        let copy = data(kind, &[local(Buffer::Input, 0, chunks)], &[local(Buffer::Scratch, 0, chunks)]);
        for part in 0..parts {
            block(&mut plan, 0, vec![sliced(copy.clone(), part, parts)]);
        }
        let layout = Layout::new(&plan).unwrap();
        let program = layout.program(0, sizes(size, size, 4)).unwrap();
        let (mut raw, mut padded) = (0, 0);
        for part in 0..parts as u32 {
            for (len, padding, _, offsets) in segments(&layout, 0, part, &program) {
                // Padding alone starts at the end of the raw bytes.
                prop_assert_eq!(&offsets, &[raw.min(size), padded]);
                raw += len;
                padded += padding;
            }
        }
        prop_assert_eq!(raw, size);
        let stride = size.div_ceil(chunks).next_multiple_of(16);
        if packets {
            prop_assert_eq!(padded, chunks * stride);
        }
    }
}

#[test]
fn the_formats_worked_example_has_its_numbers() {
    let layout = Layout::new(&packet_allreduce()).unwrap();
    assert!(layout.packets && layout.double_scratch);
    let program = layout.program(0, CallSizes { strict: true, ..sizes(64, 64, 4) }).unwrap();
    let whole = |offsets: &[u64]| vec![(32, 32, 0, offsets.to_vec())];
    assert_eq!(segments(&layout, 0, 0, &program), whole(&[32, 0]));
    assert_eq!(segments(&layout, 0, 1, &program), whole(&[0, 0, 0, 32]));
    assert_eq!(segments(&layout, 0, 2, &program), whole(&[32, 32]));
    let program = layout.program(1, sizes(64, 64, 4)).unwrap();
    assert_eq!(segments(&layout, 1, 0, &program), whole(&[0, 0]));
    assert_eq!(segments(&layout, 1, 1, &program), whole(&[0, 32, 32, 32]));
    assert_eq!(program.scratch_bytes, 64);
    // The format sizes scratch for its largest message; here for 4096 bytes: 16384 = 2 chunks x 2048 x 2 x 2.
    let largest = layout.scratch_bytes(0, sizes(4096, 4096, 4)).unwrap();
    assert_eq!(largest * 2 * 2, 16384);
}

#[test]
fn clipped_chunks_keep_their_packet_slots() {
    let layout = Layout::new(&packet_allreduce()).unwrap();
    // 20 bytes are a chunk of 16 and one of 4.
    let program = layout.program(0, sizes(20, 20, 4)).unwrap();
    assert_eq!(segments(&layout, 0, 0, &program), [(4, 16, 0, vec![16, 0])]);
    assert_eq!(segments(&layout, 0, 1, &program), [(16, 16, 0, vec![0, 0, 0, 16])]);
    // 4 bytes leave the second chunk empty: its packets still travel.
    let program = layout.program(0, sizes(4, 4, 4)).unwrap();
    assert_eq!(segments(&layout, 0, 0, &program), [(0, 16, 0, vec![4, 0])]);
    assert_eq!(program.scratch_bytes, 64);
    let program = layout.program(0, sizes(0, 0, 4)).unwrap();
    assert_eq!(segments(&layout, 0, 0, &program), []);
}

/// One copy of rank 0 of a plan with these chunk counts.
fn copying(
    collective: Collective,
    ranks: usize,
    chunks: [u64; 3],
    src: ChunkRef,
    dst: ChunkRef,
) -> Plan {
    let mut plan = plan(collective, ranks, chunks);
    block(&mut plan, 0, vec![data(OpKind::Copy, &[src], &[dst])]);
    plan
}

#[test]
fn references_split_where_blocks_end() {
    let plan = copying(
        Collective::AllToAll,
        2,
        [4, 4, 6],
        local(Buffer::Input, 1, 3),
        local(Buffer::Scratch, 2, 3),
    );
    let layout = Layout::new(&plan).unwrap();
    // Blocks of 40 bytes in chunks of 32 and 8; scratch chunks are 32 apart.
    let program = layout.program(0, sizes(80, 80, 8)).unwrap();
    let wanted = [(8, 32, 0, vec![32, 64]), (40, 64, 32, vec![40, 96])];
    assert_eq!(segments(&layout, 0, 0, &program), wanted);
    assert_eq!(program.scratch_bytes, 192);
    // At sizes that fill their chunks it is one piece.
    let program = layout.program(0, sizes(128, 128, 8)).unwrap();
    assert_eq!(segments(&layout, 0, 0, &program), [(96, 96, 0, vec![32, 64])]);
}

#[test]
fn group_slices_are_the_same_on_both_sides_of_scratch() {
    // What block t puts in scratch from several blocks of the input, block t takes from there in one piece.
    let mut plan = plan(Collective::AllToAll, 2, [4, 4, 4]);
    let (input, scratch) = (local(Buffer::Input, 0, 4), local(Buffer::Scratch, 0, 4));
    for part in 0..2 {
        let ops = [(input, scratch), (scratch, scratch)]
            .map(|(from, to)| sliced(data(OpKind::Copy, &[from], &[to]), part, 2));
        block(&mut plan, 0, ops.to_vec());
    }
    let layout = Layout::new(&plan).unwrap();
    let program = layout.program(0, sizes(80, 80, 8)).unwrap();
    assert_eq!(segments(&layout, 0, 0, &program), [(40, 64, 0, vec![0, 0])]);
    assert_eq!(segments(&layout, 0, 1, &program), [(64, 64, 0, vec![0, 0])]);
    assert_eq!(segments(&layout, 0, 2, &program), [(40, 64, 0, vec![40, 64])]);
    assert_eq!(segments(&layout, 0, 3, &program), [(64, 64, 0, vec![64, 64])]);
}

#[test]
fn plans_without_a_rule_of_their_own_have_equal_chunks_where_they_can() {
    let (from, to) = (local(Buffer::Input, 0, 2), local(Buffer::Output, 1, 2));
    let layout = Layout::new(&copying(Collective::Test, 1, [2, 3, 2], from, to)).unwrap();
    // Chunks of 24 bytes: each on its own, for they fill no stride of 32.
    let program = layout.program(0, sizes(48, 72, 8)).unwrap();
    let wanted = [(24, 32, 0, vec![0, 24]), (24, 32, 32, vec![24, 48])];
    assert_eq!(segments(&layout, 0, 0, &program), wanted);
    assert_eq!(program.scratch_bytes, 64);
    // Chunks that would be 20 bytes are no whole elements: whole buffers in chunks of 32.
    let program = layout.program(0, sizes(64, 96, 8)).unwrap();
    assert_eq!(segments(&layout, 0, 0, &program), [(64, 64, 0, vec![0, 32])]);
    let error = layout.program(0, sizes(40, 80, 8)).unwrap_err();
    assert!(
        matches!(error, LowerError::Lengths { first_len: 40, second_len: 48, .. }),
        "saw {error}"
    );
}

#[test]
fn sizes_above_four_gibibytes_are_right() {
    let (from, to) = (local(Buffer::Input, 5, 1), local(Buffer::Output, 7, 1));
    let layout = Layout::new(&copying(Collective::AllToAll, 2, [8, 8, 0], from, to)).unwrap();
    let tib = 1 << 40;
    let program = layout.program(0, sizes(tib, tib, 4)).unwrap();
    let wanted = [(tib / 8, tib / 8, 0, vec![tib / 8 * 5, tib / 8 * 7])];
    assert_eq!(segments(&layout, 0, 0, &program), wanted);
}

#[test]
fn pipelines_count_the_windows_of_their_longest_move() {
    // Chunks of the plan, bytes of a window, bytes of the message, and the windows.
    let table = [(1, 64, 0, 0), (1, 64, 64, 1), (1, 64, 65, 2), (3, 32, 96, 3), (3, 40, 97, 4)];
    for (chunks, unit, bytes, wanted) in table {
        let layout = Layout::new(&pipelined_exchange(chunks, unit)).unwrap();
        let program = layout.program(0, sizes(bytes, bytes, 1)).unwrap();
        assert_eq!(program.loops, [wanted; 2], "{chunks} chunks, {unit}, {bytes}");
    }
    // The windows cover one chunk, the move three.
    let mut plan = pipelined_exchange(3, 32);
    plan.gpus[0].threadblocks[0].ops[0].pipeline.as_mut().unwrap().num_chunks = 1;
    let layout = Layout::new(&plan).unwrap();
    assert_eq!(layout.program(0, sizes(96, 96, 1)).unwrap().loops, [3, 3]);
}

#[test]
fn ranks_with_other_chunk_counts_follow_the_owners() {
    let mut plan = plan(Collective::Other("gather".to_owned()), 2, [1, 0, 1]);
    plan.gpus[1].output_chunks = 2;
    connect(&mut plan);
    let own = |buffer, index| local(buffer, index, 1);
    let ops: Vec<Op> = vec![
        data(OpKind::Put, &[own(Buffer::Input, 0)], &[remote(0, 1, Buffer::Output, 1, 1)]),
        data(OpKind::Copy, &[own(Buffer::Input, 0)], &[own(Buffer::Scratch, 0)]),
    ];
    block(&mut plan, 0, ops);
    let layout = Layout::new(&plan).unwrap();
    let program = layout.program(0, sizes(24, 48, 8)).unwrap();
    assert_eq!(segments(&layout, 0, 0, &program), [(24, 32, 0, vec![0, 24])]);
    assert_eq!(segments(&layout, 0, 1, &program), [(24, 32, 0, vec![0, 0])]);
}

#[test]
fn a_program_is_reused_without_growing() {
    let layout = Layout::new(&alltoall(4, 3, false)).unwrap();
    let mut program = layout.program(0, sizes(1 << 20, 1 << 20, 4)).unwrap();
    let before =
        [program.moves.capacity(), program.segments.capacity(), program.offsets.capacity()];
    for (rank, bytes) in [(1, 1 << 24), (3, 16), (2, 0), (0, 1 << 12)] {
        layout.program_into(rank, sizes(bytes, bytes, 4), &mut program).unwrap();
        assert_eq!(program, layout.program(rank, sizes(bytes, bytes, 4)).unwrap());
    }
    let after = [program.moves.capacity(), program.segments.capacity(), program.offsets.capacity()];
    assert_eq!(before, after);
}
