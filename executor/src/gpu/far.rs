//! Ranks of other nodes: which of them launches of a plan have to do with, and what goes to them by messages.
//!
//! None of their memory is mapped here. A kernel names it by its addresses there, and hands the proxy what it would store there,
//! in order with its transfers.

use super::context::Context;
use super::proxy::PARCELS_BYTES;
use super::{Gpu, PAUSE};
use crate::communicator::{Shared, host};
use crate::error::ExecutorError;
use crate::plan_cache::LoadedPlan;
use crate::ports::{LOCAL, SHARED};
use crate::regions::tell;
use crate::sync::lock;
use crate::tags::FAR_ARENA;
use antiphon_codegen::abi::NEAR;
use antiphon_hal::{Device, Memory};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// In `Launch::ways`, a rank that launches have nothing to do with.
const NOBODY: u32 = u32::MAX;

impl Shared {
    /// Whether a rank is on another node.
    pub fn is_far(&self, peer: u32) -> bool {
        !self.peers[peer as usize].same_node
    }

    /// Whether transfers to a rank go over a wire, by way of pinned memory.
    pub fn is_staged(&self, peer: u32) -> bool {
        let forced = self.options.wire.as_deref().is_some_and(|wire| wire != LOCAL);
        peer != self.rank && (forced || self.is_far(peer))
    }

    /// The ranks at the other end of this rank's port channels in a plan to which transfers go over wires.
    pub fn staged_peers(&self, plan: &LoadedPlan) -> impl Iterator<Item = u32> {
        let peers = plan.uses(self.rank).port_peers.iter().copied();
        peers.filter(|&peer| self.is_staged(peer))
    }

    /// Tells a peer's control thread something about devices.
    pub fn tell_device(&self, peer: u32, tag: u32, words: &[u64]) -> Result<(), ExecutorError> {
        let payload: Vec<u8> = words.iter().copied().flat_map(u64::to_le_bytes).collect();
        tell(&self.bootstrap.voice(), peer, tag, payload, Vec::new())
    }
}

/// The ranks of other nodes that launches of a plan have to do with.
pub fn partners(shared: &Shared, plan: &LoadedPlan) -> Vec<u32> {
    let peers = &plan.uses(shared.rank).port_peers;
    peers.iter().copied().filter(|&peer| shared.is_far(peer)).collect()
}

/// For each rank, how launches tell it of themselves, where the links of `partners` are from number `first` on.
pub fn ways(shared: &Shared, partners: &[u32], first: u32) -> Vec<u32> {
    let way = |peer: u32| {
        if !shared.is_far(peer) {
            return NEAR;
        }
        let found = (first..).zip(partners).find(|(_, partner)| **partner == peer);
        found.map_or(NOBODY, |(link, _)| link)
    };
    (0..shared.world).map(way).collect()
}

/// The most links over wires whose memory is pinned when the communicator comes up: a plan over nodes links a rank with few others.
const LINKS: usize = 8;

/// Pinned memory of links over wires that are not made yet.
pub type LinkMemory = Arc<Mutex<Vec<Arc<dyn Memory>>>>;

/// Pinned memory for a link over a wire. If this rank has the shared wire, peers can map it, too.
pub fn link_memory(device: &dyn Device, shared: &Shared) -> Result<Arc<dyn Memory>, ExecutorError> {
    if shared.ports.names().any(|name| name == SHARED) {
        return Ok(device.pin(&host()?.allocate(PARCELS_BYTES)?)?);
    }
    Ok(device.pinned(PARCELS_BYTES)?)
}

impl Gpu {
    /// Pins the memory of links over wires before anything is launched: later a driver may let this call wait for kernels, and
    /// these may wait for the link.
    pub fn provide_links(&self, shared: &Shared) -> Result<(), ExecutorError> {
        let staged = (0..shared.world).filter(|&peer| shared.is_staged(peer)).take(LINKS);
        let memory: Result<Vec<_>, _> =
            staged.map(|_| link_memory(&*self.device, shared)).collect();
        *lock(&self.link_memory) = memory?;
        Ok(())
    }

    /// Tells partners where the arena of a context is.
    pub fn announce_far(
        &self,
        shared: &Shared,
        context: u64,
        (arena, partners): (&Arc<dyn Memory>, &[u32]),
    ) -> Result<(), ExecutorError> {
        let place = [context, arena.address().expose_provenance() as u64, arena.len()];
        partners.iter().try_for_each(|&peer| shared.tell_device(peer, FAR_ARENA, &place))
    }

    /// Has the proxy carry out what launches of a context ask of port channels, and receive what peers send over wires.
    pub fn serve(&self, shared: &Arc<Shared>, context: &Arc<Context>) -> Result<(), ExecutorError> {
        let staged: Vec<u32> = shared.staged_peers(&context.plan).collect();
        if context.queue.is_none() && staged.is_empty() {
            return Ok(());
        }
        let proxy = match self.proxy.get() {
            Some(proxy) => proxy,
            None => {
                // If two are started at once, the second has nothing to do, and ends.
                let started = super::Proxy::start(self, shared)?;
                self.proxy.get_or_init(|| started)
            }
        };
        proxy.serve(shared, context, &staged)
    }

    /// Waits until peers whose transfers end here are through the launches that this rank is through: at most for the
    /// communicator's time limit, which ends their launches too, or for a minute if there is none, since a lost device says
    /// nothing any more. A peer whose link is lost needs this rank no more.
    pub fn linger(&self, shared: &Shared) {
        let Some(proxy) = self.proxy.get() else { return };
        let is_heard = |context: &Arc<Context>| {
            let ended = context.marks().ended;
            let mut staged = shared.staged_peers(&context.plan);
            staged.all(|peer| proxy.is_lost(peer) || context.has_completed(self, peer, ended))
        };
        let done = || shared.failed() || (self.contexts().iter().all(is_heard) && proxy.is_calm());
        if !wait(shared.options.timeout.unwrap_or(MINUTE), done) {
            log::warn!("{}: leaves peers that are still in a launch", shared.whose);
        }
    }
}

/// How long peers are waited for where there is no time limit.
const MINUTE: Duration = Duration::from_secs(60);

/// Waits until `done`, or until `limit` is over; whether it is done.
fn wait(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    loop {
        if done() {
            return true;
        }
        if began.elapsed() >= limit {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_leaves_waits_as_long_as_the_time_limit_says() {
        let mut looks = 0;
        let fifth = || {
            looks += 1;
            looks == 5
        };
        assert!(wait(MINUTE, fifth), "no longer than it takes");
        assert!(wait(Duration::ZERO, || true), "what is done needs no time");
        let (limit, began) = (Duration::from_millis(20), Instant::now());
        assert!(!wait(limit, || false));
        assert!(began.elapsed() >= limit);
    }
}
