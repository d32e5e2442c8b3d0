//! Streams of a communicator: which a rank takes, and the numbers by which ranks know each other's and the calls on them.

use super::{Log, Shared};
use crate::error::ExecutorError;
use antiphon_hal::{Backend, Stream};

impl Shared {
    /// That launches of this rank can be put into a stream.
    ///
    /// # Errors
    /// `Argument` for a stream of another device.
    pub fn takes(&self, stream: &dyn Stream) -> Result<(), ExecutorError> {
        let own = (self.device.backend(), self.device.index());
        let seen = (stream.backend(), stream.device());
        if seen == own {
            return Ok(());
        }
        let name = |(backend, index): (Backend, u32)| format!("{}:{index}", backend.name());
        Err(ExecutorError::Argument {
            what: "launch on a stream",
            saw: format!("a stream of {} on a rank of {}", name(seen), name(own)),
            allowed: "streams of the rank's own device",
        })
    }
}

impl Log {
    /// The number of a stream among the communicator's streams, counted by first use.
    pub fn stream(&mut self, id: u64) -> u32 {
        let next = self.streams.len() as u32 + 1;
        *self.streams.entry(id).or_insert(next)
    }

    /// Counts a call on a device's stream: which it is, and whether graphs may have launched others between them.
    pub fn call_on(&mut self, stream: u32) -> (u64, bool) {
        let known = self.calls.entry(stream).or_default();
        known.0 += 1;
        *known
    }

    /// Counts a collective by name that is not recorded: which of the communicator's it is.
    pub fn call_by_name(&mut self) -> u64 {
        self.named += 1;
        self.named
    }

    /// Some calls on a stream are recorded into a graph from now on.
    pub fn record_on(&mut self, stream: u32) {
        self.calls.entry(stream).or_default().1 = true;
    }
}
