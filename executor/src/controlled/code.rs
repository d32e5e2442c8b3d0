//! What a machine runs, worked out once: every instruction with the units of data it moves, by address.
//!
//! All ranks share one address space: the users' buffers first, then raw scratch and packets of all ranks, then those
//! again for the other half. So two touches meet if their addresses do, whatever names they go by.

use super::translate::Translation;
use antiphon_plan::LowerError;
use antiphon_plan::program::{Access, Area, Layout, Program, Span};
use antiphon_plan::schedule::{Case, Places};
use antiphon_types::ReduceOp;

/// Marks the address of packets.
const PACKETS: u32 = 1 << 30;
/// Marks an address that has another place in launches that use the second half of scratch.
const HALVED: u32 = 1 << 31;
const ADDRESS: u32 = PACKETS - 1;
/// Bytes that threads move at a time.
pub(super) const RAW_UNIT: u64 = 16;
/// Payload bytes of a packet.
pub(super) const PACKET: u64 = 8;
/// Distance of buffers; equal positions in both halves of scratch have equal bits in the masks of units.
const ALIGN: u64 = 512;
const MOST_BYTES: u64 = 1 << 29;
pub(super) const MOST_UNITS: usize = 1 << 24;

/// The place of one side of a unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side(u32);

impl Side {
    pub fn is_packet(self) -> bool {
        self.0 & PACKETS != 0
    }

    /// The address in a launch whose scratch starts `half` further on.
    pub fn at(self, half: u32) -> usize {
        (self.0 & ADDRESS) as usize + if self.0 & HALVED != 0 { half as usize } else { 0 }
    }
}

/// What a thread moves at a time: some sources, combined, to some destinations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unit {
    /// Position of the first source in [`Code::sides`]; the destinations follow the sources.
    pub sides: u32,
    pub reads: u16,
    pub writes: u16,
    /// Bytes of every raw side.
    pub len: u8,
    /// Whether some side is a packet.
    pub packets: bool,
    /// Whether some destination is raw.
    pub raw_writes: bool,
    /// One bit for each word that is read as raw bytes, modulo 64.
    pub read_mask: u64,
    /// The same of raw destinations.
    pub write_mask: u64,
}

impl Unit {
    pub fn sources(&self) -> std::ops::Range<usize> {
        self.sides as usize..self.sides as usize + self.reads as usize
    }

    pub fn destinations(&self) -> std::ops::Range<usize> {
        let start = self.sides as usize + self.reads as usize;
        start..start + self.writes as usize
    }
}

/// An instruction, with counters numbered across all ranks.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Data(ReduceOp),
    /// Of a memory channel; no counter if nobody is at the other end.
    Signal {
        counter: Option<u32>,
        release: bool,
    },
    PortSignal {
        queue: u32,
        counter: Option<u32>,
    },
    Wait {
        counter: u32,
    },
    Acquire {
        semaphore: u32,
    },
    Release {
        semaphore: u32,
    },
    Barrier {
        barrier: u32,
        blocks: i64,
    },
    Sync,
    /// Positions in [`Code::ops`].
    LoopBegin {
        end: u32,
        times: u32,
    },
    LoopEnd {
        begin: u32,
        times: u32,
    },
    Post {
        queue: u32,
    },
    Flush {
        queue: u32,
    },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Op {
    pub kind: Kind,
    /// Position in [`Code::lists`] of the units of the first iteration.
    pub list: u32,
    /// Other ranks whose input or output is touched: positions in [`Code::gates`].
    pub gates: Span,
    /// What the work is dealt to lanes by: equal where the same lane must do it.
    pub deal: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct BlockCode {
    pub rank: u32,
    /// Its number within the rank.
    pub number: u32,
    /// Positions in [`Code::ops`].
    pub start: u32,
    pub end: u32,
}

/// Everything that does not change from one run to the next.
#[derive(Debug, Default)]
pub(super) struct Code {
    pub ops: Vec<Op>,
    pub blocks: Vec<BlockCode>,
    /// For each rank, its blocks: positions in `blocks`.
    pub rank_blocks: Vec<Span>,
    pub lists: Vec<Span>,
    pub units: Vec<Unit>,
    pub sides: Vec<Side>,
    pub gates: Vec<u32>,
    /// The number of each rank's first channel, semaphore and barrier.
    pub channels: Vec<u32>,
    pub semaphores: Vec<u32>,
    pub barriers: Vec<u32>,
    pub totals: [u32; 3],
    /// Where each rank's memory starts, and what is where in it.
    pub users: Vec<(u32, Places)>,
    pub scratch: Vec<u32>,
    pub packets: Vec<u32>,
    /// Distance of the halves of scratch; 0 where they do not alternate.
    pub half: u32,
    /// Bytes in all.
    pub memory: usize,
}

const MEMORY: LowerError = LowerError::Overflow { what: "the memory of a controlled run" };

pub(super) const UNITS: LowerError =
    LowerError::Overflow { what: "the number of units of a controlled run" };

impl Code {
    pub fn new(layout: &Layout, case: &Case) -> Result<Code, LowerError> {
        let ranks = layout.ranks.len() as u32;
        let programs = (0..ranks).map(|rank| layout.program(rank, case.sizes));
        let programs = programs.collect::<Result<Vec<_>, _>>()?;
        let mut code = Code::default();
        code.place(layout, case, &programs)?;
        let mut totals = [0u32; 3];
        for rank in &layout.ranks {
            let counts = [rank.channels.len(), rank.semaphores.len(), rank.barriers.len()];
            code.channels.push(totals[0]);
            code.semaphores.push(totals[1]);
            code.barriers.push(totals[2]);
            for (total, count) in totals.iter_mut().zip(counts) {
                *total += count as u32;
            }
        }
        code.totals = totals;
        for (rank, program) in (0u32..).zip(&programs) {
            Translation { layout, case, program, rank, code: &mut code }.rank()?;
        }
        Ok(code)
    }

    /// Lays out the memory of all ranks.
    fn place(
        &mut self,
        layout: &Layout,
        case: &Case,
        programs: &[Program],
    ) -> Result<(), LowerError> {
        let mut next = 0u64;
        let mut take = |bytes: u64| {
            let start = next;
            let room =
                bytes.checked_next_multiple_of(ALIGN).and_then(|room| next.checked_add(room));
            next = room.filter(|&end| end <= MOST_BYTES).ok_or(MEMORY)?;
            Ok::<u32, LowerError>(start as u32)
        };
        for rank in 0..layout.ranks.len() as u32 {
            let total = case.sizes.input.checked_add(case.sizes.output);
            if total.is_none_or(|total| total > MOST_BYTES) {
                return Err(MEMORY);
            }
            let places = case.places(rank);
            self.users.push((take(places.len)?, places));
        }
        let first = take(0)?;
        for program in programs {
            self.scratch.push(take(program.scratch_bytes)?);
            self.packets.push(take(program.scratch_bytes)?);
        }
        let half = take(0)? - first;
        if layout.double_scratch {
            take(half.into())?;
            self.half = half;
        }
        self.memory = take(0)? as usize;
        Ok(())
    }

    /// The half that a launch uses.
    pub fn half_of(&self, launch: u32) -> u32 {
        if launch.is_multiple_of(2) { self.half } else { 0 }
    }

    /// The address of a byte of a rank's area in a launch, if there is such a rank.
    pub fn address(&self, access: Access, offset: u64, launch: u32) -> Option<usize> {
        if access.rank as usize >= self.users.len() {
            return None;
        }
        self.side(access, offset).ok().map(|side| side.at(self.half_of(launch)))
    }

    /// The place of a byte of a rank's area.
    pub fn side(&self, access: Access, offset: u64) -> Result<Side, LowerError> {
        let rank = access.rank as usize;
        let (start, marks) = match access.area {
            Area::Input => (u64::from(self.users[rank].0) + self.users[rank].1.input, 0),
            Area::Output => (u64::from(self.users[rank].0) + self.users[rank].1.output, 0),
            Area::Scratch => (self.scratch[rank].into(), HALVED),
            Area::Packets => (self.packets[rank].into(), HALVED | PACKETS),
        };
        let at = start.saturating_add(offset);
        if at > self.memory as u64 { Err(MEMORY) } else { Ok(Side(at as u32 | marks)) }
    }
}
