//! Which ranks may refuse sizes that suit every buffer: those where the references of one move are clipped differently, or
//! where a pipeline has windows of odd lengths. Most plans have no such ranks.

use super::sizes::SizeRules;
use super::{LoopGeometry, MoveGeometry, RankGeometry};

/// Windows that are multiples of this many bytes cut neither an element nor a packet, whatever the type.
const WHOLE: u64 = 8;

impl RankGeometry {
    /// Whether the rank may refuse sizes that suit all buffers.
    pub(super) fn is_particular(&self, rules: &SizeRules) -> bool {
        let odd = |pipeline: &LoopGeometry| !pipeline.unit.is_multiple_of(WHOLE);
        self.loops.iter().any(odd) || !self.moves.iter().all(|moved| self.is_even(moved, rules))
    }

    /// Whether the sides of a move are equally long at all sizes.
    fn is_even(&self, moved: &MoveGeometry, rules: &SizeRules) -> bool {
        let chunks = &self.chunks[moved.accesses.range()];
        let Some(first) = chunks.first() else { return true };
        let shape = |slot: u32| slot / 3;
        let alike = |a: u32, b: u32| a == b || rules.shapes[shape(a) as usize].alike;
        let mut clipped = chunks.iter().filter(|at| at.clipped);
        chunks.iter().all(|at| shape(at.slot) == shape(first.slot))
            && clipped.next().is_none_or(|one| {
                clipped.all(|at| at.start.rest == one.start.rest && alike(at.slot, one.slot))
            })
    }
}
