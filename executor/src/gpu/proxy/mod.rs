//! Port channels of kernels: a thread that carries out what they ask for.
//!
//! ```text
//! kernel --request--> queue in pinned memory --> this thread --> a link to the peer: bytes, then the peer's counter
//!        <--done word--------------------------------'
//! ```
//!
//! Requests count on the device, so those of a graph's replays are requests like others. While a launch is under way the
//! thread looks at its queue all the time; otherwise it sleeps, unless the context was recorded into a graph: whoever replays
//! it tells nobody. It looks for what comes over wires at least as often.

mod copies;
mod queue;
mod staged;

use super::context::Context;
use super::far::{LinkMemory, link_memory};
use super::slots::Slots;
use super::{Gpu, Peers, free};
use crate::communicator::{Shared, rank_page};
use crate::error::{Doing, ExecutorError};
use crate::ports::{Ports, lost};
use crate::shared::control::RING;
use crate::sync::lock;
use crate::tags::PARCELS;
use antiphon_hal::{Device, HalError, Memory};
use antiphon_port::fifo::{Drain, DrainError, End};
use antiphon_port::{Attended, Link};
use copies::{Copies, Everything};
pub use queue::{Queue, claims};
pub use staged::BYTES as PARCELS_BYTES;
use staged::{OverPorts, Path, Range, Staged};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How often queues are looked at in vain before the thread sleeps between two looks.
const SPINS: u32 = 2000;
/// How long it sleeps then while launches are under way, and while nobody knows whether graphs are replayed.
const PAUSE: Duration = Duration::from_micros(20);
const REPLAY_PAUSE: Duration = Duration::from_micros(200);
/// How long it sleeps at most while nothing runs: the communicator may have ended.
const LONG: Duration = Duration::from_secs(1);

/// The proxy of one rank's kernels.
pub struct Proxy {
    inner: Arc<Inner>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Inner {
    device: Arc<dyn Device>,
    peers: Arc<Peers>,
    shared: Weak<Shared>,
    slots: Arc<Mutex<Slots>>,
    ports: Arc<Ports>,
    /// This rank's control page.
    page: Arc<dyn Memory>,
    /// Some wire takes memory of GPUs, and some rank's may be written so.
    lends: bool,
    links: Mutex<HashMap<u32, Arc<Attended>>>,
    link_memory: LinkMemory,
    /// Those over wires, by peer, which may bring something at any time.
    staged: Mutex<Vec<(u32, Arc<Staged>)>>,
    /// The last launch that ranks of other nodes are to hear of, for the messages of errors.
    described: AtomicU64,
    /// Contexts that the thread does not know yet.
    news: Mutex<Vec<Served>>,
    ended: AtomicBool,
    rung: Mutex<bool>,
    bell: Condvar,
}

/// A context whose requests are carried out.
struct Served {
    drain: Drain,
    context: Weak<Context>,
}

/// What the thread does while there are no requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mood {
    /// Nothing can come before the bell is rung.
    Sleep,
    /// A graph may be replayed at any time.
    Doze,
    /// A launch is under way, or a transfer.
    Wake,
}

impl Proxy {
    /// The proxy of a rank, for as long as this lives.
    ///
    /// # Errors
    /// If there is no thread to be had.
    pub fn start(gpu: &Gpu, shared: &Arc<Shared>) -> Result<Self, HalError> {
        let inner = Arc::new(Inner {
            device: Arc::clone(&gpu.device),
            peers: Arc::clone(&gpu.peers),
            shared: Arc::downgrade(shared),
            slots: Arc::clone(&gpu.slots),
            ports: Arc::clone(&shared.ports),
            page: Arc::clone(&shared.page),
            lends: shared.ports.take_gpu_memory() && shared.neighbours.take_writes(),
            links: Mutex::default(),
            link_memory: Arc::clone(&gpu.link_memory),
            staged: Mutex::default(),
            described: AtomicU64::new(0),
            news: Mutex::default(),
            ended: AtomicBool::new(false),
            rung: Mutex::default(),
            bell: Condvar::new(),
        });
        let thread = Arc::clone(&inner);
        let named = thread::Builder::new().name("antiphon-ports".to_owned());
        let started = named.spawn(move || thread.run());
        let work = "that serves the port channels of kernels";
        let thread = started.map_err(|error| HalError::no_thread(work, error))?;
        Ok(Proxy { inner, thread: Mutex::new(Some(thread)) })
    }

    /// Carries out what launches of a context ask for, and receives what the peers in `staged` send over wires.
    ///
    /// # Errors
    /// What the device or a link reports.
    pub fn serve(
        &self,
        shared: &Shared,
        context: &Arc<Context>,
        staged: &[u32],
    ) -> Result<(), ExecutorError> {
        let inner = &self.inner;
        staged.iter().try_for_each(|&peer| inner.link(shared, peer).map(drop))?;
        let Some(queue) = &context.queue else {
            self.ring();
            return Ok(());
        };
        let mut drain = Drain::new(queue.consumer()?);
        drain.lend(Arc::new(Everything(inner.device.backend())) as Arc<dyn Memory>);
        for peer in context.asked() {
            let link = inner.link(shared, peer)?;
            drain.open(peer.into(), End { link, counter: None, done: queue.done(peer) });
        }
        lock(&inner.news).push(Served { drain, context: Arc::downgrade(context) });
        self.ring();
        Ok(())
    }

    /// Has the wires to peers read a memory of the device's, and write it, if peers know it by a `number`: where they can, and
    /// before launches name it.
    pub fn lend(&self, memory: &Arc<dyn Memory>, number: Option<u64>) {
        self.inner.lend(memory, number);
    }

    /// Whether [`lend`](Self::lend) does something.
    pub fn lends(&self) -> bool {
        self.inner.lends
    }

    /// Has wires forget what lay at these addresses.
    pub fn take_back(&self, start: u64, bytes: u64) {
        lock(&self.inner.staged).iter().for_each(|(_, link)| link.take_back(start, bytes));
    }

    /// A launch was added.
    pub fn ring(&self) {
        *lock(&self.inner.rung) = true;
        self.inner.bell.notify_one();
    }

    /// Has ranks of other nodes told what launch `seq` is.
    pub fn describe(&self, seq: u64) {
        self.inner.described.store(seq, Ordering::Release);
    }

    /// Whether all that has come over wires has landed, and the senders know.
    pub fn is_calm(&self) -> bool {
        lock(&self.inner.staged).iter().all(|(_, link)| link.is_calm())
    }

    /// Whether the link to a peer over a wire is lost.
    pub fn is_lost(&self, peer: u32) -> bool {
        lock(&self.inner.staged).iter().any(|(of, link)| *of == peer && link.is_lost())
    }

    /// Ends all transfers: once this returns nothing is read or written any more.
    pub fn stop(&self) {
        self.inner.stop();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop();
        self.ring();
        let thread = lock(&self.thread).take();
        // The thread itself may have let go of the communicator last.
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != thread::current().id())
        {
            let _ = thread.join();
        }
    }
}

impl Inner {
    fn lend(&self, memory: &Arc<dyn Memory>, number: Option<u64>) {
        if !self.lends {
            return;
        }
        let start = memory.address().expose_provenance() as u64;
        let (region, bytes, open) = (memory.id(), memory.len(), number.is_some());
        let range = Range { region, number: number.unwrap_or(0), start, bytes, open };
        let staged = lock(&self.staged).clone();
        if !staged.is_empty() {
            // No lock is held: what is registered may wait for kernels, and these for the thread that looks at the links.
            self.ports.announce_of_gpu(memory);
            staged.iter().for_each(|(_, link)| link.lend(range));
        }
    }

    /// The link to a peer. Those who make contexts ask for it, one after the other.
    fn link(&self, shared: &Shared, peer: u32) -> Result<Arc<Attended>, ExecutorError> {
        let known = lock(&self.links).get(&peer).map(Arc::clone);
        if let Some(link) = known {
            return Ok(link);
        }
        let made: Arc<dyn Link> = if shared.is_staged(peer) {
            let staged = Arc::new(self.stage(shared, peer)?);
            lock(&self.staged).push((peer, Arc::clone(&staged)));
            // What contexts have already. Buffers of the application are lent with the next launch that names them: another
            // may be at their addresses by now.
            let known = lock(&self.slots).all();
            let own = known.iter().filter(|(memory, _)| !memory.is_borrowed());
            own.for_each(|(memory, number)| self.lend(memory, Some(*number)));
            // Whoever else has it may let go of it meanwhile, beside kernels.
            free(known);
            staged
        } else {
            Arc::new(Copies::new(&self.device, peer)?)
        };
        // A request over a link that is lost fails, and says so.
        let link = Attended::new(made, |_| {}).map_err(|error| lost(peer, &error))?;
        lock(&self.links).insert(peer, Arc::clone(&link));
        if self.ended.load(Ordering::Acquire) {
            link.link().stop();
        }
        Ok(link)
    }

    /// A link over a wire; the peer is told where to write.
    fn stage(&self, shared: &Shared, peer: u32) -> Result<Staged, ExecutorError> {
        let mut region = 0;
        let provided = lock(&self.link_memory).pop();
        let pinned = provided.map_or_else(|| link_memory(&*self.device, shared), Ok)?;
        let staged = Staged::new(&self.device, peer, pinned, |memory| {
            region = memory.id();
            let path = OverPorts::new(peer, memory, (&self.ports, &self.peers), &self.slots)?;
            Ok(Box::new(path) as Box<dyn Path>)
        });
        let staged = staged.map_err(|error| lost(peer, &error))?;
        shared.tell_device(peer, PARCELS, &[region, PARCELS_BYTES])?;
        Ok(staged)
    }

    /// Makes progress on what goes over wires. An error is the fault of a peer.
    fn look_at_wires(&self, told: &mut u64) -> Result<bool, (u32, String)> {
        let staged = lock(&self.staged);
        let mut moved = false;
        for (peer, link) in &*staged {
            // What a link had to do with that is lost fails by itself.
            moved |= link.progress().unwrap_or(false);
            link.fault().map_or(Ok(()), |fault| Err((*peer, fault)))?;
        }
        let described = self.described.load(Ordering::Acquire);
        if described <= *told {
            return Ok(moved);
        }
        // Older ones are not in the control page any more.
        let next = (*told + 1).max(described.saturating_sub(RING - 1));
        let publish = |peer| self.ports.publish(peer, next, &self.page).unwrap_or(true);
        if staged.iter().all(|(peer, _)| publish(*peer)) {
            *told = next;
            moved = true;
        }
        Ok(moved)
    }

    fn run(&self) {
        // Else each call of the driver's would enter a context and leave it, and wait for whoever is in it each time.
        if let Err(error) = self.device.make_current() {
            log::debug!(
                "the thread that serves port channels enters its context for each call: {error}"
            );
        }
        let mut all: Vec<Served> = Vec::new();
        let (mut idle, mut told) = (0, 0);
        loop {
            // Queues that nobody looks at any more are closed when `all` goes.
            if self.ended.load(Ordering::Acquire) {
                return;
            }
            if self.peers.stop_word.first().load(Ordering::Acquire) != 0 {
                return self.stop_with_wires();
            }
            all.append(&mut lock(&self.news));
            let mut moved = match self.look_at_wires(&mut told) {
                Ok(some) => some,
                Err((peer, reason)) => return self.fail(peer, reason),
            };
            for served in &mut all {
                match served.drain.turn() {
                    Ok(some) => moved |= some,
                    Err(DrainError { request, reason, .. }) => {
                        return self.fail(request.channel as u32, reason.reason());
                    }
                }
            }
            if moved {
                rank_page(&self.page).control.passing.0.fetch_add(1, Ordering::Relaxed);
            }
            idle = if moved { 0 } else { idle + 1 };
            if idle < SPINS {
                thread::yield_now();
                continue;
            }
            let least = if lock(&self.staged).is_empty() { Mood::Sleep } else { Mood::Doze };
            match all.iter().map(Served::mood).max().unwrap_or(least).max(least) {
                Mood::Wake => thread::sleep(PAUSE),
                Mood::Doze => thread::sleep(REPLAY_PAUSE),
                Mood::Sleep => self.sleep(),
            }
            // Whatever ends it, what comes is looked for at once.
            idle = idle.min(SPINS);
        }
    }

    /// Sleeps until the bell is rung.
    fn sleep(&self) {
        let rung = lock(&self.rung);
        let woken = self.bell.wait_timeout_while(rung, LONG, |rung| !*rung);
        *woken.unwrap_or_else(PoisonError::into_inner).0 = false;
    }

    fn stop(&self) {
        self.ended.store(true, Ordering::Release);
        let links: Vec<_> = lock(&self.links).values().map(Arc::clone).collect();
        links.iter().for_each(|link| link.link().stop());
    }

    /// The same of a communicator that is broken. Peers whose transfers go straight to this rank's memory may not have heard of it,
    /// and whoever waits by the stream alone has the buffers back soon.
    fn stop_with_wires(&self) {
        self.stop();
        if let Some(shared) = self.shared.upgrade() {
            shared.ports.stop();
        }
    }

    /// A transfer cannot be carried out: the communicator is broken, unless it is already, or has ended.
    fn fail(&self, peer: u32, reason: String) {
        let ended = self.ended.load(Ordering::Acquire);
        self.stop_with_wires();
        let Some(shared) = self.shared.upgrade().filter(|_| !ended) else { return };
        shared.end(ExecutorError::Link { peer, reason, doing: Doing::default() });
    }
}

impl Served {
    fn mood(&self) -> Mood {
        let Some(context) = self.context.upgrade() else { return Mood::Sleep };
        if !self.drain.idle() || !context.is_idle() {
            Mood::Wake
        } else if context.is_recorded() {
            Mood::Doze
        } else {
            Mood::Sleep
        }
    }
}
