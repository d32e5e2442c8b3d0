//! The memory of this rank that its peers may write to.

use super::protocol::Regions;
use antiphon_hal::Memory;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

/// The registered memory of one end.
#[derive(Debug, Default)]
pub(super) struct RegionTable(RwLock<HashMap<u64, Entry>>);

/// A memory, and how often it is registered.
type Entry = (Arc<dyn Memory>, usize);

/// Keeps a memory registered.
#[derive(Debug)]
pub(super) struct Registered {
    table: Arc<RegionTable>,
    region: u64,
}

impl RegionTable {
    /// Registers `memory`, once more if it is registered already.
    pub fn add(self: &Arc<Self>, memory: &Arc<dyn Memory>) -> Registered {
        let region = memory.id();
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        table.entry(region).or_insert_with(|| (Arc::clone(memory), 0)).1 += 1;
        Registered { table: Arc::clone(self), region }
    }
}

impl Regions for RegionTable {
    fn find(&self, region: u64) -> Option<Arc<dyn Memory>> {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        table.get(&region).map(|(memory, _)| Arc::clone(memory))
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut table = self.table.0.write().unwrap_or_else(PoisonError::into_inner);
        let Some((_, users)) = table.get_mut(&self.region) else { return };
        *users -= 1;
        if *users == 0 {
            // The memory may be unmapped, which takes its time: not under the lock.
            let memory = table.remove(&self.region);
            drop(table);
            drop(memory);
        }
    }
}
