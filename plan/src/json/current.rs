//! Reads the current format, down to thread blocks; [`operations`](super::operations) reads what is in them. The objects are declared here as they are spelled; each turns into its part of the
//! model as soon as it is read, so that no second copy of a large plan ever exists.

use super::extensions::Extensions;
use super::switch_buffers;
use super::typed::{FromJson, Note, Trail, missing, object};
use crate::model::{
    Buffer, ChannelTable, ChannelType, Collective, Gpu, Op, OpKind, Plan, Protocol, RankGroup,
    RefBase, RemoteBuffer, ThreadBlock,
};
use crate::place::{Place, Step};
use serde::Deserializer;
use serde::de::Error;

/// A whole plan file.
pub(super) struct File(pub(super) Plan);

object! {
    Top {
        name: String = "name",
        collective: Collective = "collective",
        protocol: Protocol = "protocol",
        in_place: bool = "inplace",
        reuse_resources: bool = "reuse_resources" or false,
        gpus: Vec<Gpu> = "gpus",
        num_threads_per_block: u64 = "num_threads_per_block" or 1024,
        use_double_scratch_buffer: bool = "use_double_scratch_buffer" or false,
        buffer_alignment: u64 = "buffer_alignment" or 16,
        min_message_size: u64 = "min_message_size" or 0,
        max_message_size: u64 = "max_message_size" or u64::MAX,
        extensions: Extensions = "extensions" or Extensions::default(),
    }
}

impl<'de> FromJson<'de> for File {
    fn from_json<D: Deserializer<'de>>(json: D, trail: &Trail) -> Result<Self, D::Error> {
        let top = Top::from_json(json, trail)?;
        Ok(File(Plan {
            name: top.name,
            collective: top.collective,
            protocol: top.protocol,
            in_place: top.in_place,
            reuse_resources: top.reuse_resources,
            gpus: top.gpus,
            num_threads_per_block: top.num_threads_per_block,
            use_double_scratch_buffer: top.use_double_scratch_buffer,
            buffer_alignment: top.buffer_alignment,
            min_message_size: top.min_message_size,
            max_message_size: top.max_message_size,
            runtime_sizes: top.extensions.runtime_sizes,
        }))
    }
}

object! {
    RankObject {
        id: u64 = "id",
        input_chunks: u64 = "input_chunks",
        output_chunks: u64 = "output_chunks",
        scratch_chunks: u64 = "scratch_chunks",
        threadblocks: Vec<Block> = "threadblocks",
        channels: Vec<ChannelTable> = "channels",
        remote_buffers: Vec<RemoteBuffer> = "remote_buffers",
        semaphores: Vec<SemaphoreObject> = "semaphores" or Vec::new(),
    }
}

object! {
    SemaphoreObject { init_value: i64 = "init_value", }
}

impl<'de> FromJson<'de> for Gpu {
    fn from_json<D: Deserializer<'de>>(json: D, trail: &Trail) -> Result<Self, D::Error> {
        let rank = RankObject::from_json(json, trail)?;
        // A switch channel has one buffer, so `glre` names its buffer twice. The tables that say which channel it
        // means may follow the blocks in the file: compare here.
        let bound = switch_buffers(&rank.channels);
        for (position, Block { block, notes }) in rank.threadblocks.iter().enumerate() {
            let bound = |channel| {
                let id = block.channel(ChannelType::Switch, channel)?;
                bound.get(usize::try_from(id).ok()?).copied()
            };
            let mut notes = notes.iter().copied();
            let found =
                if notes.len() > 0 { misplaced(&block.ops, &mut notes, &bound) } else { None };
            if let Some((place, noted, actual)) = found {
                trail.leave(Step::Key("buffer_type"));
                trail.leave_all(&place);
                trail.leave_all(&Place::top().at("threadblocks", position));
                return Err(D::Error::custom(format_args!(
                    "saw `{noted}`, allowed `{actual}`, the buffer of the operation's switch channel"
                )));
            }
        }
        Ok(Gpu {
            id: rank.id,
            input_chunks: rank.input_chunks,
            output_chunks: rank.output_chunks,
            scratch_chunks: rank.scratch_chunks,
            threadblocks: rank.threadblocks.into_iter().map(|block| block.block).collect(),
            channels: rank.channels,
            remote_buffers: rank.remote_buffers,
            semaphores: rank.semaphores.into_iter().map(|semaphore| semaphore.init_value).collect(),
        })
    }
}

object! {
    TableObject {
        channel_type: ChannelType = "channel_type",
        connected_to: Option<Vec<u64>> = "connected_to" or None,
        buffer_type: Option<Buffer> = "buffer_type" or None,
        rank_groups: Option<Vec<RankGroup>> = "rank_groups" or None,
    }
}

impl<'de> FromJson<'de> for ChannelTable {
    fn from_json<D: Deserializer<'de>>(json: D, trail: &Trail) -> Result<Self, D::Error> {
        let table = TableObject::from_json(json, trail)?;
        Ok(match table.channel_type {
            ChannelType::Switch => ChannelTable::Switch {
                buffer: table.buffer_type.ok_or_else(|| missing("buffer_type"))?,
                groups: table.rank_groups.ok_or_else(|| missing("rank_groups"))?,
            },
            channel_type => ChannelTable::Peers {
                channel_type,
                connected_to: table.connected_to.ok_or_else(|| missing("connected_to"))?,
            },
        })
    }
}

object! {
    GroupObject { size: u64 = "size", ranks: Vec<u64> = "ranks", }
}

impl<'de> FromJson<'de> for RankGroup {
    fn from_json<D: Deserializer<'de>>(json: D, trail: &Trail) -> Result<Self, D::Error> {
        let GroupObject { size, ranks } = GroupObject::from_json(json, trail)?;
        Ok(RankGroup { size, ranks })
    }
}

object! {
    RemoteObject {
        rank: u64 = "rank",
        buffer: Buffer = "type",
        access: Vec<ChannelType> = "access_channel_types",
    }
}

impl<'de> FromJson<'de> for RemoteBuffer {
    fn from_json<D: Deserializer<'de>>(json: D, trail: &Trail) -> Result<Self, D::Error> {
        let RemoteObject { rank, buffer, access } = RemoteObject::from_json(json, trail)?;
        Ok(RemoteBuffer { rank, buffer, access })
    }
}

object! {
    BlockObject {
        id: u64 = "id",
        ops: Vec<Op> = "ops",
        channels: Vec<ChannelIds> = "channels",
        remote_buffer_refs: Vec<RemoteIds> = "remote_buffer_refs" or Vec::new(),
    }
}

object! {
    ChannelIds { channel_type: ChannelType = "channel_type", ids: Vec<u64> = "channel_ids", }
}

object! {
    RemoteIds { access: ChannelType = "access_channel_type", ids: Vec<u64> = "remote_buffer_ids", }
}

/// A block, and what was noted of the `glre` operations in it.
struct Block {
    block: ThreadBlock,
    notes: Vec<Note>,
}

impl<'de> FromJson<'de> for Block {
    fn from_json<D: Deserializer<'de>>(json: D, trail: &Trail) -> Result<Self, D::Error> {
        let object = BlockObject::from_json(json, trail)?;
        let channels = object.channels.into_iter().map(|list| (list.channel_type, list.ids));
        let refs = object.remote_buffer_refs.into_iter().map(|list| (list.access, list.ids));
        let block = ThreadBlock {
            id: object.id,
            ops: object.ops,
            channels: channels.collect(),
            remote_buffer_refs: refs.collect(),
        };
        Ok(Block { block, notes: trail.take_notes() })
    }
}

/// Finds the first `glre` whose noted buffer is not its channel's; gives its place in `ops` and both buffers.
fn misplaced(
    ops: &[Op],
    notes: &mut impl Iterator<Item = Note>,
    bound: &impl Fn(u64) -> Option<Buffer>,
) -> Option<(Place, Buffer, Buffer)> {
    for (position, op) in ops.iter().enumerate() {
        let here = || Place::top().at("ops", position);
        if let Some(pipeline) = &op.pipeline
            && let Some((place, noted, actual)) = misplaced(&pipeline.ops, notes, bound)
        {
            return Some((place.under(here()), noted, actual));
        }
        if op.kind == OpKind::GroupLoadReduce
            && let Some(noted) = notes.next().flatten()
            && let Some(RefBase::Switch(channel)) = op.src.last().map(|chunk| chunk.base)
            && let Some(actual) = bound(channel)
            && actual != noted
        {
            return Some((here(), noted, actual));
        }
    }
    None
}
