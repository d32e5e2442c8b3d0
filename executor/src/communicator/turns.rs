//! Streams of a communicator: which ones a rank takes, and the numbers by which all ranks know streams and the calls on them.

use super::{Log, Shared};
use crate::error::ExecutorError;
use antiphon_hal::{Backend, Stream};

/// Where launches of a rank on a device follow each other: those of one lane share contexts, and all ranks make them in one order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// A stream, by its number in this process.
    Stream(u64),
    /// All streams of a communicator with [one lane](crate::communicator::Options::one_lane).
    Called,
    /// The same for launches that are recorded into graphs, since the application replays them whenever it likes.
    Recorded,
}

impl Shared {
    /// The lane of a launch on a stream, which may be recorded.
    pub fn lane(&self, stream: u64, recorded: bool) -> Lane {
        match (self.options.one_lane, recorded) {
            (false, _) => Lane::Stream(stream),
            (true, false) => Lane::Called,
            (true, true) => Lane::Recorded,
        }
    }

    /// Checks that launches of this rank can be put into a stream.
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

    /// The number of a lane, the same on all ranks. A communicator has lanes of streams, or one for all of them.
    pub fn lane(&mut self, lane: Lane) -> u32 {
        match lane {
            Lane::Stream(id) => self.stream(id),
            Lane::Called => 1,
            Lane::Recorded => 2,
        }
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
