//! The proxy's thread: an epoll set, a table of the links under care, and visits once a millisecond.

use super::{Attended, Next};
use crate::WireError;
use crate::wire::Link;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;
use std::collections::HashMap;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// How long a visit that is asked for takes to come.
const TICK: Duration = Duration::from_millis(1);

/// How long it may take, in ticks, while its link is driven over and over.
const LONGEST: u32 = 8;

/// A link that is driven this often in a tick is driven over and over.
const OFTEN: u32 = 8;

/// For how many ticks without a visit the thread goes on ticking: a caller that asks every few milliseconds needs no
/// system call.
const IDLE_TICKS: u32 = 16;

/// Descriptors whose readiness one call tells.
const EVENTS: usize = 64;

/// How often in a row a descriptor may be ready for nothing before its link is only visited: one that says so for ever
/// would keep the thread busy.
pub(super) const FRUITLESS: u32 = 32;

/// The token of the descriptor that wakes the thread.
const WAKE: u64 = 0;

/// The place of the process that was the last to ask for one.
static PLACE: AtomicPtr<ProcessPlace> = AtomicPtr::new(ptr::null_mut());

/// Where a process has its proxy. A child of a fork gets another: the lock of this one may have been held by a thread that
/// the child does not have.
struct ProcessPlace {
    pid: u32,
    proxy: Mutex<Option<&'static Proxy>>,
}

impl ProcessPlace {
    /// That of this process.
    fn of_this_process() -> &'static ProcessPlace {
        let pid = std::process::id();
        let mut known = PLACE.load(Ordering::Acquire);
        loop {
            // SAFETY: null, or a place that was published below, which is never freed from then on.
            if let Some(place) = unsafe { known.as_ref() }.filter(|place| place.pid == pid) {
                return place;
            }
            let new = Box::into_raw(Box::new(ProcessPlace { pid, proxy: Mutex::new(None) }));
            match PLACE.compare_exchange(known, new, Ordering::AcqRel, Ordering::Acquire) {
                // SAFETY: as above.
                Ok(_) => return unsafe { &*new },
                Err(other) => {
                    // SAFETY: made by `Box::into_raw` above, and nobody else has seen it.
                    drop(unsafe { Box::from_raw(new) });
                    known = other;
                }
            }
        }
    }
}

/// What the thread and the callers share.
pub(super) struct Proxy {
    /// The process that the thread runs in: a child of a fork inherits all of this but the thread.
    pid: u32,
    epoll: OwnedFd,
    wake: OwnedFd,
    next_token: AtomicU64,
    links: Mutex<HashMap<u64, Weak<Attended>>>,
    visits: Mutex<Visits>,
}

/// What the thread knows of a link.
pub(super) struct Place {
    pub(super) token: u64,
    /// A duplicate of the link's descriptor, if links share one: a set takes each descriptor only once.
    double: OnceLock<OwnedFd>,
    /// The descriptor is in the set. Changed by the thread only, or when the link goes.
    listening: AtomicBool,
    /// How often in a row the descriptor was ready and there was nothing to do.
    fruitless: AtomicU32,
}

impl Place {
    pub(super) fn new(token: u64) -> Self {
        Place {
            token,
            double: OnceLock::new(),
            listening: AtomicBool::new(false),
            fruitless: AtomicU32::new(0),
        }
    }
}

/// Who asks for a visit.
struct Visits {
    tokens: Vec<u64>,
    /// The thread looks here within a tick; otherwise it sleeps for longer, and must be woken for who asks.
    ticking: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn system(operation: &'static str, wire: String) -> impl FnOnce(std::io::Error) -> WireError {
    move |error| WireError::System { operation, wire, reason: error.to_string() }
}

impl Proxy {
    /// The proxy, whose thread is started if there is none (since a fork).
    pub(super) fn of_this_process() -> Result<&'static Proxy, WireError> {
        let mut proxy = lock(&ProcessPlace::of_this_process().proxy);
        if let Some(proxy) = *proxy {
            return Ok(proxy);
        }
        let started =
            Proxy::start().map_err(system("start the proxy thread for links", "any".to_owned()))?;
        *proxy = Some(started);
        Ok(started)
    }

    fn start() -> std::io::Result<&'static Proxy> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        // Before anything is kept for ever.
        let (hand_over, comes) = mpsc::channel::<&'static Proxy>();
        let run = move || {
            if let Ok(proxy) = comes.recv() {
                proxy.run()
            }
        };
        thread::Builder::new().name("antiphon-proxy".to_owned()).spawn(run)?;
        // Never freed: the thread lasts as long as the process.
        let proxy: &'static Proxy = Box::leak(Box::new(Proxy {
            pid: std::process::id(),
            epoll,
            wake,
            next_token: AtomicU64::new(WAKE + 1),
            links: Mutex::new(HashMap::new()),
            visits: Mutex::new(Visits { tokens: Vec::new(), ticking: false }),
        }));
        // The thread has the other end.
        let _ = hand_over.send(proxy);
        Ok(proxy)
    }

    /// Whether its thread runs in this process. An inherited one's epoll set is the parent's still, and its locks may have
    /// been held by threads that are not here.
    fn is_here(&self) -> bool {
        self.pid == std::process::id()
    }

    /// A number that no other link has had.
    pub(super) fn token(&self) -> u64 {
        self.next_token.fetch_add(1, Ordering::Relaxed)
    }

    /// Takes a link into the table.
    pub(super) fn admit(&self, attended: &Arc<Attended>) {
        lock(&self.links).insert(attended.place.token, Arc::downgrade(attended));
    }

    /// Forgets a link, which is about to go: nobody else has it any more.
    pub(super) fn dismiss(&self, place: &Place, link: &dyn Link) {
        if !self.is_here() {
            return;
        }
        lock(&self.links).remove(&place.token);
        self.ignore(place, link);
    }

    /// Has the thread visit a link.
    pub(super) fn ask(&self, token: u64) {
        if !self.is_here() {
            return;
        }
        let mut visits = lock(&self.visits);
        visits.tokens.push(token);
        if !mem::replace(&mut visits.ticking, true) {
            drop(visits);
            // Fails only where the counter is full, which wakes as well.
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }

    /// Takes a link's descriptor into the set.
    fn listen(&self, place: &Place, link: &dyn Link) -> Result<(), WireError> {
        let Some(descriptor) = link.descriptor() else { return Ok(()) };
        if place.listening.load(Ordering::Relaxed) {
            return Ok(());
        }
        let add = |descriptor: BorrowedFd<'_>| {
            epoll::add(&self.epoll, descriptor, EventData::new_u64(place.token), EventFlags::IN)
        };
        let added = match place.double.get() {
            Some(double) => add(double.as_fd()).map_err(Into::into),
            None => match add(descriptor) {
                Err(Errno::EXIST) => descriptor
                    .try_clone_to_owned()
                    .and_then(|double| Ok(add(place.double.get_or_init(|| double).as_fd())?)),
                done => done.map_err(Into::into),
            },
        };
        added.map_err(system("listen to a link", link.describe()))?;
        place.listening.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Takes a link's descriptor out of the set.
    fn ignore(&self, place: &Place, link: &dyn Link) {
        if !place.listening.swap(false, Ordering::Relaxed) {
            return;
        }
        let double = place.double.get().map(AsFd::as_fd);
        if let Some(descriptor) = double.or_else(|| link.descriptor()) {
            // Fails only for a descriptor that is not there any more.
            let _ = epoll::delete(&self.epoll, descriptor);
        }
    }

    /// The thread.
    fn run(&self) -> ! {
        let mut events = Vec::with_capacity(EVENTS);
        let (mut ready, mut visits, mut next) = (Vec::new(), Vec::new(), Lists::default());
        let mut ticks = Ticks::default();
        loop {
            let timeout =
                if next.turns.is_empty() { ticks.timeout() } else { Some(Duration::ZERO) };
            self.wait(&mut events, timeout);
            mem::swap(&mut ready, &mut next.turns);
            for event in events.drain(..) {
                match event.data.u64() {
                    WAKE => ticks.start(),
                    token => ready.push(token),
                }
            }
            // One that is both ready and due for another turn has one turn.
            ready.sort_unstable();
            ready.dedup();
            for token in ready.drain(..) {
                self.attend(token, None, &mut next);
            }
            if ticks.due() {
                mem::swap(&mut visits, &mut lock(&self.visits).tokens);
                let looked_for = visits.len();
                for token in visits.drain(..) {
                    self.attend(token, Some(ticks.span), &mut next);
                }
                let mut asked = lock(&self.visits);
                let visits = looked_for + asked.tokens.len();
                asked.ticking = ticks.go_on(visits, next.put_off.len());
                asked.tokens.append(&mut next.put_off);
            }
        }
    }

    fn wait(&self, events: &mut Vec<Event>, timeout: Option<Duration>) {
        // Whole milliseconds, rounded up: all that older kernels take.
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: 0,
            tv_nsec: timeout.as_micros().div_ceil(1000) as i64 * 1_000_000,
        });
        match epoll::wait(&self.epoll, spare_capacity(events), timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return,
            // Nothing that a caller could do causes this; a busy loop would be worse than a slow one.
            Err(_) => thread::sleep(TICK),
        }
        if events.iter().any(|event| event.data.u64() == WAKE) {
            let mut count = [0; 8];
            let _ = rustix::io::read(&self.wake, &mut count);
        }
    }

    /// Gives one link a turn, and does what follows from it. If the turn is a visit, `visit` is the number of ticks
    /// since the last look for visits, and the visit is put off while the link is busy.
    fn attend(&self, token: u64, visit: Option<u32>, next: &mut Lists) {
        let attended = lock(&self.links).get(&token).and_then(Weak::upgrade);
        let Some(attended) = attended else { return };
        // A wire's fault must not end the care of the others.
        let served = catch_unwind(AssertUnwindSafe(|| {
            if let Some(ticks) = visit {
                if attended.drives.swap(0, Ordering::Relaxed) / OFTEN >= ticks {
                    next.put_off.push(token);
                    return Ok(());
                }
                attended.visit.swap(false, Ordering::AcqRel);
            }
            self.serve(&attended, visit.is_some(), &mut next.turns)
        }));
        let error = match served {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error),
            Err(_) => Some(WireError::Lost {
                wire: "proxied".to_owned(),
                peer: attended.link.peer(),
                reason: "the wire panicked while the proxy made progress on it".to_owned(),
            }),
        };
        let _ = catch_unwind(AssertUnwindSafe(move || {
            if let Some(error) = error {
                self.ignore(&attended.place, &*attended.link);
                attended.fail(&error);
            }
            // Perhaps the last to let go of it.
            drop(attended);
        }));
    }

    fn serve(
        &self,
        attended: &Attended,
        visit: bool,
        turns: &mut Vec<u64>,
    ) -> Result<(), WireError> {
        let (place, link) = (&attended.place, &*attended.link);
        let (mut next, moved) = attended.turn()?;
        let fruitless = if moved { 0 } else { place.fruitless.load(Ordering::Relaxed) + 1 };
        place.fruitless.store(fruitless, Ordering::Relaxed);
        if next == Next::Listen && !visit && fruitless > FRUITLESS {
            self.ignore(place, link);
            next = Next::Visit;
        }
        match next {
            Next::Listen => self.listen(place, link)?,
            Next::Leave | Next::Forget => self.ignore(place, link),
            Next::Turn => turns.push(place.token),
            Next::Visit => attended.soon(),
        }
        Ok(())
    }
}

/// The links that the thread comes back to.
#[derive(Default)]
struct Lists {
    /// As soon as others had their turn.
    turns: Vec<u64>,
    /// When it next looks for visits.
    put_off: Vec<u64>,
}

/// When to look for visits next.
struct Ticks {
    next: Option<Instant>,
    /// Ticks until then, from the look before.
    span: u32,
    idle: u32,
}

impl Default for Ticks {
    fn default() -> Self {
        Ticks { next: None, span: 1, idle: 0 }
    }
}

impl Ticks {
    /// Somebody asks: the next look is within a tick.
    fn start(&mut self) {
        let soon = Instant::now() + TICK;
        self.next = Some(self.next.map_or(soon, |next| next.min(soon)));
    }

    fn timeout(&self) -> Option<Duration> {
        self.next.map(|next| next.saturating_duration_since(Instant::now()))
    }

    fn due(&self) -> bool {
        self.next.is_some_and(|next| next <= Instant::now())
    }

    /// Takes note of a look that found `visits` visits and put `put_off` of them off. Returns whether the next look
    /// comes within a tick.
    fn go_on(&mut self, visits: usize, put_off: usize) -> bool {
        let all = put_off > 0 && put_off == visits;
        self.span = if all { (2 * self.span).min(LONGEST) } else { 1 };
        self.idle = if visits > 0 { 0 } else { self.idle + 1 };
        let on = self.idle <= IDLE_TICKS;
        self.next = on.then(|| Instant::now() + self.span * TICK);
        if !on {
            self.idle = 0;
        }
        on && self.span == 1
    }
}
