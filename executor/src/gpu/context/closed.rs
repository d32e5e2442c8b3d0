//! Contexts that are closed after a failure: launches that begin from then on leave at once.
//!
//! Launches look at the host's word only while they wait. One that waits for nothing, and that other work of its stream kept from
//! beginning until after the failure, would read and write buffers that callers have back. So each block reads a word of the device's
//! own when it begins. Whoever closes a context writes that word, and then reads how many blocks have begun: these are waited for.

use super::Context;
use crate::gpu::Peers;
use crate::gpu::shape::blocks_of;
use crate::gpu::upload::Upload;
use crate::worker::Worker;
use antiphon_codegen::abi::ContextWords;
use antiphon_hal::HalError;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, OnceLock};

/// Whether a context is closed.
#[derive(Debug, Default)]
pub struct Closed {
    /// [`USED`] and [`ASKED`]. One word, so that of a first launch and who closes the context one sees the other.
    state: AtomicU8,
    /// The last launch of which a block may have begun before, as the device counts them; not set where that cannot be learned.
    last: OnceLock<u64>,
}

/// A launch may have been put into a stream or recorded.
const USED: u8 = 1;
/// Somebody closes the context.
const ASKED: u8 = 2;

/// What is closed, by what, and who hears of it.
type Closing = (Vec<Arc<Context>>, Arc<Upload>, Arc<Peers>);

/// The thread that closes contexts, once there is one to close. Whoever waits for that does so no longer than it may, though the driver
/// may let the thread wait.
#[derive(Debug)]
pub struct Closer(Worker<Closing>);

impl Default for Closer {
    fn default() -> Self {
        Closer(Worker::new("antiphon-closes", "contexts are closed by whoever ends their launches"))
    }
}

impl Closer {
    /// Has those of these contexts closed that were not before, after a failure. Where the system gives no thread, the caller closes them.
    pub fn close(&self, contexts: &[Arc<Context>], upload: &Arc<Upload>, peers: &Arc<Peers>) {
        let open = contexts.iter().filter(|context| context.closed.ask()).map(Arc::clone);
        let open: Vec<_> = open.collect();
        if open.is_empty() {
            return;
        }
        let closing = (open, Arc::clone(upload), Arc::clone(peers));
        if let Err(closing) = self.0.hand(closing, answer) {
            close(&closing);
        }
    }

    /// Waits until all that were handed over are closed, and the thread has ended.
    pub fn finish(&self) {
        self.0.finish();
    }
}

impl Closed {
    /// Whether the caller has to close the context: nobody else does, and there may have been a launch.
    fn ask(&self) -> bool {
        let before = self.state.fetch_or(ASKED, Ordering::AcqRel);
        if before == 0 {
            // The first launch finds the failure.
            let _ = self.last.set(0);
        }
        before == USED
    }
}

fn answer(closings: &Receiver<Closing>) {
    while let Ok(closing) = closings.recv() {
        close(&closing);
    }
}

fn close((contexts, upload, peers): &Closing) {
    // All words before any count, so that no context stays open while others are read.
    let shut: Vec<_> = contexts.iter().map(|context| context.shut(upload)).collect();
    for (context, shut) in contexts.iter().zip(shut) {
        match shut.and_then(|()| context.last_begun(upload)) {
            Ok(last) => drop(context.closed.last.set(last)),
            // On a device that has failed nothing runs, which the context's fate says. Otherwise launches may yet begin.
            Err(error) => log::debug!("a context is not closed: {error}"),
        }
    }
    peers.bell.ring();
}

impl Context {
    /// A launch is about to be put into a stream or recorded. Whoever says so looks for a failure behind it, and gives up if there is one:
    /// the context may have been passed over when contexts were closed.
    pub fn note_use(&self) {
        if self.closed.state.load(Ordering::Acquire) & USED == 0 {
            self.closed.state.fetch_or(USED, Ordering::AcqRel);
        }
    }

    /// Has launches that begin from now on leave at once. Asks the driver.
    fn shut(&self, upload: &Upload) -> Result<(), HalError> {
        let closed = self.context_word(offset_of!(ContextWords, closed));
        // SAFETY: a word of this context's own memory, which lives as long; kernels read it meanwhile.
        unsafe { upload.write(closed, &1u32.to_ne_bytes()) }
    }

    /// Once it is shut, the last launch of which a block may have begun before. Asks the driver.
    fn last_begun(&self, upload: &Upload) -> Result<u64, HalError> {
        let entered = self.context_word(offset_of!(ContextWords, entered));
        let mut blocks = [0; 8];
        // SAFETY: a word of this context's own memory, which lives as long; kernels add to it meanwhile.
        unsafe { upload.read_into(entered, &mut blocks)? };
        let of_launch = blocks_of(self.plan.layout(), self.rank).max(1);
        Ok(u64::from_ne_bytes(blocks).div_ceil(of_launch))
    }

    /// Where the device has this word of the context.
    fn context_word(&self, at: usize) -> *mut u8 {
        self.own.address().wrapping_add(self.own_shape.context as usize + at)
    }

    /// After a stop: whether a launch may still use buffers. One that begins once the context is closed does not.
    pub fn runs(&self) -> bool {
        let ended = |last: &u64| self.marks().ended >= *last;
        self.fate.lost().is_none() && !self.closed.last.get().is_some_and(ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_closed_once_and_one_without_launches_by_nobody() {
        let never = Closed::default();
        assert!(!never.ask());
        assert_eq!(never.last.get(), Some(&0), "nothing is waited for");
        let used = Closed { state: USED.into(), ..Closed::default() };
        assert!(used.ask() && !used.ask());
        assert_eq!(used.last.get(), None, "it is not closed yet");
    }
}
