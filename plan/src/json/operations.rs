//! Reads operations and chunk references of the current format.
//!
//! Nearly all of a plan file is operations. They are read field by field into the model, not through an object of
//! their own.

use super::typed::{FromJson, KeySeed, Seen, Trail, Unknown, missing, object};
use crate::model::{Buffer, ChunkRef, GroupSlice, Op, OpKind, Pipeline, RefBase};
use crate::place::Step;
use serde::Deserializer;
use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use std::fmt;

object! {
    WindowObject { unit_size: u64 = "unit_size", num_chunks: u64 = "num_chunks", }
}

/// What an operation may say besides the fields of the model.
#[derive(Default)]
struct Extra {
    window: Option<WindowObject>,
    body: Option<Vec<Op>>,
    load: LoadReduce,
}

/// The spelling of `glre`: one chunk of a switch channel, reduced into another chunk.
#[derive(Default)]
struct LoadReduce {
    buffer: Option<Buffer>,
    index: Option<u64>,
    size: Option<u64>,
    dst: Option<ChunkRef>,
}

impl<'de> FromJson<'de> for Op {
    fn from_json<D: Deserializer<'de>>(json: D, trail: &Trail) -> Result<Self, D::Error> {
        struct Fields<'t>(&'t Trail);
        impl<'de> Visitor<'de> for Fields<'_> {
            type Value = Op;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Op, A::Error> {
                let mut op = Op::new(OpKind::Nop);
                let (mut kind, mut extra) = (None, Extra::default());
                let (mut seen, mut unknown) = (Seen::default(), Unknown::default());
                while let Some(key) = map.next_key_seed(KeySeed)? {
                    macro_rules! fields {
                        ($($field:literal $key:literal => $slot:expr,)*) => {
                            match &*key {
                                $($key => seen.read($field, $slot, ($key, &mut map, self.0))?,)*
                                _ => unknown.skip(key, &mut map)?,
                            }
                        };
                    }
                    fields! {
                        0 "name" => &mut kind,
                        1 "src_buff" => &mut op.src,
                        2 "dst_buff" => &mut op.dst,
                        3 "channel_ids" => &mut op.channel_ids,
                        4 "channel_type" => &mut op.channel_type,
                        5 "reduce_op" => &mut op.reduce_op,
                        6 "tbg_info" => &mut op.group,
                        7 "barrier_id" => &mut op.barrier_id,
                        8 "num_threadblocks" => &mut op.num_threadblocks,
                        9 "semaphore_ids" => &mut op.semaphore_ids,
                        10 "iter_context" => &mut extra.window,
                        11 "ops" => &mut extra.body,
                        12 "buffer_type" => &mut extra.load.buffer,
                        13 "buffer_offset" => &mut extra.load.index,
                        14 "size" => &mut extra.load.size,
                        15 "dst_chunk" => &mut extra.load.dst,
                    }
                }
                op.kind = kind.ok_or_else(|| missing("name"))?;
                op.pipeline = pipeline(extra.window, extra.body)?;
                if op.kind == OpKind::GroupLoadReduce {
                    load_reduce(&mut op, extra.load, self.0)?;
                }
                Ok(op)
            }
        }
        json.deserialize_map(Fields(trail))
    }
}

/// The body of a pipeline, from its two keys.
fn pipeline<E: Error>(
    window: Option<WindowObject>,
    body: Option<Vec<Op>>,
) -> Result<Option<Pipeline>, E> {
    match (window, body) {
        (Some(WindowObject { unit_size, num_chunks }), Some(ops)) => {
            Ok(Some(Pipeline { unit_size, num_chunks, ops }))
        }
        (None, None) => Ok(None),
        (None, Some(_)) => Err(missing("iter_context")),
        (Some(_), None) => Err(missing("ops")),
    }
}

/// Gives a `glre` in its own spelling the form of all switch operations.
fn load_reduce<E: Error>(op: &mut Op, load: LoadReduce, trail: &Trail) -> Result<(), E> {
    let Some(dst) = load.dst else {
        trail.note(None);
        return Ok(());
    };
    let buffer = load.buffer.ok_or_else(|| missing("buffer_type"))?;
    let index = load.index.ok_or_else(|| missing("buffer_offset"))?;
    let size = load.size.ok_or_else(|| missing("size"))?;
    let &[channel] = op.channel_ids.as_slice() else {
        trail.leave(Step::Key("channel_ids"));
        let found = op.channel_ids.len();
        return Err(E::custom(format_args!("saw {found} channel ids, allowed 1")));
    };
    // A switch channel has one buffer, so the buffer is said twice. Which channel this is may follow in the file.
    trail.note(Some(buffer));
    op.channel_ids.clear();
    op.src.push(ChunkRef { base: RefBase::Switch(channel), index, size });
    op.dst.push(dst);
    Ok(())
}

object! {
    SliceObject { tb_id: u64 = "tb_id", tbg_size: u64 = "tbg_size", }
}

impl<'de> FromJson<'de> for GroupSlice {
    fn from_json<D: Deserializer<'de>>(json: D, trail: &Trail) -> Result<Self, D::Error> {
        let SliceObject { tb_id, tbg_size } = SliceObject::from_json(json, trail)?;
        Ok(GroupSlice { tb_id, tbg_size })
    }
}

object! {
    RefObject {
        buffer: Option<Buffer> = "type" or None,
        remote: Option<u64> = "buffer_id" or None,
        switch: Option<u64> = "switch_channel_id" or None,
        index: u64 = "index",
        size: u64 = "size",
        // Written by the DSL in some places; always the rank itself.
        _rank: Option<Skipped> = "rank" or None,
    }
}

/// A value that does not matter.
struct Skipped;

impl<'de> FromJson<'de> for Skipped {
    fn from_json<D: Deserializer<'de>>(json: D, _: &Trail) -> Result<Self, D::Error> {
        json.deserialize_ignored_any(IgnoredAny).map(|_| Skipped)
    }
}

impl<'de> FromJson<'de> for ChunkRef {
    fn from_json<D: Deserializer<'de>>(json: D, trail: &Trail) -> Result<Self, D::Error> {
        let RefObject { buffer, remote, switch, index, size, .. } =
            RefObject::from_json(json, trail)?;
        let base = match (buffer, remote, switch) {
            (Some(buffer), None, None) => RefBase::Local(buffer),
            (None, Some(id), None) => RefBase::Remote(id),
            (None, None, Some(id)) => RefBase::Switch(id),
            (None, None, None) => return Err(missing("type")),
            _ => {
                return Err(D::Error::custom(
                    "saw several of the keys `type`, `buffer_id` and `switch_channel_id`, allowed one",
                ));
            }
        };
        Ok(ChunkRef { base, index, size })
    }
}
