//! The lists of a plan in the form in which ids count: concatenated per channel type.

use crate::model::{Buffer, ChannelTable, ChannelType, Gpu, Plan, RankGroup, ThreadBlock};
use std::borrow::Cow;

/// The tables of all ranks.
pub(super) struct Tables<'a> {
    pub(super) plan: &'a Plan,
    pub(super) ranks: Vec<RankTables<'a>>,
}

/// The tables of a rank, by the rank's own ids.
pub(super) struct RankTables<'a> {
    pub(super) gpu: &'a Gpu,
    /// The peer of each memory channel.
    pub(super) memory: Vec<u64>,
    /// The peer of each port channel.
    pub(super) port: Vec<u64>,
    pub(super) switches: Vec<Switch<'a>>,
}

/// A switch channel of a rank.
pub(super) struct Switch<'a> {
    /// Position in [`Gpu::channels`], and in that entry's groups.
    pub(super) origin: (usize, usize),
    pub(super) buffer: Buffer,
    pub(super) group: &'a RankGroup,
    /// Chunks that every member's buffer has; none if the members do not agree on the group.
    pub(super) chunks: Option<u64>,
}

impl<'a> Tables<'a> {
    pub(super) fn new(plan: &'a Plan) -> Self {
        Tables { plan, ranks: plan.gpus.iter().map(RankTables::new).collect() }
    }
}

impl<'a> RankTables<'a> {
    fn new(gpu: &'a Gpu) -> Self {
        let mut tables =
            RankTables { gpu, memory: Vec::new(), port: Vec::new(), switches: Vec::new() };
        for (entry, table) in gpu.channels.iter().enumerate() {
            match table {
                ChannelTable::Peers { channel_type: ChannelType::Memory, connected_to } => {
                    tables.memory.extend(connected_to);
                }
                ChannelTable::Peers { channel_type: ChannelType::Port, connected_to } => {
                    tables.port.extend(connected_to);
                }
                ChannelTable::Peers { .. } => {}
                ChannelTable::Switch { buffer, groups } => {
                    tables.switches.extend(groups.iter().enumerate().map(|(position, group)| {
                        let origin = (entry, position);
                        Switch { origin, buffer: *buffer, group, chunks: None }
                    }));
                }
            }
        }
        tables
    }

    /// The peers of the channels of a type that has peers.
    pub(super) fn peers(&self, channel_type: ChannelType) -> &[u64] {
        match channel_type {
            ChannelType::Memory => &self.memory,
            ChannelType::Port => &self.port,
            ChannelType::Switch | ChannelType::None => &[],
        }
    }

    /// The number of channels of a type.
    pub(super) fn channels(&self, channel_type: ChannelType) -> usize {
        match channel_type {
            ChannelType::Switch => self.switches.len(),
            other => self.peers(other).len(),
        }
    }

    /// The number of chunks of a buffer.
    pub(super) fn chunks(&self, buffer: Buffer) -> u64 {
        chunks(self.gpu, buffer)
    }
}

/// The number of chunks of a rank's buffer.
pub(super) fn chunks(gpu: &Gpu, buffer: Buffer) -> u64 {
    match buffer {
        Buffer::Input => gpu.input_chunks,
        Buffer::Output => gpu.output_chunks,
        Buffer::Scratch => gpu.scratch_chunks,
    }
}

/// The rank's ids that a block's ids stand for.
pub(super) struct BlockTables<'a> {
    memory: Cow<'a, [u64]>,
    port: Cow<'a, [u64]>,
    switch: Cow<'a, [u64]>,
    remote_memory: Cow<'a, [u64]>,
    remote_port: Cow<'a, [u64]>,
}

impl<'a> BlockTables<'a> {
    pub(super) fn new(block: &'a ThreadBlock) -> Self {
        let channels = |channel_type| concatenated(&block.channels, channel_type);
        let remotes = |access| concatenated(&block.remote_buffer_refs, access);
        BlockTables {
            memory: channels(ChannelType::Memory),
            port: channels(ChannelType::Port),
            switch: channels(ChannelType::Switch),
            remote_memory: remotes(ChannelType::Memory),
            remote_port: remotes(ChannelType::Port),
        }
    }

    /// The block's channels of a type.
    pub(super) fn channels(&self, channel_type: ChannelType) -> &[u64] {
        match channel_type {
            ChannelType::Memory => &self.memory,
            ChannelType::Port => &self.port,
            ChannelType::Switch => &self.switch,
            ChannelType::None => &[],
        }
    }

    /// The block's remote buffers that it accesses in this way.
    pub(super) fn remotes(&self, access: ChannelType) -> &[u64] {
        match access {
            ChannelType::Memory => &self.remote_memory,
            ChannelType::Port => &self.remote_port,
            ChannelType::Switch | ChannelType::None => &[],
        }
    }
}

/// The lists of one type, end to end.
fn concatenated(lists: &[(ChannelType, Vec<u64>)], wanted: ChannelType) -> Cow<'_, [u64]> {
    let mut all = Cow::Borrowed([].as_slice());
    for (_, ids) in lists.iter().filter(|(channel_type, _)| *channel_type == wanted) {
        if all.is_empty() {
            all = Cow::Borrowed(ids.as_slice());
        } else {
            all.to_mut().extend(ids);
        }
    }
    all
}

/// Element `id` of a list.
pub(super) fn nth<T>(list: &[T], id: u64) -> Option<&T> {
    list.get(usize::try_from(id).ok()?)
}
