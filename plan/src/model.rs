//! The plan model: one in-memory form for every dialect of the plan format.
//!
//! The field meanings are those of the format (rank = position in [`Plan::gpus`]; chunk indices count chunks of
//! the named buffer). Nothing here is validated: `check` lists what is wrong with a plan.

mod op_kind;

use antiphon_types::ReduceOp;
pub use op_kind::OpKind;
use std::fmt;

/// A whole collective: what every rank does, block by block.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    /// The plan's name, for people. Identity is the content, not the name.
    pub name: String,
    /// What the plan computes.
    pub collective: Collective,
    /// `Simple` or `LL`; any operation may appear in either.
    pub protocol: Protocol,
    /// Whether the plan expects its input and output buffers to be the same memory.
    pub in_place: bool,
    /// One launch context for all buffer addresses (always so in Antiphon; kept for writing the plan back).
    pub reuse_resources: bool,
    /// One entry per rank, in rank order.
    pub gpus: Vec<Gpu>,
    /// Threads of a block on a GPU.
    pub num_threads_per_block: u64,
    /// Whether successive launches alternate between two halves of the scratch buffer.
    pub use_double_scratch_buffer: bool,
    /// Unit of all chunk arithmetic, in bytes.
    pub buffer_alignment: u64,
    /// Smallest message, in bytes, inclusive.
    pub min_message_size: u64,
    /// Largest message, in bytes, inclusive.
    pub max_message_size: u64,
    /// Whether the chunks of inputs and outputs are runtime blocks: runs of elements whose places and lengths come with
    /// each call. Such a plan moves data by `vput`, `vget` and `vcopy` alone.
    pub runtime_sizes: bool,
}

/// What a plan computes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Collective {
    /// Every rank ends with the reduction of all inputs.
    AllReduce,
    /// Every rank ends with the concatenation of all inputs.
    AllGather,
    /// Rank r ends with block r of the reduction of all inputs.
    ReduceScatter,
    /// Block r of rank s's input becomes block s of rank r's output.
    AllToAll,
    /// Block r of rank s's input becomes block s of rank r's output; every block has a length of its own.
    AllToAllV,
    /// Every rank ends with all inputs, each with a length of its own.
    AllGatherV,
    /// Every rank ends with the root's input (root 0 in built-in plans).
    Broadcast,
    /// The root ends with the reduction of all inputs.
    Reduce,
    /// The root ends with the concatenation of all inputs.
    Gather,
    /// Rank r ends with block r of the root's input.
    Scatter,
    /// Point-to-point exchange; what goes where is the plan's business.
    SendRecv,
    /// A plan without a post-condition of its own.
    Test,
    /// Any other collective, by its name in the file (`custom` and names Antiphon does not know).
    Other(String),
}

/// The protocol named by a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Data and signals.
    Simple,
    /// Packets that carry their own flags.
    LL,
}

/// One rank's part of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Gpu {
    /// The rank; equals the position in [`Plan::gpus`].
    pub id: u64,
    /// Chunks of the input buffer; 0 means that the plan puts no constraint on it.
    pub input_chunks: u64,
    /// Chunks of the output buffer; 0 means that the plan puts no constraint on it.
    pub output_chunks: u64,
    /// Chunk-sized slots of the scratch buffer.
    pub scratch_chunks: u64,
    /// The thread blocks, in id order.
    pub threadblocks: Vec<ThreadBlock>,
    /// The channel tables.
    pub channels: Vec<ChannelTable>,
    /// Buffers of other ranks that this rank addresses.
    pub remote_buffers: Vec<RemoteBuffer>,
    /// Initial values of the rank's semaphores.
    pub semaphores: Vec<i64>,
}

/// One entry of a rank's channel table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ChannelTable {
    /// Point-to-point channels of one type; a channel's id is its position over all entries of that type.
    Peers {
        /// Memory, port or none.
        channel_type: ChannelType,
        /// The peer of each channel; a peer may appear many times.
        connected_to: Vec<u64>,
    },
    /// Multicast channels over one buffer; ids count groups over all switch entries.
    Switch {
        /// The buffer each member binds.
        buffer: Buffer,
        /// One group per channel.
        groups: Vec<RankGroup>,
    },
}

/// The members of one switch channel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RankGroup {
    /// As written in the file; not used.
    pub size: u64,
    /// The member ranks.
    pub ranks: Vec<u64>,
}

/// A buffer of another rank that this rank addresses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RemoteBuffer {
    /// The owner.
    pub rank: u64,
    /// Which of the owner's buffers.
    pub buffer: Buffer,
    /// How it is accessed.
    pub access: Vec<ChannelType>,
}

/// One thread block of a rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ThreadBlock {
    /// Equals the position in [`Gpu::threadblocks`].
    pub id: u64,
    /// The operations, in order.
    pub ops: Vec<Op>,
    /// Per channel type, the rank's channel ids this block uses; ops refer to positions in these lists.
    pub channels: Vec<(ChannelType, Vec<u64>)>,
    /// Per access type, the rank's remote buffers this block uses; ops refer to positions in these lists.
    pub remote_buffer_refs: Vec<(ChannelType, Vec<u64>)>,
}

/// One operation of a thread block.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Op {
    /// What it does.
    pub kind: OpKind,
    /// The type of the channels it uses; [`ChannelType::None`] where it uses none.
    pub channel_type: ChannelType,
    /// Block-local channel ids.
    pub channel_ids: Vec<u64>,
    /// Chunks read.
    pub src: Vec<ChunkRef>,
    /// Chunks written.
    pub dst: Vec<ChunkRef>,
    /// The slice of the work this block does, where several blocks share an operation.
    pub group: Option<GroupSlice>,
    /// The reduction, where the operation reduces; `None` reads as sum.
    pub reduce_op: Option<ReduceOp>,
    /// Barrier number (per rank), for `barrier`.
    pub barrier_id: Option<u64>,
    /// Number of participating blocks, for `barrier`.
    pub num_threadblocks: Option<u64>,
    /// Semaphore numbers (per rank), for `sem_acquire` and `sem_release`.
    pub semaphore_ids: Vec<u64>,
    /// The body, for `pipeline`.
    pub pipeline: Option<Pipeline>,
}

/// Slice `tb_id` of `tbg_size` equal slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupSlice {
    /// Position inside the thread-block group.
    pub tb_id: u64,
    /// Number of blocks in the group.
    pub tbg_size: u64,
}

/// The body of a pipeline: its operations run once per window of `unit_size` bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pipeline {
    /// Bytes of one window.
    pub unit_size: u64,
    /// Chunks that the windows cover together.
    pub num_chunks: u64,
    /// The operations of one iteration.
    pub ops: Vec<Op>,
}

/// A run of chunks in some buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChunkRef {
    /// Which buffer.
    pub base: RefBase,
    /// First chunk.
    pub index: u64,
    /// Number of chunks.
    pub size: u64,
}

/// Which buffer a [`ChunkRef`] means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefBase {
    /// The rank's own buffer.
    Local(Buffer),
    /// Block-local id into the remote buffer list of the operation's channel type.
    Remote(u64),
    /// Block-local switch channel id.
    Switch(u64),
}

/// The three buffers of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Buffer {
    /// The send buffer.
    Input,
    /// The receive buffer.
    Output,
    /// Private temporary memory of a launch context.
    Scratch,
}

/// The type of a channel: which semantics it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ChannelType {
    /// Loads and stores to mapped memory.
    Memory,
    /// Requests to a proxy.
    Port,
    /// Multicast.
    Switch,
    /// No channel.
    None,
}

impl Plan {
    /// Every operation, each pipeline before those inside it.
    pub fn operations(&self) -> impl Iterator<Item = &Op> {
        let outer = self.gpus.iter().flat_map(|gpu| &gpu.threadblocks).flat_map(|block| &block.ops);
        outer.flat_map(|op| {
            std::iter::once(op).chain(op.pipeline.iter().flat_map(|pipeline| &pipeline.ops))
        })
    }

    /// Whether any operation combines values.
    pub fn reduces(&self) -> bool {
        self.operations().any(|op| op.kind.reduces())
    }

    /// The reduction, if there is exactly one; an operation that names none sums.
    pub fn reduction(&self) -> Option<ReduceOp> {
        let all = self.operations().filter(|op| op.kind.reduces());
        let mut all = all.map(|op| op.reduce_op.unwrap_or(ReduceOp::Sum));
        let first = all.next()?;
        all.all(|other| other == first).then_some(first)
    }
}

impl Op {
    /// An operation of this kind with every other field empty.
    pub fn new(kind: OpKind) -> Self {
        Op {
            kind,
            channel_type: ChannelType::None,
            channel_ids: Vec::new(),
            src: Vec::new(),
            dst: Vec::new(),
            group: None,
            reduce_op: None,
            barrier_id: None,
            num_threadblocks: None,
            semaphore_ids: Vec::new(),
            pipeline: None,
        }
    }
}

impl Collective {
    /// Whether sums of such a plan can be made averages: its promise says which buffer ends with a reduction over all ranks, or
    /// that none does.
    pub const fn may_average(&self) -> bool {
        !matches!(self, Collective::SendRecv | Collective::Test | Collective::Other(_))
    }

    /// Whether one rank, the root, is told from the others.
    pub const fn has_root(&self) -> bool {
        use Collective::{Broadcast, Gather, Reduce, Scatter};
        matches!(self, Broadcast | Reduce | Gather | Scatter)
    }

    /// The name in the plan format.
    pub fn name(&self) -> &str {
        match self {
            Collective::AllReduce => "allreduce",
            Collective::AllGather => "allgather",
            Collective::ReduceScatter => "reducescatter",
            Collective::AllToAll => "alltoall",
            Collective::AllToAllV => "alltoallv",
            Collective::AllGatherV => "allgatherv",
            Collective::Broadcast => "broadcast",
            Collective::Reduce => "reduce",
            Collective::Gather => "gather",
            Collective::Scatter => "scatter",
            Collective::SendRecv => "sendrecv",
            Collective::Test => "test",
            Collective::Other(name) => name,
        }
    }

    /// The collective with this name; unknown names are kept.
    pub fn from_name(name: &str) -> Self {
        match name {
            "allreduce" => Collective::AllReduce,
            "allgather" => Collective::AllGather,
            "reducescatter" => Collective::ReduceScatter,
            "alltoall" => Collective::AllToAll,
            "alltoallv" => Collective::AllToAllV,
            "allgatherv" => Collective::AllGatherV,
            "broadcast" => Collective::Broadcast,
            "reduce" => Collective::Reduce,
            "gather" => Collective::Gather,
            "scatter" => Collective::Scatter,
            "sendrecv" => Collective::SendRecv,
            "test" => Collective::Test,
            other => Collective::Other(other.to_owned()),
        }
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Protocol {
    /// The name in the plan format.
    pub const fn name(self) -> &'static str {
        match self {
            Protocol::Simple => "Simple",
            Protocol::LL => "LL",
        }
    }
}

impl Buffer {
    /// Every buffer, in the order of their positions in address tables.
    pub const ALL: [Buffer; 3] = [Buffer::Input, Buffer::Output, Buffer::Scratch];

    /// The one-letter name in the plan format.
    pub const fn name(self) -> &'static str {
        match self {
            Buffer::Input => "i",
            Buffer::Output => "o",
            Buffer::Scratch => "s",
        }
    }
}

impl ChannelType {
    /// The name in the plan format.
    pub const fn name(self) -> &'static str {
        match self {
            ChannelType::Memory => "memory",
            ChannelType::Port => "port",
            ChannelType::Switch => "switch",
            ChannelType::None => "none",
        }
    }
}

impl fmt::Display for ChannelType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl ThreadBlock {
    /// The rank's channel that the block-local id `local` means among the channels of this type.
    pub fn channel(&self, channel_type: ChannelType, local: u64) -> Option<u64> {
        nth(&self.channels, channel_type, local)
    }

    /// The rank's remote buffer that the block-local id `local` means among those accessed in this way.
    pub fn remote_buffer(&self, access: ChannelType, local: u64) -> Option<u64> {
        nth(&self.remote_buffer_refs, access, local)
    }
}

/// Element `local` of the concatenated lists of one type.
fn nth(lists: &[(ChannelType, Vec<u64>)], wanted: ChannelType, local: u64) -> Option<u64> {
    let mut rest = usize::try_from(local).ok()?;
    for (_, ids) in lists.iter().filter(|(channel_type, _)| *channel_type == wanted) {
        match ids.get(rest) {
            Some(&id) => return Some(id),
            None => rest -= ids.len(),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    /// A plan of one block with these reductions, and a copy in a pipeline.
    fn reducing(reductions: &[Option<ReduceOp>]) -> Plan {
        let mut pipeline = Op::new(OpKind::Pipeline);
        let ops = vec![Op::new(OpKind::Copy)];
        pipeline.pipeline = Some(Pipeline { unit_size: 1, num_chunks: 1, ops });
        let reduces = |&reduce_op: &_| Op { reduce_op, ..Op::new(OpKind::Reduce) };
        let mut plan = samples::plan(Collective::Test, 1, [1, 1, 0]);
        samples::block(&mut plan, 0, reductions.iter().map(reduces).chain([pipeline]).collect());
        plan
    }

    #[test]
    fn a_plan_has_one_reduction_or_none_to_speak_of() {
        use ReduceOp::{Max, Sum};
        let cases: [(&[Option<ReduceOp>], Option<ReduceOp>); 4] = [
            (&[], None),
            (&[None, Some(Sum)], Some(Sum)),
            (&[Some(Max), Some(Max)], Some(Max)),
            (&[Some(Max), None], None),
        ];
        for (reductions, expected) in cases {
            let plan = reducing(reductions);
            assert_eq!(plan.reduction(), expected, "{reductions:?}");
            assert_eq!(plan.reduces(), !reductions.is_empty());
            assert_eq!(plan.operations().count(), reductions.len() + 2);
        }
    }
}
