//! Whether the transports serve what a plan's rank asks of its peers.

use crate::communicator::Shared;
use crate::error::ExecutorError;
use crate::plan_cache::LoadedPlan;
use antiphon_plan::program::{Instruction, RankLayout};
use antiphon_transport::ChannelKind;
use std::collections::BTreeSet;

/// The peers that a rank reaches, and the semantics it needs to each.
fn needs(own: &RankLayout) -> BTreeSet<(ChannelKind, u32)> {
    let kind = |port| if port { ChannelKind::Port } else { ChannelKind::Memory };
    let mut needs: BTreeSet<_> =
        own.channels.iter().map(|channel| (kind(channel.port), channel.peer)).collect();
    let members = own.switches.iter().flat_map(|switch| &switch.members);
    needs.extend(members.map(|&member| (ChannelKind::Switch, member)));
    // Remote buffers are loads and stores, whether or not a channel signals about them; but for those of transfers.
    for instruction in &own.instructions {
        match *instruction {
            Instruction::Move { sources, destinations, .. } => {
                let sides = sources.range().chain(destinations.range());
                needs.extend(sides.map(|side| (ChannelKind::Memory, own.accesses[side].rank)));
            }
            Instruction::MoveBlock { index } => {
                let moved = own.block_moves[index as usize];
                let ends = [moved.source.rank, moved.destination.rank];
                needs.extend(ends.map(|peer| (ChannelKind::Memory, peer)));
            }
            _ => {}
        }
    }
    needs
}

/// The first ranks that a plan joins by memory or a switch, though their devices do not reach each other: all ranks find the same.
fn parted(shared: &Shared, plan: &LoadedPlan) -> Option<String> {
    if !shared.neighbours.are_parted() {
        return None;
    }
    (0..).zip(&plan.layout().ranks).find_map(|(rank, own)| {
        let mut joined = needs(own).into_iter().filter(|(kind, _)| *kind != ChannelKind::Port);
        joined.find_map(|(_, peer)| {
            shared.neighbours.parted(rank, peer).filter(|_| !shared.are_near(rank, peer))
        })
    })
}

/// Sees that some transport serves every channel and every access of this rank.
///
/// # Errors
/// [`ExecutorError::Transport`] for the first that none serves; [`ExecutorError::Apart`] on all ranks where it is for devices that
/// do not reach each other.
pub fn check(shared: &Shared, plan: &LoadedPlan) -> Result<(), ExecutorError> {
    if let Some(saw) = parted(shared, plan) {
        return Err(ExecutorError::Apart { saw: format!("plan `{}` on {saw}", plan.name()) });
    }
    for (kind, peer) in needs(&plan.layout().ranks[shared.rank as usize]) {
        if peer != shared.rank {
            shared.registry.pick(kind, &shared.peers[peer as usize])?;
        }
    }
    Ok(())
}

/// The same, and has links made for port channels.
///
/// # Errors
/// As [`check`]; why a link cannot be had.
pub fn prepare(shared: &Shared, plan: &LoadedPlan) -> Result<(), ExecutorError> {
    check(shared, plan)?;
    // Kernels have links of their own, where no wire is needed.
    let peers = plan.uses(shared.rank).port_peers.iter().copied();
    let linked = |&peer: &u32| shared.gpu.is_none() || shared.is_staged(peer);
    let linked: Vec<u32> = peers.filter(linked).collect();
    if plan.layout().port.is_some() && (shared.gpu.is_none() || !linked.is_empty()) {
        shared.ports.enable();
    }
    linked.into_iter().try_for_each(|peer| shared.ports.want(peer))
}
