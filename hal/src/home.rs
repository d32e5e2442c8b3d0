//! What handles of this process lead back to in it: memory that ranks of one process pass to each other is there already.

use crate::handle::Home;
use crate::id::next_id;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// A number of this process that no other process has, but by a chance of one in 2^64.
pub(crate) fn process_number() -> u64 {
    static NUMBER: OnceLock<u64> = OnceLock::new();
    // The standard library seeds its hashers from the system's randomness.
    *NUMBER.get_or_init(|| RandomState::new().hash_one(std::process::id()))
}

/// A number for a mapping of this process, or for memory of its application. It cannot be guessed without one of its handles, so
/// that a handle that a peer made up leads to no memory that others were given.
pub(crate) fn mapping_number() -> u64 {
    RandomState::new().hash_one(next_id()).max(1)
}

/// The objects of one kind that this process has exported, by their numbers.
#[derive(Debug)]
pub(crate) struct Exported<M>(Mutex<BTreeMap<u64, Weak<M>>>);

impl<M> Exported<M> {
    /// None.
    pub(crate) const fn new() -> Self {
        Exported(Mutex::new(BTreeMap::new()))
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<u64, Weak<M>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers an object by its [number](mapping_number), as long as somebody has it. Returns how others of this process find it.
    pub(crate) fn enter(&self, number: u64, one: &Arc<M>) -> Home {
        let mut all = self.all();
        all.retain(|_, known| known.strong_count() > 0);
        all.insert(number, Arc::downgrade(one));
        Home { process: process_number(), number }
    }

    /// The object with this number, if it is of this process and somebody still has it.
    pub(crate) fn find(&self, home: Home) -> Option<Arc<M>> {
        let all = self.all();
        let known = (home.process == process_number()).then(|| all.get(&home.number)).flatten();
        known.and_then(Weak::upgrade)
    }
}
