//! Calls that some ranks make by code and others by something that never meets code: a rank that takes code tells all others
//! which call that is.

use super::{CONTROL, Shared};
use crate::error::ExecutorError;
use crate::sync::lock;
use crate::tags::{RECORDED_BY_CODE, UNEVEN_BY_CODE};
use antiphon_bootstrap::Message;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, MutexGuard};

/// Calls of a communicator that all ranks make in the same order, and that are counted by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallSeries {
    /// Calls over nodes whose blocks have lengths of their own. Transfers between pairs of ranks make such a call, or code does.
    Uneven,
    /// Calls by name that are recorded into graphs. Either a plan makes such a call, and is a node of its rank's graph, or code
    /// does, whose ranks meet on the host while they record.
    Recorded,
}

impl CallSeries {
    const ALL: [CallSeries; 2] = [CallSeries::Uneven, CallSeries::Recorded];

    /// The tag of the message by which a rank says that it makes a call of the series by code.
    const fn tag(self) -> u32 {
        match self {
            CallSeries::Uneven => UNEVEN_BY_CODE,
            CallSeries::Recorded => RECORDED_BY_CODE,
        }
    }

    /// The series that a message is about, if it is about one.
    pub(super) fn of_tag(tag: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|series| series.tag() == tag)
    }

    /// What makes a call that code does not.
    pub(crate) fn otherwise(self) -> &'static str {
        match self {
            CallSeries::Uneven => "transfers",
            CallSeries::Recorded => "a plan",
        }
    }
}

impl fmt::Display for CallSeries {
    /// The words that follow "those" in a message.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CallSeries::Uneven => "over nodes with blocks of lengths of their own",
            CallSeries::Recorded => "by name that are recorded into graphs",
        })
    }
}

/// Which of these calls code makes, on this rank and on others.
#[derive(Debug)]
pub(crate) struct CodedCalls {
    rank: u32,
    world: u32,
    /// By series.
    states: [Mutex<State>; CallSeries::ALL.len()],
}

#[derive(Debug, Default)]
struct State {
    /// How many this rank has made.
    made: u64,
    /// The calls that it made by code, without those that no other rank will still tell of.
    by_code: VecDeque<u64>,
    /// What ranks have told of calls that this rank has not come to: the call, the rank, and its code there.
    told: BTreeMap<(u64, u32), String>,
    /// The last call that each rank has told of: all that it tells of later are later calls.
    last: BTreeMap<u32, u64>,
}

/// The most calls that ranks may tell of before this rank comes to them: a group tells of all its calls at once.
const MOST_TOLD: usize = 1 << 16;

impl State {
    /// Counts this rank's next call; returns its number, and what other ranks have told of it.
    fn come(&mut self) -> (u64, BTreeMap<(u64, u32), String>) {
        self.made += 1;
        let later = self.told.split_off(&(self.made + 1, 0));
        (self.made, std::mem::replace(&mut self.told, later))
    }
}

impl CodedCalls {
    pub(super) fn new(rank: u32, world: u32) -> Self {
        CodedCalls { rank, world, states: Default::default() }
    }

    /// Counts a call that code does not make.
    ///
    /// # Errors
    /// [`Diverged`](ExecutorError::Diverged) if another rank has told that code makes it there.
    fn otherwise(&self, series: CallSeries) -> Result<(), ExecutorError> {
        let (made, told) = self.state(series).come();
        match told.into_iter().next() {
            Some(((_, peer), code)) => Err(self.diverged(series, made, peer, &code)),
            None => Ok(()),
        }
    }

    /// Counts a call that code makes; returns which it is.
    fn by_code(&self, series: CallSeries) -> u64 {
        let mut state = self.state(series);
        let (made, _) = state.come();
        state.by_code.push_back(made);
        made
    }

    /// Takes a peer's message that code makes a call there. Returns an error if this rank has made that call by something else.
    ///
    /// # Errors
    /// What is wrong with the message.
    pub(super) fn hear(
        &self,
        series: CallSeries,
        peer: u32,
        payload: &[u8],
    ) -> Result<Option<ExecutorError>, String> {
        let (number, code) = decode(payload)?;
        let mut state = self.state(series);
        let mut error = None;
        if number > state.made {
            if state.told.len() >= MOST_TOLD {
                return Err(format!("call {number}, where this rank has made {}", state.made));
            }
            state.told.insert((number, peer), code);
        } else if !state.by_code.contains(&number) {
            error = Some(self.diverged(series, number, peer, &code));
        }
        state.last.insert(peer, number);
        if state.last.len() + 1 == self.world as usize {
            let past = state.last.values().min().copied();
            while state.by_code.front().copied() <= past && state.by_code.pop_front().is_some() {}
        }
        Ok(error)
    }

    fn state(&self, series: CallSeries) -> MutexGuard<'_, State> {
        lock(&self.states[series as usize])
    }

    fn diverged(&self, series: CallSeries, number: u64, peer: u32, code: &str) -> ExecutorError {
        ExecutorError::Diverged { series, rank: self.rank, number, peer, code: code.to_owned() }
    }
}

fn encode(number: u64, code: &str) -> Vec<u8> {
    [&number.to_le_bytes(), code.as_bytes()].concat()
}

fn decode(payload: &[u8]) -> Result<(u64, String), String> {
    let (number, code) =
        payload.split_first_chunk().ok_or_else(|| format!("{} bytes", payload.len()))?;
    let code = str::from_utf8(code).map_err(|error| error.to_string())?;
    match u64::from_le_bytes(*number) {
        0 => Err("call 0, allowed from 1".to_owned()),
        number => Ok((number, code.to_owned())),
    }
}

impl Shared {
    /// Counts a call that code does not make. If another rank makes it by code, this breaks the communicator, which ends the call.
    pub(crate) fn count_otherwise(&self, series: CallSeries) {
        if let Err(error) = self.coded.otherwise(series) {
            self.fail(error);
        }
    }

    /// Counts a call that code of this name makes, and tells the others, who break the communicator if code does not make it there.
    /// Does not wait.
    pub(crate) fn count_by_code(&self, series: CallSeries, code: &str) {
        let payload = encode(self.coded.by_code(series), code);
        for peer in (0..self.world).filter(|&peer| peer != self.rank) {
            let (tag, payload) = (series.tag(), payload.clone());
            let message = Message { channel: CONTROL, tag, payload, descriptors: Vec::new() };
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

    /// What a rank of three does or hears, and whether that shows a difference.
    #[derive(Clone, Copy, Debug)]
    enum Event {
        Transfers,
        Code,
        /// From this peer, about this call.
        Heard(u32, u64),
    }
    use CallSeries::{Recorded, Uneven};
    use Event::{Code, Heard, Transfers};

    /// Which of the events show that ranks differ.
    fn check(events: &[Event], expected: &[usize]) -> CodedCalls {
        let calls = CodedCalls::new(0, 3);
        let differs = |event: &Event| match *event {
            Transfers => calls.otherwise(Uneven).is_err(),
            Code => calls.by_code(Uneven) == 0,
            Heard(peer, number) => {
                calls.hear(Uneven, peer, &encode(number, "mine 1")).unwrap().is_some()
            }
        };
        let found = events.iter().enumerate().filter(|(_, event)| differs(event));
        let found: Vec<_> = found.map(|(at, _)| at).collect();
        assert_eq!(found, expected, "{events:?}");
        calls
    }

    #[test]
    fn a_call_by_code_here_and_by_transfers_there_is_found_in_whichever_order_they_come() {
        check(&[], &[]);
        check(&[Transfers, Transfers, Heard(1, 3), Heard(2, 3), Code], &[]);
        check(&[Code, Heard(1, 1), Heard(2, 1), Transfers, Heard(1, 3), Code, Heard(2, 3)], &[]);
        // Before this rank comes to it, and after.
        check(&[Heard(1, 1), Transfers], &[1]);
        check(&[Heard(2, 2), Transfers, Transfers], &[2]);
        check(&[Transfers, Heard(2, 1)], &[1]);
        check(&[Transfers, Code, Heard(1, 2), Heard(2, 1)], &[3]);
        check(&[Code, Heard(1, 2), Heard(2, 1), Transfers], &[3]);
        // All of a group is told of before any of it is made.
        check(&[Heard(1, 1), Heard(1, 2), Transfers, Code], &[2]);
        check(&[Heard(1, 1), Heard(1, 2), Heard(2, 1), Heard(2, 2), Code, Code], &[]);
        // Meanwhile this rank meets others in a call that is the next one for it.
        check(&[Transfers, Code, Heard(1, 1)], &[2]);
    }

    #[test]
    fn what_all_have_told_of_is_forgotten() {
        let calls: Vec<_> = (1..100).flat_map(|n| [Code, Heard(1, n), Heard(2, n)]).collect();
        assert!(check(&calls, &[]).state(Uneven).by_code.is_empty());
        let calls = [Code, Heard(1, 1), Code, Heard(1, 2), Heard(2, 1)];
        assert_eq!(check(&calls, &[]).state(Uneven).by_code, [2]);
    }

    #[test]
    fn messages_that_are_none_are_told_of() {
        let calls = CodedCalls::new(0, 2);
        let not_text = [1, 0, 0, 0, 0, 0, 0, 0, 0xff];
        for wrong in [&[][..], &[1; 7], &[0; 9], &not_text] {
            assert!(calls.hear(Uneven, 1, wrong).is_err(), "{wrong:?}");
        }
        assert!(calls.hear(Uneven, 1, &encode(1, "mine 1")).unwrap().is_none());
    }

    #[test]
    fn each_series_is_counted_by_itself() {
        let calls = CodedCalls::new(0, 2);
        assert_eq!([Uneven, Recorded].map(|series| calls.by_code(series)), [1, 1]);
        calls.otherwise(Recorded).unwrap();
        assert!(calls.hear(Uneven, 1, &encode(2, "mine 1")).unwrap().is_none(), "it comes yet");
        let error = calls.hear(Recorded, 1, &encode(2, "mine 1")).unwrap().unwrap().to_string();
        let expected = "call 2 of those by name that are recorded into graphs differs between ranks: rank 0 makes it by a \
                        plan, rank 1 by code mine 1;";
        assert!(error.starts_with(expected), "{error}");
        for series in CallSeries::ALL {
            assert_eq!(CallSeries::of_tag(series.tag()), Some(series));
        }
    }
}
