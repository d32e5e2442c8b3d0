//! What authors call the operations that they write.
//!
//! A plan's operations have short names of their own (`upkt`), which mean nothing to somebody who wrote
//! `unpack_packets`. Errors of calls name the call; what is said of a finished plan names its operations.

use super::Misuse;
use crate::model::OpKind;

/// The call of the [builder](crate::builder) that records an operation. The Python package has the same names but for
/// those of switch channels.
pub(crate) const fn call(op: OpKind) -> &'static str {
    use OpKind::*;
    match op {
        Nop => "nop",
        Barrier => "barrier",
        Signal => "signal",
        RelaxedSignal => "signal_relaxed",
        Wait => "wait",
        RelaxedWait => "wait_relaxed",
        Flush => "flush",
        Put | PutBlocks => "put",
        PutWithSignal => "put_with_signal",
        PutWithSignalAndFlush => "put_with_signal_and_flush",
        Get | GetBlocks => "get",
        Copy | CopyBlocks => "copy",
        Reduce | ReadReduce => "reduce",
        ReduceSend | ReadReduceSend => "reduce_send",
        PutPackets => "put_packets",
        ReadPutPackets => "read_put_packets",
        CopyPackets => "copy_packets",
        UnpackPackets => "unpack_packets",
        ReducePackets => "reduce_packets",
        ReduceSendPackets => "reduce_send_packets",
        ReduceCopyPackets | ReduceCopySendPackets => "reduce_copy_send_packets",
        GroupLoadReduce => "switch_reduce",
        GroupLoadReduceStore => "switch_reduce_store",
        GroupStore => "switch_store",
        GroupStorePackets => "switch_store_packets",
        SemaphoreAcquire => "acquire",
        SemaphoreRelease => "release",
        Pipeline => "pipeline",
    }
}

impl Misuse {
    /// The same of a call that its author knows by another name than the [builder](crate::builder) has.
    #[must_use]
    pub fn of_call(mut self, name: &'static str) -> Self {
        match &mut self {
            Misuse::Owner { call, .. }
            | Misuse::Sizes { call, .. }
            | Misuse::NotScratch { call, .. }
            | Misuse::NoOthers { call }
            | Misuse::ChannelType { call, .. }
            | Misuse::RuntimeCall { call } => *call = name,
            _ => {}
        }
        self
    }
}
