//! Pictures of plans: what every block does on a timeline, who waits for whom, and where a fault is.
//!
//! [`html`] is a page for people: one file without anything to load, drawn on a canvas so that plans of many thousands
//! of operations scroll and zoom at once. [`svg`] is the same timeline as a figure, for papers. Both are pure text of
//! a [`Picture`]; nothing here reads or writes files.
//!
//! - `scene` numbers lanes, operations and spans, for both;
//! - `data` is the page's data block, `faults` its marks of what the verifier found, `page/` the page itself;
//! - `words` are places, chunks and numbers as text;
//! - `schematic` is a timeline for plans that cannot be simulated, as those that never end.

mod data;
mod faults;
mod html;
mod scene;
mod schematic;
mod svg;
#[cfg(test)]
mod tests;
mod words;

pub use html::html;
pub use schematic::{Schematic, schematic};
pub use svg::svg;

use crate::model::{ChannelType, Op, OpKind, Plan};
use crate::program::{CallSizes, Layout};
use crate::simulate::Timeline;
use crate::verify::Report;

/// What is drawn: a plan, one launch of it, and what is known of its faults.
#[derive(Clone, Copy, Debug)]
pub struct Picture<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The plan, lowered.
    pub layout: &'a Layout,
    /// The sizes of the launch.
    pub sizes: CallSizes,
    /// When everything happens.
    pub timeline: &'a Timeline,
    /// Where the times come from.
    pub clock: Clock<'a>,
    /// What the verifier says of the plan, if it was asked.
    pub report: Option<&'a Report>,
}

/// Where the times of a picture come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock<'a> {
    /// A simulation on the topology of this name.
    Simulated(&'a str),
    /// None: a [`schematic`], for this reason. Only the order means something.
    Order(&'a str),
}

/// Kinds of operations that share a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Family {
    Copy,
    Reduce,
    Packets,
    Switch,
    Sync,
    Port,
    Loop,
}

impl Family {
    /// Every family, in the order of legends and of the page's numbers.
    pub(crate) const ALL: [Family; 7] = [
        Family::Copy,
        Family::Reduce,
        Family::Packets,
        Family::Switch,
        Family::Sync,
        Family::Port,
        Family::Loop,
    ];

    /// What legends call it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Family::Copy => "copy",
            Family::Reduce => "reduce",
            Family::Packets => "packets",
            Family::Switch => "switch",
            Family::Sync => "synchronise",
            Family::Port => "port",
            Family::Loop => "pipeline",
        }
    }

    /// The family of an operation.
    pub(crate) const fn of(op: &Op) -> Family {
        use OpKind::*;
        match op.kind {
            Pipeline => Family::Loop,
            _ if matches!(op.channel_type, ChannelType::Port) => Family::Port,
            Flush => Family::Port,
            Nop | Barrier | Signal | RelaxedSignal | Wait | RelaxedWait | SemaphoreAcquire
            | SemaphoreRelease => Family::Sync,
            Put
            | PutWithSignal
            | PutWithSignalAndFlush
            | Get
            | Copy
            | PutBlocks
            | GetBlocks
            | CopyBlocks => Family::Copy,
            Reduce | ReduceSend | ReadReduce | ReadReduceSend => Family::Reduce,
            PutPackets
            | ReadPutPackets
            | CopyPackets
            | UnpackPackets
            | ReducePackets
            | ReduceSendPackets
            | ReduceCopyPackets
            | ReduceCopySendPackets => Family::Packets,
            GroupLoadReduce | GroupLoadReduceStore | GroupStore | GroupStorePackets => {
                Family::Switch
            }
        }
    }
}
