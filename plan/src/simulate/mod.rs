//! Predictions of a plan's time from a cost model, on virtual time: deterministic, without devices.
//!
//! - [`Topology`] says how fast everything is: read from a file, or built in under a name;
//! - [`simulate`] runs one launch of a lowered plan on it and returns a [`Timeline`].
//!
//! Inside: `network` knows which links, memories and NICs a transfer crosses, `share` divides each of them among the
//! transfers under way, `packets` knows which packets have arrived, `cores` lets blocks take turns where they share
//! processors, `machine` steps the blocks, and `record` keeps what happened.
//!
//! Nothing here draws numbers, reads a clock or depends on the order of a hash table: the same input gives the same
//! bits.

mod built_in;
mod cores;
mod costs;
mod flows;
mod machine;
mod network;
mod packets;
mod ports;
mod record;
mod share;
mod steps;
#[cfg(test)]
mod tests;
mod timeline;
mod topology;

pub use built_in::NAMES as TOPOLOGIES;
pub use timeline::{Arrow, LinkLoad, OpSpan, Timeline};
pub use topology::{
    Between, BlockSpeed, Device, Inside, Overheads, Shape, Topology, TopologyError,
};

use crate::interpret::Stuck;
use crate::lower::LowerError;
use crate::program::{CallSizes, Instruction, Layout, Program};
use thiserror::Error;

/// Why a launch could not be simulated.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum SimulateError {
    /// The sizes cannot be lowered.
    #[error(transparent)]
    Lower(#[from] LowerError),
    /// The topology is too small.
    #[error(
        "cannot simulate plan `{plan}` on topology `{topology}`: saw {saw} ranks, allowed 1 to {allowed}; choose a \
         topology of more nodes, or a plan for fewer ranks"
    )]
    Ranks {
        /// The plan's name.
        plan: String,
        /// The topology's name.
        topology: String,
        /// Ranks of the plan.
        saw: usize,
        /// Ranks of the topology.
        allowed: usize,
    },
    /// Pipelines turn so often that the timeline would not fit in memory.
    #[error(
        "cannot simulate plan `{plan}` at this size: saw {saw} operations inside pipelines, allowed {allowed}; choose \
         a smaller message, or larger windows"
    )]
    Windows {
        /// The plan's name.
        plan: String,
        /// Instructions of pipelines, each as often as it is run.
        saw: u128,
        /// The most that are simulated.
        allowed: u128,
    },
    /// A number of the topology makes no sense.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// No block can go on.
    #[error(transparent)]
    Stuck(#[from] Stuck),
}

/// Instructions inside pipelines, each as often as it is run, that a timeline has room for: some gigabytes.
const MOST_IN_PIPELINES: u128 = 1 << 26;

/// Runs one launch of a whole plan on virtual time. Rank r is the topology's rank r.
///
/// All ranks enter the launch at once. The two sides of a move of runtime blocks are taken to be equally long: each
/// input and each output is divided evenly among its blocks.
///
/// # Errors
/// The sizes cannot be lowered, the topology has fewer ranks than the plan or numbers that make no sense, pipelines turn
/// too often, or the plan deadlocks.
pub fn simulate(
    layout: &Layout,
    sizes: CallSizes,
    topology: &Topology,
) -> Result<Timeline, SimulateError> {
    topology.validate()?;
    let (saw, allowed) = (layout.ranks.len(), topology.ranks());
    if saw > allowed {
        return Err(SimulateError::Ranks {
            plan: layout.name.clone(),
            topology: topology.name.clone(),
            saw,
            allowed,
        });
    }
    let programs = (0..saw as u32).map(|rank| layout.program(rank, sizes));
    let programs = programs.collect::<Result<Vec<_>, _>>()?;
    let (saw, allowed) = (in_pipelines(layout, &programs), MOST_IN_PIPELINES);
    if saw > allowed {
        return Err(SimulateError::Windows { plan: layout.name.clone(), saw, allowed });
    }
    if u64::try_from(most_bytes(layout, &programs, sizes)).is_err() {
        return Err(LowerError::Overflow { what: "all that is moved" }.into());
    }
    machine::Machine::new(layout, &programs, sizes, topology).run()
}

/// An upper bound on the bytes that anything carries: if this fits in 64 bits, so does everything that is counted on the way.
fn most_bytes(layout: &Layout, programs: &[Program], sizes: CallSizes) -> u128 {
    // Packets are twice their payload, and a memory may be asked for by both sides of a move.
    const TIMES: u128 = 4;
    let buffers = u128::from(sizes.input) + u128::from(sizes.output);
    let ranks = layout.ranks.iter().zip(programs).map(|(own, program)| {
        let ends = program.segments.iter().skip(1).map(|next| u64::from(next.offsets));
        let ends = ends.chain([program.offsets.len() as u64]);
        let moved = program.segments.iter().zip(ends).map(|(segment, end)| {
            let accesses = end.saturating_sub(segment.offsets.into());
            u128::from(segment.padded) * u128::from(accesses)
        });
        // Runtime blocks are in no segment, and each lies in one of the buffers.
        let blocks = if own.runtime_blocks == [0; 2] { 0 } else { own.instructions.len() as u128 };
        moved.fold(buffers.saturating_mul(blocks), u128::saturating_add)
    });
    ranks.fold(0, u128::saturating_add).saturating_mul(TIMES)
}

/// Instructions inside pipelines, each as often as it is run. An empty body counts as one: it turns all the same.
fn in_pipelines(layout: &Layout, programs: &[Program]) -> u128 {
    let mut all = 0u128;
    for (own, program) in layout.ranks.iter().zip(programs) {
        for block in &own.blocks {
            for (at, instruction) in own.instructions[block.code.range()].iter().enumerate() {
                if let Instruction::LoopBegin { end, index, .. } = *instruction {
                    let body = (end as usize).saturating_sub(at + 1).max(1);
                    let turns = program.loops[index as usize];
                    all = all.saturating_add(u128::from(turns) * body as u128);
                }
            }
        }
    }
    all
}
