//! The host engine: runs a lowered [`Program`] with the CPU's own loads and stores.
//!
//! A thread block is a cursor over its instructions, not an OS thread: [`step`] runs a block until it is done or
//! would wait, and leaves the cursor where the next step goes on. Nothing here blocks, allocates or makes a system
//! call (except to reach buffers that are not mapped), so any thread, and any process that maps the buffers, may
//! step any rank's blocks, as far as they use no port channels.

pub mod moves;
pub mod posts;
pub mod table;

use crate::shared::arena::{Arena, Cursor};
use antiphon_plan::program::{Area, Instruction, Layout, Program, RankLayout, RuntimeBlock};
use antiphon_types::{DataType, ReduceOp};
use moves::{Operands, Pad};
use posts::Posting;
use std::sync::atomic::Ordering;
use table::Table;

/// Everything that one launch's blocks of one rank are stepped with.
pub struct Stage<'a> {
    /// The rank whose blocks are stepped.
    pub rank: u32,
    /// The plan, lowered for any size.
    pub layout: &'a Layout,
    /// The rank's byte ranges for this launch's sizes.
    pub program: &'a Program,
    /// The arenas of all ranks, by rank; `None` until the rank's first launch on the context was seen.
    pub arenas: &'a [Option<Arena>],
    /// Packet flag of this launch.
    pub flag: u32,
    /// Element type.
    pub dtype: DataType,
    /// Operator that replaces the plan's own.
    pub reduce: Option<ReduceOp>,
    /// How often a block that would wait looks again before it yields to the next block.
    pub patience: u32,
}

/// Why a block cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// No signal on this channel of the rank yet.
    Signal(u32),
    /// Packets have not arrived in this rank's scratch.
    Packets(u32),
    /// A semaphore of the rank is taken.
    Semaphore(u32),
    /// Not all blocks have arrived at a barrier of the rank.
    Barrier(u32),
    /// This rank has not entered the launch.
    Entry(u32),
    /// An earlier launch of the context is not over.
    Turn,
    /// Another rank steps a block of the rank's last launch, or has died in it.
    Held,
    /// This rank must come further with earlier launches before this one may begin.
    Behind(u32),
    /// The link to this rank has still to read the descriptor that this launch's overwrites.
    Descriptor(u32),
    /// The link to this rank has no room for the launch's descriptor.
    Untold(u32),
    /// This rank may still write to the caller's buffers.
    Writer(u32),
    /// This rank's memory is not mapped here yet, or not known to the link.
    Mapping(u32),
    /// The link to this rank does not stand yet.
    Link(u32),
    /// The queue of this port channel's link is full.
    Full(u32),
    /// Not all that was posted to this port channel's peer has landed.
    Flush(u32),
    /// What was posted to this rank still reads the caller's buffers.
    Unread(u32),
    /// This rank has given the launch up, of which this one is about to hear.
    GivenUp(u32),
    /// Only the rank itself can do this.
    Elsewhere,
}

/// Why a launch cannot ever finish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A peer entered the same launch number with another call.
    Mismatch(u32),
    /// A peer's descriptor names a buffer that does not lie in its memory.
    Outside(u32),
    /// The wires were not told of this region of the rank's own, which a transfer reads.
    Unannounced(u64),
    /// A link is lost: its peer, and why.
    Link(u32, String),
    /// The two sides of a move of a runtime block have different lengths.
    Unequal {
        /// The block that was to be read.
        source: RuntimeBlock,
        /// Its bytes.
        read: u64,
        /// The block that was to be written.
        destination: RuntimeBlock,
        /// Its bytes.
        written: u64,
    },
    /// Another process's memory could not be reached.
    Reach {
        /// Its rank.
        peer: u32,
        /// `read` or `write`.
        what: &'static str,
        /// System error number.
        errno: i32,
    },
}

/// Why what a block asked its launch for is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unready {
    /// Not yet.
    Blocked(Blocked),
    /// Never.
    Failed(Fault),
}

impl From<Blocked> for Unready {
    fn from(blocked: Blocked) -> Self {
        Unready::Blocked(blocked)
    }
}

impl From<Fault> for Unready {
    fn from(fault: Fault) -> Self {
        Unready::Failed(fault)
    }
}

/// How far a step came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The block is done.
    Done,
    /// The block waits.
    Blocked(Blocked),
    /// The block has moved much, and goes on when it is stepped again.
    Paused,
    /// The launch failed.
    Failed(Fault),
}

/// Why a move or wait stopped.
enum Stop {
    Blocked(Blocked),
    Paused,
    Failed(Fault),
}

impl From<Blocked> for Stop {
    fn from(blocked: Blocked) -> Self {
        Stop::Blocked(blocked)
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Stop::Failed(fault)
    }
}

impl From<Unready> for Stop {
    fn from(unready: Unready) -> Self {
        match unready {
            Unready::Blocked(blocked) => Stop::Blocked(blocked),
            Unready::Failed(fault) => Stop::Failed(fault),
        }
    }
}

/// The window of the pipeline a block is in.
#[derive(Clone, Copy)]
struct Window {
    start: u64,
    unit: u64,
}

const NO_WINDOW: Window = Window { start: 0, unit: u64::MAX };

/// Runs a block of `stage.rank` until it is done or would wait. `posting` serves its port channels; without it, it waits
/// for whoever can.
///
/// # Safety
/// No one else steps this block meanwhile; the arenas and every buffer that `table` resolves to stay mapped, and
/// are as long as the launch's sizes say.
pub unsafe fn step(
    stage: &Stage<'_>,
    block: u32,
    table: &mut Table<'_>,
    pad: &mut Pad,
    posting: Option<&mut (dyn Posting + '_)>,
) -> Step {
    let Some(own) = stage.arenas[stage.rank as usize].as_ref() else {
        return Step::Blocked(Blocked::Entry(stage.rank));
    };
    let cursor = own.cursor(block);
    let layout = &stage.layout.ranks[stage.rank as usize];
    let code = &layout.instructions[layout.blocks[block as usize].code.range()];
    let mut run = Run { stage, own, layout, cursor, table, pad, posting, moved: 0 };
    let mut pc = cursor.pc.load(Ordering::Relaxed) as usize;
    let mut window = run.window(code, pc);
    while let Some(instruction) = code.get(pc) {
        // SAFETY: as this function's.
        match unsafe { run.instruction(code, instruction, pc, &mut window) } {
            Ok(next) => pc = next,
            Err(stop) => {
                cursor.pc.store(pc as u32, Ordering::Relaxed);
                return match stop {
                    Stop::Blocked(blocked) => Step::Blocked(blocked),
                    Stop::Paused => Step::Paused,
                    Stop::Failed(fault) => Step::Failed(fault),
                };
            }
        }
    }
    cursor.pc.store(pc as u32, Ordering::Relaxed);
    Step::Done
}

struct Run<'r, 'a, 't, 'p> {
    stage: &'r Stage<'a>,
    own: &'r Arena,
    layout: &'r RankLayout,
    cursor: &'r Cursor,
    table: &'r mut Table<'t>,
    pad: &'r mut Pad,
    posting: Option<&'r mut (dyn Posting + 'p)>,
    /// Bytes that this step has moved.
    moved: u64,
}

impl Run<'_, '_, '_, '_> {
    /// The window a block that stopped at `pc` was in.
    fn window(&self, code: &[Instruction], pc: usize) -> Window {
        if self.layout.loops == 0 || pc == 0 {
            return NO_WINDOW;
        }
        for instruction in code[..pc.min(code.len())].iter().rev() {
            match *instruction {
                Instruction::LoopEnd { .. } => return NO_WINDOW,
                Instruction::LoopBegin { unit, .. } => {
                    return Window {
                        start: self.cursor.iteration.load(Ordering::Relaxed) * unit,
                        unit,
                    };
                }
                _ => {}
            }
        }
        NO_WINDOW
    }

    /// Runs one instruction and gives the position of the next.
    ///
    /// # Safety
    /// As [`step`].
    #[inline]
    unsafe fn instruction(
        &mut self,
        code: &[Instruction],
        instruction: &Instruction,
        pc: usize,
        window: &mut Window,
    ) -> Result<usize, Stop> {
        match *instruction {
            Instruction::Move { sources, destinations, reduce, index, .. } => {
                let op = self.stage.reduce.unwrap_or(reduce);
                // SAFETY: as this function's.
                unsafe { self.run_move(Operands { sources, destinations, op }, index, *window)? };
            }
            Instruction::MoveBlock { index } => {
                let moved = self.layout.block_moves[index as usize];
                // SAFETY: as this function's.
                unsafe { self.run_block_move(&moved)? };
            }
            Instruction::Signal { channel, .. } if self.layout.channels[channel as usize].port => {
                self.post_signal(channel)?;
                self.ask_before_flush(channel, &code[pc + 1..]);
            }
            Instruction::Signal { channel, .. } => self.signal(channel)?,
            Instruction::Wait { channel, .. } => self.wait(channel)?,
            Instruction::Acquire { semaphore } => self.acquire(semaphore)?,
            Instruction::Release { semaphore } => {
                self.own.semaphore(semaphore).fetch_add(1, Ordering::AcqRel);
            }
            Instruction::Barrier { barrier, blocks } => self.barrier(barrier, blocks)?,
            Instruction::BlockSync => {}
            Instruction::Post { channel, source, destination, index } => {
                self.post(channel, [source, destination], index, *window)?;
                self.ask_before_flush(channel, &code[pc + 1..]);
            }
            Instruction::Flush { channel } => self.flush(channel)?,
            Instruction::LoopBegin { end, unit, index, .. } => {
                self.cursor.iteration.store(0, Ordering::Relaxed);
                if self.stage.program.loops[index as usize] == 0 {
                    return Ok(end as usize + 1);
                }
                *window = Window { start: 0, unit };
            }
            Instruction::LoopEnd { begin } => {
                if let Instruction::LoopBegin { unit, index, .. } = code[begin as usize] {
                    let iteration = self.cursor.iteration.load(Ordering::Relaxed) + 1;
                    if iteration < self.stage.program.loops[index as usize] {
                        self.cursor.iteration.store(iteration, Ordering::Relaxed);
                        *window = Window { start: iteration * unit, unit };
                        return Ok(begin as usize + 1);
                    }
                }
                *window = NO_WINDOW;
            }
        }
        Ok(pc + 1)
    }

    fn signal(&mut self, channel: u32) -> Result<(), Stop> {
        let end = self.layout.channels[channel as usize];
        let Some(paired) = end.paired else { return Ok(()) };
        let peer = self.arena(end.peer)?;
        let inbound = peer.inbound(paired);
        if end.single_signaller {
            // One writer: a store needs no round trip to fetch the line first, an add would.
            let sent = &self.own.channel(channel).sent;
            let count = sent.load(Ordering::Relaxed) + 1;
            sent.store(count, Ordering::Relaxed);
            inbound.store(count, Ordering::Release);
        } else {
            inbound.fetch_add(1, Ordering::Release);
        }
        Ok(())
    }

    fn wait(&mut self, channel: u32) -> Result<(), Stop> {
        let expected = self
            .enter(|own| own.channel(channel).expected.fetch_add(1, Ordering::Relaxed) as i64 + 1);
        let inbound = self.own.inbound(channel);
        let came = self.look(|| inbound.load(Ordering::Acquire) as i64 >= expected);
        if came {
            // A rank with fewer bytes has less to move, or nothing, and signals all the same.
            self.table.agree(self.layout.channels[channel as usize].peer)?;
        }
        self.leave(came, Blocked::Signal(channel))
    }

    fn acquire(&mut self, semaphore: u32) -> Result<(), Stop> {
        let old = self.enter(|own| own.semaphore(semaphore).fetch_sub(1, Ordering::AcqRel));
        let free = old > 0 || self.own.semaphore(semaphore).load(Ordering::Acquire) >= old;
        self.leave(free, Blocked::Semaphore(semaphore))
    }

    fn barrier(&mut self, barrier: u32, blocks: u32) -> Result<(), Stop> {
        let round = i64::from(blocks);
        let full = self.enter(|own| {
            let ticket = own.barrier(barrier).fetch_add(1, Ordering::AcqRel) as i64;
            (ticket / round + 1) * round
        });
        let arrived = self.own.barrier(barrier).load(Ordering::Acquire) as i64;
        self.leave(arrived >= full, Blocked::Barrier(barrier))
    }

    /// Looks until `there` or patience runs out.
    #[inline]
    fn look(&self, there: impl Fn() -> bool) -> bool {
        let mut looks = self.stage.patience;
        loop {
            if there() {
                return true;
            }
            if looks == 0 {
                return false;
            }
            looks -= 1;
            std::hint::spin_loop();
        }
    }

    /// Takes part in a wait once, and remembers with what over any number of steps.
    #[inline]
    fn enter(&self, first: impl FnOnce(&Arena) -> i64) -> i64 {
        // Stored with its lowest bit set, so that zero means "not entered" whatever the sign.
        let stored = self.cursor.target.load(Ordering::Relaxed) as i64;
        if stored != 0 {
            return stored >> 1;
        }
        let target = first(self.own);
        self.cursor.target.store((target << 1 | 1) as u64, Ordering::Relaxed);
        target
    }

    #[inline]
    fn leave(&self, reached: bool, blocked: Blocked) -> Result<(), Stop> {
        if !reached {
            return Err(blocked.into());
        }
        self.cursor.target.store(0, Ordering::Relaxed);
        Ok(())
    }

    fn arena(&self, rank: u32) -> Result<&Arena, Stop> {
        self.stage.arenas[rank as usize].as_ref().ok_or(Stop::Blocked(Blocked::Entry(rank)))
    }

    /// The areas of a rank that live in its arena.
    fn scratch(&self, rank: u32, area: Area) -> Result<*mut u8, Stop> {
        let parity = if self.stage.layout.double_scratch { self.stage.parity() } else { 0 };
        let arena = self.arena(rank)?;
        Ok(if area == Area::Packets { arena.packets(parity) } else { arena.raw(parity) })
    }
}

impl Stage<'_> {
    /// Which scratch half this launch uses: flags count the context's launches, so their parity alternates.
    fn parity(&self) -> u64 {
        u64::from(self.flag >> 8 & 1)
    }
}

#[cfg(test)]
mod tests;
