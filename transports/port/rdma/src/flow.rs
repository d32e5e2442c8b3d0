//! What becomes of posts: which requests go to which queue, when a completion is asked for, and what has landed.
//!
//! Knows no device. A link has one or more *lanes* (queues of different ports). A post becomes requests on lanes, each
//! with the lane's next sequence number; a completion says that a lane's requests up to a number are done. Requests
//! complete in order on one lane, and lanes know nothing of each other.
//!
//! Completions cost, so only some requests ask for one: every [`Flow::new`]'s `depth / 4`th, and, once somebody wants to
//! know ([`Flow::want`]), the last one; if that is on its way without, an empty request follows it.
//!
//! A signal goes the home lane. It may overtake nothing: as long as writes before it are on their way on other lanes (or
//! on any, if the network is not relied on for order), it is held back, and signals after it as well.

mod lane;
#[cfg(test)]
mod tests;

use lane::Lane;
use std::collections::VecDeque;

/// The most lanes that a link has.
pub const MAX_LANES: usize = 4;

/// What signals rely on to come after writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// A queue's requests are carried out in their order.
    Network,
    /// Nothing: a signal waits for the completions of all before it.
    Completions,
}

/// What a queue is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Move bytes.
    Write {
        /// The first byte here.
        from: u64,
        /// Whether the processor may read it, and not only the card.
        near: bool,
        /// The key of the memory it is in.
        local_key: u32,
        /// How many.
        bytes: u32,
        /// The first byte there.
        to: u64,
        /// The key of the memory there.
        remote_key: u32,
    },
    /// Set a counter.
    Signal {
        /// To this.
        value: u64,
        /// Where it is.
        to: u64,
        /// The key of the memory there.
        remote_key: u32,
    },
    /// Nothing, but tell when it is done.
    Nudge,
}

/// An action with its place in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its number on its lane, from 1 on.
    pub sequence: u64,
    /// What to do.
    pub action: Action,
    /// Whether to tell when it and all before it are done.
    pub told: bool,
}

/// The posts of a link. `K` is what lives until a post is done.
#[derive(Debug)]
pub struct Flow<K> {
    lanes: Vec<Lane>,
    /// Posts that are not done, the oldest first.
    posts: VecDeque<Post<K>>,
    held: VecDeque<Held>,
    posted: u64,
    /// Writes that are done.
    written: u64,
    home: usize,
    depth: u64,
    order: Order,
}

#[derive(Debug)]
struct Post<K> {
    /// The last sequence number of every lane that this or an earlier post has; `None` while it is held back.
    needs: Option<[u64; MAX_LANES]>,
    /// Of writes.
    keep: Option<K>,
}

#[derive(Debug)]
struct Held {
    position: u64,
    action: Action,
    /// What was queued on every lane before it.
    after: [u64; MAX_LANES],
}

impl<K> Flow<K> {
    /// No posts yet; signals go lane `home`, and no queue holds more than `depth` requests.
    pub fn new(lanes: usize, home: usize, depth: u32, order: Order) -> Self {
        debug_assert!((1..=MAX_LANES).contains(&lanes) && home < lanes && depth >= 4);
        let depth = u64::from(depth);
        let lanes = (0..lanes).map(|_| Lane::new(depth)).collect();
        let (posts, held) = (VecDeque::new(), VecDeque::new());
        Flow { lanes, posts, held, posted: 0, written: 0, home, depth, order }
    }

    /// How many lanes there are.
    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// The lane of signals and of small writes.
    pub fn home(&self) -> usize {
        self.home
    }

    /// Whether no more should be posted for now.
    pub fn full(&self) -> bool {
        let waits = |lane: &Lane| lane.pending.len() as u64 >= self.depth;
        self.posts.len() as u64 >= 4 * self.depth || self.lanes.iter().any(waits)
    }

    /// Posts so far.
    pub fn posted(&self) -> u64 {
        self.posted
    }

    /// Posts that are done, from the first on.
    pub fn completed(&self) -> u64 {
        self.posted - self.posts.len() as u64
    }

    /// Writes that are done.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Queues a write, as parts on lanes.
    pub fn write(&mut self, parts: impl IntoIterator<Item = (usize, Action)>, keep: K) {
        for (lane, action) in parts {
            self.lanes[lane].push(action);
        }
        self.post(Some(self.queued()), Some(keep));
        // A write of no bytes may be done at once.
        self.retire();
    }

    /// Queues a signal.
    pub fn signal(&mut self, action: Action) {
        self.post(None, None);
        let held = Held { position: self.posted, action, after: self.queued() };
        self.held.push_back(held);
        self.release();
    }

    fn post(&mut self, needs: Option<[u64; MAX_LANES]>, keep: Option<K>) {
        self.posted += 1;
        self.posts.push_back(Post { needs, keep });
    }

    fn queued(&self) -> [u64; MAX_LANES] {
        let mut queued = [0; MAX_LANES];
        for (queued, lane) in queued.iter_mut().zip(&self.lanes) {
            *queued = lane.queued;
        }
        queued
    }

    /// Moves what a queue may take now to `batch`, at most `most` requests.
    pub fn take(&mut self, lane: usize, most: usize, batch: &mut Vec<Request>) {
        self.lanes[lane].take(most, batch);
    }

    /// How many requests of a lane wait for room in its queue, or to be taken.
    pub fn pending(&self, lane: usize) -> usize {
        self.lanes[lane].pending.len()
    }

    /// A lane's requests up to `sequence` are done.
    pub fn settle(&mut self, lane: usize, sequence: u64) {
        let lane = &mut self.lanes[lane];
        debug_assert!(sequence <= lane.taken);
        lane.done = lane.done.max(sequence);
        self.retire();
        self.release();
    }

    /// Somebody wants to know of all that was queued: sees to it that a completion will tell.
    pub fn want(&mut self) {
        self.lanes.iter_mut().for_each(Lane::want);
    }

    /// Sees to it that every lane has something on its way that tells how it ended: a peer that is gone is found out.
    pub fn probe(&mut self) {
        for lane in &mut self.lanes {
            if lane.queued == lane.done {
                lane.push(Action::Nudge);
            }
            lane.want();
        }
    }

    /// Whether nothing is on its way.
    pub fn idle(&self) -> bool {
        self.posts.is_empty()
    }

    /// Forgets posts that are done.
    fn retire(&mut self) {
        let lanes = &self.lanes;
        let done = |post: &Post<K>| {
            post.needs.is_some_and(|needs| {
                lanes.iter().zip(needs).all(|(lane, needed)| lane.done >= needed)
            })
        };
        while self.posts.front().is_some_and(done) {
            let post = self.posts.pop_front();
            self.written += u64::from(post.is_some_and(|post| post.keep.is_some()));
        }
    }

    /// Queues signals that are held back no longer, and asks for the completions that the others wait for.
    fn release(&mut self) {
        while let Some(held) = self.held.front() {
            let waits = |lane: &Lane, after: u64| lane.done < after;
            let mut lanes = self.lanes.iter().zip(held.after).enumerate();
            let free = match self.order {
                Order::Network => lanes.all(|(i, (l, after))| i == self.home || !waits(l, after)),
                Order::Completions => self.posted - self.posts.len() as u64 + 1 >= held.position,
            };
            if !free {
                let (home, order) = (self.home, self.order);
                let asked = |i: usize| order == Order::Completions || i != home;
                let lanes = self.lanes.iter_mut().enumerate().filter(|(i, _)| asked(*i));
                lanes.for_each(|(_, lane)| lane.want());
                return;
            }
            let (position, action) = (held.position, held.action);
            self.lanes[self.home].push(action);
            let first = self.completed() + 1;
            let queued = self.queued_before(position);
            self.posts[(position - first) as usize].needs = Some(queued);
            self.held.pop_front();
        }
    }

    /// What a signal that has just been queued needs: its own number, and no more of other lanes than it waited for.
    fn queued_before(&self, position: u64) -> [u64; MAX_LANES] {
        let mut needs = self.held.front().map_or([0; MAX_LANES], |held| {
            debug_assert_eq!(held.position, position);
            held.after
        });
        needs[self.home] = self.lanes[self.home].queued;
        needs
    }
}
