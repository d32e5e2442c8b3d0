//! One lane for the launches of a rank on all streams, as in NCCL's interface: each begins behind the one before it. So ranks
//! choose their streams for themselves, and no two of a rank's kernels wait for peers side by side.
//!
//! There is an event behind each call, and a call on a stream other than the last call's has its stream wait for that event. The
//! last call's stream itself is not asked for anything: the application may have destroyed it.
//!
//! Launches recorded into a graph have a lane of their own, which begins anew with each recording: a recording waits for nothing
//! outside of it. A stream of the rank's own, the *witness*, tells whether the last recording still goes on: the first call in a
//! recording draws it in, and it comes out when the recording ends. Calls go into one recording at a time, as with events of the
//! application's: the driver refuses calls that would join two.

use super::Gpu;
use super::compiled::{Compiled, KernelKind};
use super::submission::LaunchTarget;
use crate::communicator::Shared;
use crate::error::ExecutorError;
use crate::sync::lock;
use antiphon_hal::{Backend, Device, Event, Stream};
use std::sync::{Arc, Mutex, MutexGuard};

/// The lane of a rank. The thread that holds the lock has the turn to put a call into it.
#[derive(Debug, Default)]
pub struct OneLane(Mutex<Ends>);

/// Where the lane ends.
#[derive(Debug, Default)]
struct Ends {
    called: Option<End>,
    /// The last call in the recording that the witness is in.
    recorded: Option<End>,
    witness: Option<Arc<dyn Stream>>,
}

/// The last call.
#[derive(Debug)]
struct End {
    stream: u64,
    behind: Arc<dyn Event>,
}

/// The right to put calls into the lane, which one thread has at a time.
pub struct LaneTurn<'a> {
    device: &'a dyn Device,
    ends: MutexGuard<'a, Ends>,
}

impl Gpu {
    /// Waits for the turn to put a call into the lane; `None` if streams are independent of each other. It is taken after the
    /// turns of contexts, and the lanes of several ranks are taken in the order of the ranks.
    pub fn lane_turn(&self) -> Option<LaneTurn<'_>> {
        let OneLane(ends) = self.lane.as_ref()?;
        let ends = lock(ends);
        Some(LaneTurn { device: &*self.device, ends })
    }

    /// The kernel that another context of a plan has, if streams share a lane: a launch that is recorded into a graph must not
    /// load again what was loaded for a call.
    pub fn kernel_elsewhere(&self, plan: u64, kind: KernelKind) -> Option<Arc<Compiled>> {
        self.lane.as_ref()?;
        let known = self.known();
        let of_plan = known.iter().filter(|(key, _)| key.plan == plan);
        of_plan.map(|(_, context)| context).find_map(|context| context.known_kernel(kind))
    }

    /// Has code put its work into a stream, as one call of the lane.
    pub fn in_lane(
        &self,
        shared: &Shared,
        stream: &dyn Stream,
        work: impl FnOnce() -> Result<(), ExecutorError>,
    ) -> Result<(), ExecutorError> {
        // The turn is not held while the code runs, since what it launches takes turns of its own.
        let enters = || match self.lane_turn() {
            Some(mut lane) => lane.enter(LaunchTarget::of(stream)?),
            None => Ok(()),
        };
        let leaves = || match self.lane_turn() {
            Some(mut lane) => {
                let target = LaunchTarget::of(stream)?;
                // Behind what it has launched on streams of its own.
                lane.enter(target)?;
                lane.leave(shared, target, None)
            }
            None => Ok(()),
        };
        enters().map_err(|error| shared.lacking(error))?;
        work()?;
        // Peers count on what the code has done.
        leaves().inspect_err(|error| shared.fail(error.clone()))
    }
}

impl LaneTurn<'_> {
    /// Has a stream wait for the lane's last call.
    pub fn enter(&mut self, target: LaunchTarget<'_>) -> Result<(), ExecutorError> {
        let LaunchTarget { stream, recorded } = target;
        if recorded && !self.goes_on()? {
            self.ends.recorded = None;
        }
        let end = if recorded { &self.ends.recorded } else { &self.ends.called };
        match end {
            Some(end) if !self.is_behind(stream, end) => Ok(stream.wait(&*end.behind)?),
            _ => Ok(()),
        }
    }

    /// Notes the call that was put into a stream, and the event `behind` it, which stands for this call until the lane's next;
    /// makes an event if there is none that does.
    ///
    /// # Errors
    /// What the driver says. It breaks the communicator, whose peers count on the call. In a recording it does not: the recording
    /// is void then, and nobody counts on it.
    pub fn leave(
        &mut self,
        shared: &Shared,
        target: LaunchTarget<'_>,
        behind: Option<Arc<dyn Event>>,
    ) -> Result<(), ExecutorError> {
        let left = self.put_end(target, behind);
        left.inspect_err(|error| {
            if !target.recorded {
                shared.fail(error.clone());
            }
        })
    }

    fn put_end(
        &mut self,
        target: LaunchTarget<'_>,
        behind: Option<Arc<dyn Event>>,
    ) -> Result<(), ExecutorError> {
        let LaunchTarget { stream, recorded } = target;
        let behind = match behind {
            Some(behind) => behind,
            None => {
                let made = self.device.event()?;
                stream.record(&*made)?;
                made
            }
        };
        if recorded && self.ends.recorded.is_none() {
            self.bear_witness(stream, &*behind)?;
        }
        let end = Some(End { stream: stream.id(), behind });
        *(if recorded { &mut self.ends.recorded } else { &mut self.ends.called }) = end;
        Ok(())
    }

    /// Whether work that is put into a stream comes behind a call by itself, without waiting for the call's event.
    fn is_behind(&self, stream: &dyn Stream, end: &End) -> bool {
        // HIP's driver does not number streams: one that is new may have the handle of one that is gone.
        stream.id() == end.stream && stream.backend() != Backend::Rocm
    }

    /// Whether the recording of the last call that was recorded goes on.
    fn goes_on(&self) -> Result<bool, ExecutorError> {
        Ok(self.ends.witness.as_ref().map_or(Ok(false), |witness| witness.is_capturing())?)
    }

    /// Draws the witness into the recording that a stream is in, and joins it back at once: it adds no work.
    fn bear_witness(
        &mut self,
        stream: &dyn Stream,
        behind: &dyn Event,
    ) -> Result<(), ExecutorError> {
        let witness = match &self.ends.witness {
            Some(witness) => witness,
            None => self.ends.witness.insert(self.device.stream()?),
        };
        witness.wait(behind)?;
        // So the witness has joined back, whatever the application does with the streams of the recording.
        witness.record(behind)?;
        Ok(stream.wait(behind)?)
    }
}
