//! How a rank leaves in good order. Most ranks have no link to it, and hear of it from the rank that watches, which may be
//! leaving at the same moment, or have left. The next watcher takes a rank that it cannot find for dead, so a leaver waits for
//! somebody's word that the next watcher has heard its goodbye.

use std::sync::PoisonError;
use std::time::Instant;

use super::watch::encode;
use super::{LINGER, Slot, State, TcpLinks};
use crate::absent::Gone;
use crate::frame::{Frame, Kind};
use crate::sync::lock;

impl State {
    /// Who watches when this rank, `me`, has left: the lowest other one that is alive and answers.
    fn heir(&self, me: u32) -> Option<u32> {
        let lives = |rank: &u32| !self.gone.contains_key(rank) && !self.unreached.contains(rank);
        (0..self.slots.len() as u32).filter(|&rank| rank != me).find(lives)
    }

    /// The last frames for a link: who else has left, those of the aborts `last` that are for the peer, and the goodbye.
    pub(super) fn farewell(&self, last: &[Frame]) -> Vec<Frame> {
        let left = self.gone.iter().filter(|(_, how)| **how == Gone::Left);
        let left: Vec<(u32, Gone)> = left.map(|(&rank, how)| (rank, how.clone())).collect();
        let news = (!left.is_empty()).then(|| Frame::plain(Kind::News, encode(&left)));
        let bye = Frame::plain(Kind::Bye, Vec::new());
        news.into_iter().chain(last.iter().map(Frame::share)).chain([bye]).collect()
    }
}

impl TcpLinks {
    /// Lets what waits for links go first. Then says goodbye to the heir, to which a link is opened where there is none, and waits
    /// for its word; where it goes as well, to the next one. Ends when one has heard, when nobody is left, and at the deadline.
    /// Returns who was told.
    pub(super) fn take_leave(&self, last: &[Frame], deadline: Instant) -> Vec<u32> {
        let me = self.terms.rank;
        let mut told = Vec::new();
        let queued =
            |slot: &Slot| matches!(slot, Slot::Opening(opening) if !opening.queue.is_empty());
        let waits = |state: &mut State| state.slots.iter().any(queued);
        let waited = self.changed.wait_timeout_while(lock(&self.state), LINGER, waits);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.leaving = true;
        while !state.parted
            && let Some(heir) = state.heir(me)
        {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            match &state.slots[heir as usize] {
                Slot::Idle => {
                    self.open(heir, Vec::new(), &mut state);
                    drop(state);
                    self.call(heir);
                    state = lock(&self.state);
                    continue;
                }
                Slot::Linked(link) if !told.contains(&heir) => {
                    let farewell = state.farewell(last).into_iter();
                    farewell.filter(|frame| frame.is_for(heir)).for_each(|frame| link.send(frame));
                    told.push(heir);
                }
                _ => {}
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        told
    }
}
