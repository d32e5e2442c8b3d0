//! The launches of all ranks of a process, counted together: memory goes while there are none.
//!
//! Calls of a driver that unmap and free may wait for all kernels of the process, on all devices that have a part in the memory.
//! Beside a kernel that waits for another rank's launch such a call would hold up whoever makes that launch, and so both for
//! ever.

use super::context::Context;
use super::free_later;
use crate::sync::lock;
use antiphon_hal::{Backend, Device};
use std::sync::{
    Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak,
};

/// No launch begins while it lives.
pub struct Alone<'a> {
    _gate: RwLockWriteGuard<'a, ()>,
    /// Those that were asked.
    contexts: Vec<Arc<Context>>,
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        let_go(std::mem::take(&mut self.contexts));
    }
}

/// Gives up handles of contexts. One that its communicator has let go of meanwhile is freed by a thread that may wait for
/// kernels.
pub fn let_go(contexts: Vec<Arc<Context>>) {
    let last: Vec<_> = contexts.into_iter().filter_map(Arc::into_inner).collect();
    if !last.is_empty() {
        free_later(last);
    }
}

/// The launches of a process.
#[derive(Default)]
pub struct Underway {
    /// Locked for reading by threads that launch, and for writing by threads that free.
    gate: RwLock<()>,
    contexts: Mutex<Vec<(Place, Weak<Context>)>>,
}

/// A device: whose it is, and its number.
type Place = (Backend, u32);

impl Underway {
    /// Those of this process.
    pub fn here() -> Arc<Self> {
        static HERE: OnceLock<Arc<Underway>> = OnceLock::new();
        Arc::clone(HERE.get_or_init(Arc::default))
    }

    /// Launches of this context on the device count from now on.
    pub fn add(&self, device: &dyn Device, context: &Arc<Context>) {
        let mut contexts = lock(&self.contexts);
        contexts.retain(|(_, known)| known.strong_count() > 0);
        contexts.push(((device.backend(), device.index()), Arc::downgrade(context)));
    }

    /// Nothing is freed while the result lives. A launch is given its number, and put into its stream, meanwhile.
    pub fn launching(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does `work`, which may wait for kernels, unless a launch that the host knows of is under way: then it hands `what` back.
    /// Threads that launch meanwhile wait for it. Replays of graphs are known once they have begun.
    pub fn quietly<T>(&self, what: T, work: impl FnOnce(T)) -> Option<T> {
        let Some(_alone) = self.alone(None) else { return Some(what) };
        work(what);
        None
    }

    /// Keeps launches from beginning while the result lives. `None` if a launch that the host knows of is under way on the
    /// device, or, without a device, on any.
    pub fn alone(&self, device: Option<&dyn Device>) -> Option<Alone<'_>> {
        let place = device.map(|device| (device.backend(), device.index()));
        // Only tried: a thread that waits for the gate holds up launches, behind one that may wait for these.
        let gate = self.gate.try_write().ok()?;
        let contexts: Vec<_> = {
            let contexts = lock(&self.contexts);
            let there = contexts.iter().filter(|(at, _)| place.is_none_or(|place| place == *at));
            there.filter_map(|(_, context)| context.upgrade()).collect()
        };
        let alone = Alone { _gate: gate, contexts };
        let idle = alone.contexts.iter().all(|context| context.is_idle());
        idle.then_some(alone)
    }
}
