//! The byte ranges of a call, as the device reads them.

use crate::abi::{BlockRange, Piece, Pieces};
use crate::skeleton::moves_of;
use antiphon_plan::program::{Layout, Program, Span};

/// What of a launch changes with the sizes of the call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// For each move.
    pub moves: Vec<Pieces>,
    /// All pieces.
    pub pieces: Vec<Piece>,
    /// Offsets of all pieces' sides.
    pub offsets: Vec<u64>,
    /// Iterations of each pipeline.
    pub loops: Vec<u64>,
    /// For each block, what it reads of them. One that is nothing, of a rank without blocks.
    pub ranges: Vec<BlockRange>,
}

impl Tables {
    /// Those of a program of this layout.
    pub fn of(program: &Program, layout: &Layout) -> Self {
        let moves = program.moves.iter().map(|span| Pieces { start: span.start, end: span.end });
        let pieces = program.segments.iter().map(|segment| Piece {
            len: segment.len,
            padded: segment.padded,
            position: segment.position,
            offsets: segment.offsets.into(),
        });
        let ranges: Vec<_> = (0..layout.ranks[program.rank as usize].blocks.len())
            .map(|block| range(program, moves_of(layout, program.rank, block)))
            .collect();
        Tables {
            ranges: if ranges.is_empty() { vec![BlockRange::default()] } else { ranges },
            moves: moves.collect(),
            pieces: pieces.collect(),
            offsets: program.offsets.clone(),
            loops: program.loops.clone(),
        }
    }
}

/// What a block reads of the tables. Of each of its moves the number, and how many sides it has.
fn range(program: &Program, moves: impl Iterator<Item = (u32, u32)>) -> BlockRange {
    let [mut own, mut pieces, mut offsets] = [None; 3];
    for (number, sides) in moves {
        cover(&mut own, number, 1);
        for at in program.moves[number as usize].range() {
            cover(&mut pieces, at as u32, 1);
            cover(&mut offsets, program.segments[at].offsets, sides);
        }
    }
    let [own, pieces, offsets] = [own, pieces, offsets].map(Option::unwrap_or_default);
    BlockRange {
        first_move: own.start,
        move_count: own.len() as u32,
        first_piece: pieces.start,
        piece_count: pieces.len() as u32,
        first_offset: offsets.start,
        offset_count: offsets.len() as u32,
    }
}

/// Has a span cover `count` positions from `first` on, too.
fn cover(span: &mut Option<Span>, first: u32, count: u32) {
    let end = first + count;
    let known = span.unwrap_or(Span { start: first, end });
    *span = Some(Span { start: known.start.min(first), end: known.end.max(end) });
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_plan::algorithms::{Algorithm, Rooted, Shape};
    use antiphon_plan::program::CallSizes;

    #[test]
    fn a_block_finds_all_that_its_moves_read_in_its_range() {
        let shape = Shape { nodes: 2, ..Shape::new(4) };
        let sized = [Algorithm::AllReduceTwoShotPackets, Algorithm::AllReduceRing]
            .map(|one| one.plan(Shape::new(4)).unwrap());
        let rooted = Rooted::ALL.into_iter().filter(|one| one.is_hierarchical());
        for plan in sized.into_iter().chain(rooted.map(|one| one.plan(shape).unwrap())) {
            let layout = Layout::new(&plan).unwrap();
            // Some moves are cut then, and their offsets are apart from those of the others.
            let sizes = CallSizes { input: 4 * 701, output: 4 * 701, element: 1, strict: false };
            for rank in 0..4 {
                let Ok(program) = layout.program(rank, sizes) else { continue };
                let tables = Tables::of(&program, &layout);
                for (block, range) in tables.ranges.iter().enumerate() {
                    for (number, sides) in moves_of(&layout, rank, block) {
                        assert!(number - range.first_move < range.move_count, "{}", plan.name);
                        let Pieces { start, end } = tables.moves[number as usize];
                        for at in start..end {
                            let offsets = tables.pieces[at as usize].offsets as u32;
                            let in_pieces = at - range.first_piece;
                            assert!(in_pieces < range.piece_count, "{}", plan.name);
                            let in_offsets = offsets - range.first_offset;
                            assert!(in_offsets + sides <= range.offset_count, "{}", plan.name);
                        }
                    }
                }
            }
        }
    }
}
