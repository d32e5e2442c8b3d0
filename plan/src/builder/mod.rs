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
//! The builder makes the tables of the plan (channels, remote buffers, semaphores, barriers) on first use and
//! inserts the block synchronisations (`nop`) that GPUs need; see [`ProgramBuilder::auto_sync`]. It keeps no
//! state outside the program.

mod block;
mod error;
mod handles;
mod operations;
mod state;
mod sync;
#[cfg(test)]
mod tests;

pub use block::Block;
pub use error::{BuildError, Problem, ProblemKind};
pub use handles::{Channel, Chunks, Region, Semaphore, SwitchChannel};

use crate::model::{Buffer, Collective, Op, OpKind, Plan, Protocol, RankGroup};
use antiphon_types::ReduceOp;
use state::{BlockState, RankState, State};
use std::cell::{RefCell, RefMut};
use std::ops::RangeInclusive;
use std::panic::Location;

/// The rank of handles whose making failed: what is done with them is left out without another problem.
const NOWHERE: usize = usize::MAX;

/// A program for all ranks of a collective; see the [module](self).
#[derive(Debug)]
pub struct ProgramBuilder {
    name: String,
    collective: Collective,
    in_place: bool,
    protocol: Protocol,
    threads: u64,
    double_scratch: bool,
    alignment: u64,
    sizes: RangeInclusive<u64>,
    auto_sync: bool,
    reduce_op: Option<ReduceOp>,
    state: RefCell<State>,
}

impl ProgramBuilder {
    /// An empty program for `ranks` ranks, with the chunk counts of the collective at chunk factor 1.
    #[track_caller]
    pub fn new(name: impl Into<String>, collective: Collective, ranks: usize) -> Self {
        let mut state = State::default();
        if ranks == 0 {
            state.report(Location::caller(), ProblemKind::NoRanks);
        }
        state.ranks.resize_with(ranks, RankState::default);
        let builder = ProgramBuilder {
            name: name.into(),
            collective,
            in_place: false,
            protocol: Protocol::Simple,
            threads: 1024,
            double_scratch: false,
            alignment: 16,
            sizes: 0..=u64::MAX,
            auto_sync: true,
            reduce_op: None,
            state: RefCell::new(state),
        };
        builder.chunk_factor(1)
    }

    /// Whether the program expects its input and output to be the same memory. Default: no.
    pub fn in_place(mut self, in_place: bool) -> Self {
        self.in_place = in_place;
        self
    }

    /// The protocol the plan states. Default: [`Protocol::Simple`].
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.protocol = protocol;
        self
    }

    /// Whether successive launches alternate between two halves of scratch. Default: no.
    pub fn double_scratch(mut self, double: bool) -> Self {
        self.double_scratch = double;
        self
    }

    /// Threads of a block on a GPU. Default: 1024.
    pub fn threads_per_block(mut self, threads: u64) -> Self {
        self.threads = threads;
        self
    }

    /// Unit of chunk arithmetic, in bytes. Default: 16.
    pub fn alignment(mut self, bytes: u64) -> Self {
        self.alignment = bytes;
        self
    }

    /// Message sizes the plan accepts, in bytes. Default: all.
    pub fn sizes(mut self, bytes: RangeInclusive<u64>) -> Self {
        self.sizes = bytes;
        self
    }

    /// The operator that reductions state. Default: none, which is the sum.
    pub fn reduce_op(mut self, op: ReduceOp) -> Self {
        self.reduce_op = Some(op);
        self
    }

    /// Whether the builder inserts `nop` where a block's threads must meet: between data and signals, between
    /// waits and data, and between data operations that depend on each other. Default: yes.
    pub fn auto_sync(mut self, auto: bool) -> Self {
        self.auto_sync = auto;
        self
    }

    /// Divide every rank's part of a message in `factor` chunks.
    #[track_caller]
    pub fn chunk_factor(self, factor: usize) -> Self {
        if factor == 0 {
            let detail = "saw chunk factor 0, allowed 1 or more";
            self.report(Location::caller(), ProblemKind::ChunkCounts { detail });
        }
        let whole = factor.saturating_mul(self.ranks());
        let (input, output) = match self.collective {
            Collective::AllReduce | Collective::AllToAll => (whole, whole),
            Collective::AllGather => (factor, whole),
            Collective::ReduceScatter => (whole, factor),
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
        for rank in &mut self.state.borrow_mut().ranks {
            rank.input_chunks = input as u64;
            rank.output_chunks = output as u64;
        }
        self
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.state.borrow().ranks.len()
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
        let rank = self.known(rank, Location::caller());
        let mut start = 0;
        if rank != NOWHERE {
            let allocated = &mut self.state_mut().ranks[rank].scratch_chunks;
            start = *allocated as usize;
            *allocated = allocated.saturating_add(chunks as u64);
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
        let at = Location::caller();
        let (a, b) = (self.known(a, at), self.known(b, at));
        if a == NOWHERE || b == NOWHERE {
            return Channel { ends: [(NOWHERE, 0); 2] };
        }
        if a == b {
            self.report(at, ProblemKind::SelfChannel { rank: a });
            return Channel { ends: [(NOWHERE, 0); 2] };
        }
        let mut state = self.state_mut();
        let mut end = |rank: usize, peer: usize| {
            let peers = &mut state.ranks[rank].peers;
            peers.push(peer as u64);
            (rank, peers.len() as u64 - 1)
        };
        Channel { ends: [end(a, b), end(b, a)] }
    }

    /// A new multicast channel over `buffer` of the given ranks.
    #[track_caller]
    pub fn switch(&self, ranks: &[usize], buffer: Buffer) -> SwitchChannel {
        let at = Location::caller();
        let nowhere = SwitchChannel { buffer, members: Vec::new() };
        if ranks.iter().any(|&rank| self.known(rank, at) == NOWHERE) {
            return nowhere;
        }
        if ranks.is_empty() || ranks.iter().enumerate().any(|(i, r)| ranks[..i].contains(r)) {
            self.report(at, ProblemKind::SwitchGroup { ranks: ranks.to_vec() });
            return nowhere;
        }
        let mut state = self.state_mut();
        let members = ranks.iter().map(|&rank| {
            let switches = &mut state.ranks[rank].switches;
            let ranks = ranks.iter().map(|&r| r as u64).collect::<Vec<_>>();
            switches.push((buffer, RankGroup { size: ranks.len() as u64, ranks }));
            (rank, switches.len() as u64 - 1)
        });
        SwitchChannel { buffer, members: members.collect() }
    }

    /// A new semaphore of a rank.
    #[track_caller]
    pub fn semaphore(&self, rank: usize, initial: i64) -> Semaphore {
        let rank = self.known(rank, Location::caller());
        if rank == NOWHERE {
            return Semaphore { rank, id: 0 };
        }
        let mut state = self.state_mut();
        let semaphores = &mut state.ranks[rank].semaphores;
        semaphores.push(initial);
        Semaphore { rank, id: semaphores.len() as u64 - 1 }
    }

    /// A new thread block of a rank, after those the rank has.
    #[track_caller]
    pub fn block(&self, rank: usize) -> Block<'_> {
        let rank = self.known(rank, Location::caller());
        let mut id = 0;
        if rank != NOWHERE {
            let blocks = &mut self.state_mut().ranks[rank].blocks;
            id = blocks.len();
            blocks.push(BlockState::default());
        }
        Block { program: self, rank, id, slice: None }
    }

    /// A thread block that the rank has already.
    #[track_caller]
    pub fn block_at(&self, rank: usize, block: usize) -> Block<'_> {
        let at = Location::caller();
        let mut known = self.known(rank, at);
        if known != NOWHERE {
            let blocks = self.state.borrow().ranks[rank].blocks.len();
            if block >= blocks {
                self.report(at, ProblemKind::Block { rank, block, blocks });
                known = NOWHERE;
            }
        }
        Block { program: self, rank: known, id: block, slice: None }
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
        if let [id] = ids[..] {
            return self.state_mut().block(first.rank, id).meet();
        }
        let mut state = self.state_mut();
        let barriers = &mut state.ranks[first.rank].barriers;
        let barrier = barriers.iter().position(|set| *set == ids).unwrap_or_else(|| {
            barriers.push(ids.clone());
            barriers.len() - 1
        });
        for &id in &ids {
            let mut op = Op::new(OpKind::Barrier);
            op.barrier_id = Some(barrier as u64);
            op.num_threadblocks = Some(ids.len() as u64);
            let block = state.block(first.rank, id);
            block.push(op);
            block.pending.clear();
        }
    }

    /// The finished plan, or everything that was wrong with the program.
    pub fn build(self) -> Result<Plan, BuildError> {
        let State { ranks, problems } = self.state.into_inner();
        if !problems.is_empty() {
            return Err(BuildError { program: self.name, problems });
        }
        Ok(Plan {
            name: self.name,
            collective: self.collective,
            protocol: self.protocol,
            in_place: self.in_place,
            reuse_resources: false,
            gpus: ranks.into_iter().enumerate().map(|(id, rank)| rank.finish(id)).collect(),
            num_threads_per_block: self.threads,
            use_double_scratch_buffer: self.double_scratch,
            buffer_alignment: self.alignment,
            min_message_size: *self.sizes.start(),
            max_message_size: *self.sizes.end(),
        })
    }

    fn state_mut(&self) -> RefMut<'_, State> {
        self.state.borrow_mut()
    }

    fn report(&self, at: &'static Location<'static>, kind: ProblemKind) {
        self.state_mut().report(at, kind);
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
            _ => self.state.borrow().ranks[rank].chunks(buffer) as usize,
        };
        Region { program: self, rank, buffer, start: 0, len }
    }
}
