//! Rules for one rank: its tables, its blocks, and the barriers between them.

use super::operation::{At, Checker, below};
use super::report::{Report, count};
use super::tables::{BlockTables, RankTables, Tables, nth};
use crate::model::{ChannelTable, ChannelType, Op, OpKind, ThreadBlock};
use crate::place::Place;
use std::collections::BTreeMap;

/// Checks a rank and all of its blocks.
pub(super) fn check(tables: &Tables<'_>, rank: usize, report: &mut Report) {
    let of_rank = &tables.ranks[rank];
    let place = || Place::top().at("gpus", rank);
    if of_rank.gpu.id != rank as u64 {
        report.fault(|| place().key("id"), of_rank.gpu.id, format_args!("{rank}, its position"));
    }
    check_tables(tables, rank, report);
    let mut barriers = Barriers::default();
    for (position, block) in of_rank.gpu.threadblocks.iter().enumerate() {
        let place = || place().at("threadblocks", position);
        if block.id != position as u64 {
            report.fault(|| place().key("id"), block.id, format_args!("{position}, its position"));
        }
        check_lists(of_rank, block, place, report);
        let of_block = BlockTables::new(block);
        let checker = Checker { tables, rank: of_rank, block: &of_block };
        for (op_position, op) in block.ops.iter().enumerate() {
            let at = At { rank, block: position, op: op_position, inner: None };
            checker.check(op, at, report);
            barriers.note(op, at, report);
            let body = op.pipeline.iter().flat_map(|pipeline| &pipeline.ops);
            for (inner, op) in body.enumerate() {
                let at = At { inner: Some(inner), ..at };
                checker.check(op, at, report);
                barriers.note(op, at, report);
            }
        }
    }
    barriers.finish(report);
}

/// Checks the ranks that the channel tables and remote buffers name.
fn check_tables(tables: &Tables<'_>, rank: usize, report: &mut Report) {
    let place = || Place::top().at("gpus", rank);
    let ranks = tables.ranks.len();
    let gpu = tables.ranks[rank].gpu;
    // A rank may have a channel to itself: it is paired with itself, and of no use, but well defined.
    let known = |found: u64| found < ranks as u64;
    for (entry, table) in gpu.channels.iter().enumerate() {
        let ChannelTable::Peers { channel_type, connected_to } = table else { continue };
        let place = || place().at("channels", entry);
        if *channel_type == ChannelType::Switch {
            report.fault(
                place,
                "switch channels with connected_to",
                "switch channels with rank_groups",
            );
        }
        for (position, &peer) in connected_to.iter().enumerate().filter(|(_, peer)| !known(**peer))
        {
            report.fault(
                || place().at("connected_to", position),
                format_args!("rank {peer}"),
                format_args!("a rank below {ranks}"),
            );
        }
    }
    for (position, remote) in gpu.remote_buffers.iter().enumerate() {
        let place = || place().at("remote_buffers", position);
        if !known(remote.rank) {
            report.fault(
                || place().key("rank"),
                format_args!("rank {}", remote.rank),
                format_args!("a rank below {ranks}"),
            );
        }
        for (position, &access) in remote.access.iter().enumerate() {
            if !matches!(access, ChannelType::Memory | ChannelType::Port) {
                let place = || place().at("access_channel_types", position);
                report.fault(place, access, "memory or port");
            }
        }
    }
}

/// Checks the ids in a block's lists of channels and remote buffers.
fn check_lists(
    rank: &RankTables<'_>,
    block: &ThreadBlock,
    place: impl Fn() -> Place,
    report: &mut Report,
) {
    for (entry, (channel_type, ids)) in block.channels.iter().enumerate() {
        let place = || place().at("channels", entry);
        if *channel_type == ChannelType::None {
            report.fault(|| place().key("channel_type"), channel_type, "memory, port or switch");
            continue;
        }
        let known = rank.channels(*channel_type);
        for (position, &id) in ids.iter().enumerate().filter(|(_, id)| **id >= known as u64) {
            report.fault(
                || place().at("channel_ids", position),
                format_args!("{channel_type} channel {id}"),
                below(known, "the rank's channels of this type"),
            );
        }
    }
    for (entry, (access, ids)) in block.remote_buffer_refs.iter().enumerate() {
        let place = || place().at("remote_buffer_refs", entry);
        if !matches!(access, ChannelType::Memory | ChannelType::Port) {
            report.fault(|| place().key("access_channel_type"), access, "memory or port");
            continue;
        }
        let known = &rank.gpu.remote_buffers;
        for (position, &id) in ids.iter().enumerate() {
            let place = || place().at("remote_buffer_ids", position);
            match nth(known, id) {
                None => report.fault(
                    place,
                    format_args!("remote buffer {id}"),
                    below(known.len(), "the rank's remote buffers"),
                ),
                Some(remote) if !remote.access.contains(access) => report.fault(
                    place,
                    format_args!("remote buffer {id}, which is not accessed by {access}"),
                    "one that lists this type in access_channel_types",
                ),
                Some(_) => {}
            }
        }
    }
}

/// The barriers of a rank, by their ids.
#[derive(Default)]
struct Barriers(BTreeMap<u64, Barrier>);

struct Barrier {
    /// The first operation with this id.
    first: At,
    /// The number of blocks it names.
    wanted: u64,
    /// Blocks with such an operation, so far.
    blocks: u64,
    /// The last of them.
    last: usize,
}

impl Barriers {
    /// Notes an operation, if it is a barrier. Blocks come in order.
    fn note(&mut self, op: &Op, at: At, report: &mut Report) {
        let (OpKind::Barrier, Some(id), Some(wanted)) =
            (op.kind, op.barrier_id, op.num_threadblocks)
        else {
            return;
        };
        let new = Barrier { first: at, wanted, blocks: 1, last: at.block };
        let barrier = self.0.entry(id).or_insert(new);
        if barrier.last != at.block {
            barrier.blocks += 1;
            barrier.last = at.block;
        }
        if barrier.wanted != wanted {
            report.fault(
                || at.place().key("num_threadblocks"),
                wanted,
                format_args!("{}, as at the first use of barrier {id}", barrier.wanted),
            );
        }
    }

    /// Compares the blocks at each barrier with the number it names.
    fn finish(self, report: &mut Report) {
        for (id, barrier) in self.0 {
            if barrier.blocks != barrier.wanted {
                let blocks = count(barrier.blocks, "block uses", "blocks use");
                report.fault(
                    || barrier.first.place().key("num_threadblocks"),
                    barrier.wanted,
                    format_args!("{}: {blocks} barrier {id} of this rank", barrier.blocks),
                );
            }
        }
    }
}
