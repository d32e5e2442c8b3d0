//! Words in pinned memory that host and device both use while kernels run.

use antiphon_hal::{Device, HalError, Memory};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Pinned memory, as words.
#[derive(Debug)]
pub struct Words {
    memory: Arc<dyn Memory>,
}

impl Words {
    /// `bytes` bytes (at least one word's) of zeroed pinned memory.
    pub fn new(device: &dyn Device, bytes: u64) -> Result<Self, HalError> {
        Ok(Words { memory: device.pinned(bytes.max(8))? })
    }

    /// The address, for host and device.
    pub fn address(&self) -> u64 {
        self.memory.address().expose_provenance() as u64
    }

    /// The memory.
    pub fn memory(&self) -> &Arc<dyn Memory> {
        &self.memory
    }

    /// The 64-bit word `at` bytes behind the start; `None` outside.
    pub fn word(&self, at: u64) -> Option<&AtomicU64> {
        let inside = at.is_multiple_of(8) && at.checked_add(8)? <= self.memory.len();
        // SAFETY: inside of memory that lives as long as `self`, aligned (allocations are page-aligned), and touched by
        // atomic accesses alone, of the host's and of the device's.
        inside.then(|| unsafe { &*self.memory.address().add(at as usize).cast::<AtomicU64>() })
    }

    /// The first 32-bit word.
    pub fn first(&self) -> &AtomicU32 {
        // SAFETY: as in `word`; there are at least 8 bytes.
        unsafe { &*self.memory.address().cast::<AtomicU32>() }
    }
}
