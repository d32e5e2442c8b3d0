//! A link: the queue pairs to one peer, on every port that both use.

mod opening;
mod posting;
mod serve;

pub(crate) use opening::RdmaOpening;

use crate::NAME;
use crate::flow::{Flow, Request};
use crate::settings::RdmaSettings;
use crate::verbs::{Alarm, Completions, Path, Queue, Region};
use crate::wire::{End, invalid};
use antiphon_port::{Link, Posted, WireError, Write};
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A link on which nothing happens looks for its peer so often.
const PROBE: Duration = Duration::from_secs(2);

/// How long a peer's half may take to answer, once this half knows its address.
const PATIENCE: Duration = Duration::from_secs(10);

/// How many signals a peer may send before this side looks; more wait in the peer's card.
const RECEIVES: usize = 256;

#[derive(Debug)]
pub(crate) struct RdmaLink {
    peer: u32,
    // Before the state: queues stop before the registrations of what they read end.
    lanes: Vec<Lane>,
    state: Mutex<State>,
    alarm: Arc<Alarm>,
    /// Tells of all lanes, of the alarm, of the devices, and of the time to look for the peer.
    poll: OwnedFd,
    timer: OwnedFd,
    end: Arc<End>,
}

#[derive(Debug)]
struct Lane {
    sends: Queue,
    receives: Queue,
    completions: Arc<Completions>,
    /// Position of the port among this end's.
    nic: usize,
    /// Position of the peer's port among the peer's.
    peer_nic: usize,
    /// Where the peer receives.
    path: Path,
    /// The number of the first packet.
    first: u32,
}

#[derive(Debug)]
struct State {
    flow: Flow<Arc<Region>>,
    standing: Vec<Standing>,
    /// Receptions that were used up, per lane.
    owed: Vec<usize>,
    regions: HashMap<u64, Remote>,
    batch: Vec<Request>,
    /// Somebody may sleep on the descriptor, and nothing was posted since.
    armed: bool,
    probe: Instant,
    /// Until when a peer's half that does not answer is looked for.
    patience: Instant,
}

/// Whether the peer's half is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// The peer is being looked for, for the so-many-th time.
    Looks(u32),
    /// It is.
    Stands,
}

/// A region of the peer's.
#[derive(Debug)]
struct Remote {
    start: u64,
    bytes: u64,
    keys: Vec<u32>,
}

impl RdmaLink {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing of a caller's runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settings(&self) -> &RdmaSettings {
        &self.end.settings
    }

    /// Fails once the link is lost.
    fn alive(&self) -> Result<(), WireError> {
        match self.alarm.reason() {
            None => Ok(()),
            Some(reason) => Err(self.lost(reason)),
        }
    }

    fn lost(&self, reason: &str) -> WireError {
        WireError::Lost { wire: NAME.to_owned(), peer: self.peer, reason: reason.to_owned() }
    }

    /// Ends the link: what went wrong becomes the reason, unless there is one.
    fn fail(&self, why: impl FnOnce() -> String) -> WireError {
        self.alarm.ring(why);
        self.lost(self.alarm.reason().unwrap_or("it failed"))
    }
}

impl Link for RdmaLink {
    fn peer(&self) -> u32 {
        self.peer
    }

    fn accept(&self, region: u64, bytes: u64, blob: &[u8]) -> Result<(), WireError> {
        let operation = "accept a region";
        let address = crate::address::decode_region(blob, bytes)
            .map_err(|(saw, allowed)| invalid(operation, saw, allowed))?;
        if let Some(lane) = self.lanes.iter().find(|l| l.peer_nic >= address.keys.len()) {
            let saw = format!("keys for {} ports", address.keys.len());
            let allowed = format!("{} or more, which the link uses", lane.peer_nic + 1);
            return Err(invalid(operation, saw, allowed));
        }
        let remote = Remote { start: address.start, bytes, keys: address.keys };
        self.state().regions.insert(region, remote);
        Ok(())
    }

    fn retire(&self, region: u64) {
        self.state().regions.remove(&region);
    }

    fn write(&self, write: &Write<'_>) -> Result<Posted, WireError> {
        self.post_write(write)
    }

    fn signal(&self, region: u64, to: u64, value: u64) -> Result<Posted, WireError> {
        self.post_signal(region, to, value)
    }

    fn posted(&self) -> u64 {
        self.state().flow.posted()
    }

    fn completed(&self) -> Result<u64, WireError> {
        let mut state = self.state();
        self.alive()?;
        self.serve(&mut state)?;
        state.flow.want();
        self.ring(&mut state)?;
        Ok(state.flow.completed())
    }

    /// By whole writes. What comes from the peer no request tells of.
    fn carried(&self) -> u64 {
        self.state().flow.written()
    }

    fn progress(&self) -> Result<bool, WireError> {
        let mut state = self.state();
        self.alive()?;
        self.look_for_peer(&mut state)?;
        let moved = self.serve(&mut state)?;
        Ok(self.ring(&mut state)? || moved)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.poll.as_fd())
    }

    fn arm(&self) -> Result<bool, WireError> {
        let mut state = self.state();
        self.end.nics.iter().for_each(|nic| nic.watch());
        self.alive()?;
        self.look_for_peer(&mut state)?;
        // Who sleeps wants to be woken by whatever ends.
        state.flow.want();
        self.ring(&mut state)?;
        for lane in &self.lanes {
            lane.completions.quiet();
            lane.completions.ask().map_err(|e| self.fail(|| e.to_string()))?;
        }
        // What ended before the question is not told.
        let moved = self.serve(&mut state)?;
        state.armed = !(self.ring(&mut state)? || moved);
        Ok(state.armed)
    }

    fn stop(&self) {
        // Whoever gives requests to the queues, or starts them, does so under this lock, and finds the alarm rung.
        let _state = self.state();
        self.alarm.ring(|| "this rank ended it".to_owned());
        for lane in &self.lanes {
            lane.receives.stop();
            lane.sends.stop();
        }
    }

    fn describe(&self) -> String {
        let lanes: Vec<_> = self
            .lanes
            .iter()
            .map(|lane| {
                let nic = self.end.nics[lane.nic].name();
                let (own, to) = (lane.sends.number(), &lane.path);
                match lane.path.gid.is_unspecified() {
                    true => format!("{nic} queue {own} to {} at {:#x}", to.queue, to.lid),
                    false => {
                        let gid = to.gid.to_canonical();
                        format!("{nic} queue {own} to {} at {gid}", to.queue)
                    }
                }
            })
            .collect();
        format!("RDMA over {}", lanes.join(", "))
    }
}
