//! Memory order of relaxed operations: the pass that makes a plan's data movement visible where it must be.
//!
//! Plans use relaxed signals and waits for handshakes that order nothing, and some use them after data
//! movement, where they must order it. The rule is simple and errs towards order:
//!
//! - a relaxed signal to a peer becomes a release if, since the block's last release to that peer, the block
//!   moved data or took over accesses of others (through a barrier, a semaphore or an acquiring wait);
//! - a relaxed wait becomes an acquire if, before the block's next acquire on that channel, the block moves data
//!   or hands accesses on (through a barrier, a semaphore or a releasing signal).
//!
//! A pipeline's body follows itself, so it is walked twice.

use crate::program::{Instruction, RankLayout};

/// Strengthens `rank`'s relaxed operations and records them in [`RankLayout::strengthened`].
pub(super) fn strengthen(rank: &mut RankLayout) {
    let mut strengthened = vec![false; rank.instructions.len()];
    for block in 0..rank.blocks.len() {
        let code = rank.blocks[block].code.range();
        let mut walk = Walk::new(rank.channels.len());
        let mut position = code.start;
        while position < code.end {
            if let Instruction::LoopBegin { end, .. } = rank.instructions[position] {
                let body = position + 1..code.start + end as usize;
                for _ in 0..2 {
                    for inner in body.clone() {
                        walk.step(rank, inner, &mut strengthened);
                    }
                }
                position = body.end;
            } else {
                walk.step(rank, position, &mut strengthened);
            }
            position += 1;
        }
    }
    let positions = (0u32..).zip(&strengthened);
    rank.strengthened = positions.filter_map(|(at, &set)| set.then_some(at)).collect();
}

/// What one block has done so far.
struct Walk {
    /// Counts events that a later signal may have to release; never decreases.
    moved: u64,
    /// Per channel, `moved` at the block's last release to that channel's peer.
    released: Vec<u64>,
    /// Relaxed waits that nothing relied on yet: channel and instruction.
    pending: Vec<(u32, usize)>,
}

impl Walk {
    fn new(channels: usize) -> Self {
        Walk { moved: 0, released: vec![0; channels], pending: Vec::new() }
    }

    fn step(&mut self, rank: &mut RankLayout, position: usize, strengthened: &mut [bool]) {
        match rank.instructions[position] {
            Instruction::Move { .. }
            | Instruction::MoveBlock { .. }
            | Instruction::Post { .. }
            | Instruction::Barrier { .. } => {
                self.rely(rank, strengthened);
                self.moved += 1;
            }
            Instruction::Acquire { .. } | Instruction::Flush { .. } => self.moved += 1,
            Instruction::Release { .. } => self.rely(rank, strengthened),
            Instruction::Signal { channel, release } => {
                let needed = release || self.released[channel as usize] < self.moved;
                if !needed {
                    return;
                }
                if !release {
                    rank.instructions[position] = Instruction::Signal { channel, release: true };
                    strengthened[position] = true;
                }
                self.rely(rank, strengthened);
                let peer = rank.channels[channel as usize].peer;
                for (released, other) in self.released.iter_mut().zip(&rank.channels) {
                    if other.peer == peer {
                        *released = self.moved;
                    }
                }
            }
            Instruction::Wait { channel, acquire: true } => {
                self.pending.retain(|&(waited, _)| waited != channel);
                if !strengthened[position] {
                    self.moved += 1;
                }
            }
            Instruction::Wait { channel, acquire: false } => self.pending.push((channel, position)),
            Instruction::BlockSync
            | Instruction::LoopBegin { .. }
            | Instruction::LoopEnd { .. } => {}
        }
    }

    /// Makes the pending relaxed waits acquire, because what follows relies on what they waited for.
    fn rely(&mut self, rank: &mut RankLayout, strengthened: &mut [bool]) {
        for (channel, position) in self.pending.drain(..) {
            if matches!(rank.instructions[position], Instruction::Wait { acquire: false, .. }) {
                rank.instructions[position] = Instruction::Wait { channel, acquire: true };
                strengthened[position] = true;
            }
        }
    }
}
