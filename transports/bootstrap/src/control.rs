//! The control thread: one per process, shared by all meshes.
//!
//! It reads the sockets of every link, finishes writes that did not fit into a socket, and runs the handlers. It
//! starts with the first mesh and then stays parked in `epoll_wait` for the life of the process (two descriptors, no
//! processor time). A process that forked gets a thread of its own with its first mesh.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;

use crate::error::{BootstrapError, Result};
use crate::sync::lock;

/// Something with a descriptor that the control thread watches.
pub(crate) trait Source: Send + Sync {
    /// The descriptor is readable, writable (where asked for) or hung up. Level-triggered: called again while it is.
    fn ready(&self);
}

/// Something with handlers to run.
pub(crate) trait Dispatch: Send + Sync {
    /// Runs all handler calls that are due.
    fn dispatch(&self);
}

#[derive(Default)]
struct Registry {
    next: u64,
    sources: HashMap<u64, Arc<dyn Source>>,
    posted: VecDeque<Arc<dyn Dispatch>>,
    /// By time, and in order of their setting.
    alarms: BTreeMap<(Instant, u64), Weak<dyn Dispatch>>,
}

/// The control thread of this process.
pub(crate) struct Control {
    epoll: OwnedFd,
    wake: OwnedFd,
    registry: Mutex<Registry>,
    pid: u32,
}

/// Token of the eventfd; sources count from 1.
const WAKE: u64 = 0;

static CONTROL: Mutex<Option<Arc<Control>>> = Mutex::new(None);

thread_local! {
    static IS_CONTROL: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is the control thread.
pub(crate) fn on_control_thread() -> bool {
    IS_CONTROL.get()
}

impl Control {
    /// The control thread of this process, started if it is the first use (since a fork).
    pub fn get() -> Result<Arc<Control>> {
        let mut slot = lock(&CONTROL);
        let pid = std::process::id();
        if let Some(control) = slot.as_ref().filter(|control| control.pid == pid) {
            return Ok(control.clone());
        }
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(BootstrapError::os("create the control thread's epoll"))?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(BootstrapError::os("create the control thread's eventfd"))?;
        epoll::add(&epoll, &wake, epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)
            .map_err(BootstrapError::os("watch the control thread's eventfd"))?;
        let registry = Mutex::new(Registry { next: WAKE + 1, ..Registry::default() });
        let control = Arc::new(Control { epoll, wake, registry, pid });
        let running = control.clone();
        std::thread::Builder::new()
            .name("antiphon-control".into())
            .spawn(move || running.run())
            .map_err(|error| BootstrapError::Os {
                doing: "start the control thread",
                errno: Errno::from_io_error(&error).unwrap_or(Errno::AGAIN),
            })?;
        // An inherited one belongs to the parent, whose sockets and handlers must not be touched here.
        if let Some(inherited) = slot.replace(control.clone()) {
            std::mem::forget(inherited);
        }
        Ok(control)
    }

    /// Watches `fd` for input and hang-up until [`Control::remove`]; returns the token.
    pub fn add(&self, fd: BorrowedFd<'_>, source: Arc<dyn Source>) -> Result<u64> {
        let token = {
            let mut registry = lock(&self.registry);
            let token = registry.next;
            registry.next += 1;
            registry.sources.insert(token, source);
            token
        };
        let added =
            epoll::add(&self.epoll, fd, epoll::EventData::new_u64(token), epoll::EventFlags::IN);
        if let Err(errno) = added {
            lock(&self.registry).sources.remove(&token);
            return Err(BootstrapError::Os { doing: "watch a peer's socket", errno });
        }
        Ok(token)
    }

    /// Also watches for room to write, or no longer. A source that is gone stays gone.
    pub fn writable(&self, fd: BorrowedFd<'_>, token: u64, wanted: bool) {
        let mut flags = epoll::EventFlags::IN;
        if wanted {
            flags |= epoll::EventFlags::OUT;
        }
        // Fails only where the source was removed meanwhile, and then nothing is left to write.
        let _ = epoll::modify(&self.epoll, fd, epoll::EventData::new_u64(token), flags);
    }

    /// Stops watching. A call of `ready` that is under way may still finish.
    pub fn remove(&self, fd: BorrowedFd<'_>, token: u64) {
        let source = lock(&self.registry).sources.remove(&token);
        if source.is_some() {
            let _ = epoll::delete(&self.epoll, fd);
        }
    }

    /// Asks the control thread to run `what`'s handlers soon.
    pub fn post(&self, what: Arc<dyn Dispatch>) {
        lock(&self.registry).posted.push_back(what);
        // The counter is full only if 2^64 - 1 wakes are pending, and then it wakes anyway.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Asks the control thread to run `what` at a time, if it is still there then.
    pub fn post_at(&self, when: Instant, what: Weak<dyn Dispatch>) {
        let mut registry = lock(&self.registry);
        let number = registry.next;
        registry.next += 1;
        registry.alarms.insert((when, number), what);
        drop(registry);
        // It sleeps until the alarm that was the earliest one so far.
        if !on_control_thread() {
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }

    /// Moves the alarms that are due to what is posted; returns the time to the next one.
    fn ring(&self) -> Option<Timespec> {
        let mut registry = lock(&self.registry);
        let now = Instant::now();
        while let Some(alarm) = registry.alarms.first_entry() {
            let (when, _) = *alarm.key();
            if when > now {
                return Timespec::try_from(when - now).ok();
            }
            if let Some(what) = alarm.remove().upgrade() {
                registry.posted.push_back(what);
            }
        }
        None
    }

    fn run(&self) {
        IS_CONTROL.set(true);
        let mut events: Vec<epoll::Event> = Vec::with_capacity(64);
        loop {
            events.clear();
            let next = self.ring();
            let now = Timespec::default();
            let limit =
                if lock(&self.registry).posted.is_empty() { next.as_ref() } else { Some(&now) };
            match epoll::wait(&self.epoll, spare_capacity(&mut events), limit) {
                // EINTR needs no care; anything else cannot happen on an epoll that lives as long as the thread.
                Ok(_) | Err(_) => {}
            }
            for event in &events {
                let token = event.data.u64();
                if token == WAKE {
                    let _ = rustix::io::read(&self.wake, &mut [0u8; 8]);
                    continue;
                }
                let source = lock(&self.registry).sources.get(&token).cloned();
                if let Some(source) = source {
                    source.ready();
                }
            }
            // One batch a turn: handlers that answer each other must not keep the sockets waiting.
            let posted = std::mem::take(&mut lock(&self.registry).posted);
            for what in posted {
                what.dispatch();
            }
        }
    }
}
