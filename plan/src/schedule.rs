//! Orders in which the blocks of a plan may run: what a counterexample is written in, and what a controlled engine plays.
//!
//! A plan says what each block does, not when. A [`Schedule`] says when, as far as it matters: it holds one touch of
//! memory back until another has happened, or draws every decision from a seed.

use crate::lower::Site;
use crate::program::{Area, CallSizes};
use std::fmt;
use std::ops::Range;

/// One execution of one instruction of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Moment {
    /// The rank.
    pub rank: u32,
    /// The thread block.
    pub block: u32,
    /// Number of the launch, from 1.
    pub launch: u32,
    /// The instruction: its position in the block's code.
    pub at: u32,
    /// The iteration, inside a pipeline; else 0.
    pub iteration: u64,
}

/// Who touches memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Actor {
    /// The threads of a block, which share the work of an instruction.
    Threads(Moment),
    /// The proxy of the port channel that the instruction posted to, some time later.
    Proxy(Moment),
    /// The user of a rank between two launches: reads its output after `launch` and writes over it, then rewrites its input for
    /// the next.
    User {
        /// The rank.
        rank: u32,
        /// The launch that has ended.
        launch: u32,
    },
}

/// One touch of memory: who, what, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touch {
    /// Who touches.
    pub actor: Actor,
    /// The operation, as the plan names it; `None` for the user.
    pub site: Option<Site>,
    /// Whether it writes.
    pub write: bool,
    /// Owner of the memory.
    pub owner: u32,
    /// Which of the owner's areas, as the toucher names it: in place, input and output are one memory.
    pub area: Area,
    /// The bytes touched, from the start of the area; of packets, payload bytes.
    pub bytes: Range<u64>,
}

/// The order of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// Everyone goes on as far as they can, in turn; but each held actor stops before its instruction, or its effects
    /// stay unseen, until what it is held for has happened.
    Held(Vec<Hold>),
    /// Every decision is drawn at random from this seed.
    Random(u64),
    /// Blocks have priorities drawn from the seed, which change at `changes` random steps: rare orders are likely.
    Adversarial {
        /// Draws the priorities and the steps.
        seed: u64,
        /// How often the lowest priority is given to whoever runs.
        changes: u32,
    },
}

/// One actor that lets another go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Whose touch is held back.
    pub held: Actor,
    /// Whose touch comes first.
    pub until: Actor,
}

/// The calls that a counterexample is about: every launch has the same sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Sizes of every launch.
    pub sizes: CallSizes,
    /// Whether every rank's input and output overlap as the collective's convention has it.
    pub in_place: bool,
    /// Number of launches, one after the other on every rank.
    pub launches: u32,
}

/// Where a rank's input and output are in its memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// Where the input starts.
    pub input: u64,
    /// Where the output starts.
    pub output: u64,
    /// Bytes of both together.
    pub len: u64,
}

impl Case {
    /// Where the buffers of a rank are: side by side, or overlapping as calls in place have it. The smaller buffer is then
    /// the rank's block of the larger.
    pub fn places(&self, rank: u32) -> Places {
        let CallSizes { input, output, .. } = self.sizes;
        if !self.in_place {
            return Places { input: 0, output: input, len: input.saturating_add(output) };
        }
        let larger = input.max(output);
        let start = |own: u64| {
            if own < larger { own.saturating_mul(rank.into()).min(larger - own) } else { 0 }
        };
        Places { input: start(input), output: start(output), len: larger }
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Actor::Threads(at) => write!(f, "{at}"),
            Actor::Proxy(at) => write!(f, "the proxy, for {at}"),
            Actor::User { rank, launch } => {
                write!(f, "the user of rank {rank} after launch {launch}")
            }
        }
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Moment { rank, block, launch, iteration, .. } = self;
        write!(f, "rank {rank} tb {block} in launch {launch}")?;
        if *iteration > 0 { write!(f, ", iteration {iteration}") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_place_the_smaller_buffer_is_the_ranks_block_of_the_larger() {
        let places = |input, output, in_place, rank| {
            let sizes = CallSizes { input, output, element: 1, strict: false };
            let Places { input, output, len } = Case { sizes, in_place, launches: 1 }.places(rank);
            (input, output, len)
        };
        assert_eq!(places(8, 8, false, 1), (0, 8, 16));
        assert_eq!(places(8, 8, true, 1), (0, 0, 8));
        assert_eq!(places(4, 16, true, 2), (8, 0, 16));
        assert_eq!(places(16, 4, true, 3), (0, 12, 16));
        // Buffers that the convention has no place for stay inside.
        assert_eq!(places(12, 16, true, 3), (4, 0, 16));
    }
}
