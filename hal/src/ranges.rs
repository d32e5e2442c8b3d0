//! The memory of a device by address, with the epoch that tells when it changed.

use crate::memory::Memory;
use std::collections::BTreeMap;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};

/// Live memory by address. No two entries overlap, as no two mappings do.
#[derive(Debug)]
pub(crate) struct Ranges<M> {
    entries: RwLock<BTreeMap<usize, Entry<M>>>,
    epoch: AtomicU64,
}

#[derive(Debug)]
struct Entry<M> {
    bytes: u64,
    memory: Weak<M>,
}

impl<M> Default for Ranges<M> {
    fn default() -> Self {
        Ranges { entries: RwLock::default(), epoch: AtomicU64::new(0) }
    }
}

impl<M: Memory> Ranges<M> {
    /// Changes with every entry and every removal.
    pub(crate) fn epoch(&self) -> &AtomicU64 {
        &self.epoch
    }

    /// Enters `memory`.
    pub(crate) fn enter(&self, memory: &Arc<M>) {
        let entry = Entry { bytes: memory.len(), memory: Arc::downgrade(memory) };
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        entries.insert(memory.address().addr(), entry);
        self.epoch.fetch_add(1, Ordering::Release);
    }

    /// Removes `memory`, which is being dropped. Whoever drops it does this before the range is unmapped: the next
    /// mapping may get the same address.
    pub(crate) fn remove(&self, memory: &M) {
        let address = memory.address().addr();
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        if entries.get(&address).is_some_and(|entry| ptr::eq(entry.memory.as_ptr(), memory)) {
            entries.remove(&address);
        }
        self.epoch.fetch_add(1, Ordering::Release);
    }

    /// Memory that is not entered here is gone.
    #[cfg(any(feature = "cuda", feature = "rocm"))]
    pub(crate) fn changed(&self) {
        self.epoch.fetch_add(1, Ordering::Release);
    }

    /// The live memory that holds the `bytes` bytes at `address`, and the offset of `address` in it.
    pub(crate) fn find(&self, address: usize, bytes: u64) -> Option<(Arc<M>, u64)> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let (start, entry) = entries.range(..=address).next_back()?;
        let offset = (address - start) as u64;
        // Tested before upgrading: a strong reference dropped here could be the last, and wants the lock.
        if offset.checked_add(bytes)? > entry.bytes {
            return None;
        }
        entry.memory.upgrade().map(|memory| (memory, offset))
    }
}
