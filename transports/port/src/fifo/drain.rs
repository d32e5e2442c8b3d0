//! Carrying requests out: from a FIFO onto links.
//!
//! Requests of one channel are carried out in their order; channels do not wait for each other. A request that a full
//! link does not take stays in the FIFO, where its place is taken, and so do the later ones of its channel, while those of
//! other channels pass. Once such requests fill the FIFO the producers wait.

use super::{Consumer, DATA, FLUSH, PACKETS, Request, SIGNAL, VALUE};
use crate::WireError;
use crate::proxy::Attended;
use crate::wire::{Posted, Unit, Write};
use antiphon_hal::Memory;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A channel's done word: the number of its last request with [`FLUSH`] that is done, plus one.
pub trait Done: Send + Sync + fmt::Debug {
    /// It becomes `end`, by a release store.
    fn reach(&self, end: u64);
}

impl Done for AtomicU64 {
    fn reach(&self, end: u64) {
        self.store(end, Ordering::Release);
    }
}

/// Requests of one channel that are carried out before others have their turn.
const TURN: usize = 16;

/// This rank's end of a channel.
#[derive(Debug)]
pub struct End {
    /// The link to the peer.
    pub link: Arc<Attended>,
    /// The peer's counter that signals raise: its region, and the byte offset there; and what it is now. `None` where each
    /// request names it, as the place that its bytes would go to: then none has both, and counters begin with 0.
    pub counter: Option<((u64, u64), u64)>,
    /// The channel's done word.
    pub done: Arc<dyn Done>,
}

/// A request that could not be carried out, or not as a whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot carry out request {ticket} of channel {}: {reason}", .request.channel)]
pub struct DrainError {
    /// Its number.
    pub ticket: u64,
    /// What was asked for.
    pub request: Request,
    /// Why not.
    pub reason: Box<WireError>,
}

/// A request that waits for its link.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    ticket: u64,
    request: Request,
    /// Its kinds without those that are done.
    left: u64,
}

#[derive(Debug)]
struct Channel {
    end: End,
    /// What the counters that requests named are now.
    named: HashMap<(u64, u64), u64>,
    /// Requests that wait.
    waiting: VecDeque<Waiting>,
    /// For each flush the link's position that it waits for, and the request with its number.
    flushes: VecDeque<(u64, u64, Request)>,
    /// It is in the list of channels that have something to do.
    active: bool,
}

/// Carries the requests of a FIFO out.
pub struct Drain {
    fifo: Consumer,
    channels: HashMap<u64, Channel>,
    sources: HashMap<u64, Arc<dyn Memory>>,
    /// Channels that have something to do, in the order of their turns.
    active: VecDeque<u64>,
    /// Whether requests are done whose places are not free yet, from `released` on.
    done: VecDeque<bool>,
    released: u64,
    failed: VecDeque<DrainError>,
}

impl fmt::Debug for Drain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drain").field("fifo", &self.fifo).finish_non_exhaustive()
    }
}

/// What one look at a channel came to.
#[derive(Default)]
struct Look {
    moved: bool,
    /// Requests that are done: posted, or failed.
    done: Vec<u64>,
    failed: Vec<DrainError>,
}

impl Drain {
    /// Carries out what `fifo` holds.
    pub fn new(fifo: Consumer) -> Self {
        Drain {
            fifo,
            channels: HashMap::new(),
            sources: HashMap::new(),
            active: VecDeque::new(),
            done: VecDeque::new(),
            released: 0,
            failed: VecDeque::new(),
        }
    }

    /// Opens a channel; another of that number ends.
    pub fn open(&mut self, channel: u64, end: End) {
        self.close(channel);
        let (waiting, flushes, named) = (VecDeque::new(), VecDeque::new(), HashMap::new());
        let active = false;
        self.channels.insert(channel, Channel { end, named, waiting, flushes, active });
    }

    /// Ends a channel: what waits is given up, and its flushes are never done.
    pub fn close(&mut self, channel: u64) {
        if let Some(channel) = self.channels.remove(&channel) {
            for Waiting { ticket, .. } in channel.waiting {
                self.finish(ticket);
            }
        }
    }

    /// Lets requests read a memory, which is registered with the links' wire.
    pub fn lend(&mut self, memory: Arc<dyn Memory>) {
        self.sources.insert(memory.id(), memory);
    }

    /// Forgets a memory.
    pub fn withdraw(&mut self, region: u64) {
        self.sources.remove(&region);
    }

    /// Takes requests and carries out those that it can without waiting. Returns whether anything moved. The work of
    /// one call is bounded.
    ///
    /// # Errors
    /// A request that makes no sense, or whose link is lost. It is skipped as a whole from where it failed; the other
    /// channels go on. Nothing else is done until all errors of a call were told: as many calls as there were errors.
    pub fn turn(&mut self) -> Result<bool, DrainError> {
        // Producers that go on asking for what cannot be done shall not fill the memory: their requests wait in the FIFO.
        if let Some(error) = self.failed.pop_front() {
            return Err(error);
        }
        let mut moved = false;
        for _ in 0..TURN {
            let Some((ticket, request)) = self.fifo.take() else { break };
            self.done.push_back(false);
            self.admit(ticket, request);
            moved = true;
        }
        for _ in 0..self.active.len() {
            let Some(number) = self.active.pop_front() else { break };
            let Some(channel) = self.channels.get_mut(&number) else { continue };
            let look = channel.look(&self.sources);
            channel.active = !(channel.waiting.is_empty() && channel.flushes.is_empty());
            if channel.active {
                self.active.push_back(number);
            }
            moved |= look.moved;
            look.done.into_iter().for_each(|ticket| self.finish(ticket));
            self.failed.extend(look.failed);
        }
        self.failed.pop_front().map_or(Ok(moved), Err)
    }

    /// Whether nothing waits that was taken from the FIFO, flushes included.
    pub fn idle(&self) -> bool {
        self.active.is_empty() && self.failed.is_empty()
    }

    fn admit(&mut self, ticket: u64, request: Request) {
        let number = request.channel;
        let wrong = match self.channels.get(&number) {
            None => Some(("no such channel".to_owned(), "channels that are open")),
            Some(_) => fault(&request),
        };
        match (wrong, self.channels.get_mut(&number)) {
            (None, Some(channel)) => {
                channel.waiting.push_back(Waiting { ticket, request, left: request.kinds });
                if !channel.active {
                    channel.active = true;
                    self.active.push_back(number);
                }
            }
            (wrong, _) => {
                let (saw, allowed) = wrong.unwrap_or_default();
                let reason = Box::new(invalid(saw, allowed));
                self.failed.push_back(DrainError { ticket, request, reason });
                self.finish(ticket);
            }
        }
    }

    /// Counts a request as done, and frees the places of those that no earlier one waits before.
    fn finish(&mut self, ticket: u64) {
        let at = ticket.checked_sub(self.released).and_then(|at| usize::try_from(at).ok());
        if let Some(done) = at.and_then(|at| self.done.get_mut(at)) {
            *done = true;
        }
        while self.done.front() == Some(&true) {
            self.done.pop_front();
            self.released += 1;
        }
        self.fifo.release(self.released);
    }
}

fn invalid(saw: String, allowed: &str) -> WireError {
    let wire = "of the channel".to_owned();
    WireError::Invalid { operation: "carry out a request", wire, saw, allowed: allowed.to_owned() }
}

/// What is wrong with the kinds of a request.
fn fault(request: &Request) -> Option<(String, &'static str)> {
    let kinds = request.kinds;
    let known = kinds & !(DATA | SIGNAL | FLUSH | PACKETS | VALUE) == 0;
    let some = kinds & (DATA | SIGNAL | FLUSH) != 0;
    let packets = kinds & PACKETS == 0 || kinds & DATA != 0;
    let value = kinds & VALUE == 0 || kinds & (SIGNAL | DATA) == SIGNAL;
    let allowed = "1 (data), 2 (signal), 4 (flush) and their sums, 8 (packets) with data, and 16 (value) with a \
                   signal alone";
    (!(known && some && packets && value)).then(|| (format!("kinds {kinds:#x}"), allowed))
}

impl Channel {
    /// Posts what the link takes, and tells which flushes are done.
    fn look(&mut self, sources: &HashMap<u64, Arc<dyn Memory>>) -> Look {
        let mut look = Look::default();
        let attended = Arc::clone(&self.end.link);
        let driving = attended.drive();
        for _ in 0..TURN {
            let Some(first) = self.waiting.front_mut() else { break };
            let posted = self.end.post(first, sources, &mut self.named);
            let Waiting { ticket, request, .. } = *first;
            match posted {
                Ok(Posted::Full) => break,
                Ok(Posted::Queued) => {
                    if request.kinds & FLUSH != 0 {
                        self.flushes.push_back((attended.link().posted(), ticket, request));
                    }
                }
                Err(reason) => {
                    let reason = Box::new(reason);
                    look.failed.push(DrainError { ticket, request, reason });
                }
            }
            look.done.push(ticket);
            look.moved = true;
            self.waiting.pop_front();
        }
        match driving.progress() {
            Ok(moved) => look.moved |= moved,
            // The next post says so as well.
            Err(reason) if !self.flushes.is_empty() => self.fail_flushes(reason, &mut look),
            Err(_) => {}
        }
        if self.flushes.is_empty() {
            return look;
        }
        match attended.link().completed() {
            Ok(completed) => {
                while let Some((position, ticket, _)) = self.flushes.front() {
                    if *position > completed {
                        break;
                    }
                    self.end.done.reach(ticket + 1);
                    self.flushes.pop_front();
                    look.moved = true;
                }
            }
            Err(reason) => self.fail_flushes(reason, &mut look),
        }
        look
    }

    /// Tells that flushes will never be done.
    fn fail_flushes(&mut self, reason: WireError, look: &mut Look) {
        for (_, ticket, request) in self.flushes.drain(..) {
            let reason = Box::new(reason.clone());
            look.failed.push(DrainError { ticket, request, reason });
        }
    }
}

impl End {
    /// Posts what is left of a request.
    fn post(
        &mut self,
        waiting: &mut Waiting,
        sources: &HashMap<u64, Arc<dyn Memory>>,
        named: &mut HashMap<(u64, u64), u64>,
    ) -> Result<Posted, WireError> {
        let link = self.link.link();
        let Waiting { request, left, .. } = waiting;
        if *left & DATA != 0 {
            let Some(source) = sources.get(&request.source) else {
                let saw = format!("source region {}", request.source);
                return Err(invalid(saw, "memory of this rank that is registered"));
            };
            let unit = if request.kinds & PACKETS != 0 { Unit::Packets } else { Unit::Bytes };
            let Request { from, region, to, bytes, .. } = *request;
            if link.write(&Write { source, from, region, to, bytes, unit })? == Posted::Full {
                return Ok(Posted::Full);
            }
            *left &= !(DATA | PACKETS);
        }
        if *left & VALUE != 0 {
            if self.counter.is_some() {
                let saw = "a value for a counter that counts".to_owned();
                return Err(invalid(saw, "values where requests name the counter"));
            }
            if link.signal(request.region, request.to, request.bytes)? == Posted::Full {
                return Ok(Posted::Full);
            }
            *left &= !(SIGNAL | VALUE);
        }
        if *left & SIGNAL != 0 {
            let ((region, to), value) = match &mut self.counter {
                Some((counter, value)) => (*counter, value),
                None if request.kinds & DATA != 0 => {
                    let saw = "bytes and a signal in one request".to_owned();
                    return Err(invalid(saw, "one of them, where requests name the counter"));
                }
                None => {
                    let counter = (request.region, request.to);
                    (counter, named.entry(counter).or_default())
                }
            };
            if link.signal(region, to, *value + 1)? == Posted::Full {
                return Ok(Posted::Full);
            }
            *value += 1;
            *left &= !SIGNAL;
        }
        Ok(Posted::Queued)
    }
}
