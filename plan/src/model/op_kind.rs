//! The operations of a plan, with their spellings and what they have in common.

use std::fmt;

macro_rules! named {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$vmeta])* $variant,)* }
        impl $name {
            /// Every value, in declaration order.
            pub const ALL: &[$name] = &[$($name::$variant,)*];
            /// The spelling in the plan format.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
            /// The value with this spelling.
            pub fn from_name(text: &str) -> Option<Self> {
                match text { $($text => Some($name::$variant),)* _ => None }
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.pad(self.name()) }
        }
    };
}

named! {
    /// The operations of the plan format, and those of its extension for runtime sizes.
    OpKind {
        /// Synchronise the block's threads.
        Nop = "nop",
        /// Synchronise several blocks of the rank.
        Barrier = "barrier",
        /// Add one to the peer's counter, releasing earlier accesses.
        Signal = "signal",
        /// Add one to the peer's counter, ordering nothing.
        RelaxedSignal = "rlxsignal",
        /// Wait for one more signal, acquiring what it released.
        Wait = "wait",
        /// Wait for one more signal, ordering nothing.
        RelaxedWait = "rlxwait",
        /// Wait until earlier requests of a port channel are complete.
        Flush = "flush",
        /// Copy local chunks to remote ones.
        Put = "put",
        /// Put, then signal.
        PutWithSignal = "pws",
        /// Put, then signal, then flush.
        PutWithSignalAndFlush = "pwsf",
        /// Copy remote chunks to local ones.
        Get = "get",
        /// Copy local chunks.
        Copy = "copy",
        /// Copy own runtime blocks to remote ones.
        PutBlocks = "vput",
        /// Copy remote runtime blocks to own ones.
        GetBlocks = "vget",
        /// Copy own runtime blocks.
        CopyBlocks = "vcopy",
        /// Reduce local chunks.
        Reduce = "re",
        /// Reduce local chunks and store the result to remote ones too.
        ReduceSend = "res",
        /// Reduce local and remote chunks.
        ReadReduce = "rre",
        /// Reduce local and remote chunks and store the result to remote ones too.
        ReadReduceSend = "rres",
        /// Local raw chunks to remote packets.
        PutPackets = "ppkt",
        /// Local packets to remote packets.
        ReadPutPackets = "rppkt",
        /// Local raw chunk to local packets.
        CopyPackets = "cpkt",
        /// Local packets to a local raw chunk.
        UnpackPackets = "upkt",
        /// Reduce a raw chunk and packets.
        ReducePackets = "repkt",
        /// Reduce a raw chunk and packets; result also to remote packets.
        ReduceSendPackets = "respkt",
        /// Reduce a raw chunk and packets; result also to local packets.
        ReduceCopyPackets = "recpkt",
        /// Reduce a raw chunk and packets; result also to local and remote packets.
        ReduceCopySendPackets = "recspkt",
        /// Load-reduce from every member of a switch channel.
        GroupLoadReduce = "glre",
        /// Load-reduce from every member, store the result to every member.
        GroupLoadReduceStore = "glres",
        /// Store a local chunk to every member.
        GroupStore = "gstore",
        /// Store local packets to every member as packets.
        GroupStorePackets = "gstorepkt",
        /// Take one from a semaphore, waiting until it may.
        SemaphoreAcquire = "sem_acquire",
        /// Give one to a semaphore.
        SemaphoreRelease = "sem_release",
        /// Run the inner operations once per window.
        Pipeline = "pipeline",
    }
}

impl OpKind {
    /// Whether it moves runtime blocks.
    pub const fn moves_blocks(self) -> bool {
        matches!(self, OpKind::PutBlocks | OpKind::GetBlocks | OpKind::CopyBlocks)
    }

    /// Whether it reads or writes packets.
    pub const fn moves_packets(self) -> bool {
        matches!(
            self,
            OpKind::PutPackets
                | OpKind::ReadPutPackets
                | OpKind::CopyPackets
                | OpKind::UnpackPackets
                | OpKind::ReducePackets
                | OpKind::ReduceSendPackets
                | OpKind::ReduceCopyPackets
                | OpKind::ReduceCopySendPackets
                | OpKind::GroupStorePackets
        )
    }

    /// Whether it combines values.
    pub const fn reduces(self) -> bool {
        matches!(
            self,
            OpKind::Reduce
                | OpKind::ReduceSend
                | OpKind::ReadReduce
                | OpKind::ReadReduceSend
                | OpKind::ReducePackets
                | OpKind::ReduceSendPackets
                | OpKind::ReduceCopyPackets
                | OpKind::ReduceCopySendPackets
                | OpKind::GroupLoadReduce
                | OpKind::GroupLoadReduceStore
        )
    }

    /// Whether it moves no data, but makes threads, blocks or ranks wait for each other.
    pub const fn synchronises(self) -> bool {
        matches!(
            self,
            OpKind::Nop
                | OpKind::Barrier
                | OpKind::Signal
                | OpKind::RelaxedSignal
                | OpKind::Wait
                | OpKind::RelaxedWait
                | OpKind::Flush
                | OpKind::SemaphoreAcquire
                | OpKind::SemaphoreRelease
        )
    }
}
