//! Teams: sets of ranks that NCCL's headers for device code speak of. Nothing here runs their kernels, so that no rank reaches
//! another by loads and stores of such, and each is by itself.

use crate::communicator::known;
use crate::failure::Result;
use crate::types::Comm;
use std::ffi::c_int;

/// So many ranks, so far from each other, of which the caller is this one.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Team {
    pub ranks: c_int,
    pub rank: c_int,
    pub stride: c_int,
}

/// What a handle that is none has.
pub const NOBODY: Team = Team { ranks: 0, rank: 0, stride: 0 };
/// The caller by itself.
const ALONE: Team = Team { ranks: 1, rank: 0, stride: 1 };

/// All ranks. As those of equal places among ranks that reach each other are (`ncclTeamRail`), too.
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
