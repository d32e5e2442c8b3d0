//! The objects of the older format, as they are spelled.

use crate::json::names::channel_type;
use crate::json::typed::{FromJson, Trail, name, object};
use crate::model::{Buffer, ChannelType, Collective, Protocol, RankGroup};
use serde::Deserializer;

object! {
    /// A whole plan file.
    pub(in crate::json) File {
        name: String = "name",
        collective: Collective = "collective",
        protocol: Protocol = "protocol",
        in_place: bool = "inplace" or false,
        gpus: Vec<Rank> = "gpus",
        num_threads_per_block: u64 = "num_threads_per_block" or 1024,
        min_message_size: u64 = "min_message_size" or 0,
        max_message_size: u64 = "max_message_size" or u64::MAX,
    }
}

object! {
    pub(in crate::json) Rank {
        id: u64 = "id",
        input_chunks: u64 = "inputChunks",
        output_chunks: u64 = "outputChunks",
        scratch_chunks: u64 = "scratchChunks",
        threadblocks: Vec<Block> = "threadblocks",
        channels: Vec<Table> = "channels",
    }
}

object! {
    /// The channels of one type between one pair of buffers, or the switch channels of one buffer.
    pub(in crate::json) Table {
        kind: Spelled = "type",
        src: Option<Buffer> = "srcbuff" or None,
        dst: Option<Buffer> = "dstbuff" or None,
        connected_to: Option<Vec<u64>> = "connectedTo" or None,
        buffer: Option<Buffer> = "buff" or None,
        rank_groups: Option<Vec<RankGroup>> = "rankGroups" or None,
    }
}

object! {
    pub(in crate::json) Block {
        id: u64 = "id",
        ops: Vec<Operation> = "ops",
        channels: Vec<BlockChannels> = "channels",
    }
}

object! {
    pub(in crate::json) BlockChannels {
        src: Buffer = "src",
        dst: Buffer = "dst",
        kind: Spelled = "ctype",
        ids: Vec<u64> = "cids",
    }
}

object! {
    pub(in crate::json) Operation {
        name: String = "name",
        i_buff: Option<Pair> = "i_buff" or None,
        i_cids: Vec<Remote> = "i_cids" or Vec::new(),
        o_buff: Option<Pair> = "o_buff" or None,
        o_cids: Vec<Remote> = "o_cids" or Vec::new(),
        srcs: Vec<Local> = "srcs" or Vec::new(),
        dsts: Vec<Local> = "dsts" or Vec::new(),
        src: Option<Buffer> = "srcbuff" or None,
        src_offset: Option<u64> = "srcoff" or None,
        dst: Option<Buffer> = "dstbuff" or None,
        dst_offset: Option<u64> = "dstoff" or None,
        kind: Option<Spelled> = "ctype" or None,
        count: Option<u64> = "cnt" or None,
        barrier_id: Option<u64> = "barrier_id" or None,
        num_threadblocks: Option<u64> = "nthread_blocks" or None,
    }
}

object! {
    /// The buffers of a channel: this rank's, and the peer's.
    pub(in crate::json) Pair { src: Buffer = "src", dst: Buffer = "dst", }
}

object! {
    /// A channel by its position in the block's list for the pair, and a chunk of the peer's buffer.
    pub(in crate::json) Remote { id: u64 = "id", offset: Option<u64> = "off" or None, }
}

object! {
    /// A chunk of a buffer of the rank.
    pub(in crate::json) Local { buffer: Buffer = "buff", offset: u64 = "off", }
}

/// A channel type, and whether it is spelled as msccl-tools does.
#[derive(Clone, Copy)]
pub(in crate::json) struct Spelled {
    pub(in crate::json) channel_type: ChannelType,
    pub(in crate::json) sm: bool,
}

impl<'de> FromJson<'de> for Spelled {
    fn from_json<D: Deserializer<'de>>(json: D, _: &Trail) -> Result<Self, D::Error> {
        name(json, "`memory`, `port`, `sm`, `proxy`, `nvls` or `none`", |text| {
            let sm = matches!(text, "sm" | "proxy");
            channel_type(text).map(|channel_type| Spelled { channel_type, sm })
        })
    }
}
