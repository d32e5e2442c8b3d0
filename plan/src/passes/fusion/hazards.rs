//! Whether two operations have the same effects as one that does both element by element.
//!
//! References are compared as they are; where input and output may be one memory, [`crossed`] is asked too.

use crate::model::{Buffer, ChannelType, ChunkRef, Op, OpKind, RefBase};

/// Whether source `position` of an operation is read as packets.
pub fn reads_packets(op: &Op, position: usize) -> bool {
    use OpKind::*;
    match op.kind {
        ReadPutPackets | UnpackPackets | GroupStorePackets => true,
        ReducePackets | ReduceSendPackets | ReduceCopyPackets | ReduceCopySendPackets => {
            position > 0
        }
        // A port sends packets as they are.
        PutPackets => op.channel_type == ChannelType::Port,
        _ => false,
    }
}

/// Whether destination `position` of an operation is written as packets.
pub fn writes_packets(op: &Op, position: usize) -> bool {
    use OpKind::*;
    match op.kind {
        PutPackets | ReadPutPackets | CopyPackets | GroupStorePackets => true,
        ReduceSendPackets | ReduceCopyPackets | ReduceCopySendPackets => position > 0,
        _ => false,
    }
}

/// Whether two references share a chunk of one buffer.
pub fn overlap(a: &ChunkRef, b: &ChunkRef) -> bool {
    a.base == b.base
        && a.index < b.index.saturating_add(b.size)
        && b.index < a.index.saturating_add(a.size)
        && a.size > 0
        && b.size > 0
}

/// Whether a copy of the second operation must come after one of the first. Both are of one kind.
pub fn pairs(first: &Op, second: &Op) -> bool {
    let one_area = reads_packets(second, 0) == writes_packets(second, 0);
    second.src.iter().zip(&second.dst).any(|(src, dst)| {
        let twice = first.dst.iter().enumerate().any(|(position, other)| {
            overlap(other, dst) && (other != dst || first.src.get(position) != Some(src))
        });
        // Packets and raw chunks of one index are not the same memory.
        let passed_on = || first.dst.iter().any(|other| overlap(other, src));
        let overwritten = || first.src.iter().any(|other| overlap(other, dst));
        twice || one_area && (passed_on() || overwritten())
    })
}

/// Whether writing the first operation's result to the second's destinations too could change what it reads or what
/// remains of what it writes.
pub fn destinations(first: &Op, second: &Op) -> bool {
    second.dst.iter().enumerate().any(|(position, dst)| {
        let packets = writes_packets(second, position);
        // The same chunks: every element is read before it is written, and what is written twice is equal.
        let shifted = |other: &ChunkRef| overlap(other, dst) && other != dst;
        let read = |(position, other)| reads_packets(first, position) == packets && shifted(other);
        let written =
            |(position, other)| writes_packets(first, position) == packets && shifted(other);
        first.src.iter().enumerate().any(read) || first.dst.iter().enumerate().any(written)
    })
}

/// Whether one operation writes a rank's input or output and the other touches the other of the two, wherever that is.
pub fn crossed(first: &Op, second: &Op) -> bool {
    let named = |refs: &[ChunkRef], buffer| refs.iter().any(|r| r.base == RefBase::Local(buffer));
    let touches = |op: &Op, buffer| named(&op.src, buffer) || named(&op.dst, buffer);
    [(Buffer::Input, Buffer::Output), (Buffer::Output, Buffer::Input)].into_iter().any(
        |(written, touched)| {
            // The operation that was just made is short; the one that grew is only looked at if it matters.
            (named(&second.dst, written) && touches(first, touched))
                || (touches(second, touched) && named(&first.dst, written))
        },
    )
}

/// Whether a source of the second reduction, other than the sum so far, is what the first writes.
pub fn sources(first: &Op, second: &Op) -> bool {
    second.src.iter().enumerate().skip(1).any(|(position, src)| {
        let packets = reads_packets(second, position);
        let read =
            |(position, dst)| writes_packets(first, position) == packets && overlap(dst, src);
        first.dst.iter().enumerate().any(read)
    })
}
