//! Teams: the sets of ranks in NCCL's headers for device code. Nothing here runs kernels of that kind, so no rank reaches
//! another by their loads and stores, and each rank is a team by itself.

use crate::communicator::known;
use crate::failure::Result;
use crate::types::Comm;
use std::ffi::c_int;

/// A number of ranks that are `stride` apart, with the caller's own place among them.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Team {
    pub ranks: c_int,
    pub rank: c_int,
    pub stride: c_int,
}

/// The team of a handle that is none.
pub const NOBODY: Team = Team { ranks: 0, rank: 0, stride: 0 };
/// The caller by itself.
const ALONE: Team = Team { ranks: 1, rank: 0, stride: 1 };

/// All ranks. Since each reaches only itself, this is also the team of equal places (`ncclTeamRail`).
///
/// # Safety
/// As NCCL's.
pub unsafe fn world(comm: Comm) -> Result<Team> {
    // SAFETY: as this function's.
    let communicator = unsafe { known(comm)? };
    let (ranks, rank) = (communicator.world.cast_signed(), communicator.rank.cast_signed());
    Ok(Team { ranks, rank, stride: 1 })
}

/// The ranks that the caller's kernels would reach.
///
/// # Safety
/// As NCCL's.
pub unsafe fn reached(comm: Comm) -> Result<Team> {
    // SAFETY: as this function's.
    unsafe { known(comm) }.map(|_| ALONE)
}

/// How far a rank of a team is from the caller, in ranks of the world.
fn distance(team: Team, rank: c_int) -> c_int {
    rank.wrapping_sub(team.rank).wrapping_mul(team.stride)
}

/// The number in the world of a rank of a team.
///
/// # Safety
/// As NCCL's.
pub unsafe fn to_world(comm: Comm, team: Team, rank: c_int) -> Result<c_int> {
    // SAFETY: as this function's.
    let own = unsafe { world(comm)? };
    Ok(own.rank.wrapping_add(distance(team, rank)))
}

/// The number among those that are reached of a rank of a team.
///
/// # Safety
/// As NCCL's.
pub unsafe fn to_reached(comm: Comm, team: Team, rank: c_int) -> Result<c_int> {
    // SAFETY: as this function's.
    unsafe { reached(comm)? };
    Ok(ALONE.rank.wrapping_add(distance(team, rank)))
}
