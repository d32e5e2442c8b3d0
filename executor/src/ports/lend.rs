//! Memory that wires hold: the same bytes under a count of its own, so that it shows when nobody else holds them.

use crate::sync::lock;
use antiphon_hal::{Backend, DmaBuf, HalError, Memory, MemoryHandle};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// How often each memory of this process is lent: a rank may lend the same to the wires of several communicators.
static LOANS: Mutex<Option<HashMap<u64, usize>>> = Mutex::new(None);

fn loans() -> MutexGuard<'static, Option<HashMap<u64, usize>>> {
    lock(&LOANS)
}

/// A memory, lent to wires.
#[derive(Debug)]
pub struct Lent(Arc<dyn Memory>);

impl Lent {
    /// Lends a memory.
    pub fn new(memory: &Arc<dyn Memory>) -> Self {
        *loans().get_or_insert_default().entry(memory.id()).or_default() += 1;
        Lent(Arc::clone(memory))
    }

    /// Whether nobody but those it is lent to holds the memory.
    pub fn is_abandoned(&self) -> bool {
        let loans = loans();
        let lent = loans.as_ref().and_then(|loans| loans.get(&self.0.id()));
        lent.is_some_and(|&lent| Arc::strong_count(&self.0) <= lent)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut loans = loans();
        let Some(loans) = loans.as_mut() else { return };
        let Some(lent) = loans.get_mut(&self.0.id()) else { return };
        *lent -= 1;
        if *lent == 0 {
            loans.remove(&self.0.id());
        }
    }
}

// SAFETY: the memory inside keeps the contract.
unsafe impl Memory for Lent {
    fn backend(&self) -> Backend {
        self.0.backend()
    }

    fn address(&self) -> *mut u8 {
        self.0.address()
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn id(&self) -> u64 {
        self.0.id()
    }

    fn export(&self) -> Result<MemoryHandle, HalError> {
        self.0.export()
    }

    fn export_dma_buf(&self, offset: u64, bytes: u64) -> Result<DmaBuf, HalError> {
        self.0.export_dma_buf(offset, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_hal::driver;

    #[test]
    fn what_two_communicators_lend_is_abandoned_when_its_user_lets_go() {
        let device = driver(Backend::Host).unwrap().open(0).unwrap();
        let memory = device.allocate(4096).unwrap();
        let (one, other) = (Lent::new(&memory), Lent::new(&memory));
        assert!(!one.is_abandoned() && !other.is_abandoned());
        drop(memory);
        assert!(one.is_abandoned() && other.is_abandoned());
        drop(one);
        assert!(other.is_abandoned());
    }
}
