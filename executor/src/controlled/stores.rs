//! Units of data that threads have issued and memory has not seen: how loads and stores happen late.
//!
//! A raw unit that a lane issues waits in the lane's list, and from the block's next meeting in the block's. It happens
//! as a whole, load and store, when it is drained: at the latest when a release of its block, or the launch's end,
//! says so. Units of one list that touch the same bytes keep their order.

use super::code::Unit;
use super::machine::Machine;
use antiphon_types::ReduceOp;

/// A unit that has been issued.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub unit: u32,
    /// Where the scratch of its launch starts.
    pub half: u32,
    pub reduce: ReduceOp,
    /// What is stored, if that was loaded when the unit was issued.
    pub value: Option<[u8; 16]>,
    /// The tracked actor whose unit it is, and the lane that issued it.
    pub track: Option<u16>,
    pub lane: u32,
    /// Whether the tracked actor's hold keeps it from happening.
    pub held: bool,
}

/// Whose list of pending units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    Lane(u32),
    Block(u32),
}

impl Machine<'_> {
    fn pending(&mut self, list: List) -> &mut Vec<Pending> {
        match list {
            List::Lane(lane) => &mut self.lanes[lane as usize].pending,
            List::Block(block) => &mut self.blocks[block as usize].pending,
        }
    }

    fn number(&self, list: List) -> u32 {
        match list {
            List::Lane(lane) => lane,
            List::Block(block) => self.lanes.len() as u32 + block,
        }
    }

    /// Notes that a list may hold something.
    fn is_late(&mut self, list: List) {
        let number = self.number(list);
        if !std::mem::replace(&mut self.in_late[number as usize], true) {
            self.late.push(number);
        }
    }

    fn not_late(&mut self, at: usize) {
        let number = self.late.swap_remove(at);
        self.in_late[number as usize] = false;
    }

    fn list(&self, number: u32) -> List {
        let lanes = self.lanes.len() as u32;
        if number < lanes { List::Lane(number) } else { List::Block(number - lanes) }
    }

    /// Notes a unit for later.
    pub(super) fn push(&mut self, list: List, pending: Pending) {
        self.is_late(list);
        if let Some(track) = pending.track {
            self.tracker.issued(track, pending.lane);
        }
        self.pending(list).push(pending);
    }

    /// Makes a unit happen that nothing pending must precede.
    pub(super) fn perform(&mut self, pending: &Pending) {
        let unit = self.code.units[pending.unit as usize];
        let value = match pending.value {
            Some(value) => value,
            None => self.load(&unit, pending),
        };
        let len = unit.len as usize;
        for at in unit.destinations() {
            let side = self.code.sides[at];
            if !side.is_packet() {
                let at = side.at(pending.half);
                self.memory[at..at + len].copy_from_slice(&value[..len]);
            }
        }
    }

    /// What a unit's sources come to now.
    pub(super) fn load(&mut self, unit: &Unit, pending: &Pending) -> [u8; 16] {
        let len = unit.len as usize;
        let mut result = [0u8; 16];
        for (number, at) in unit.sources().enumerate() {
            let at = self.code.sides[at].at(pending.half);
            let mut read = [0u8; 16];
            read[..len].copy_from_slice(&self.memory[at..at + len]);
            if let Some(track) = pending.track {
                self.tracker.loaded(track, pending.unit, number, &read);
            }
            if number == 0 {
                result = read;
                continue;
            }
            let sources = [result.as_ptr(), read.as_ptr()];
            let mut sum = [0u8; 16];
            // SAFETY: sources and destination are arrays of this function, of 16 bytes each, and `len` is at most 16.
            unsafe {
                let sum = [sum.as_mut_ptr()];
                self.kernels.reduce(self.dtype, pending.reduce, &sum, &sources, len);
            }
            result = sum;
        }
        result
    }

    /// Whether two units, of which the first may have loaded already, touch the same bytes and one writes them.
    fn clash(&self, first: &Pending, second: &Unit, half: u32) -> bool {
        let earlier = &self.code.units[first.unit as usize];
        let writes = earlier.write_mask & (second.read_mask | second.write_mask);
        let reads = earlier.read_mask & second.write_mask;
        if writes | reads == 0 {
            return false;
        }
        let sides = &self.code.sides;
        let meet = |a: std::ops::Range<usize>, b: std::ops::Range<usize>| {
            sides[a].iter().filter(|side| !side.is_packet()).any(|a| {
                let start = a.at(first.half);
                let end = start + earlier.len as usize;
                sides[b.clone()].iter().filter(|side| !side.is_packet()).any(|b| {
                    let other = b.at(half);
                    start < other + second.len as usize && other < end
                })
            })
        };
        let stores = earlier.destinations();
        let loads = if first.value.is_none() { earlier.sources() } else { 0..0 };
        (writes != 0
            && (meet(stores.clone(), second.sources()) || meet(stores, second.destinations())))
            || (reads != 0 && meet(loads, second.destinations()))
    }

    /// The last of the first `most` entries of a list that must happen before `unit`.
    pub(super) fn before(&self, list: List, most: usize, unit: &Unit, half: u32) -> Option<usize> {
        let pending = match list {
            List::Lane(lane) => &self.lanes[lane as usize].pending,
            List::Block(block) => &self.blocks[block as usize].pending,
        };
        pending[..most.min(pending.len())].iter().rposition(|first| self.clash(first, unit, half))
    }

    /// Makes everything of a list happen that no hold keeps, in order: whether that was all.
    pub(super) fn drain(&mut self, list: List) -> bool {
        if self.pending(list).is_empty() {
            return true;
        }
        let mut entries = std::mem::take(self.pending(list));
        let mut kept = 0;
        for at in 0..entries.len() {
            let entry = entries[at];
            let unit = self.code.units[entry.unit as usize];
            let held = entry.held && self.tracker.holds(entry.track);
            let follows =
                || entries[..kept].iter().any(|first| self.clash(first, &unit, entry.half));
            let free = !held && !follows();
            if free {
                self.perform(&entry);
                self.happened(&entry);
            } else {
                entries[kept] = entry;
                kept += 1;
            }
        }
        entries.truncate(kept);
        let all = entries.is_empty();
        *self.pending(list) = entries;
        all
    }

    /// Tells the tracker of a unit that was noted for later and has happened.
    fn happened(&mut self, entry: &Pending) {
        if let Some(track) = entry.track
            && self.tracker.happened(track, entry.lane)
        {
            self.completed(track);
        }
    }

    /// Everything that the lanes of a block noted is the block's from here on.
    pub(super) fn merge(&mut self, block: u32) {
        let width = self.width;
        let first = if self.ways.random { self.rng.below(width) } else { 0 };
        for turn in 0..width {
            let lane = block * width + (first + turn) % width;
            if self.lanes[lane as usize].pending.is_empty() {
                continue;
            }
            let mut entries = std::mem::take(&mut self.lanes[lane as usize].pending);
            self.is_late(List::Block(block));
            self.blocks[block as usize].pending.append(&mut entries);
            self.lanes[lane as usize].pending = entries;
        }
    }

    /// Makes all happen that a lane may rely on when it releases: whether no hold forbids it.
    pub(super) fn release(&mut self, lane: u32) -> bool {
        self.drain(List::Block(lane / self.width)) && self.drain(List::Lane(lane))
    }

    /// Makes one unit happen, at random.
    pub(super) fn drain_one(&mut self) {
        while !self.late.is_empty() {
            let at = self.rng.below(self.late.len() as u32) as usize;
            let list = self.list(self.late[at]);
            let len = self.pending(list).len();
            if len == 0 {
                self.not_late(at);
                continue;
            }
            let at = self.rng.below(len as u32) as usize;
            let entry = self.pending(list)[at];
            let unit = self.code.units[entry.unit as usize];
            let follows = self.before(list, at, &unit, entry.half).is_some();
            if let List::Lane(lane) = list {
                let block = List::Block(lane / self.width);
                // What else is drained may have to follow something of the block's too.
                if follows || self.before(block, usize::MAX, &unit, entry.half).is_some() {
                    self.drain(block);
                }
            }
            if follows {
                // Never wrong: it is only more order than needed.
                self.drain(list);
                return;
            }
            self.pending(list).remove(at);
            self.perform(&entry);
            self.happened(&entry);
            return;
        }
    }

    /// Makes all units happen that holds no longer keep.
    pub(super) fn drain_freed(&mut self) {
        let mut at = 0;
        while let Some(&number) = self.late.get(at) {
            let list = self.list(number);
            if self.drain(list) {
                self.not_late(at);
            } else {
                at += 1;
            }
        }
    }
}
