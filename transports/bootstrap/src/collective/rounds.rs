//! The collectives of all groups that are under way, as frames drive them: no waiting and no threads here.
//!
//! A rank *gathers* the rounds of groups whose first member it is, and *awaits* those of its other groups.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::bundle;
use crate::frame::{Frame, Kind};
use crate::group::Group;

/// Wire id of the group, sequence number.
pub(super) type Key = (u64, u64);
/// Frames to send once the lock is released.
pub(crate) type Out = Vec<(u32, Frame)>;

/// Two mesh ranks that called different operations, with these.
pub(super) type Mismatch = [(u32, u32); 2];

struct Part {
    operation: u32,
    bytes: Arc<Vec<u8>>,
}

/// A round that this rank gathers. It outlives this rank's interest: the others still want its result.
#[derive(Default)]
pub(super) struct Gathering {
    /// By mesh rank.
    parts: HashMap<u32, Part>,
    /// Once this rank takes part.
    group: Option<Arc<Group>>,
    pub mismatch: Option<Mismatch>,
    pub done: Option<Vec<Vec<u8>>>,
    abandoned: bool,
}

/// A round that another rank gathers.
#[derive(Default)]
pub(super) struct Awaiting {
    group: Option<Arc<Group>>,
    pub parts: Vec<Vec<u8>>,
    pub mismatch: Option<Mismatch>,
    /// Gone ranks that the gatherer was asked about, and `None` for "who is there?".
    pub asked: HashSet<Option<u32>>,
    /// The gatherer's latest word: the mesh ranks whose parts it has.
    pub present: Option<HashSet<u32>>,
    /// Gone ranks whose parts the gatherer lacks.
    pub lacking: HashSet<u32>,
}

/// Whether a waiter should look; fails with what the sender did wrong.
type Taken = Result<bool, String>;

#[derive(Default)]
pub(crate) struct Rounds {
    pub(super) gathering: HashMap<Key, Gathering>,
    pub(super) awaiting: HashMap<Key, Awaiting>,
    /// Questions about ranks that are not known to be gone here: who asks, about which round, about whom.
    questions: Vec<(u32, Key, u32)>,
    /// Sequence number of this rank's next collective in each group. Kept for the life of the mesh, so that a group
    /// made again goes on where it was.
    next: HashMap<u64, u64>,
}

impl Rounds {
    /// This rank takes part: returns the sequence number.
    pub fn begin(
        &mut self,
        me: u32,
        group: &Arc<Group>,
        operation: u32,
        bytes: Vec<u8>,
        out: &mut Out,
    ) -> u64 {
        let next = self.next.entry(group.id).or_insert(0);
        let sequence = *next;
        *next += 1;
        let key = (group.id, sequence);
        let bytes = Arc::new(bytes);
        let gatherer = group.gatherer();
        if gatherer == me {
            let round = self.gathering.entry(key).or_default();
            round.group = Some(group.clone());
            round.take(me, key, Part { operation, bytes }, out);
            round.complete(me, key, out);
        } else {
            let round = Awaiting { group: Some(group.clone()), ..Awaiting::default() };
            self.awaiting.insert(key, round);
            out.push((gatherer, frame(Kind::Part, key, operation, bytes)));
        }
        sequence
    }

    /// Takes a rank's part; true if a waiter should look.
    pub fn take_part(&mut self, me: u32, from: u32, part: Frame, out: &mut Out) -> bool {
        let key = (part.group, part.stream);
        if self.is_over(key) {
            return false;
        }
        let round = self.gathering.entry(key).or_default();
        round.take(from, key, Part { operation: part.tag, bytes: part.payload }, out);
        round.complete(me, key, out);
        let waits = !round.abandoned && (round.done.is_some() || round.mismatch.is_some());
        if round.abandoned && round.done.is_some() {
            self.gathering.remove(&key);
        }
        waits
    }

    /// Takes a stretch of a round's result.
    pub fn take_result(&mut self, from: u32, result: &Frame) -> Taken {
        let Some(round) = self.awaiting.get_mut(&(result.group, result.stream)) else {
            return Ok(false);
        };
        let Some(group) = round.gathered_by(from)? else { return Ok(false) };
        let all = group.members.len();
        bundle::unpack(&result.payload, all, &mut round.parts)
            .ok_or("a result out of its place")?;
        Ok(round.parts.len() == all)
    }

    /// Takes the word that ranks called different operations.
    pub fn take_mismatch(&mut self, from: u32, verdict: &Frame) -> Taken {
        let words = words(&verdict.payload);
        let &[first, operation, second, other] = &*words else {
            return Err("a verdict that cannot be read".to_owned());
        };
        let Some(round) = self.awaiting.get_mut(&(verdict.group, verdict.stream)) else {
            return Ok(false);
        };
        if let Some(group) = round.gathered_by(from)? {
            if group.rank_of(first).is_none() || group.rank_of(second).is_none() {
                return Err("a verdict about ranks outside the group".to_owned());
            }
            round.mismatch = Some([(first, operation), (second, other)]);
        }
        Ok(true)
    }

    /// Somebody asks who has taken part. If the question names a rank whose part is missing here and that is not known
    /// to be gone, the answer waits until it is (then nothing more from that rank is on its way here); else it goes out
    /// at once.
    pub fn take_question(
        &mut self,
        from: u32,
        question: &Frame,
        is_gone: impl Fn(u32) -> bool,
        out: &mut Out,
    ) {
        let key = (question.group, question.stream);
        match words(&question.payload).first() {
            Some(&about) if !is_gone(about) && !self.has_part(key, about) => {
                let question = (from, key, about);
                if !self.questions.contains(&question) && !self.is_over(key) {
                    self.questions.push(question);
                }
            }
            _ => self.answer(from, key, out),
        }
    }

    /// A rank is gone from some groups: answers those who asked about it there.
    pub fn settle(&mut self, gone: u32, from: impl Fn(u64) -> bool, out: &mut Out) {
        let questions = std::mem::take(&mut self.questions);
        let is_due = |&(_, (group, _), about): &(u32, Key, u32)| about == gone && from(group);
        let (due, later) = questions.into_iter().partition(is_due);
        self.questions = later;
        let due: Vec<(u32, Key, u32)> = due;
        for (from, key, _) in due {
            self.answer(from, key, out);
        }
    }

    /// Those who wait for the result of a round of a group that this rank gathers.
    pub fn waiting(&self, group: u64) -> impl Iterator<Item = u32> + '_ {
        let open = self
            .gathering
            .iter()
            .filter(move |(key, round)| key.0 == group && round.done.is_none());
        open.flat_map(|(_, round)| round.parts.keys().copied())
    }

    /// Takes the gatherer's word on who has taken part.
    pub fn take_answer(&mut self, from: u32, answer: &Frame) -> Taken {
        let Some(round) = self.awaiting.get_mut(&(answer.group, answer.stream)) else {
            return Ok(false);
        };
        if round.gathered_by(from)?.is_some() {
            let present: HashSet<u32> = words(&answer.payload).into_iter().collect();
            let about = round.asked.iter().flatten();
            round.lacking.extend(about.filter(|about| !present.contains(about)));
            round.present = Some(present);
        }
        Ok(true)
    }

    /// This rank waits no longer.
    pub fn abandon(&mut self, key: Key) {
        self.awaiting.remove(&key);
        if let Some(round) = self.gathering.get_mut(&key) {
            round.abandoned = true;
            if round.done.is_some() || round.is_full() {
                self.gathering.remove(&key);
            }
        }
    }

    /// Forgets a group of which nothing is to come any more.
    pub fn forget(&mut self, group: u64) {
        self.next.remove(&group);
        self.gathering.retain(|key, _| key.0 != group);
        self.awaiting.retain(|key, _| key.0 != group);
        self.questions.retain(|(_, key, _)| key.0 != group);
    }

    /// Of how many groups calls are counted.
    #[cfg(test)]
    pub fn remembered(&self) -> usize {
        self.next.len() + self.gathering.len() + self.awaiting.len()
    }

    /// Whether this rank has ever had a part in a round of the group.
    pub fn has_joined(&self, group: u64) -> bool {
        self.next.contains_key(&group)
    }

    /// Ranks of the group whose parts are not here, in a round that this rank gathers.
    pub fn missing(&self, key: Key, group: &Group) -> Vec<u32> {
        group.members.iter().copied().filter(|&member| !self.has_part(key, member)).collect()
    }

    fn has_part(&self, key: Key, member: u32) -> bool {
        self.gathering.get(&key).is_some_and(|round| round.parts.contains_key(&member))
    }

    /// Whether the round came to its end here: its result is on the way to everybody.
    fn is_over(&self, key: Key) -> bool {
        key.1 < self.next.get(&key.0).copied().unwrap_or(0) && !self.gathering.contains_key(&key)
    }

    fn answer(&self, to: u32, key: Key, out: &mut Out) {
        // The result of a round that is over has been sent, so there is no more to say.
        if !self.is_over(key) {
            let round = self.gathering.get(&key);
            let present = round.into_iter().flat_map(|round| round.parts.keys().copied());
            let bytes = present.flat_map(u32::to_le_bytes).collect();
            out.push((to, frame(Kind::Answer, key, 0, Arc::new(bytes))));
        }
    }
}

impl Gathering {
    fn is_full(&self) -> bool {
        self.group.as_ref().is_some_and(|group| self.parts.len() >= group.members.len())
    }

    fn take(&mut self, from: u32, key: Key, part: Part, out: &mut Out) {
        let operation = part.operation;
        self.parts.entry(from).or_insert(part);
        let verdict = |mismatch: Mismatch| {
            let words = mismatch.into_iter().flat_map(|(rank, operation)| [rank, operation]);
            frame(Kind::Mismatch, key, 0, Arc::new(words.flat_map(u32::to_le_bytes).collect()))
        };
        if let Some(mismatch) = self.mismatch {
            out.push((from, verdict(mismatch)));
        } else if let Some(other) = self.parts.iter().find(|&(&rank, _)| rank != from)
            // All that came before are alike, or there would be a verdict.
            && other.1.operation != operation
        {
            let mismatch = [(from, operation), (*other.0, other.1.operation)];
            self.mismatch = Some(mismatch);
            out.extend(self.parts.keys().map(|&rank| (rank, verdict(mismatch))));
        }
    }

    /// Sends the result to all, if nothing is missing.
    fn complete(&mut self, me: u32, key: Key, out: &mut Out) {
        let Some(group) = self.group.as_ref().filter(|_| self.mismatch.is_none()) else { return };
        if self.done.is_some() || self.parts.len() < group.members.len() {
            return;
        }
        let operation = self.parts.get(&me).map_or(0, |part| part.operation);
        let parts: Option<Vec<Arc<Vec<u8>>>> = {
            let take = |member| self.parts.get(member).map(|part| part.bytes.clone());
            group.members.iter().map(take).collect()
        };
        // Parts of strangers to the group are no parts.
        let Some(parts) = parts else { return };
        for payload in bundle::pack(&parts).into_iter().map(Arc::new) {
            for &member in group.members.iter().filter(|&&member| member != me) {
                out.push((member, frame(Kind::Result, key, operation, payload.clone())));
            }
        }
        self.parts.values_mut().for_each(|part| part.bytes = Arc::default());
        self.done = Some(parts.into_iter().map(Arc::unwrap_or_clone).collect());
    }
}

impl Awaiting {
    /// The group, if `from` may speak for the round.
    fn gathered_by(&self, from: u32) -> Result<Option<&Arc<Group>>, String> {
        match &self.group {
            Some(group) if group.gatherer() != from => {
                Err("a word on a collective that another rank gathers".to_owned())
            }
            group => Ok(group.as_ref()),
        }
    }
}

/// A question to the gatherer of a round: who is there, or whether a gone rank is.
pub(super) fn question(key: Key, about: Option<u32>) -> Frame {
    let bytes = about.map(|rank| rank.to_le_bytes().to_vec()).unwrap_or_default();
    frame(Kind::Ask, key, 0, Arc::new(bytes))
}

fn frame(kind: Kind, (group, stream): Key, tag: u32, payload: Arc<Vec<u8>>) -> Frame {
    Frame { kind, tag, group, stream, payload, descriptors: Vec::new() }
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes
        .chunks_exact(4)
        .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
        .collect()
}
