//! How far the launches of a context have come.

use super::{Context, readers};
use crate::error::ExecutorError;
use crate::gpu::Gpu;
use crate::gpu::calls::Turn;
use crate::gpu::lost::Asker;
use crate::gpu::shape::blocks_of;
use crate::sync::lock;
use antiphon_codegen::abi::{Descriptor, DeviceStruct, Inbox, Marks, Resolved};
use antiphon_hal::{Event, Memory, Stream};
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Where an arena has what a peer writes there.
fn inbox(peer: u32) -> u64 {
    u64::from(peer) * Inbox::BYTES as u64
}

/// Words of device memory, beside kernels that run; `None` where they cannot be read.
fn words<const N: usize>(gpu: &Gpu, memory: &dyn Memory, at: u64) -> Option<[u64; N]> {
    if at + N as u64 * 8 > memory.len() {
        return None;
    }
    let place = memory.address().expose_provenance() as u64 + at;
    // SAFETY: inside of memory that lives for the call.
    let bytes = unsafe { gpu.upload.read(place, N * 8) }.ok()?;
    let mut words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    Some(std::array::from_fn(|_| words.next().unwrap_or_default()))
}

/// A launch that was given to a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Called {
    /// Its number among those given to the context.
    pub number: u64,
    /// Bytes of its elements.
    pub element: u64,
    /// What it is, and its place among the communicator's calls.
    pub turn: Turn,
}

/// How far a context's launches have come, as the device counts them. Replays of graphs count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchMarks {
    /// The number of the launch that has begun last; 0 before the first.
    pub begun: u64,
    /// The number of the launch that has ended last; 0 before the first ends.
    pub ended: u64,
}

impl LaunchMarks {
    /// Whether every launch that has begun has ended.
    pub fn is_quiet(self) -> bool {
        self.begun == self.ended
    }
}

impl Context {
    /// The number that the next launch gets.
    pub fn next(&self) -> u64 {
        self.given.load(Ordering::Acquire) + 1
    }

    /// Notes what the next launch is.
    pub fn note(&self, called: Called) {
        let over = self.over();
        let mut calls = lock(&self.calls);
        while calls.front().is_some_and(|first| first.number <= over) {
            calls.pop_front();
        }
        calls.push_back(called);
    }

    /// What the launch is that has begun last; `None` for a replay of a graph.
    pub fn called(&self) -> Option<Called> {
        let number = self.mark(offset_of!(Marks, given_begun));
        let calls = lock(&self.calls);
        calls.iter().find(|called| called.number == number).copied()
    }

    /// Whether no peer reads any more what launch `number` has told of.
    pub fn is_read(&self, gpu: &Gpu, number: u64) -> bool {
        let over = self.over();
        if over >= number + 2 {
            // A launch waits until the readers of the one before last have completed it.
            return true;
        }
        // Of the words by which a launch says that it is over, the host may see any first: what ended last is known where nothing runs.
        let marks = self.marks();
        let readers = readers(self.plan.layout(), self.rank);
        let read = || readers.iter().all(|&peer| self.has_completed(gpu, peer, marks.ended));
        over >= number && marks.is_quiet() && read()
    }

    /// Whether no peer's launch may go through a multicast to this rank's memory any more: all have completed what this
    /// rank has.
    pub fn is_left(&self, gpu: &Gpu) -> bool {
        let ended = self.marks().ended;
        let mut members = self.parts.iter().flat_map(|part| part.others(self.rank));
        members.all(|peer| self.has_completed(gpu, peer, ended))
    }

    /// Whether a peer has said that its launches up to `number`, as the device counts them, are over.
    pub fn has_completed(&self, gpu: &Gpu, peer: u32, number: u64) -> bool {
        let place = inbox(peer) + offset_of!(Inbox, completed) as u64;
        words::<1>(gpu, &*self.arena, place).is_some_and(|[completed]| completed >= number)
    }

    /// Regions in which a peer has said that its buffers are in launch `number`, as the device counts them, which is under way,
    /// and which a block that touches them has not found yet.
    pub fn unfound(&self, gpu: &Gpu, (block, peer): (u32, u32), number: u64) -> Vec<u64> {
        const SAID: usize = Descriptor::BYTES / 8;
        const FOUND: usize = 2 * Resolved::BYTES / 8;
        let said = inbox(peer)
            + offset_of!(Inbox, descriptors) as u64
            + (number & 1) * Descriptor::BYTES as u64;
        let world = self.plan.layout().ranks.len() as u64;
        let pair = u64::from(block) * world + u64::from(peer);
        let found = self.own_shape.resolved + pair * FOUND as u64 * 8;
        // In this order: what is found is of this launch, if that is still under way.
        let said = words::<SAID>(gpu, &*self.arena, said);
        let found = words::<FOUND>(gpu, &*self.own, found);
        let (Some(said), Some(found)) = (said, found) else { return Vec::new() };
        if said[offset_of!(Descriptor, count) / 8] != number || self.marks().ended >= number {
            return Vec::new();
        }
        let sides = [offset_of!(Descriptor, input_region), offset_of!(Descriptor, output_region)];
        let sides = sides.map(|at| said[at / 8]).into_iter().zip([found[0], found[FOUND / 2]]);
        sides.filter(|(said, found)| said != found).map(|(said, _)| said).collect()
    }

    /// The launch that has begun last, and the one that has ended last.
    pub fn marks(&self) -> LaunchMarks {
        let begun = self.mark(offset_of!(Marks, begun));
        LaunchMarks { begun, ended: self.mark(offset_of!(Marks, ended)) }
    }

    /// The last of the launches given to a stream that has ended.
    pub fn over(&self) -> u64 {
        self.mark(offset_of!(Marks, given_ended))
    }

    /// A word of the [`Marks`].
    fn mark(&self, at: usize) -> u64 {
        self.pinned_word(self.pinned_shape.marks + at as u64)
    }

    /// Whether nothing of the context is under way: no launch that was given to a stream, and no replay that has begun.
    pub fn is_idle(&self) -> bool {
        if self.fate.lost().is_some() {
            return true;
        }
        self.marks().is_quiet() && self.over() == self.given.load(Ordering::Acquire)
    }

    /// Puts an event behind all that was submitted for a launch of the rank alone.
    pub fn put_own_end(&self, stream: &dyn Stream) -> Result<Arc<dyn Event>, ExecutorError> {
        stream.record(&*self.own_end)?;
        Ok(Arc::clone(&self.own_end))
    }

    /// Puts an event behind all that was submitted for a launch of ranks that are one kernel: for all of these that share the stream.
    pub fn put_merged_end(&self, stream: &dyn Stream) -> Result<Arc<dyn Event>, ExecutorError> {
        stream.record(&*self.merged_end)?;
        Ok(Arc::clone(&self.merged_end))
    }

    /// Notes that this event is behind launch `number`.
    pub fn follow(&self, behind: Arc<dyn Event>, number: u64) {
        *lock(&self.followed) = Some((behind, number));
    }

    /// The launch that was followed last, and the event behind it.
    fn followed(&self) -> Option<(Arc<dyn Event>, u64)> {
        lock(&self.followed).clone()
    }

    /// Has the driver asked what became of the launch that was submitted last.
    pub fn ask(&self, asker: &Asker) {
        if let Some(followed) = self.followed() {
            asker.ask(&self.fate, followed);
        }
    }

    /// Whether nothing of the context is known to be under way or to follow a kernel of it. What follows one is asked for
    /// first, so that a caller who waits for it looks again.
    pub fn is_over(&self, asker: &Asker) -> bool {
        if self.fate.lost().is_some() {
            return true;
        }
        let given = self.given.load(Ordering::Acquire);
        if !self.is_idle() || self.followed().map_or(0, |(_, number)| number) != given {
            return false;
        }
        // Asked once for each end: the driver is slower than a word.
        let over = self.fate.over() >= given;
        if !over {
            self.ask(asker);
        }
        over
    }

    /// For each block, what its last wait was and how often it has waited.
    pub fn progress(&self) -> Vec<[u64; 2]> {
        let blocks = blocks_of(self.plan.layout(), self.rank).max(1);
        let at = |block: u64| self.pinned_shape.progress + block * 16;
        (0..blocks).map(|block| [0, 8].map(|word| self.pinned_word(at(block) + word))).collect()
    }
}
