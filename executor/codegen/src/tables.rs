//! The byte ranges of a call, as the device reads them.

use crate::abi::{Piece, Pieces};
use antiphon_plan::program::Program;

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
}

impl Tables {
    /// Those of a program.
    pub fn of(program: &Program) -> Self {
        let moves = program.moves.iter().map(|span| Pieces { start: span.start, end: span.end });
        let pieces = program.segments.iter().map(|segment| Piece {
            len: segment.len,
            padded: segment.padded,
            position: segment.position,
            offsets: segment.offsets.into(),
        });
        Tables {
            moves: moves.collect(),
            pieces: pieces.collect(),
            offsets: program.offsets.clone(),
            loops: program.loops.clone(),
        }
    }
}
