//! The numbers by which a rank's peers, and their devices, know its memory.
//!
//! A rank numbers the regions it tells its peers about by slots, so that kernels find one in a table; a slot that is used
//! again has another generation.

use antiphon_codegen::abi::{FOREIGN, region_id};
use antiphon_hal::Memory;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// A memory of this rank's.
#[derive(Debug)]
struct Numbered {
    slot: u32,
    memory: Weak<dyn Memory>,
    start: u64,
    bytes: u64,
    is_borrowed: bool,
}

impl Numbered {
    /// The address of bytes in it, if all are inside of it and it is there. No handle is taken for that: dropping the last handle
    /// of a memory frees it, which may take long.
    fn find(&self, offset: u64, bytes: u64) -> Option<u64> {
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        (inside && self.memory.strong_count() > 0).then(|| self.start.checked_add(offset))?
    }
}

/// This rank's own regions, numbered.
#[derive(Debug, Default)]
pub struct Slots {
    /// By the number of the memory.
    numbered: HashMap<u64, Numbered>,
    /// How often each slot was used.
    generations: Vec<u32>,
    free: Vec<u32>,
}

impl Slots {
    /// The number of a memory, and whether it is new.
    pub fn number(&mut self, memory: &Arc<dyn Memory>) -> (u64, bool) {
        if let Some(&Numbered { slot, .. }) = self.numbered.get(&memory.id()) {
            return (region_id(slot, self.generations[slot as usize]), false);
        }
        if self.free.is_empty() {
            self.collect();
        }
        let slot = match self.free.pop() {
            Some(slot) => {
                self.generations[slot as usize] += 1;
                slot
            }
            None => {
                self.generations.push(0);
                self.generations.len() as u32 - 1
            }
        };
        let (start, bytes) = (memory.address().expose_provenance() as u64, memory.len());
        let is_borrowed = memory.is_borrowed();
        let numbered = Numbered { slot, memory: Arc::downgrade(memory), start, bytes, is_borrowed };
        self.numbered.insert(memory.id(), numbered);
        (region_id(slot, self.generations[slot as usize]), true)
    }

    /// The memories that are there, with the numbers by which peers know them.
    pub fn all(&self) -> Vec<(Arc<dyn Memory>, u64)> {
        let known = self.numbered.values().filter_map(|Numbered { slot, memory, .. }| {
            let number = region_id(*slot, self.generations[*slot as usize]);
            Some((memory.upgrade()?, number))
        });
        known.collect()
    }

    /// What peers know by a number.
    fn known(&self, region: u64) -> Option<&Numbered> {
        let slot = region as u32;
        let known = self.numbered.values().find(|known| known.slot == slot)?;
        let generation = *self.generations.get(slot as usize)?;
        (region_id(slot, generation) == region).then_some(known)
    }

    /// What peers know by a number, if it is there: its bytes, and whether it is borrowed. As for [`find`](Numbered::find), no
    /// handle is taken.
    pub fn look(&self, region: u64) -> Option<(u64, bool)> {
        let known = self.known(region).filter(|known| known.memory.strong_count() > 0)?;
        Some((known.bytes, known.is_borrowed))
    }

    /// The memory that peers know by a number. Who lets go of it may be the last to.
    pub fn memory(&self, region: u64) -> Option<Arc<dyn Memory>> {
        self.known(region)?.memory.upgrade()
    }

    /// The address of bytes of this rank's memory that a peer of another node names, by their region or by their address
    /// here. Only what peers were told of is found, whatever else of this process's there is at an address.
    pub fn find(&self, region: u64, offset: u64, bytes: u64) -> Option<u64> {
        if region != FOREIGN {
            return self.known(region)?.find(offset, bytes);
        }
        let inside = |known: &Numbered| known.find(offset.checked_sub(known.start)?, bytes);
        self.numbered.values().find_map(inside)
    }

    /// Frees the slots of memory that is gone.
    fn collect(&mut self) {
        let Slots { numbered, free, .. } = self;
        numbered.retain(|_, Numbered { slot, memory, .. }| {
            let alive = memory.strong_count() > 0;
            if !alive {
                free.push(*slot);
            }
            alive
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_hal::{Backend, driver};

    #[test]
    fn peers_reach_what_they_were_told_of_and_nothing_else() {
        let device = driver(Backend::Host).unwrap().open(0).unwrap();
        let mut slots = Slots::default();
        let (told, secret) = (device.allocate(4096).unwrap(), device.allocate(4096).unwrap());
        let (region, _) = slots.number(&told);
        let [at, hidden] = [&told, &secret].map(|memory| memory.address() as u64);
        assert!(device.find(secret.address(), 8).is_some(), "it is the device's all the same");
        for (region, offset, bytes, found) in [
            (region, 8, 8, Some(at + 8)),
            (region, 4096, 0, Some(at + 4096)),
            (region, 4090, 8, None),
            (region, u64::MAX, 8, None),
            (region_id(1, 0), 0, 8, None),
            (FOREIGN, at, 4096, Some(at)),
            (FOREIGN, at + 4088, 8, Some(at + 4088)),
            (FOREIGN, at + 4089, 8, None),
            (FOREIGN, at - 1, 8, None),
            (FOREIGN, hidden, 8, None),
            (FOREIGN, u64::MAX, 8, None),
        ] {
            assert_eq!(slots.find(region, offset, bytes), found, "{region:#x} {offset:#x} {bytes}");
        }
        drop(told);
        assert_eq!(slots.find(FOREIGN, at, 8), None);
    }
}
