//! The launches of all ranks of a process, counted together: memory goes while there are none.
//!
//! Calls of a driver that unmap and free may wait for all kernels of the process, on all devices that have a part in the memory.
//! Beside a kernel that waits for another rank's launch such a call would hold up whoever makes that launch, and so both for
//! ever.

use super::context::Context;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, Weak};

/// The launches of a process.
#[derive(Default)]
pub struct Underway {
    /// Read by who launches, written by who frees.
    gate: RwLock<()>,
    contexts: Mutex<Vec<Weak<Context>>>,
}

impl Underway {
    /// Those of this process.
    pub fn here() -> Arc<Self> {
        static HERE: OnceLock<Arc<Underway>> = OnceLock::new();
        Arc::clone(HERE.get_or_init(Arc::default))
    }

    /// Launches of this context count from now on.
    pub fn add(&self, context: &Arc<Context>) {
        let mut contexts = self.contexts.lock().unwrap_or_else(PoisonError::into_inner);
        contexts.retain(|known| known.strong_count() > 0);
        contexts.push(Arc::downgrade(context));
    }

    /// Nothing is freed while the result lives. A launch is given its number, and put into its stream, meanwhile.
    pub fn launching(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what may wait for kernels, if no launch that the host knows of is under way, or handed back otherwise. Who
    /// launches meanwhile waits for it. Replays of graphs are known once they have begun.
    pub fn quietly<T>(&self, what: T, work: impl FnOnce(T)) -> Option<T> {
        // Let go of behind the gate: a context that nobody else has any more is freed with this list.
        let contexts: Vec<_>;
        // Who waited for the gate would hold up launches behind one that waits for these.
        let Ok(_alone) = self.gate.try_write() else { return Some(what) };
        contexts = {
            let contexts = self.contexts.lock().unwrap_or_else(PoisonError::into_inner);
            contexts.iter().filter_map(Weak::upgrade).collect()
        };
        if !contexts.iter().all(|context| context.is_idle()) {
            return Some(what);
        }
        work(what);
        None
    }
}
