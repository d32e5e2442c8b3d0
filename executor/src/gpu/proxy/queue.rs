//! Where kernels of a context put their requests, and where they look for what is done.

use crate::gpu::words::Words;
use antiphon_codegen::abi::{Address, Link};
use antiphon_hal::{Device, HalError};
use antiphon_plan::program::RankLayout;
use antiphon_port::fifo::{self, Consumer, Done};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Requests that a queue holds.
const CAPACITY: u64 = 256;

/// Words of the device's own that a queue takes for so many ranks: the places claimed, a count of free ones, and for each
/// rank the last request.
pub const fn claims(world: u64) -> u64 {
    2 + world
}

/// The queue of a context's requests, in pinned memory: kernels write it, and the proxy reads it. Behind it is the done word
/// of each rank.
#[derive(Debug)]
pub struct Queue {
    words: Arc<Words>,
}

/// A done word.
#[derive(Debug)]
struct DoneWord {
    words: Arc<Words>,
    at: u64,
}

impl Done for DoneWord {
    fn reach(&self, end: u64) {
        if let Some(word) = self.words.word(self.at) {
            word.store(end, Ordering::Release);
        }
    }
}

fn done_at(peer: u32) -> u64 {
    fifo::bytes(CAPACITY) + u64::from(peer) * 64
}

impl Queue {
    /// An empty queue.
    ///
    /// # Errors
    /// What the device reports.
    pub fn new(device: &dyn Device, world: u32) -> Result<Self, HalError> {
        Ok(Queue { words: Arc::new(Words::new(device, done_at(world))?) })
    }

    /// Where requests are taken. Once.
    ///
    /// # Errors
    /// Of memory that no queue fits.
    pub fn consumer(&self) -> Result<Consumer, HalError> {
        fifo::consumer(Arc::clone(self.words.memory()), CAPACITY)
    }

    /// The done word of a peer.
    pub fn done(&self, peer: u32) -> Arc<dyn Done> {
        Arc::new(DoneWord { words: Arc::clone(&self.words), at: done_at(peer) })
    }

    /// What kernels need for each of a rank's channels, and then for each of `partners`, with words of the device's own from
    /// `own` on.
    pub fn links(&self, layout: &RankLayout, partners: &[u32], own: u64) -> Vec<Link> {
        let mut met = BTreeSet::new();
        let channels = layout.channels.iter().map(|channel| {
            channel.port.then(|| (channel.peer, channel.paired.unwrap_or(u32::MAX)))
        });
        let ends = channels.chain(partners.iter().map(|&peer| Some((peer, u32::MAX))));
        let link = |end: Option<(u32, u32)>| {
            let Some((peer, paired)) = end else { return Link::default() };
            Link {
                fifo: Address(self.words.address()),
                claims: Address(own),
                capacity: CAPACITY,
                done: Address(self.words.address() + done_at(peer)),
                asked: Address(own + (2 + u64::from(peer)) * 8),
                peer,
                paired,
                leads: u32::from(met.insert(peer)),
                unused: 0,
            }
        };
        ends.map(link).collect()
    }
}
