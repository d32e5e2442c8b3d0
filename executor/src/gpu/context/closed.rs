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
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, OnceLock};

/// Whether a context is closed.
#[derive(Debug, Default)]
pub struct Closed {
    asked: AtomicBool,
    /// The last launch of which a block may have begun before, as the device counts them.
    last: OnceLock<u64>,
}

/// What is closed, by what, and who hears of it.
type Closing = (Arc<Context>, Arc<Upload>, Arc<Peers>);

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
    /// Has a context closed, unless it was before. Where the system gives no thread, the caller closes it.
    pub fn close(&self, context: &Arc<Context>, upload: &Arc<Upload>, peers: &Arc<Peers>) {
        if context.closed.asked.swap(true, Ordering::AcqRel) {
            return;
        }
        let closing = (Arc::clone(context), Arc::clone(upload), Arc::clone(peers));
        if let Err(closing) = self.0.hand(closing, answer) {
            close(&closing);
        }
    }
}

fn answer(closings: &Receiver<Closing>) {
    while let Ok(closing) = closings.recv() {
        close(&closing);
    }
}

fn close((context, upload, peers): &Closing) {
    let last = context.close(upload).unwrap_or_else(|error| {
        // Such copies fail where the device has failed: then nothing begins any more.
        log::debug!("a context is not closed: {error}");
        context.marks().begun
    });
    let _ = context.closed.last.set(last);
    peers.bell.ring();
}

impl Context {
    /// Has launches that begin from now on leave at once; the last one of which a block may have begun before. Asks the driver.
    fn close(&self, upload: &Upload) -> Result<u64, HalError> {
        let words = self.own.address().wrapping_add(self.own_shape.context as usize);
        let closed = words.wrapping_add(offset_of!(ContextWords, closed));
        let entered = words.wrapping_add(offset_of!(ContextWords, entered));
        let mut blocks = [0; 8];
        // SAFETY: both are words of this context's own memory, which lives as long; kernels read the one and add to the other.
        unsafe {
            upload.write(closed, &1u32.to_ne_bytes())?;
            upload.read_into(entered, &mut blocks)?;
        }
        let of_launch = blocks_of(self.plan.layout(), self.rank).max(1);
        Ok(u64::from_ne_bytes(blocks).div_ceil(of_launch))
    }

    /// After a stop: whether a launch may still use buffers. One that begins once the context is closed does not.
    pub fn runs(&self) -> bool {
        let ended = |last: &u64| self.marks().ended >= *last;
        self.fate.lost().is_none() && !self.closed.last.get().is_some_and(ended)
    }
}
