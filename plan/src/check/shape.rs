//! What each operation takes: a table.

use crate::model::{ChannelType, OpKind};

/// The operands of an operation.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    /// The channel types it runs over; none listed: it has no use for the channel type.
    pub(super) channel_types: &'static [ChannelType],
    pub(super) channel_ids: ChannelIds,
    pub(super) src: Side,
    pub(super) dst: Side,
    pub(super) sizes: Sizes,
}

/// How an operation uses `channel_ids`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ChannelIds {
    /// Not at all.
    Unused,
    /// One or more, over any channel type.
    Some,
    /// Over ports, one for each destination.
    PerDestination,
}

/// The references on one side: some at fixed positions, then any number of one kind.
#[derive(Clone, Copy)]
pub(super) struct Side {
    pub(super) first: &'static [Want],
    pub(super) rest: Option<Want>,
    /// Least number of references.
    pub(super) least: usize,
}

/// Which chunks a reference may mean.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Want {
    pub(super) base: Base,
    pub(super) holds: Holds,
}

/// What the chunks hold, and so which buffers they may be in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Holds {
    /// Raw data, in any buffer.
    Raw,
    /// Packets, in scratch.
    Packets,
    /// One runtime block, in an input or output.
    Block,
    /// One runtime block that is written, in an output.
    Result,
}

/// Whose chunks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Base {
    Local,
    Remote,
    LocalOrRemote,
    Switch,
}

/// Which sizes must be equal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sizes {
    /// All of them.
    Equal,
    /// Those at the same position of both sides, which are equally long.
    Paired,
}

impl Want {
    pub(super) const fn name(self) -> &'static str {
        match (self.base, self.holds) {
            (Base::Local, Holds::Raw) => "a local chunk",
            (Base::Local, Holds::Packets) => "a local chunk of scratch",
            (Base::Local, _) => "a local runtime block",
            (Base::Remote, Holds::Raw) => "a remote chunk",
            (Base::Remote, Holds::Packets) => "a remote chunk of scratch",
            (Base::Remote, _) => "a remote runtime block",
            (Base::LocalOrRemote, _) => "a local or remote chunk",
            (Base::Switch, Holds::Packets) => "a chunk of a switch channel over scratch",
            (Base::Switch, _) => "a chunk of a switch channel",
        }
    }
}

const fn want(base: Base, holds: Holds) -> Want {
    Want { base, holds }
}

const LOCAL: Want = want(Base::Local, Holds::Raw);
const PACKETS: Want = want(Base::Local, Holds::Packets);
const BLOCK: Want = want(Base::Local, Holds::Block);
const RESULT: Want = want(Base::Local, Holds::Result);
const REMOTE: Want = want(Base::Remote, Holds::Raw);
const REMOTE_PACKETS: Want = want(Base::Remote, Holds::Packets);
const REMOTE_BLOCK: Want = want(Base::Remote, Holds::Block);
const REMOTE_RESULT: Want = want(Base::Remote, Holds::Result);
const READABLE: Want = want(Base::LocalOrRemote, Holds::Raw);
const SWITCH: Want = want(Base::Switch, Holds::Raw);
const SWITCH_PACKETS: Want = want(Base::Switch, Holds::Packets);

/// Exactly these references.
const fn exactly(first: &'static [Want]) -> Side {
    Side { first, rest: None, least: first.len() }
}

/// These references, then any number of `rest`.
const fn then(first: &'static [Want], rest: Want) -> Side {
    Side { first, rest: Some(rest), least: first.len() }
}

/// One or more references of one kind.
const fn several(rest: Want) -> Side {
    Side { first: &[], rest: Some(rest), least: 1 }
}

const ANY: &[ChannelType] = &[];
const EITHER: &[ChannelType] = &[ChannelType::Memory, ChannelType::Port];
const MEMORY: &[ChannelType] = &[ChannelType::Memory];
const PORT: &[ChannelType] = &[ChannelType::Port];
const MULTICAST: &[ChannelType] = &[ChannelType::Switch];

/// The operands of operations of this kind.
pub(super) fn shape(kind: OpKind) -> Shape {
    use ChannelIds::{PerDestination, Some, Unused};
    use OpKind::*;
    use Sizes::{Equal, Paired};
    let none = exactly(&[]);
    let (channel_types, channel_ids, src, dst, sizes) = match kind {
        Nop | Barrier | SemaphoreAcquire | SemaphoreRelease | Pipeline => {
            (ANY, Unused, none, none, Equal)
        }
        Signal | RelaxedSignal | Wait | RelaxedWait => (EITHER, Some, none, none, Equal),
        Flush => (PORT, Some, none, none, Equal),
        Put => (EITHER, PerDestination, several(LOCAL), several(REMOTE), Paired),
        PutWithSignal | PutWithSignalAndFlush => {
            (PORT, PerDestination, several(LOCAL), several(REMOTE), Paired)
        }
        Get => (MEMORY, PerDestination, several(REMOTE), several(LOCAL), Paired),
        PutBlocks => (MEMORY, Unused, several(BLOCK), several(REMOTE_RESULT), Paired),
        GetBlocks => (MEMORY, Unused, several(REMOTE_BLOCK), several(RESULT), Paired),
        CopyBlocks => (ANY, Unused, several(BLOCK), several(RESULT), Paired),
        Copy => (ANY, Unused, exactly(&[LOCAL]), exactly(&[LOCAL]), Equal),
        Reduce => (ANY, Unused, several(READABLE), exactly(&[LOCAL]), Equal),
        ReduceSend => (MEMORY, Unused, several(READABLE), then(&[LOCAL], REMOTE), Equal),
        ReadReduce => (MEMORY, Unused, several(READABLE), exactly(&[LOCAL]), Equal),
        ReadReduceSend => (MEMORY, Unused, several(READABLE), then(&[LOCAL], REMOTE), Equal),
        PutPackets => (EITHER, PerDestination, several(LOCAL), several(REMOTE_PACKETS), Paired),
        ReadPutPackets => {
            (EITHER, PerDestination, exactly(&[PACKETS]), several(REMOTE_PACKETS), Equal)
        }
        CopyPackets => (ANY, Unused, exactly(&[LOCAL]), exactly(&[PACKETS]), Equal),
        UnpackPackets => (ANY, Unused, exactly(&[PACKETS]), exactly(&[LOCAL]), Equal),
        ReducePackets => (ANY, Unused, then(&[LOCAL], PACKETS), exactly(&[LOCAL]), Equal),
        ReduceSendPackets => {
            (MEMORY, Unused, then(&[LOCAL], PACKETS), then(&[LOCAL], REMOTE_PACKETS), Equal)
        }
        ReduceCopyPackets => {
            (ANY, Unused, then(&[LOCAL], PACKETS), exactly(&[LOCAL, PACKETS]), Equal)
        }
        ReduceCopySendPackets => (
            MEMORY,
            Unused,
            then(&[LOCAL], PACKETS),
            then(&[LOCAL, PACKETS], REMOTE_PACKETS),
            Equal,
        ),
        GroupLoadReduce => (MULTICAST, Unused, exactly(&[SWITCH]), exactly(&[LOCAL]), Equal),
        GroupLoadReduceStore => (MULTICAST, Unused, exactly(&[SWITCH]), exactly(&[SWITCH]), Equal),
        GroupStore => (MULTICAST, Unused, exactly(&[LOCAL]), exactly(&[SWITCH]), Equal),
        GroupStorePackets => {
            (MULTICAST, Unused, exactly(&[PACKETS]), exactly(&[SWITCH_PACKETS]), Equal)
        }
    };
    Shape { channel_types, channel_ids, src, dst, sizes }
}
