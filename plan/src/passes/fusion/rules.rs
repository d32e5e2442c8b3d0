//! Which two steps become one, and how: the table of the [module](super), row by row.

use super::super::{Refusal, Step};
use super::{Cover, edges, hazards};
use crate::model::{ChannelType, ChunkRef, Op, OpKind};
use antiphon_types::ReduceOp;

/// What is to become of two neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// They become one.
    Fuse(How),
    /// Their kinds are in the table, but they stay two.
    Refuse(Refusal),
    /// Their kinds are not in the table.
    Unrelated,
}

/// How two steps become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// The first does for both.
    First,
    /// The second does for both.
    Second,
    /// Channels and meetings of both.
    Channels,
    /// Semaphores and meetings of both.
    Semaphores,
    /// Pairs of both.
    Pairs,
    /// The first, with the second's sources but its first.
    Sources,
    /// The first, with the second's destinations and channels.
    Destinations,
    /// An operation of this kind over memory: the first, with the second's destinations.
    Send(OpKind),
    /// An operation of this kind: the first, with the second's destinations.
    Copy(OpKind),
}

/// What is to become of two neighbours.
pub fn judge(first: &mut Step, second: &Step) -> Verdict {
    use OpKind::*;
    let ends = edges(first).after();
    let (a, b) = (&first.op, &second.op);
    let cover = &mut first.cover;
    let verdict = match (a.kind, b.kind) {
        (Nop | Barrier, Nop) => Ok(How::First),
        (Nop, Barrier) => Ok(How::Second),
        (Nop, Pipeline) if edges(second).before() => Ok(How::Second),
        (Pipeline, Nop) if ends => Ok(How::First),
        (Signal, Signal)
        | (RelaxedSignal, RelaxedSignal)
        | (Wait, Wait)
        | (RelaxedWait, RelaxedWait) => channels(a, b),
        (Flush, Flush) => same_type(a, b).map(|()| How::Channels),
        (SemaphoreAcquire, SemaphoreAcquire) | (SemaphoreRelease, SemaphoreRelease) => {
            Ok(How::Semaphores)
        }
        (Get, Get)
        | (Put, Put)
        | (PutPackets, PutPackets)
        | (PutWithSignal, PutWithSignal)
        | (PutWithSignalAndFlush, PutWithSignalAndFlush) => pairs(a, b, cover),
        (ReadPutPackets, ReadPutPackets) => forwards(a, b),
        (Reduce, Reduce) | (ReadReduce, ReadReduce) | (ReducePackets, ReducePackets) => {
            accumulates(a, b)
        }
        (Reduce | ReduceSend, Put) => sends(a, b, a.dst.first(), ReduceSend),
        (ReadReduce | ReadReduceSend, Put) => sends(a, b, a.dst.first(), ReadReduceSend),
        (ReducePackets | ReduceSendPackets, PutPackets) => {
            sends(a, b, a.dst.first(), ReduceSendPackets)
        }
        (ReduceCopyPackets | ReduceCopySendPackets, PutPackets) => {
            sends(a, b, a.dst.first(), ReduceCopySendPackets)
        }
        (ReduceCopyPackets | ReduceCopySendPackets, ReadPutPackets) => {
            sends(a, b, a.dst.get(1), ReduceCopySendPackets)
        }
        (ReducePackets, CopyPackets) => {
            result(a, b, a.dst.first()).map(|()| How::Copy(ReduceCopyPackets))
        }
        _ => return Verdict::Unrelated,
    };
    verdict.map_or_else(Verdict::Refuse, Verdict::Fuse)
}

/// Makes the first step both.
pub fn fuse(first: &mut Step, second: Step, how: How) {
    let Step { op, sync, body, .. } = second;
    match how {
        How::First => {}
        How::Second => *first = Step { body, ..Step::synchronising(op, sync) },
        How::Channels => {
            let ids = &mut first.op.channel_ids;
            ids.extend(op.channel_ids);
            // Already sorted but for the last, as a rule.
            ids.sort();
            ids.dedup();
            first.sync |= sync;
        }
        How::Semaphores => {
            first.op.semaphore_ids.extend(op.semaphore_ids);
            first.sync |= sync;
        }
        How::Pairs => {
            first.op.src.extend(op.src);
            first.op.dst.extend(op.dst);
            first.op.channel_ids.extend(op.channel_ids);
        }
        How::Sources => first.op.src.extend(op.src.into_iter().skip(1)),
        How::Destinations => {
            first.op.dst.extend(op.dst);
            first.op.channel_ids.extend(op.channel_ids);
        }
        How::Send(kind) => {
            first.op.kind = kind;
            first.op.channel_type = ChannelType::Memory;
            first.op.dst.extend(op.dst);
        }
        How::Copy(kind) => {
            first.op.kind = kind;
            first.op.dst.extend(op.dst);
        }
    }
}

fn require(holds: bool, otherwise: Refusal) -> Result<(), Refusal> {
    if holds { Ok(()) } else { Err(otherwise) }
}

fn same_type(a: &Op, b: &Op) -> Result<(), Refusal> {
    require(a.channel_type == b.channel_type, Refusal::ChannelType)
}

fn same_slice(a: &Op, b: &Op) -> Result<(), Refusal> {
    require(a.group == b.group, Refusal::Slice)
}

fn channels(a: &Op, b: &Op) -> Result<How, Refusal> {
    same_type(a, b)?;
    let shared = b.channel_ids.iter().any(|id| a.channel_ids.contains(id));
    require(!shared, Refusal::SameChannel)?;
    Ok(How::Channels)
}

fn pairs(a: &Op, b: &Op, cover: &mut Cover) -> Result<How, Refusal> {
    same_type(a, b)?;
    let size = |op: &Op| op.src.first().map(|chunk| chunk.size);
    require(size(a) == size(b), Refusal::Size)?;
    same_slice(a, b)?;
    require(cover.apart(a, b) || !hazards::pairs(a, b), Refusal::Hazard)?;
    Ok(How::Pairs)
}

fn forwards(a: &Op, b: &Op) -> Result<How, Refusal> {
    same_type(a, b)?;
    require(a.src.len() == 1 && a.src == b.src, Refusal::Source)?;
    same_slice(a, b)?;
    require(!hazards::destinations(a, b), Refusal::Hazard)?;
    Ok(How::Destinations)
}

fn accumulates(a: &Op, b: &Op) -> Result<How, Refusal> {
    let operator = |op: &Op| op.reduce_op.unwrap_or(ReduceOp::Sum);
    same_type(a, b)?;
    require(operator(a) == operator(b), Refusal::Operator)?;
    same_slice(a, b)?;
    require(a.src.first() == b.src.first(), Refusal::Source)?;
    require(a.dst == b.dst, Refusal::Destination)?;
    require(a.dst.first() == a.src.first(), Refusal::Overwrites)?;
    require(!hazards::sources(a, b), Refusal::Hazard)?;
    Ok(How::Sources)
}

fn sends(a: &Op, b: &Op, sent: Option<&ChunkRef>, kind: OpKind) -> Result<How, Refusal> {
    require(b.channel_type == ChannelType::Memory, Refusal::ChannelType)?;
    result(a, b, sent)?;
    Ok(How::Send(kind))
}

/// Whether the second operation takes nothing but the first's result on.
fn result(a: &Op, b: &Op, sent: Option<&ChunkRef>) -> Result<(), Refusal> {
    same_slice(a, b)?;
    let of_result = !b.src.is_empty() && b.src.iter().all(|chunk| Some(chunk) == sent);
    require(of_result, Refusal::OtherChunk)?;
    require(!hazards::destinations(a, b), Refusal::Hazard)
}
