//! Who is gone. The lowest rank that is alive, the *watcher*, has a link to everyone: it notices deaths and departures and
//! tells the others, so that they need not have links to everyone as well.

use std::time::{Duration, Instant};

use super::{Slot, State, TcpLinks};
use crate::absent::Gone;
use crate::error::Lost;
use crate::frame::{Frame, Kind};
use crate::hello::{Reader, put_text};
use crate::link::{ENDED, Link};
use crate::sync::lock;

/// How long departures are collected: at the end of a job all leave at about the same time.
const COLLECT: Duration = Duration::from_millis(10);
/// How long what a dead rank sent may still be under way.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// How long after the watcher has gone the next one opens its links: where all leave, it need not.
const SUCCESSION: Duration = Duration::from_millis(250);

impl State {
    /// The lowest rank that is alive, as far as this rank, `me`, knows; `None` where it is this one.
    pub fn watcher(&self, me: u32) -> Option<u32> {
        (0..me).find(|rank| !self.gone.contains_key(rank))
    }

    pub fn is_watcher(&self, me: u32) -> bool {
        self.watcher(me).is_none()
    }

    fn all_gone(&self) -> Vec<(u32, Gone)> {
        self.gone.iter().map(|(&rank, how)| (rank, how.clone())).collect()
    }

    pub fn is_linked(&self, rank: u32) -> bool {
        matches!(&self.slots[rank as usize], Slot::Linked(link) if !link.is_over())
    }
}

impl TcpLinks {
    /// A peer is gone by the word of its own link.
    pub(super) fn note_gone(&self, peer: u32, how: &Gone) {
        let me = self.terms.rank;
        let forgotten = {
            let mut state = lock(&self.state);
            let watcher = state.watcher(me);
            if state.closed || state.gone.contains_key(&peer) {
                return;
            }
            if let (Gone::Lost(_), true) = (how, state.leaving) {
                // It need not say goodbye to who has said so to it. Those who stay will find out.
                state.unreached.insert(peer);
                self.changed.notify_all();
                return;
            }
            if let (Gone::Left, Slot::Linked(link)) = (how, &state.slots[peer as usize]) {
                // It may wait for the word that it was heard. Where this rank leaves as well, somebody else has to hear it.
                let heard = || vec![Frame::plain(Kind::News, encode(&[(peer, Gone::Left)]))];
                let answer = if state.leaving { state.farewell(&[]) } else { heard() };
                answer.into_iter().for_each(|frame| link.send(frame));
            }
            state.gone.insert(peer, how.clone());
            if watcher.is_none() {
                state.news.push((peer, how.clone()));
                match how {
                    Gone::Left => self.tick_at(Instant::now() + COLLECT),
                    Gone::Lost(_) => self.tell_news(&mut state),
                }
            } else if watcher == Some(peer) && state.is_watcher(me) {
                self.succeed(&mut state);
            } else if let (Some(watcher), Gone::Lost(lost)) = (watcher, how)
                && lost.reason == ENDED
                && let Slot::Linked(link) = &state.slots[watcher as usize]
            {
                // Only ranks of its node see this, and its other links look well.
                link.send(Frame::plain(Kind::News, encode(&[(peer, how.clone())])));
            }
            self.give_up(&mut state, peer)
        };
        drop(forgotten);
        self.changed.notify_all();
    }

    /// This rank has become the watcher or, as the watcher, has heard of more gone ranks from one that leaves.
    fn succeed(&self, state: &mut State) {
        // The rank that told this one of them may have told nobody else.
        state.news = state.all_gone();
        let due = Instant::now() + SUCCESSION;
        state.survey = Some(due);
        self.tick_at(due);
    }

    /// Over a link that it lacked until now, this rank, if it is the watcher, tells the peer who is gone.
    pub(super) fn brief(&self, state: &State, link: &Link) {
        if !state.leaving && !state.gone.is_empty() && state.is_watcher(self.terms.rank) {
            link.send(Frame::plain(Kind::News, encode(&state.all_gone())));
        }
    }

    /// Tells everyone who is gone. The links take it without waiting.
    pub(super) fn tell_news(&self, state: &mut State) {
        let news = std::mem::take(&mut state.news);
        if news.is_empty() {
            return;
        }
        let frame = Frame::plain(Kind::News, encode(&news));
        for slot in &state.slots {
            if let Slot::Linked(link) = slot
                && !link.is_over()
            {
                link.send(frame.share());
            }
        }
    }

    /// Takes the watcher's word; returns those whose end no link of this rank will tell.
    pub(super) fn take_news(&self, news: &[u8]) -> Result<Vec<(u32, Gone)>, String> {
        let news = decode(news).ok_or("news that cannot be read")?;
        let me = self.terms.rank;
        let mut told = Vec::new();
        let mut forgotten = Vec::new();
        {
            let mut state = lock(&self.state);
            for (peer, how) in news {
                let known = peer as usize >= state.slots.len() || state.gone.contains_key(&peer);
                if peer == me {
                    state.parted = state.leaving;
                }
                // The own link may still hold its last words, and will tell of its end after them.
                if known || peer == me {
                    continue;
                }
                if state.is_linked(peer) {
                    if let Gone::Lost(lost) = how {
                        let until = Instant::now() + LAST_WORDS;
                        state.doubts.push((peer, until, lost.reason));
                        self.tick_at(until);
                    }
                    continue;
                }
                state.gone.insert(peer, how.clone());
                forgotten.push(self.give_up(&mut state, peer));
                told.push((peer, how));
            }
            if !told.is_empty() && state.is_watcher(me) {
                self.succeed(&mut state);
            }
        }
        drop(forgotten);
        self.changed.notify_all();
        Ok(told)
    }

    /// Ends the links of dead ranks that a child of theirs holds open.
    pub(super) fn resolve_doubts(&self, now: Instant) {
        let mut over = Vec::new();
        lock(&self.state).doubts.retain(|(peer, until, reason)| {
            let due = *until <= now;
            if due {
                over.push((*peer, reason.clone()));
            }
            !due
        });
        let Some(mesh) = self.mesh.upgrade() else { return };
        for (peer, reason) in over {
            let link = match &lock(&self.state).slots[peer as usize] {
                Slot::Linked(link) if !link.is_over() => link.clone(),
                _ => continue,
            };
            link.lose(&mesh, reason, false);
        }
    }

    /// What the watcher does by the clock: passes on what it knows, and sees that it is linked to everyone. Ranks that left in
    /// good order are known by then, for each waits for a watcher's word; so a rank that does not answer is lost.
    pub(super) fn watch(&self, now: Instant) {
        let me = self.terms.rank;
        let unlinked: Vec<u32> = {
            let mut state = lock(&self.state);
            if state.closed || state.leaving || !state.is_watcher(me) {
                return;
            }
            self.tell_news(&mut state);
            if state.survey.is_none_or(|due| now < due) {
                return;
            }
            let all = 0..state.slots.len() as u32;
            let idle = |rank: &u32| matches!(state.slots[*rank as usize], Slot::Idle);
            all.filter(|rank| *rank != me && !state.gone.contains_key(rank) && idle(rank)).collect()
        };
        for rank in unlinked {
            {
                let mut state = lock(&self.state);
                if state.closed || state.leaving {
                    return;
                }
                if !matches!(state.slots[rank as usize], Slot::Idle) {
                    continue;
                }
                self.open(rank, Vec::new(), &mut state);
            }
            self.call(rank);
        }
    }
}

pub(in crate::tcp) fn encode(news: &[(u32, Gone)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (rank, how) in news {
        let (kind, pid, reason) = match how {
            Gone::Left => (0u32, 0, ""),
            Gone::Lost(Lost { pid, reason, .. }) => (1, *pid, &**reason),
        };
        for word in [*rank, kind, pid] {
            bytes.extend(word.to_le_bytes());
        }
        put_text(&mut bytes, reason);
    }
    bytes
}

pub(in crate::tcp) fn decode(bytes: &[u8]) -> Option<Vec<(u32, Gone)>> {
    let mut reader = Reader(bytes);
    let mut news = Vec::new();
    while !reader.0.is_empty() {
        let (rank, kind, pid) = (reader.word()?, reader.word()?, reader.word()?);
        let reason = reader.text()?;
        let how = match kind {
            0 => Gone::Left,
            // Whoever is told is not the only one.
            1 => Gone::Lost(Lost { pid, reason, alone: false }),
            _ => return None,
        };
        news.push((rank, how));
    }
    Some(news)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_survive_the_wire_and_every_cut_is_noticed() {
        let lost = Lost { pid: 7, reason: "it fell".to_owned(), alone: false };
        let news = vec![(3, Gone::Left), (u32::MAX, Gone::Lost(lost))];
        let bytes = encode(&news);
        assert_eq!(decode(&bytes), Some(news.clone()));
        let whole = [0, encode(&news[..1]).len()];
        for cut in (0..bytes.len()).filter(|cut| !whole.contains(cut)) {
            assert_eq!(decode(&bytes[..cut]), None, "cut at {cut}");
        }
        assert_eq!(decode(&[0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), None);
    }
}
