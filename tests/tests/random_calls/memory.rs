//! A rank's memory: slots in which the buffers of calls lie, and what must be in every byte of them.

use crate::hash;
use crate::places::Place;
use crate::program::SLOTS;
use antiphon::Communicator;
use antiphon::executor::hal::{Memory, Stream};
use antiphon::executor::release;
use std::sync::Arc;

/// What keeps a slot's memory.
enum Holder {
    /// Memory of Antiphon, which peers map.
    Own(Arc<dyn Memory>),
    /// An allocation of the program's. Its pointer is kept, since calls write through it.
    Plain(*mut u8, usize),
}

impl Drop for Holder {
    fn drop(&mut self) {
        match self {
            // On a device calls of other streams may run, for which nobody may wait here.
            Holder::Own(memory) => release(Arc::clone(memory)),
            &mut Holder::Plain(start, bytes) => {
                // SAFETY: it is a boxed slice that was leaked for this, and nobody uses it any more.
                drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(start, bytes)) });
            }
        }
    }
}

struct Slot {
    holder: Holder,
    expected: Vec<u8>,
    /// Whether it is known what must be in a byte.
    known: Vec<bool>,
    /// The stream whose calls may still touch it.
    stream: Option<usize>,
}

pub struct Slots {
    slots: Vec<Slot>,
    room: usize,
    /// Copies to and from memory that the CPU does not reach.
    copies: Option<Arc<dyn Stream>>,
}

impl Slots {
    pub fn new(on: &Communicator, room: usize, seed: u64) -> Result<Self, String> {
        let near = on.device().caps().host_access;
        let copies =
            if near { None } else { Some(on.stream().map_err(|error| error.to_string())?) };
        let mut slots = Slots { slots: Vec::new(), room, copies };
        for number in 0..SLOTS as u64 {
            let slot = slots.made(on, hash(&[seed, number, on.rank().into()]))?;
            slots.slots.push(slot);
        }
        Ok(slots)
    }

    /// New memory, of which it is known what is in it.
    fn made(&self, on: &Communicator, seed: u64) -> Result<Slot, String> {
        let room = self.room;
        let holder = match seed % 2 {
            1 if self.copies.is_none() => {
                let memory = Box::leak(vec![0; room].into_boxed_slice());
                Holder::Plain(memory.as_mut_ptr(), room)
            }
            _ => Holder::Own(on.allocate(room as u64).map_err(|error| error.to_string())?),
        };
        let expected: Vec<u8> = (0..room as u64).map(|at| hash(&[seed, at]) as u8).collect();
        let slot = Slot { holder, known: vec![true; room], expected, stream: None };
        self.copy(slot.start(), slot.expected.as_ptr(), room);
        if seed.is_multiple_of(5) {
            on.register(slot.start(), room as u64).map_err(|error| error.to_string())?;
        }
        Ok(slot)
    }

    /// Puts other memory in the place of a slot's, which no call uses.
    pub fn renew(&mut self, on: &Communicator, slot: usize, seed: u64) -> Result<(), String> {
        self.slots[slot] = self.made(on, seed)?;
        Ok(())
    }

    /// The stream whose calls may still touch a slot.
    pub fn stream_of(&self, slot: usize) -> Option<usize> {
        self.slots[slot].stream
    }

    /// Gives a slot to a stream's calls.
    pub fn give(&mut self, slot: usize, stream: usize) {
        self.slots[slot].stream = Some(stream);
    }

    /// Takes back all slots from a stream that is through.
    pub fn take_from(&mut self, stream: usize) {
        for slot in self.slots.iter_mut().filter(|slot| slot.stream == Some(stream)) {
            slot.stream = None;
        }
    }

    /// Where a place begins.
    pub fn address(&self, place: Place, size: usize) -> *mut u8 {
        let at = place.at as usize * size;
        assert!(at + place.count as usize * size <= self.room, "{place:?} in {} bytes", self.room);
        self.slots[place.slot].start().wrapping_add(at)
    }

    /// Writes to a slot that no call uses.
    pub fn write(&mut self, slot: usize, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.room, "{} bytes at {at} of {}", bytes.len(), self.room);
        self.copy(self.slots[slot].start().wrapping_add(at), bytes.as_ptr(), bytes.len());
    }

    /// Copies to or from a slot that no call uses.
    fn copy(&self, to: *mut u8, from: *const u8, bytes: usize) {
        match &self.copies {
            // SAFETY: one side is in a slot, the other memory of the caller's, both so long (all callers).
            None => unsafe { to.copy_from_nonoverlapping(from, bytes) },
            Some(_) if bytes == 0 => {}
            Some(stream) => {
                // SAFETY: as above; the copy is waited for.
                let copied = unsafe { stream.copy(to, from, bytes as u64) };
                let done = copied.and_then(|_| stream.synchronize());
                done.expect("a copy between the host and a device");
            }
        }
    }

    /// Notes what must be in a slot from a byte on.
    pub fn expect(&mut self, slot: usize, at: usize, bytes: &[u8]) {
        let Slot { expected, known, .. } = &mut self.slots[slot];
        expected[at..at + bytes.len()].copy_from_slice(bytes);
        known[at..at + bytes.len()].fill(true);
    }

    /// Notes that anything may be in some bytes of a slot.
    pub fn forget(&mut self, slot: usize, at: usize, bytes: usize) {
        self.slots[slot].known[at..at + bytes].fill(false);
    }

    /// The first wrong byte of all slots that no call uses, in words.
    pub fn check(&self) -> Result<(), String> {
        let idle = self.slots.iter().enumerate().filter(|(_, slot)| slot.stream.is_none());
        for (number, slot) in idle {
            let mut found = vec![0; self.room];
            self.copy(found.as_mut_ptr(), slot.start(), self.room);
            if found == slot.expected {
                continue;
            }
            let wrong = |&at: &usize| slot.known[at] && found[at] != slot.expected[at];
            let all: Vec<usize> = (0..self.room).filter(wrong).collect();
            if let (Some(&first), Some(&last)) = (all.first(), all.last()) {
                let part = first..self.room.min(first + 16);
                return Err(format!(
                    "{} wrong bytes from {first} to {last} of slot {number}: {:02x?}, where {:02x?} must be",
                    all.len(),
                    &found[part.clone()],
                    &slot.expected[part]
                ));
            }
        }
        Ok(())
    }
}

impl Slot {
    fn start(&self) -> *mut u8 {
        match &self.holder {
            Holder::Own(memory) => memory.address(),
            Holder::Plain(start, _) => *start,
        }
    }
}
