//! Memory of a device for tables that this rank's kernels read, and nobody maps elsewhere: cut out of what the device allocates, which
//! is whole pages, of 2 MiB with some drivers, each mapped at the cost of many launches.

use crate::sync::lock;
use antiphon_hal::{Backend, Device, HalError, Memory, MemoryHandle};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Bytes that are allocated at once.
const SLAB: u64 = 2 << 20;
/// The most bytes of a cut; what is longer is an allocation of its own.
const LARGEST: u64 = SLAB / 4;
/// Cuts begin at multiples: no two share a line of a cache.
const UNIT: u64 = 256;

/// What is cut out of.
#[derive(Debug)]
pub struct Pool {
    device: Arc<dyn Device>,
    slabs: Mutex<Vec<Arc<Slab>>>,
}

/// An allocation, and what is free of it: by its offset, how many bytes.
#[derive(Debug)]
struct Slab {
    memory: Arc<dyn Memory>,
    free: Mutex<BTreeMap<u64, u64>>,
}

/// A part of a slab, free again when dropped: nothing that was launched may read it by then.
#[derive(Debug)]
struct Cut {
    slab: Arc<Slab>,
    offset: u64,
    bytes: u64,
    id: u64,
}

impl Pool {
    /// An empty pool.
    pub fn new(device: &Arc<dyn Device>) -> Self {
        Pool { device: Arc::clone(device), slabs: Mutex::default() }
    }

    /// Memory of `bytes` bytes, with anything in it.
    ///
    /// # Errors
    /// What the device reports.
    pub fn take(&self, bytes: u64) -> Result<Arc<dyn Memory>, HalError> {
        let bytes = bytes.max(1);
        if bytes > LARGEST {
            return self.device.allocate(bytes);
        }
        loop {
            let cut = lock(&self.slabs).iter().find_map(|slab| Slab::cut(slab, bytes));
            if let Some(cut) = cut {
                return Ok(Arc::new(cut));
            }
            // No lock is held: it may wait for kernels, which may wait for other threads.
            let memory = self.device.allocate(SLAB)?;
            let free = Mutex::new(BTreeMap::from([(0, SLAB)]));
            lock(&self.slabs).push(Arc::new(Slab { memory, free }));
        }
    }
}

impl Slab {
    /// The first part that is free and long enough.
    fn cut(this: &Arc<Self>, bytes: u64) -> Option<Cut> {
        let length = bytes.next_multiple_of(UNIT);
        let mut free = lock(&this.free);
        let (offset, room) =
            free.iter().map(|(&at, &room)| (at, room)).find(|&(_, room)| room >= length)?;
        free.remove(&offset);
        if room > length {
            free.insert(offset + length, room - length);
        }
        Some(Cut { slab: Arc::clone(this), offset, bytes, id: antiphon_hal::next_id() })
    }

    fn give_back(&self, mut offset: u64, mut length: u64) {
        let mut free = lock(&self.free);
        if let Some(behind) = free.remove(&(offset + length)) {
            length += behind;
        }
        let before = free.range(..offset).next_back().map(|(&at, &room)| (at, room));
        if let Some((at, room)) = before.filter(|(at, room)| at + room == offset) {
            (offset, length) = (at, room + length);
        }
        free.insert(offset, length);
    }
}

// SAFETY: a part of a slab's memory, which it keeps.
unsafe impl Memory for Cut {
    fn backend(&self) -> Backend {
        self.slab.memory.backend()
    }

    fn address(&self) -> *mut u8 {
        self.slab.memory.address().wrapping_add(self.offset as usize)
    }

    fn len(&self) -> u64 {
        self.bytes
    }

    fn id(&self) -> u64 {
        self.id
    }

    fn export(&self) -> Result<MemoryHandle, HalError> {
        Err(HalError::NotShareable {
            why: "it is a part of memory with other things in it".to_owned(),
            cure: "allocate the memory by the device",
        })
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        self.slab.give_back(self.offset, self.bytes.next_multiple_of(UNIT));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::communicator::host;

    fn slabs(pool: &Pool) -> usize {
        lock(&pool.slabs).len()
    }

    /// The bytes that a cut takes, as numbers.
    fn taken(memory: &Arc<dyn Memory>) -> std::ops::Range<usize> {
        let start = memory.address().addr();
        start..start + memory.len().next_multiple_of(UNIT) as usize
    }

    #[test]
    fn cuts_are_apart_and_come_again() {
        let pool = Pool::new(&host().unwrap());
        let mut seed = 20_260_u64;
        let mut random = |below: u64| {
            seed = crate::executor::mix(seed, 1);
            (seed >> 20) % below
        };
        let mut cuts: Vec<Arc<dyn Memory>> = Vec::new();
        for round in 0..4000 {
            if cuts.len() > 40 && random(2) == 0 {
                cuts.swap_remove(random(cuts.len() as u64) as usize);
            } else {
                let most = [1, 300, 5000, LARGEST][random(4) as usize];
                let cut = pool.take(1 + random(most)).unwrap();
                assert!(cut.address().addr().is_multiple_of(UNIT as usize));
                let own = taken(&cut);
                let apart = |other: &Arc<dyn Memory>| {
                    let other = taken(other);
                    own.end <= other.start || other.end <= own.start
                };
                assert!(cuts.iter().all(apart), "round {round}");
                cuts.push(cut);
            }
        }
        let most = slabs(&pool);
        drop(cuts);
        for slab in lock(&pool.slabs).iter() {
            assert_eq!(*lock(&slab.free), BTreeMap::from([(0, SLAB)]), "all in one again");
        }
        let again: Vec<_> = (0..most * 4).map(|_| pool.take(LARGEST).unwrap()).collect();
        assert_eq!(slabs(&pool), most, "{} cuts of a quarter", again.len());
    }

    #[test]
    fn what_is_long_is_an_allocation_of_its_own_and_a_cut_cannot_be_shared() {
        let pool = Pool::new(&host().unwrap());
        let long = pool.take(LARGEST + 1).unwrap();
        assert!(long.export().is_ok() && slabs(&pool) == 0);
        let short = pool.take(LARGEST).unwrap();
        assert!(matches!(short.export(), Err(HalError::NotShareable { .. })));
        assert_eq!((short.len(), slabs(&pool)), (LARGEST, 1));
    }
}
