//! Writing plans in Rust: name ranks, chunks, channels and blocks, and say what each block does.
//!
//! ```
//! use antiphon_plan::builder::ProgramBuilder;
//! use antiphon_plan::model::Collective;
//!
//! // Two ranks swap their inputs.
//! let p = ProgramBuilder::new("swap", Collective::SendRecv, 2);
//! let channel = p.channel(0, 1);
//! for (me, peer) in [(0, 1), (1, 0)] {
//!     let tb = p.block(me);
//!     tb.put(p.input(me).all(), p.output(peer).all());
//!     tb.signal(&[channel]);
//!     tb.wait(&[channel]);
//! }
//! let plan = p.build()?;
//! assert_eq!(plan.gpus.len(), 2);
//! # Ok::<(), antiphon_plan::builder::BuildError>(())
//! ```
//!
//! A program cannot name a rank, chunk, channel or block that does not exist. Mistakes are collected with the
//! line that made them and returned by [`ProgramBuilder::build`], so that programs read without `?` on each
//! line; an operation with a mistake is left out, and so is whatever hangs on it.
//!
//! The compiler makes the tables of the plan (channels, remote buffers, semaphores, barriers) on first use, fuses
//! neighbouring operations, and inserts the block synchronisations (`nop`) that GPUs need; see
//! [`passes`](crate::passes). Nothing is kept outside the program.

mod block;
mod error;
mod handles;
mod operations;
#[cfg(test)]
mod tests;

pub use block::Block;
pub use error::{BuildError, Problem, ProblemKind};
pub use handles::{Channel, Chunks, Region, Semaphore, SwitchChannel};

use crate::dsl::{Compiled, Misuse, Program, Settings};
use crate::model::{Buffer, ChannelType, Collective, Plan, Protocol};
use crate::passes::Mode;
use antiphon_types::ReduceOp;
use std::cell::{RefCell, RefMut};
use std::ops::RangeInclusive;
use std::panic::Location;

/// The rank of handles whose making failed: what is done with them is left out without another problem.
const NOWHERE: usize = usize::MAX;

/// A program for all ranks of a collective; see the [module](self).
#[derive(Debug)]
pub struct ProgramBuilder {
    ranks: usize,
    reduce_op: Option<ReduceOp>,
    state: RefCell<State>,
}

#[derive(Debug)]
struct State {
    program: Program,
    problems: Vec<Problem>,
}

impl ProgramBuilder {
    /// An empty program for `ranks` ranks, with the chunk counts of the collective at chunk factor 1.
    #[track_caller]
    pub fn new(name: impl Into<String>, collective: Collective, ranks: usize) -> Self {
        // A program for nobody is reported when it is built; until then it has one rank that nobody can name.
        // Whatever a plan says, its caller may run it in place.
        let settings =
            Settings { may_alias: true, ..Settings::new(name, collective, ranks.max(1) as u64) };
        let program = match Program::new(settings) {
            Ok(program) => program,
            Err(refused) => unreachable!("one rank or more, and one instance: {refused}"),
        };
        let state = RefCell::new(State { program, problems: Vec::new() });
        let builder = ProgramBuilder { ranks, reduce_op: None, state };
        if ranks == 0 {
            builder.report(Location::caller(), ProblemKind::NoRanks);
        }
        builder.chunk_factor(1)
    }

    fn set(self, change: impl FnOnce(&mut Settings)) -> Self {
        change(self.program().settings_mut());
        self
    }

    /// Whether the program expects its input and output to be the same memory. Default: no.
    pub fn in_place(self, in_place: bool) -> Self {
        self.set(|settings| settings.in_place = in_place)
    }

    /// The protocol the plan states. Default: [`Protocol::Simple`].
    pub fn protocol(self, protocol: Protocol) -> Self {
        self.set(|settings| settings.protocol = protocol)
    }

    /// Whether successive launches alternate between two halves of scratch. Default: no.
    pub fn double_scratch(self, double: bool) -> Self {
        self.set(|settings| settings.double_scratch = double)
    }

    /// Threads of a block on a GPU. Default: 1024.
    pub fn threads_per_block(self, threads: u64) -> Self {
        self.set(|settings| settings.threads_per_block = threads)
    }

    /// Unit of chunk arithmetic, in bytes. Default: 16.
    pub fn alignment(self, bytes: u64) -> Self {
        self.set(|settings| settings.alignment = bytes)
    }

    /// Message sizes the plan accepts, in bytes. Default: all.
    pub fn sizes(self, bytes: RangeInclusive<u64>) -> Self {
        self.set(|settings| settings.sizes = bytes)
    }

    /// The operator that reductions state. Default: none, which is the sum.
    pub fn reduce_op(mut self, op: ReduceOp) -> Self {
        self.reduce_op = Some(op);
        self
    }

    /// Whether neighbouring operations become one where that changes nothing. Default: yes. To be said before the
    /// first operation.
    pub fn fuse(self, fuse: bool) -> Self {
        self.set(|settings| settings.fuse = fuse)
    }

    /// Whether a block's threads are made to meet (`nop`) where they must: between data and signals, between waits
    /// and data, and between data operations that depend on each other. Default: yes. To be said before the first
    /// operation.
    pub fn auto_sync(self, auto: bool) -> Self {
        self.set(|settings| settings.auto_sync = auto)
    }

    /// Where threads are made to meet. Default: [`Mode::Minimal`].
    pub fn mode(self, mode: Mode) -> Self {
        self.set(|settings| settings.mode = mode)
    }

    /// Run every block this many times over, each time for its share of every chunk. Default: 1.
    pub fn instances(self, instances: u32) -> Self {
        self.set(|settings| settings.instances = instances.into())
    }

    /// Whether signals without waits, and waits without signals, are refused. Default: yes. Without, a plan can be
    /// written that hangs.
    pub fn paired(self, paired: bool) -> Self {
        self.set(|settings| settings.paired = paired)
    }

    /// Divide every rank's part of a message in `factor` chunks.
    #[track_caller]
    pub fn chunk_factor(self, factor: usize) -> Self {
        if factor == 0 {
            let detail = "saw chunk factor 0, allowed 1 or more";
            self.report(Location::caller(), ProblemKind::ChunkCounts { detail });
        }
        let whole = factor.saturating_mul(self.ranks());
        let (input, output) = match self.program().settings().collective {
            Collective::AllReduce | Collective::AllToAll => (whole, whole),
            Collective::AllGather | Collective::Gather => (factor, whole),
            Collective::ReduceScatter | Collective::Scatter => (whole, factor),
            _ => (factor, factor),
        };
        self.chunk_counts(input, output)
    }

    /// Divide every rank's input and output in these numbers of chunks; 0 leaves a buffer without chunks.
    #[track_caller]
    pub fn chunk_counts(self, input: usize, output: usize) -> Self {
        if input == 0 && output == 0 {
            let detail = "saw 0 input and 0 output chunks, allowed at most one of them 0";
            self.report(Location::caller(), ProblemKind::ChunkCounts { detail });
        }
        self.program().divide(input as u64, output as u64);
        self
    }

    /// Give every rank's input and output these numbers of runtime blocks instead of chunks of equal size: the places
    /// and lengths of blocks come with each call. [`put`](Block::put), [`get`](Block::get) and [`copy`](Block::copy)
    /// then move blocks into outputs, and nothing else moves data.
    #[track_caller]
    pub fn runtime_blocks(self, input: usize, output: usize) -> Self {
        self.set(|settings| settings.runtime_sizes = true).chunk_counts(input, output)
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// All ranks but `rank`, ascending.
    pub fn peers(&self, rank: usize) -> impl Iterator<Item = usize> + Clone + use<> {
        (0..self.ranks()).filter(move |&peer| peer != rank)
    }

    /// A rank's input.
    #[track_caller]
    pub fn input(&self, rank: usize) -> Region<'_> {
        self.region(rank, Buffer::Input, Location::caller())
    }

    /// A rank's output.
    #[track_caller]
    pub fn output(&self, rank: usize) -> Region<'_> {
        self.region(rank, Buffer::Output, Location::caller())
    }

    /// Allocate `chunks` chunks of a rank's scratch, after what is allocated already.
    #[track_caller]
    pub fn scratch(&self, rank: usize, chunks: usize) -> Region<'_> {
        let at = Location::caller();
        let rank = self.known(rank, at);
        let mut start = 0;
        if rank != NOWHERE
            && let Some(chunk) =
                self.try_to(at, |program| program.scratch(rank as i64, chunks as u64))
        {
            start = chunk.index as usize;
        }
        Region { program: self, rank, buffer: Buffer::Scratch, start, len: chunks }
    }

    /// Chunks of a rank's scratch allocated so far.
    #[track_caller]
    pub fn scratch_len(&self, rank: usize) -> usize {
        self.region(rank, Buffer::Scratch, Location::caller()).len
    }

    /// A new two-way memory channel between two ranks.
    #[track_caller]
    pub fn channel(&self, a: usize, b: usize) -> Channel {
        self.connect(ChannelType::Memory, a, b, Location::caller())
    }

    /// A new two-way port channel between two ranks, for the operations that end in `over`, for
    /// [`put_with_signal`](Block::put_with_signal), and for signals, waits and [`flush`](Block::flush).
    ///
    /// What is posted there is carried out in order, at any later time; a source may change only after a flush, or
    /// once the peer is known to have received it.
    #[track_caller]
    pub fn port(&self, a: usize, b: usize) -> Channel {
        self.connect(ChannelType::Port, a, b, Location::caller())
    }

    fn connect(
        &self,
        kind: ChannelType,
        a: usize,
        b: usize,
        at: &'static Location<'static>,
    ) -> Channel {
        let (a, b) = (self.known(a, at), self.known(b, at));
        if a == NOWHERE || b == NOWHERE {
            return Channel { ends: None };
        }
        if a == b {
            self.report(at, ProblemKind::SelfChannel { rank: a });
            return Channel { ends: None };
        }
        let ends = self.try_to(at, |program| {
            let end = |program: &mut Program, from: usize, to: usize| {
                program.channel(kind, to as i64, from as i64)
            };
            Ok([end(program, a, b)?, end(program, b, a)?])
        });
        Channel { ends }
    }

    /// A new multicast channel over `buffer` of the given ranks.
    #[track_caller]
    pub fn switch(&self, ranks: &[usize], buffer: Buffer) -> SwitchChannel {
        let at = Location::caller();
        if ranks.iter().any(|&rank| self.known(rank, at) == NOWHERE) {
            return SwitchChannel { switch: None };
        }
        let ranks: Vec<i64> = ranks.iter().map(|&rank| rank as i64).collect();
        SwitchChannel { switch: self.try_to(at, |program| program.switch(&ranks, buffer)) }
    }

    /// A new semaphore of a rank.
    #[track_caller]
    pub fn semaphore(&self, rank: usize, initial: i64) -> Semaphore {
        let at = Location::caller();
        let rank = self.known(rank, at);
        if rank == NOWHERE {
            return Semaphore { semaphore: None };
        }
        let semaphore = self.try_to(at, |program| program.semaphore(rank as i64, initial));
        Semaphore { semaphore }
    }

    /// A new thread block of a rank, after those the rank has.
    #[track_caller]
    pub fn block(&self, rank: usize) -> Block<'_> {
        let at = Location::caller();
        let mut rank = self.known(rank, at);
        let mut id = 0;
        if rank != NOWHERE {
            match self.try_to(at, |program| program.new_block(rank as u64)) {
                Some(block) => id = block as usize,
                None => rank = NOWHERE,
            }
        }
        Block { program: self, rank, id, slice: None }
    }

    /// A thread block that the rank has already.
    #[track_caller]
    pub fn block_at(&self, rank: usize, block: usize) -> Block<'_> {
        let at = Location::caller();
        let mut known = self.known(rank, at);
        if known != NOWHERE {
            let blocks = self.program().blocks(rank as u64) as usize;
            if block >= blocks {
                self.report(at, ProblemKind::Block { rank, block, blocks });
                known = NOWHERE;
            }
        }
        Block { program: self, rank: known, id: block, slice: None }
    }

    /// Append what `body` appends as a pipeline, block by block: it runs once per window of `unit` bytes over `chunks`
    /// chunks.
    #[track_caller]
    pub fn pipeline(&self, unit: u64, chunks: u64, body: impl FnOnce()) {
        let at = Location::caller();
        let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let begun = self.try_to(at, |p| p.begin_pipeline(count(unit), count(chunks)));
        if begun.is_some() {
            body();
            self.try_to(at, Program::end_pipeline);
        }
    }

    /// Make these blocks of one rank wait for each other. Every use of the same set shares one barrier.
    #[track_caller]
    pub fn barrier(&self, blocks: &[Block<'_>]) {
        let at = Location::caller();
        let Some(first) = blocks.first() else {
            let detail = "saw no thread blocks, allowed 1 or more of one rank";
            return self.report(at, ProblemKind::Barrier { detail });
        };
        if blocks.iter().any(|tb| tb.rank == NOWHERE || !tb.belongs_to(self, at)) {
            return;
        }
        let mut ids: Vec<usize> = blocks.iter().map(|tb| tb.id).collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.len() != blocks.len() || blocks.iter().any(|tb| tb.rank != first.rank) {
            let detail = "saw blocks of several ranks or one block twice, allowed different blocks \
                          of one rank";
            return self.report(at, ProblemKind::Barrier { detail });
        }
        let ids: Vec<u64> = ids.into_iter().map(|id| id as u64).collect();
        self.try_to(at, |program| program.barrier(first.rank as i64, &ids));
    }

    /// The finished plan, or everything that was wrong with the program.
    #[track_caller]
    pub fn build(self) -> Result<Plan, BuildError> {
        self.compile().map(|compiled| compiled.plan)
    }

    /// As [`build`](Self::build), with the report of the passes.
    #[track_caller]
    pub fn compile(self) -> Result<Compiled, BuildError> {
        let location = Location::caller();
        let State { mut program, mut problems } = self.state.into_inner();
        if problems.is_empty() {
            match program.finish_last() {
                Ok(compiled) => return Ok(compiled),
                Err(refused) => problems.push(Problem { kind: refused.into(), location }),
            }
        }
        Err(BuildError { program: program.settings().name.clone(), problems })
    }

    fn program(&self) -> RefMut<'_, Program> {
        RefMut::map(self.state.borrow_mut(), |state| &mut state.program)
    }

    /// What `call` gives; if it is refused, the line that asked for it is remembered.
    fn try_to<T>(
        &self,
        at: &'static Location<'static>,
        call: impl FnOnce(&mut Program) -> Result<T, Misuse>,
    ) -> Option<T> {
        let mut program = self.program();
        if program.settings().instances > 1 {
            program.at(Some(at.into()));
        }
        let outcome = call(&mut program);
        drop(program);
        outcome.map_err(|refused| self.report(at, refused.into())).ok()
    }

    fn report(&self, location: &'static Location<'static>, kind: ProblemKind) {
        self.state.borrow_mut().problems.push(Problem { kind, location });
    }

    /// The rank, or [`NOWHERE`] if there is none such.
    fn known(&self, rank: usize, at: &'static Location<'static>) -> usize {
        let ranks = self.ranks();
        if rank < ranks {
            return rank;
        }
        if ranks > 0 {
            self.report(at, ProblemKind::Rank { rank, ranks });
        }
        NOWHERE
    }

    fn region(&self, rank: usize, buffer: Buffer, at: &'static Location<'static>) -> Region<'_> {
        let rank = self.known(rank, at);
        let len = match rank {
            NOWHERE => 0,
            _ => self.program().len(rank as u64, buffer) as usize,
        };
        Region { program: self, rank, buffer, start: 0, len }
    }
}
