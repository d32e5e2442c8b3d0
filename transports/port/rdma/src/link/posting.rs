//! Posts become requests.

use super::{Lane, RdmaLink, Remote, State};
use crate::NAME;
use crate::flow::Action;
use crate::verbs::Region;
use crate::wire::invalid;
use antiphon_hal::Backend;
use antiphon_port::wire::{check_counter, check_region, unknown_region};
use antiphon_port::{Posted, WireError, Write};

/// Writes of so many bytes and more are spread over all lanes.
const SPREAD: u64 = 256 << 10;

/// Writes of so many bytes and more are not held back to share a doorbell with what follows.
const AT_ONCE: u64 = 16 << 10;

/// So many requests share a doorbell at most.
const SHARED: usize = 16;

/// Parts begin at multiples of this, which keeps units of packets whole.
const GRAIN: u64 = 4096;

impl RdmaLink {
    pub(super) fn post_write(&self, write: &Write<'_>) -> Result<Posted, WireError> {
        self.alive()?;
        let source = self.source(write)?;
        let mut state = self.state();
        self.alive()?;
        let remote = self.remote(&state, "write", write.region, (write.to, write.bytes))?;
        let start = source.memory.address().addr() as u64;
        write.check_units(NAME, [start, remote.start])?;
        let keys = remote.keys.clone();
        let (from, to) = (start + write.from, remote.start + write.to);
        if !self.room(&mut state)? {
            return Ok(Posted::Full);
        }
        let near = source.memory.backend() == Backend::Host;
        let home = state.flow.home();
        let parts =
            parts(&self.lanes, home, write.bytes, |lane| self.end.nics[lane.nic].most_bytes.into());
        let parts: Vec<_> = parts
            .map(|(lane, at, bytes)| {
                let Lane { nic, peer_nic, .. } = self.lanes[lane];
                let action = Action::Write {
                    from: from + at,
                    near,
                    local_key: source.local_key(nic),
                    bytes,
                    to: to + at,
                    remote_key: keys[peer_nic],
                };
                (lane, action)
            })
            .collect();
        state.flow.write(parts, source);
        let many = (0..self.lanes.len()).any(|lane| state.flow.pending(lane) >= SHARED);
        if wakes(&mut state) || many || write.bytes >= AT_ONCE {
            self.ring(&mut state)?;
        }
        Ok(Posted::Queued)
    }

    pub(super) fn post_signal(
        &self,
        region: u64,
        to: u64,
        value: u64,
    ) -> Result<Posted, WireError> {
        let mut state = self.state();
        self.alive()?;
        let remote = self.remote(&state, "signal", region, (to, 8))?;
        check_counter(NAME, remote.start, to)?;
        let place = remote.start + to;
        let remote_key = remote.keys[self.lanes[state.flow.home()].peer_nic];
        if !self.room(&mut state)? {
            return Ok(Posted::Full);
        }
        state.flow.signal(Action::Signal { value, to: place, remote_key });
        wakes(&mut state);
        self.ring(&mut state)?;
        Ok(Posted::Queued)
    }

    /// The registration of a write's source, which the range lies inside.
    fn source(&self, write: &Write<'_>) -> Result<std::sync::Arc<Region>, WireError> {
        write.check_source(NAME)?;
        self.end.region(write.source.id()).ok_or_else(|| {
            let saw = format!("memory {} as source", write.source.id());
            invalid("write", saw, "memory registered with this end".to_owned())
        })
    }

    /// A region of the peer's, inside which a range lies.
    fn remote<'a>(
        &self,
        state: &'a State,
        operation: &'static str,
        region: u64,
        range: (u64, u64),
    ) -> Result<&'a Remote, WireError> {
        let remote = state.regions.get(&region);
        let remote = remote.ok_or_else(|| unknown_region(NAME, operation, self.peer, region))?;
        check_region(NAME, operation, region, range, remote.bytes)?;
        Ok(remote)
    }

    /// Whether there is room for a post, after looking for some.
    fn room(&self, state: &mut State) -> Result<bool, WireError> {
        if state.flow.full() {
            self.ring(state)?;
            self.serve(state)?;
            self.ring(state)?;
        }
        Ok(!state.flow.full())
    }
}

/// Whether a post finds somebody asleep on the descriptor, who must be woken: by the completion that is asked for here,
/// once the doorbell was rung. Nobody else may ring it: who sleeps was told that there is nothing to do.
fn wakes(state: &mut State) -> bool {
    let armed = std::mem::take(&mut state.armed);
    if armed {
        state.flow.want();
    }
    armed
}

/// A write's parts: lane, offset, bytes. No request has more than its port takes.
fn parts<T>(
    lanes: &[T],
    home: usize,
    bytes: u64,
    most: impl Fn(&T) -> u64,
) -> impl Iterator<Item = (usize, u64, u32)> {
    let spread = lanes.len() > 1 && bytes >= SPREAD;
    let (first, count) = if spread { (0, lanes.len()) } else { (home, 1) };
    let share = bytes.div_ceil(count as u64).next_multiple_of(GRAIN).max(GRAIN);
    (first..first + count).flat_map(move |lane| {
        let begin = ((lane - first) as u64 * share).min(bytes);
        let end = (begin + share).min(bytes);
        let most = most(&lanes[lane]).min(1 << 30) / GRAIN * GRAIN;
        (begin..end).step_by(most as usize).map(move |at| (lane, at, most.min(end - at) as u32))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_a_write_once() {
        for lanes in 1..=4_usize {
            for bytes in [0, 1, 8, 4096, SPREAD - 1, SPREAD, SPREAD + 7, (40 << 20) + 3] {
                let list = vec![8_u64 << 20; lanes];
                let parts: Vec<_> = parts(&list, lanes - 1, bytes, |most| *most).collect();
                let mut next = 0;
                for (lane, at, bytes) in &parts {
                    assert_eq!(*at, next, "{parts:?}");
                    assert!(*lane < lanes && *bytes > 0 && *bytes <= 8 << 20);
                    assert!(at.is_multiple_of(GRAIN));
                    next += u64::from(*bytes);
                }
                assert_eq!(next, bytes);
                let used: std::collections::HashSet<_> = parts.iter().map(|part| part.0).collect();
                let expected = if bytes >= SPREAD { lanes } else { (bytes > 0).into() };
                assert_eq!(used.len(), expected, "{bytes} bytes over {lanes} lanes");
            }
        }
    }
}
