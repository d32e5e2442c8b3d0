//! What makes progress: doorbells, completions, and looking for the peer.

use super::{Lane, PATIENCE, PROBE, RdmaLink, Standing, State};
use crate::flow::{Action, Request};
use crate::verbs::{Fault, RECEIVED};
use antiphon_port::WireError;
use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// The number of the request that finds out whether the peer is there.
const LOOK: u64 = 0;

/// Requests given to a device at once.
const AT_ONCE: usize = 64;

/// Receptions are renewed when so many were used up.
const RENEW: usize = 32;

/// A polled queue may have so much that others wait; the rest is for the next time.
const ROUNDS: usize = 8;

impl RdmaLink {
    /// Gives the devices what they have room for; whether that was anything.
    pub(super) fn ring(&self, state: &mut State) -> Result<bool, WireError> {
        let mut any = false;
        for (index, lane) in self.lanes.iter().enumerate() {
            if state.standing[index] != Standing::Stands {
                continue;
            }
            loop {
                let State { flow, batch, .. } = state;
                batch.clear();
                flow.take(index, AT_ONCE, batch);
                if batch.is_empty() {
                    break;
                }
                any = true;
                // SAFETY: a write's source is registered as long as the flow keeps it, which is until the write is done;
                // when the link is dropped its queues go first.
                let posted = unsafe { lane.sends.post(batch, self.settings().signal) };
                posted.map_err(|e| self.fail(|| e.to_string()))?;
            }
        }
        Ok(any)
    }

    /// Takes what ended; whether that was anything.
    pub(super) fn serve(&self, state: &mut State) -> Result<bool, WireError> {
        let mut any = false;
        for (index, lane) in self.lanes.iter().enumerate() {
            for _ in 0..ROUNDS {
                if self.take(state, index, lane)? == 0 {
                    break;
                }
                any = true;
            }
        }
        Ok(any)
    }

    fn take(&self, state: &mut State, index: usize, lane: &Lane) -> Result<usize, WireError> {
        let mut fault = None;
        let mut look = None;
        let count = lane.completions.poll(|done| match (done.number, done.fault) {
            (LOOK, Some(why)) if why.unanswered => look = Some(Err(why)),
            (_, Some(why)) => {
                // The first says why; others are given up because of it.
                if fault.as_ref().is_none_or(|known: &Fault| known.flushed && !why.flushed) {
                    fault = Some(why);
                }
            }
            (LOOK, None) => look = Some(Ok(())),
            (RECEIVED, None) => state.owed[index] += 1,
            (sequence, None) => state.flow.settle(index, sequence),
        });
        let count = count.map_err(|e| self.fail(|| e.to_string()))?;
        if let Some(fault) = fault {
            return Err(self.fault(lane, &fault.text));
        }
        match (look, state.standing[index]) {
            (Some(Ok(())), _) => self.stand(state, index)?,
            (Some(Err(why)), Standing::Looks(_)) if Instant::now() >= state.patience => {
                let text = format!("no answer within {PATIENCE:?}: {}", why.text);
                return Err(self.fault(lane, &text));
            }
            (Some(Err(_)), Standing::Looks(times)) => self.look(state, index, times + 1)?,
            _ => {}
        }
        if state.owed[index] >= RENEW {
            let owed = std::mem::take(&mut state.owed[index]);
            lane.receives.expect(owed).map_err(|e| self.fail(|| e.to_string()))?;
        }
        Ok(count)
    }

    /// Ends the link because of what went wrong on a lane.
    fn fault(&self, lane: &Lane, text: &str) -> WireError {
        self.end.nics.iter().for_each(|nic| nic.watch());
        let (own, to) = (lane.sends.number(), lane.path.queue);
        let nic = &self.end.nics[lane.nic];
        let port = nic.inactive().map_or(String::new(), |inactive| format!("; {inactive}"));
        let name = nic.name();
        self.fail(|| format!("{name}, queue {own} to {to}: {text}{port}"))
    }

    /// Sends an empty request to find out whether the peer's half is there.
    pub(super) fn look(
        &self,
        state: &mut State,
        index: usize,
        times: u32,
    ) -> Result<(), WireError> {
        let lane = &self.lanes[index];
        state.standing[index] = Standing::Looks(times);
        // From 4 ms on, doubled after every fourth time up to 67 ms.
        let timeout = 10 + (times / 4).min(4) as u8;
        let request = Request { sequence: LOOK, action: Action::Nudge, told: true };
        let sent = self.start(lane, lane.first, timeout, 1).and_then(|()| {
            // SAFETY: the request reads nothing.
            unsafe { lane.sends.post(&[request], self.settings().signal) }
        });
        sent.map_err(|e| self.fail(|| e.to_string()))
    }

    /// The peer's half is there: from now on requests are sent, after the packet that found it.
    fn stand(&self, state: &mut State, index: usize) -> Result<(), WireError> {
        let lane = &self.lanes[index];
        let (timeout, retries) = (self.settings().timeout, self.settings().retries);
        let next = (lane.first + 1) & 0xff_ffff;
        self.start(lane, next, timeout, retries).map_err(|e| self.fail(|| e.to_string()))?;
        state.standing[index] = Standing::Stands;
        Ok(())
    }

    fn start(&self, lane: &Lane, first: u32, timeout: u8, retries: u8) -> Result<(), WireError> {
        lane.sends.start()?;
        lane.sends.receive_from(&lane.path, self.settings())?;
        lane.sends.send_from(first, timeout, retries)
    }

    /// Once in a while, sends something to see whether the peer still answers.
    pub(super) fn look_for_peer(&self, state: &mut State) -> Result<(), WireError> {
        let now = Instant::now();
        if now < state.probe {
            return Ok(());
        }
        state.probe = now + PROBE;
        // Only a hint to who sleeps.
        let _ = set(&self.timer);
        self.end.nics.iter().for_each(|nic| nic.watch());
        self.alive()?;
        state.flow.probe();
        self.ring(state).map(drop)
    }
}

/// Lets the timer tell after [`PROBE`], and not before.
pub(super) fn set(timer: &OwnedFd) -> io::Result<()> {
    let nothing = Timespec { tv_sec: 0, tv_nsec: 0 };
    let after = Timespec { tv_sec: PROBE.as_secs() as i64, tv_nsec: 0 };
    let spec = Itimerspec { it_interval: nothing, it_value: after };
    timerfd_settime(timer, TimerfdTimerFlags::empty(), &spec)?;
    Ok(())
}
