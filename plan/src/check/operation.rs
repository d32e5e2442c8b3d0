//! Rules for one operation: channels, operands, and the fields of its kind.

use super::operands::{self, Resolver};
use super::report::{Report, count};
use super::runtime;
use super::shape::{ChannelIds, Shape, shape};
use super::tables::{BlockTables, RankTables, Tables, nth};
use crate::model::{ChannelType, Op, OpKind};
use crate::place::Place;
use antiphon_types::ReduceOp;
use std::fmt;

/// Where an operation is: positions, from which a [`Place`] is made when needed.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    pub(super) rank: usize,
    pub(super) block: usize,
    pub(super) op: usize,
    /// Position in the pipeline that `op` is.
    pub(super) inner: Option<usize>,
}

impl At {
    pub(super) fn place(self) -> Place {
        let outer = Place::top().at("gpus", self.rank).at("threadblocks", self.block);
        let outer = outer.at("ops", self.op);
        match self.inner {
            Some(inner) => outer.at("ops", inner),
            None => outer,
        }
    }
}

/// Checks the operations of one block.
pub(super) struct Checker<'a> {
    pub(super) tables: &'a Tables<'a>,
    pub(super) rank: &'a RankTables<'a>,
    pub(super) block: &'a BlockTables<'a>,
}

/// Channel types in words.
struct Types<'a>(&'a [ChannelType]);

impl fmt::Display for Types<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(position, channel_type)| {
            let or = if position > 0 { " or " } else { "" };
            write!(f, "{or}{channel_type}")
        })
    }
}

impl Checker<'_> {
    /// Checks one operation, but for the body of a pipeline and the number of blocks of a barrier.
    pub(super) fn check(&self, op: &Op, at: At, report: &mut Report) {
        runtime::operation(self.tables.plan, op, at, report);
        let shape = shape(op.kind);
        let typed =
            shape.channel_types.is_empty() || shape.channel_types.contains(&op.channel_type);
        if !typed {
            report.fault(
                || at.place().key("channel_type"),
                op.channel_type,
                format_args!("{}, for {}", Types(shape.channel_types), op.kind),
            );
        } else {
            self.channel_ids(op, &shape, at, report);
        }
        let resolver = Resolver { checker: self, op, at, typed };
        operands::check(&resolver, &shape, report);
        self.fields(op, at, report);
    }

    fn channel_ids(&self, op: &Op, shape: &Shape, at: At, report: &mut Report) {
        let found = op.channel_ids.len();
        let place = || at.place().key("channel_ids");
        match shape.channel_ids {
            ChannelIds::Unused => return,
            ChannelIds::Some if found == 0 => report.fault(place, "no channel", "at least one"),
            ChannelIds::PerDestination
                if op.channel_type == ChannelType::Port && found != op.dst.len() =>
            {
                let wanted = op.dst.len();
                report.fault(
                    place,
                    count(found as u64, "channel", "channels"),
                    format_args!("{wanted}, one for each of dst_buff"),
                );
            }
            _ => {}
        }
        let known = self.block.channels(op.channel_type);
        for (position, &id) in op.channel_ids.iter().enumerate() {
            if nth(known, id).is_none() {
                report.fault(
                    || place().index(position),
                    format_args!("{} channel {id}", op.channel_type),
                    below(known.len(), "the block's channels of this type"),
                );
            }
        }
    }

    /// The fields that belong to some kinds of operation only.
    fn fields(&self, op: &Op, at: At, report: &mut Report) {
        if let Some(slice) = op.group
            && slice.tb_id >= slice.tbg_size
        {
            report.fault(
                || at.place().key("tbg_info"),
                format_args!("slice {} of {}", slice.tb_id, slice.tbg_size),
                "a slice below their number",
            );
        }
        if op.reduce_op == Some(ReduceOp::Avg) {
            // Each operation would have to know how many inputs it takes of how many.
            report.fault(
                || at.place().key("reduce_op"),
                ReduceOp::Avg,
                "sum, prod, min or max; callers ask for the average of a plan that sums",
            );
        }
        match op.kind {
            OpKind::Barrier => {
                if op.barrier_id.is_none() {
                    report.fault(|| at.place(), "no barrier_id", "one");
                }
                if op.num_threadblocks.is_none() {
                    report.fault(|| at.place(), "no num_threadblocks", "one");
                }
            }
            OpKind::SemaphoreAcquire | OpKind::SemaphoreRelease => {
                let place = || at.place().key("semaphore_ids");
                if op.semaphore_ids.is_empty() {
                    report.fault(place, "no semaphore", "at least one");
                }
                let known = self.rank.gpu.semaphores.len();
                for (position, &id) in op.semaphore_ids.iter().enumerate() {
                    if nth(&self.rank.gpu.semaphores, id).is_none() {
                        report.fault(
                            || place().index(position),
                            format_args!("semaphore {id}"),
                            below(known, "the rank's semaphores"),
                        );
                    }
                }
            }
            OpKind::Pipeline => match &op.pipeline {
                None => report.fault(|| at.place(), "no iter_context", "one, and ops"),
                Some(_) if at.inner.is_some() => {
                    report.fault(|| at.place(), "a pipeline in a pipeline", "one level");
                }
                Some(pipeline) if pipeline.unit_size == 0 => {
                    let place = || at.place().key("iter_context").key("unit_size");
                    report.fault(place, 0, "at least 1 byte");
                }
                Some(_) => {}
            },
            _ => {}
        }
        if op.pipeline.is_some() && op.kind != OpKind::Pipeline {
            let place = || at.place().key("iter_context");
            report.fault(place, format_args!("a body of {}", op.kind), "one of pipeline only");
        }
    }
}

/// Says which ids a list of this length has.
pub(super) fn below(len: usize, what: &'static str) -> impl fmt::Display {
    struct Below(usize, &'static str);
    impl fmt::Display for Below {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self.0 {
                0 => write!(f, "none: {} are none", self.1),
                len => write!(f, "below {len}, {}", self.1),
            }
        }
    }
    Below(len, what)
}
