//! Stores that others see late: what a block's threads store plainly may stay with the block until one of them releases.
//!
//! A host shows stores in their order, and at once, so that a signal that ought to release what was stored before it would pass
//! though it does not. Here what a thread stores is its own until it meets others at a barrier, then the block's, and everybody's once
//! one of them releases, or the block is over. Each reads what it would find if all that it may see had been stored.

use std::collections::HashMap;

/// Bytes of memory that an entry stands for.
const LINE: usize = 16;

#[derive(Clone, Copy, Default)]
struct Line {
    bytes: [u8; LINE],
    /// A bit for each byte that was stored.
    known: u16,
}

type Lines = HashMap<usize, Line>;

/// What the threads of a block have stored and not released.
pub struct Late {
    /// Of each thread, since it last met others.
    own: Vec<Lines>,
    /// What those that meet at the block's barriers have seen of each other.
    met: Lines,
}

impl Late {
    pub fn new(threads: usize) -> Self {
        Self { own: vec![Lines::new(); threads], met: Lines::new() }
    }

    /// Keeps what `thread` stores at `address`.
    pub fn store(&mut self, thread: usize, address: usize, from: &[u8]) {
        let own = &mut self.own[thread];
        for (at, byte) in (address..).zip(from) {
            let line = own.entry(at / LINE).or_default();
            line.bytes[at % LINE] = *byte;
            line.known |= 1 << (at % LINE);
        }
    }

    /// Changes what `thread` has read at `address` to what it and those that it met have stored there.
    pub fn load(&self, thread: usize, address: usize, to: &mut [u8]) {
        for lines in [&self.met, &self.own[thread]] {
            if lines.is_empty() {
                continue;
            }
            let last = address + to.len().max(1) - 1;
            for key in address / LINE..=last / LINE {
                let Some(line) = lines.get(&key) else { continue };
                for (k, byte) in line.stored() {
                    if let Some(place) = (key * LINE + k).checked_sub(address)
                        && let Some(to) = to.get_mut(place)
                    {
                        *to = byte;
                    }
                }
            }
        }
    }

    /// `thread` comes to a barrier: whoever meets it there sees what it has stored.
    pub fn meet(&mut self, thread: usize) {
        for (key, new) in self.own[thread].drain() {
            let line = self.met.entry(key).or_default();
            for (k, byte) in new.stored() {
                line.bytes[k] = byte;
            }
            line.known |= new.known;
        }
    }

    /// Stores what `thread` releases: its own, and what it has seen of others.
    ///
    /// # Safety
    ///
    /// What [`Self::store`] was called with are addresses that may be written, as the kernel would have.
    pub unsafe fn release(&mut self, thread: usize) {
        for lines in [&mut self.met, &mut self.own[thread]] {
            for (key, line) in lines.drain() {
                for (k, byte) in line.stored() {
                    // SAFETY: the caller's.
                    unsafe { ((key * LINE + k) as *mut u8).write_volatile(byte) };
                }
            }
        }
    }
}

impl Line {
    fn stored(self) -> impl Iterator<Item = (usize, u8)> {
        (0..LINE).filter(move |k| self.known >> k & 1 != 0).map(move |k| (k, self.bytes[k]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two threads, and memory that they store to.
    struct World {
        memory: Vec<u8>,
        late: Late,
    }

    impl World {
        fn new() -> Self {
            World { memory: vec![0; 40], late: Late::new(2) }
        }

        fn store(&mut self, thread: usize, at: usize, bytes: &[u8]) {
            let base = self.memory.as_mut_ptr().expose_provenance();
            self.late.store(thread, base + at, bytes);
        }

        fn read(&self, thread: usize) -> Vec<u8> {
            let mut seen = self.memory.clone();
            self.late.load(thread, self.memory.as_ptr().addr(), &mut seen);
            seen
        }

        fn release(&mut self, thread: usize) {
            // SAFETY: all that was stored lies in `memory`.
            unsafe { self.late.release(thread) };
        }
    }

    /// Memory with these bytes at `at`, and zeros elsewhere.
    fn with(at: usize, bytes: &[u8]) -> Vec<u8> {
        let mut all = vec![0; 40];
        all[at..at + bytes.len()].copy_from_slice(bytes);
        all
    }

    #[test]
    fn a_store_is_the_threads_own_then_the_blocks_then_everybodys() {
        let mut world = World::new();
        let stored = with(13, &[7; 9]);
        world.store(0, 13, &[7; 9]);
        assert_eq!((world.read(0), world.read(1)), (stored.clone(), with(0, &[])));
        world.late.meet(0);
        assert_eq!((world.read(1), &world.memory), (stored.clone(), &with(0, &[])));
        world.release(1);
        assert_eq!(world.memory, stored);
        assert!(world.late.met.is_empty());
    }

    #[test]
    fn a_release_takes_nothing_of_those_that_were_not_met() {
        let mut world = World::new();
        world.store(0, 0, &[1; 4]);
        world.store(1, 4, &[2; 4]);
        world.release(1);
        assert_eq!(world.memory, with(4, &[2; 4]));
        world.release(0);
        assert_eq!(world.memory, with(0, &[1, 1, 1, 1, 2, 2, 2, 2]));
    }

    #[test]
    fn later_stores_win() {
        let mut world = World::new();
        let both = with(0, &[1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2]);
        world.store(0, 0, &[1; 8]);
        world.late.meet(0);
        world.store(1, 4, &[2; 8]);
        assert_eq!(world.read(1), both);
        world.late.meet(1);
        world.release(0);
        assert_eq!(world.memory, both);
    }
}
