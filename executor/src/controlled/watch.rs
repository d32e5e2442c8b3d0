//! Actors that the schedule holds back or the caller watches: how far each is, and what it saw.

use super::code::{Code, Kind};
use super::machine::{Keys, Machine};
use antiphon_plan::program::Span;
use antiphon_plan::schedule::{Actor, Hold};

/// What a watched actor touched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// What it read: its sources unit by unit, or the user's output. Zeros where it has read nothing.
    pub read: Vec<u8>,
    /// What its destinations (the user's: the input) held when all that were watched had just happened; of two touches of
    /// a race, the bytes that both touch. Nothing if some never happened.
    pub left: Vec<u8>,
}

/// One actor that matters to a run.
#[derive(Debug)]
struct Slot {
    actor: Actor,
    /// Position of the instruction in [`Code::ops`]; none for users.
    at: Option<u32>,
    /// The actors that must be first.
    until: Vec<u16>,
    watched: bool,
    /// Lanes that are past it, as bits.
    passed: u64,
    /// Lanes of which others need not wait, as bits.
    exempt: u64,
    /// Units issued that have not happened, by lane.
    pending: Vec<u32>,
    /// All of it has happened.
    complete: bool,
    /// So much of it has happened that whoever is held until then may go on.
    enough: bool,
    /// Its units, and the sources of each.
    units: Span,
    sources: usize,
    seen: Seen,
}

/// All actors that matter to a run.
#[derive(Debug, Default)]
pub(super) struct Tracker {
    slots: Vec<Slot>,
    /// For every instruction, whether some actor is about it.
    marks: Vec<bool>,
    /// All lanes, as bits.
    lanes: u64,
    /// The addresses that matter of what watched actors leave behind; all if there are none.
    pub focus: Option<std::ops::Range<usize>>,
    /// Holds are off.
    pub off: bool,
    /// Something completed, so that held units may now happen.
    pub freed: bool,
}

impl Tracker {
    pub fn new(ops: usize) -> Self {
        Tracker { marks: vec![false; ops], ..Tracker::default() }
    }

    /// Prepares for a run with these holds and these actors watched. `one_lane` is the only lane that holds stop.
    pub fn reset(
        &mut self,
        code: &Code,
        width: u32,
        holds: &[Hold],
        watch: &[Actor],
        one_lane: Option<u32>,
    ) {
        for slot in self.slots.drain(..) {
            if let Some(at) = slot.at {
                self.marks[at as usize] = false;
            }
        }
        self.lanes = u64::MAX >> (64 - width);
        (self.off, self.freed) = (false, false);
        for &actor in watch {
            let at = self.slot(code, width, actor);
            self.slots[at as usize].watched = true;
        }
        for hold in holds {
            let held = self.slot(code, width, hold.held);
            let until = self.slot(code, width, hold.until);
            self.slots[held as usize].until.push(until);
            // A lane that is held cannot come to what the rest of its block is held for.
            if let (Some(lane), Some(a), Some(b)) = (one_lane, place(hold.held), place(hold.until))
                && a == b
            {
                self.slots[until as usize].exempt |= 1 << lane;
            }
        }
    }

    fn slot(&mut self, code: &Code, width: u32, actor: Actor) -> u16 {
        if let Some(at) = self.slots.iter().position(|slot| slot.actor == actor) {
            return at as u16;
        }
        let at = match actor {
            Actor::Threads(moment) | Actor::Proxy(moment) => {
                let blocks =
                    code.rank_blocks.get(moment.rank as usize).copied().unwrap_or_default();
                let block = blocks.range().nth(moment.block as usize).map(|at| code.blocks[at]);
                block.and_then(|block| {
                    let at = block.start.checked_add(moment.at)?;
                    (at < block.end).then_some(at)
                })
            }
            Actor::User { .. } => None,
        };
        if let Some(at) = at {
            self.marks[at as usize] = true;
        }
        let units = at.and_then(|at| units_of(code, actor, at)).unwrap_or_default();
        let sources = code.units.get(units.start as usize).map_or(0, |unit| unit.reads.into());
        self.slots.push(Slot {
            actor,
            at,
            units,
            sources,
            until: Vec::new(),
            watched: false,
            passed: 0,
            exempt: 0,
            pending: vec![0; width as usize],
            complete: false,
            enough: false,
            seen: Seen::default(),
        });
        (self.slots.len() - 1) as u16
    }

    /// Whether some actor is about the instruction at `at`.
    pub fn marked(&self, at: u32) -> bool {
        self.marks[at as usize]
    }

    /// The threads' execution of an instruction, if it matters.
    pub fn find(&self, at: u32, launch: u32, iteration: u32) -> Option<u16> {
        self.search(at, |actor| match actor {
            Actor::Threads(m) => m.launch == launch && m.iteration == u64::from(iteration),
            _ => false,
        })
    }

    /// The proxy's execution of what an instruction posted, if it matters.
    pub fn find_proxy(&self, at: u32, launch: u32, iteration: u32) -> Option<u16> {
        if !self.marked(at) {
            return None;
        }
        self.search(at, |actor| match actor {
            Actor::Proxy(m) => m.launch == launch && m.iteration == u64::from(iteration),
            _ => false,
        })
    }

    pub fn find_actor(&self, actor: Actor) -> Option<u16> {
        self.slots.iter().position(|slot| slot.actor == actor).map(|at| at as u16)
    }

    fn search(&self, at: u32, fits: impl Fn(Actor) -> bool) -> Option<u16> {
        let found = self.slots.iter().position(|slot| slot.at == Some(at) && fits(slot.actor));
        found.map(|at| at as u16)
    }

    /// Whether an actor must wait for another.
    pub fn holds(&self, track: Option<u16>) -> bool {
        let Some(track) = track else { return false };
        let until = &self.slots[track as usize].until;
        !self.off && until.iter().any(|&other| !self.slots[other as usize].enough)
    }

    /// Whether any hold is in force.
    pub fn holding(&self) -> bool {
        (0..self.slots.len() as u16).any(|slot| self.holds(Some(slot)))
    }

    pub fn issued(&mut self, track: u16, lane: u32) {
        self.slots[track as usize].pending[lane as usize] += 1;
    }

    /// A unit that had been issued happened: whether that makes a difference to anyone.
    pub fn happened(&mut self, track: u16, lane: u32) -> bool {
        self.slots[track as usize].pending[lane as usize] -= 1;
        self.judge(track)
    }

    /// A lane is past the instruction: whether that makes a difference to anyone.
    pub fn passed(&mut self, track: u16, lane: u32) -> bool {
        self.slots[track as usize].passed |= 1 << lane;
        self.judge(track)
    }

    fn judge(&mut self, track: u16) -> bool {
        let lanes = self.lanes;
        let slot = &mut self.slots[track as usize];
        let idle = (0u64..).zip(&slot.pending).filter(|&(_, &pending)| pending == 0);
        let through = idle.fold(0, |bits, (lane, _)| bits | 1 << lane) & slot.passed;
        let before = (slot.complete, slot.enough);
        slot.complete |= through & lanes == lanes;
        slot.enough |= (through | slot.exempt) & lanes == lanes;
        before != (slot.complete, slot.enough)
    }

    /// A proxy's or user's actor is done.
    pub fn finish(&mut self, track: u16) {
        let slot = &mut self.slots[track as usize];
        (slot.complete, slot.enough) = (true, true);
    }

    /// What a unit of a watched actor read from its source `number`.
    pub fn loaded(&mut self, track: u16, unit: u32, number: usize, read: &[u8; 16]) {
        let slot = &mut self.slots[track as usize];
        if !slot.watched {
            return;
        }
        let at = ((unit - slot.units.start) as usize * slot.sources + number) * 16;
        if slot.seen.read.len() < at + 16 {
            slot.seen.read.resize(slot.units.len() * slot.sources * 16, 0);
        }
        slot.seen.read[at..at + 16].copy_from_slice(read);
    }

    /// What a watched user read.
    pub fn read(&mut self, track: u16, bytes: &[u8]) {
        self.slots[track as usize].seen.read = bytes.to_vec();
    }

    /// What every watched actor saw.
    pub fn seen(&self, watch: &[Actor]) -> Vec<Seen> {
        let of = |actor: &Actor| {
            self.find_actor(*actor)
                .map(|at| self.slots[at as usize].seen.clone())
                .unwrap_or_default()
        };
        watch.iter().map(of).collect()
    }
}

/// The units of one execution of the instruction at `at`.
fn units_of(code: &Code, actor: Actor, at: u32) -> Option<Span> {
    let (Actor::Threads(moment) | Actor::Proxy(moment)) = actor else { return None };
    let op = code.ops[at as usize];
    if !matches!(op.kind, Kind::Data(_) | Kind::Post { .. }) {
        return None;
    }
    code.lists
        .get((op.list as usize).checked_add(usize::try_from(moment.iteration).ok()?)?)
        .copied()
}

/// Whose threads an actor is, and when.
fn place(actor: Actor) -> Option<(u32, u32, u32)> {
    match actor {
        Actor::Threads(m) | Actor::Proxy(m) => Some((m.rank, m.block, m.launch)),
        Actor::User { .. } => None,
    }
}

impl Machine<'_> {
    /// An actor that matters is further than it was.
    pub(super) fn completed(&mut self, track: u16) {
        self.tracker.freed = true;
        self.wake(Keys::HOLD);
        let watched = |slot: &&Slot| slot.watched;
        let done = self.tracker.slots[track as usize].complete
            && self.tracker.slots[track as usize].watched
            && self.tracker.slots.iter().filter(watched).all(|slot| slot.complete);
        if done {
            for at in 0..self.tracker.slots.len() {
                if self.tracker.slots[at].watched {
                    let left = self.left(&self.tracker.slots[at]);
                    self.tracker.slots[at].seen.left = left;
                }
            }
        }
    }

    /// What the destinations of an actor hold now.
    fn left(&self, slot: &Slot) -> Vec<u8> {
        let mut left = Vec::new();
        if let Some(focus) = &self.tracker.focus {
            left.extend_from_slice(&self.memory[focus.clone()]);
            let flags = &self.flags[focus.start / 8..focus.end.div_ceil(8)];
            left.extend(flags.iter().flat_map(|flag| flag.to_le_bytes()));
            return left;
        }
        let launch = match slot.actor {
            Actor::User { rank, .. } => {
                let (start, places) = self.code.users[rank as usize];
                let from = (u64::from(start) + places.input) as usize;
                return self.memory[from..from + self.case.sizes.input as usize].to_vec();
            }
            Actor::Threads(moment) | Actor::Proxy(moment) => moment.launch,
        };
        let half = self.code.half_of(launch);
        for unit in slot.units.range() {
            let unit = self.code.units[unit];
            for side in &self.code.sides[unit.destinations()] {
                let at = side.at(half);
                if side.is_packet() {
                    left.extend_from_slice(&self.memory[at..at + 8]);
                    left.extend_from_slice(&self.flags[at / 8].to_le_bytes());
                } else {
                    left.extend_from_slice(&self.memory[at..at + unit.len as usize]);
                }
            }
        }
        left
    }
}
