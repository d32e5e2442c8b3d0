//! Calls that code serves on some ranks may be what never meets it on others: over nodes transfers between pairs of ranks, in a graph
//! a launch that is recorded. So whoever takes code tells all others which of such calls that is, and they compare.

use super::{CONTROL, Shared};
use crate::error::ExecutorError;
use antiphon_bootstrap::Message;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Message tag: the sender makes such a call by code. The payload is which calls it is one of, in a byte, its number among them, in 8,
/// and what it is, in words.
pub(super) const BY_CODE: u32 = 49;

/// Calls that all ranks make in one order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fork {
    /// Over nodes, those whose blocks have lengths of their own: by code, or by transfers.
    Uneven,
    /// On devices, those by name that are recorded into graphs: by code, or by a launch.
    Recorded,
}

impl Fork {
    const ALL: [Fork; 2] = [Fork::Uneven, Fork::Recorded];

    /// What errors call these calls, and what one is made by without code.
    fn told(self) -> (&'static str, &'static str) {
        match self {
            Fork::Uneven => ("over nodes with blocks of lengths of their own", "transfers"),
            Fork::Recorded => ("by name that graphs record", "a plan"),
        }
    }
}

/// Which of the calls code makes, on this rank and on others.
#[derive(Debug)]
pub(crate) struct Forks {
    rank: u32,
    world: u32,
    states: [Mutex<State>; 2],
}

#[derive(Debug, Default)]
struct State {
    /// How many this rank has made.
    made: u64,
    /// Those that it made by code, but for such as no other will tell of any more.
    by_code: VecDeque<u64>,
    /// The last call that each rank has told of, and what it is there. All that it tells of later are later calls.
    told: BTreeMap<u32, (u64, String)>,
}

impl Forks {
    pub(super) fn new(rank: u32, world: u32) -> Self {
        Forks { rank, world, states: Default::default() }
    }

    /// Counts a call that is made without code.
    ///
    /// # Errors
    /// [`Diverged`](ExecutorError::Diverged) if another rank has told that code makes it there.
    fn without_code(&self, fork: Fork) -> Result<(), ExecutorError> {
        let mut state = self.state(fork);
        state.made += 1;
        let made = state.made;
        match state.told.iter().find(|(_, (number, _))| *number == made) {
            Some((&peer, (_, theirs))) => Err(self.diverged(fork, made, (peer, theirs))),
            None => Ok(()),
        }
    }

    /// Counts a call that code makes; returns which it is.
    fn by_code(&self, fork: Fork) -> u64 {
        let mut state = self.state(fork);
        state.made += 1;
        let made = state.made;
        state.by_code.push_back(made);
        made
    }

    /// Hears of a call that code makes on a peer. Returns how it differs from what this rank has made it by.
    ///
    /// # Errors
    /// What is wrong with the message.
    pub(super) fn hear(&self, peer: u32, payload: &[u8]) -> Result<Option<ExecutorError>, String> {
        let (fork, number, theirs) = decode(payload)?;
        let mut state = self.state(fork);
        let differs = number <= state.made && !state.by_code.contains(&number);
        let error = differs.then(|| self.diverged(fork, number, (peer, &theirs)));
        state.told.insert(peer, (number, theirs));
        if state.told.len() + 1 == self.world as usize {
            let past = state.told.values().map(|(number, _)| *number).min();
            while state.by_code.front().copied() <= past && state.by_code.pop_front().is_some() {}
        }
        Ok(error)
    }

    fn diverged(&self, fork: Fork, number: u64, (peer, theirs): (u32, &str)) -> ExecutorError {
        let (calls, own) = fork.told();
        let theirs = theirs.to_owned();
        ExecutorError::Diverged { rank: self.rank, calls, number, own, peer, theirs }
    }

    fn state(&self, fork: Fork) -> MutexGuard<'_, State> {
        self.states[fork as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn encode(fork: Fork, number: u64, what: &str) -> Vec<u8> {
    [&[fork as u8], &number.to_le_bytes()[..], what.as_bytes()].concat()
}

fn decode(payload: &[u8]) -> Result<(Fork, u64, String), String> {
    let short = || format!("{} bytes", payload.len());
    let (fork, rest) = payload.split_first().ok_or_else(short)?;
    let (number, what) = rest.split_first_chunk().ok_or_else(short)?;
    let fork = Fork::ALL.get(usize::from(*fork)).ok_or_else(|| format!("calls of kind {fork}"))?;
    let what = str::from_utf8(what).map_err(|error| error.to_string())?;
    match u64::from_le_bytes(*number) {
        0 => Err("call 0, allowed from 1".to_owned()),
        number => Ok((*fork, number, what.to_owned())),
    }
}

impl Shared {
    /// Counts a call that is made without code. Where another rank makes it by code, this breaks the communicator, by which the call
    /// ends. The caller holds nothing that a failure waits for.
    pub fn forks_without_code(&self, fork: Fork) {
        if let Err(error) = self.forks.without_code(fork) {
            self.fail(error);
        }
    }

    /// Counts a call that code makes, which errors name so, and tells the others, who break the communicator if it is made without
    /// there. Does not wait.
    pub fn forks_by_code(&self, fork: Fork, what: &str) {
        let payload = encode(fork, self.forks.by_code(fork), what);
        for peer in (0..self.world).filter(|&peer| peer != self.rank) {
            let payload = payload.clone();
            let message =
                Message { channel: CONTROL, tag: BY_CODE, payload, descriptors: Vec::new() };
            if let Err(error) = self.bootstrap.send(peer, message) {
                // It is lost or has left, which shows where it is waited for.
                log::debug!("rank {peer} is not told of a call by code: {error}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a rank of three does or hears.
    #[derive(Clone, Copy, Debug)]
    enum Event {
        Without,
        Code,
        /// From this peer, about this call.
        Heard(u32, u64),
    }
    use Event::{Code, Heard, Without};

    fn message(fork: Fork, number: u64) -> Vec<u8> {
        encode(fork, number, "code mine 1")
    }

    /// Which of the events show that ranks differ.
    fn check(events: &[Event], expected: &[usize]) -> Forks {
        let calls = Forks::new(0, 3);
        let differs = |event: &Event| match *event {
            Without => calls.without_code(Fork::Uneven).is_err(),
            Code => calls.by_code(Fork::Uneven) == 0,
            Heard(peer, number) => {
                calls.hear(peer, &message(Fork::Uneven, number)).unwrap().is_some()
            }
        };
        let found = events.iter().enumerate().filter(|(_, event)| differs(event));
        let found: Vec<_> = found.map(|(at, _)| at).collect();
        assert_eq!(found, expected, "{events:?}");
        calls
    }

    #[test]
    fn a_call_by_code_here_and_without_there_is_found_in_whichever_order_they_come() {
        check(&[], &[]);
        check(&[Without, Without, Heard(1, 3), Heard(2, 3), Code], &[]);
        check(&[Code, Heard(1, 1), Heard(2, 1), Without, Heard(1, 3), Code, Heard(2, 3)], &[]);
        // Before this rank comes to it, and after.
        check(&[Heard(1, 1), Without], &[1]);
        check(&[Heard(2, 2), Without, Without], &[2]);
        check(&[Without, Heard(2, 1)], &[1]);
        check(&[Without, Code, Heard(1, 2), Heard(2, 1)], &[3]);
        check(&[Code, Heard(1, 2), Heard(2, 1), Without], &[3]);
        // Meanwhile this rank meets others in a call that is the next one for it.
        check(&[Without, Code, Heard(1, 1)], &[2]);
    }

    #[test]
    fn what_all_have_told_of_is_forgotten() {
        let calls: Vec<_> = (1..100).flat_map(|n| [Code, Heard(1, n), Heard(2, n)]).collect();
        assert!(check(&calls, &[]).state(Fork::Uneven).by_code.is_empty());
        let calls = [Code, Heard(1, 1), Code, Heard(1, 2), Heard(2, 1)];
        assert_eq!(check(&calls, &[]).state(Fork::Uneven).by_code, [2]);
    }

    #[test]
    fn messages_that_are_none_are_told_of() {
        let calls = Forks::new(0, 2);
        let not_text = [0, 1, 0, 0, 0, 0, 0, 0, 0, 0xff];
        for wrong in [&[][..], &[1; 8], &[0; 9], &[2; 9], &not_text] {
            assert!(calls.hear(1, wrong).is_err(), "{wrong:?}");
        }
        // Each kind of calls is counted by itself.
        calls.without_code(Fork::Uneven).unwrap();
        assert!(calls.hear(1, &message(Fork::Recorded, 1)).unwrap().is_none());
        assert!(calls.hear(1, &message(Fork::Uneven, 1)).unwrap().is_some());
        let error = calls.without_code(Fork::Recorded).unwrap_err().to_string();
        assert!(error.contains("rank 0 makes it by a plan, rank 1 by code mine 1"), "{error}");
    }
}
