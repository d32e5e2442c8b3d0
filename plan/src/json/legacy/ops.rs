//! The operations of the older format, translated.

use super::channels::{Channels, Key};
use super::wire::{Local, Operation, Pair, Remote};
use crate::json::ReadError;
use crate::model::{Buffer, ChannelType, ChunkRef, Op, OpKind, RefBase, RemoteBuffer};
use crate::place::Place;
use antiphon_types::ReduceOp;
use std::collections::HashMap;

/// The remote buffers a rank needs, in order of first use.
#[derive(Default)]
pub(super) struct RemoteBuffers {
    list: Vec<RemoteBuffer>,
    positions: HashMap<(u64, Buffer), usize>,
}

impl RemoteBuffers {
    /// The position of a buffer, noting that it is accessed in this way.
    fn position(&mut self, rank: u64, buffer: Buffer, access: ChannelType) -> usize {
        let position = *self.positions.entry((rank, buffer)).or_insert_with(|| {
            self.list.push(RemoteBuffer { rank, buffer, access: Vec::new() });
            self.list.len() - 1
        });
        let known = &mut self.list[position].access;
        if !known.contains(&access) {
            known.push(access);
        }
        position
    }

    pub(super) fn into_list(self) -> Vec<RemoteBuffer> {
        self.list
    }
}

/// Translates the operations of one block.
pub(super) struct Translator<'a> {
    channels: &'a Channels,
    remote_buffers: &'a mut RemoteBuffers,
    block: &'a Place,
    /// Per access type, the rank's remote buffers this block uses.
    refs: Vec<(ChannelType, Vec<u64>)>,
    /// Positions in `refs`, by access type and position in the rank's list.
    locals: HashMap<(ChannelType, usize), u64>,
}

/// The operation under translation and where it is.
#[derive(Clone, Copy)]
struct At<'a> {
    op: &'a Operation,
    position: usize,
}

/// What an operation names its channels and remote chunks by.
struct Side<'a> {
    pair: Option<&'a Pair>,
    pair_key: &'static str,
    ids: &'a [Remote],
    ids_key: &'static str,
}

impl<'a> At<'a> {
    fn inputs(self) -> Side<'a> {
        let (pair, ids) = (self.op.i_buff.as_ref(), self.op.i_cids.as_slice());
        Side { pair, pair_key: "i_buff", ids, ids_key: "i_cids" }
    }

    fn outputs(self) -> Side<'a> {
        let (pair, ids) = (self.op.o_buff.as_ref(), self.op.o_cids.as_slice());
        Side { pair, pair_key: "o_buff", ids, ids_key: "o_cids" }
    }
}

impl<'a> Translator<'a> {
    pub(super) fn new(
        channels: &'a Channels,
        remote_buffers: &'a mut RemoteBuffers,
        block: &'a Place,
    ) -> Self {
        let (refs, locals) = Default::default();
        Translator { channels, remote_buffers, block, refs, locals }
    }

    /// The block's lists of remote buffers.
    pub(super) fn into_refs(self) -> Vec<(ChannelType, Vec<u64>)> {
        self.refs
    }

    /// Translates the operation at `position`.
    pub(super) fn translate(&mut self, op: &Operation, position: usize) -> Result<Op, ReadError> {
        use OpKind::*;
        let at = At { op, position };
        let mut new = Op::new(self.kind(at)?);
        match new.kind {
            Nop => {}
            Barrier => {
                new.barrier_id = Some(self.need(at, "barrier_id", op.barrier_id)?);
                new.num_threadblocks =
                    Some(self.need(at, "nthread_blocks", op.num_threadblocks)?);
            }
            Signal | Flush => {
                new.channel_type = self.channel_type(at)?;
                new.channel_ids = self.channel_ids(at, at.outputs())?;
            }
            Wait => {
                new.channel_type = self.channel_type(at)?;
                new.channel_ids = self.channel_ids(at, at.inputs())?;
            }
            Put | PutPackets | ReadPutPackets | PutWithSignal | PutWithSignalAndFlush => {
                new.channel_type = self.channel_type(at)?;
                new.src = self.locals(at, &op.srcs)?;
                new.dst = self.remotes(at, at.outputs())?;
                if new.channel_type == ChannelType::Port {
                    new.channel_ids = self.channel_ids(at, at.outputs())?;
                }
            }
            Get => {
                new.channel_type = self.channel_type(at)?;
                new.src = self.remotes(at, at.inputs())?;
                new.dst = self.locals(at, &op.dsts)?;
                new.channel_ids = self.channel_ids(at, at.inputs())?;
            }
            GroupLoadReduceStore => {
                new.channel_type = ChannelType::Switch;
                new.reduce_op = Some(ReduceOp::Sum);
                new.src = self.switch(at, self.source(at)?, at.inputs())?;
                new.dst = self.switch(at, self.destination(at)?, at.outputs())?;
            }
            Copy | UnpackPackets | CopyPackets => {
                new.src = vec![self.source(at)?.1];
                new.dst = vec![self.destination(at)?.1];
            }
            // What is left reduces.
            _ => {
                new.reduce_op = Some(ReduceOp::Sum);
                new.src = vec![self.source(at)?.1];
                new.src.extend(self.locals(at, &op.srcs)?);
                new.dst = vec![self.destination(at)?.1];
                if !matches!(new.kind, Reduce | ReducePackets) {
                    new.channel_type = self.channel_type(at)?;
                    new.src.extend(self.remotes(at, at.inputs())?);
                    new.dst.extend(self.remotes(at, at.outputs())?);
                }
            }
        }
        Ok(new)
    }

    /// The operation's name now. Three names changed their meaning.
    fn kind(&self, at: At) -> Result<OpKind, ReadError> {
        Ok(match at.op.name.as_str() {
            "nop" => OpKind::Nop,
            "barrier" => OpKind::Barrier,
            "put" => OpKind::Put,
            "ppkt" => OpKind::PutPackets,
            "rppkt" => OpKind::ReadPutPackets,
            "pws" => OpKind::PutWithSignal,
            "pwsf" => OpKind::PutWithSignalAndFlush,
            "get" => OpKind::Get,
            "signal" => OpKind::Signal,
            "flush" => OpKind::Flush,
            "wait" => OpKind::Wait,
            "copy" => OpKind::Copy,
            "cpkt" => OpKind::UnpackPackets,
            "tpkt" => OpKind::CopyPackets,
            "re" | "reduce" => OpKind::Reduce,
            "rpkt" => OpKind::ReducePackets,
            "rs" => OpKind::ReduceSend,
            "rspkt" => OpKind::ReduceSendPackets,
            "rrc" => OpKind::ReadReduce,
            "rrcs" => OpKind::ReadReduceSend,
            "glres" => OpKind::GroupLoadReduceStore,
            other => {
                let place = self.place(at).key("name");
                let problem = format!("saw `{other}`, which is no operation of the older format");
                return Err(ReadError::converting(place, problem));
            }
        })
    }

    fn place(&self, at: At) -> Place {
        self.block.clone().at("ops", at.position)
    }

    fn need<T>(&self, at: At, key: &str, value: Option<T>) -> Result<T, ReadError> {
        value.ok_or_else(|| ReadError::converting(self.place(at), format!("missing key `{key}`")))
    }

    fn channel_type(&self, at: At) -> Result<ChannelType, ReadError> {
        self.need(at, "ctype", at.op.kind).map(|kind| kind.channel_type)
    }

    /// The chunk that `srcbuff` and `srcoff` name, and its buffer.
    fn source(&self, at: At) -> Result<(Buffer, ChunkRef), ReadError> {
        let buffer = self.need(at, "srcbuff", at.op.src)?;
        let index = self.need(at, "srcoff", at.op.src_offset)?;
        let size = self.need(at, "cnt", at.op.count)?;
        Ok((buffer, ChunkRef { base: RefBase::Local(buffer), index, size }))
    }

    /// The chunk that `dstbuff` and `dstoff` name, and its buffer.
    fn destination(&self, at: At) -> Result<(Buffer, ChunkRef), ReadError> {
        let buffer = self.need(at, "dstbuff", at.op.dst)?;
        let index = self.need(at, "dstoff", at.op.dst_offset)?;
        let size = self.need(at, "cnt", at.op.count)?;
        Ok((buffer, ChunkRef { base: RefBase::Local(buffer), index, size }))
    }

    fn locals(&self, at: At, refs: &[Local]) -> Result<Vec<ChunkRef>, ReadError> {
        if refs.is_empty() {
            return Ok(Vec::new());
        }
        let size = self.need(at, "cnt", at.op.count)?;
        let refs = refs.iter();
        Ok(refs
            .map(|r| ChunkRef { base: RefBase::Local(r.buffer), index: r.offset, size })
            .collect())
    }

    /// What a side's channels belong to.
    fn key(&self, at: At, side: &Side) -> Result<Key, ReadError> {
        let pair = self.need(at, side.pair_key, side.pair)?;
        Ok(Key { src: pair.src, dst: pair.dst, channel_type: self.channel_type(at)? })
    }

    fn unknown_channel(&self, at: At, side: &Side, ordinal: usize, key: Key) -> ReadError {
        let place = self.place(at).at(side.ids_key, ordinal).key("id");
        let (found, count) = (side.ids[ordinal].id, self.channels.get(key).len());
        let problem = format!(
            "saw channel {found}, allowed below {count}, the block's channels of this kind"
        );
        ReadError::converting(place, problem)
    }

    /// The block-local numbers of a side's channels.
    fn channel_ids(&self, at: At, side: Side) -> Result<Vec<u64>, ReadError> {
        let key = self.key(at, &side)?;
        let find = |(ordinal, remote): (usize, &Remote)| {
            let channel = self.channels.find(key, remote.id);
            channel.map(|c| c.id).ok_or_else(|| self.unknown_channel(at, &side, ordinal, key))
        };
        side.ids.iter().enumerate().map(find).collect()
    }

    /// The remote chunks of a side: of the channel's peer, in the buffer at the channel's other end.
    fn remotes(&mut self, at: At, side: Side) -> Result<Vec<ChunkRef>, ReadError> {
        if side.ids.is_empty() {
            return Ok(Vec::new());
        }
        let key = self.key(at, &side)?;
        let size = self.need(at, "cnt", at.op.count)?;
        let mut refs = Vec::with_capacity(side.ids.len());
        for (ordinal, remote) in side.ids.iter().enumerate() {
            let peer = self.channels.find(key, remote.id).and_then(|channel| channel.peer);
            let peer = peer.ok_or_else(|| self.unknown_channel(at, &side, ordinal, key))?;
            let index = remote.offset.ok_or_else(|| {
                let place = self.place(at).at(side.ids_key, ordinal);
                ReadError::converting(place, "missing key `off`".to_owned())
            })?;
            let base = RefBase::Remote(self.remote(peer, key.dst, key.channel_type));
            refs.push(ChunkRef { base, index, size });
        }
        Ok(refs)
    }

    /// The block-local number of a remote buffer.
    fn remote(&mut self, rank: u64, buffer: Buffer, access: ChannelType) -> u64 {
        let position = self.remote_buffers.position(rank, buffer, access);
        *self.locals.entry((access, position)).or_insert_with(|| {
            let list = self.refs.iter().position(|(other, _)| *other == access);
            let list = list.unwrap_or_else(|| {
                self.refs.push((access, Vec::new()));
                self.refs.len() - 1
            });
            let ids = &mut self.refs[list].1;
            ids.push(position as u64);
            ids.len() as u64 - 1
        })
    }

    /// A chunk of the operation as seen through its switch channel.
    fn switch(
        &self,
        at: At,
        (buffer, chunk): (Buffer, ChunkRef),
        side: Side,
    ) -> Result<Vec<ChunkRef>, ReadError> {
        let key = Key { src: buffer, dst: buffer, channel_type: ChannelType::Switch };
        let [remote] = side.ids else {
            let place = self.place(at).key(side.ids_key);
            let problem = format!("saw {} switch channels, allowed 1", side.ids.len());
            return Err(ReadError::converting(place, problem));
        };
        let channel = self.channels.find(key, remote.id);
        let channel = channel.ok_or_else(|| self.unknown_channel(at, &side, 0, key))?;
        Ok(vec![ChunkRef { base: RefBase::Switch(channel.id), ..chunk }])
    }
}
