//! Rules for chunk references: the right number, of the right kinds, of equal sizes, and within their buffers.

use super::operation::{At, Checker, below};
use super::report::{Report, count};
use super::shape::{Base, ChannelIds, Holds, Shape, Side, Sizes, Want};
use super::tables::nth;
use crate::model::{Buffer, ChannelType, ChunkRef, Op, RefBase};
use crate::place::Place;
use std::fmt::Display;

/// Finds what the references of an operation mean.
pub(super) struct Resolver<'a> {
    pub(super) checker: &'a Checker<'a>,
    pub(super) op: &'a Op,
    pub(super) at: At,
    /// Whether the operation's channel type suits it. If not, ids that count channels of that type mean nothing.
    pub(super) typed: bool,
}

/// The buffer that a reference means.
struct Target {
    buffer: Buffer,
    /// The owner, if it is another rank.
    owner: Option<u64>,
    /// The buffer's chunks; none if that is not known because of another fault.
    chunks: Option<u64>,
}

/// Checks all references of an operation.
pub(super) fn check(resolver: &Resolver<'_>, shape: &Shape, report: &mut Report) {
    let op = resolver.op;
    resolver.side("src_buff", &op.src, shape.src, report);
    resolver.side("dst_buff", &op.dst, shape.dst, report);
    resolver.sizes(shape.sizes, report);
    if op.channel_type == ChannelType::Port && shape.channel_ids == ChannelIds::PerDestination {
        resolver.ends(report);
    }
}

impl Resolver<'_> {
    /// Checks the references of one side.
    fn side(&self, key: &'static str, refs: &[ChunkRef], side: Side, report: &mut Report) {
        let place = || self.at.place().key(key);
        let found = || count(refs.len() as u64, "reference", "references");
        if refs.len() < side.least {
            let exact = if side.rest.is_none() { "exactly" } else { "at least" };
            report.fault(
                place,
                found(),
                format_args!("{exact} {}, for {}", side.least, self.op.kind),
            );
        } else if side.rest.is_none() && refs.len() > side.first.len() {
            report.fault(
                place,
                found(),
                format_args!("exactly {}, for {}", side.first.len(), self.op.kind),
            );
        }
        let wants = side.first.iter().copied().map(Some).chain(std::iter::repeat(side.rest));
        for (position, (chunk, want)) in refs.iter().zip(wants).enumerate() {
            // A reference too many has been reported; what it should be is not known.
            if let Some(want) = want {
                self.reference(chunk, want, || place().index(position), report);
            }
        }
    }

    /// Checks one reference.
    fn reference(
        &self,
        chunk: &ChunkRef,
        want: Want,
        place: impl Fn() -> Place,
        report: &mut Report,
    ) {
        let fits = match chunk.base {
            RefBase::Local(_) => matches!(want.base, Base::Local | Base::LocalOrRemote),
            RefBase::Remote(_) => matches!(want.base, Base::Remote | Base::LocalOrRemote),
            RefBase::Switch(_) => want.base == Base::Switch,
        };
        if !fits {
            let found = match chunk.base {
                RefBase::Local(_) => "a local chunk",
                RefBase::Remote(_) => "a remote chunk",
                RefBase::Switch(_) => "a chunk of a switch channel",
            };
            report.fault(place, found, format_args!("{}, for {}", want.name(), self.op.kind));
            return;
        }
        let Some(target) = self.target(chunk.base, want, &place, report) else { return };
        // Over a port, packets are sent as they are: they must have been packed into scratch before.
        let image = self.op.channel_type == ChannelType::Port
            && self.op.kind == crate::model::OpKind::PutPackets;
        let found = format_args!("buffer `{}`", target.buffer);
        match (want.holds, target.buffer) {
            (Holds::Packets, Buffer::Input | Buffer::Output) => {
                report.fault(&place, found, "buffer `s`: packets are in scratch");
            }
            (Holds::Raw, Buffer::Input | Buffer::Output) if image => {
                report.fault(&place, found, "buffer `s`: packets are in scratch");
            }
            (Holds::Block, Buffer::Scratch) => {
                report.fault(&place, found, "buffer `i` or `o`: scratch has no runtime blocks");
            }
            (Holds::Result, Buffer::Input | Buffer::Scratch) => {
                report.fault(&place, found, "buffer `o`: runtime blocks of outputs are written");
            }
            _ => {}
        }
        if matches!(want.holds, Holds::Block | Holds::Result) && chunk.size != 1 {
            let blocks = count(chunk.size, "block", "blocks");
            report.fault(|| place().key("size"), blocks, "1: every block has a length of its own");
        }
        let end = chunk.index.checked_add(chunk.size);
        if let Some(chunks) = target.chunks
            && end.is_none_or(|end| end > chunks)
        {
            let whose = match (chunk.base, target.owner) {
                (RefBase::Switch(_), _) => "every member's".to_owned(),
                (_, Some(owner)) => format!("rank {owner}'s"),
                (_, None) => "the rank's".to_owned(),
            };
            report.fault(
                place,
                format_args!("{} from {}", size(chunk.size), chunk.index),
                format_args!("chunks below {chunks}, {whose} buffer `{}`", target.buffer),
            );
        }
    }

    /// The buffer a reference means, if its ids lead to one.
    fn target(
        &self,
        base: RefBase,
        want: Want,
        place: &impl Fn() -> Place,
        report: &mut Report,
    ) -> Option<Target> {
        let (rank, block) = (self.checker.rank, self.checker.block);
        let channel_type = self.op.channel_type;
        match base {
            RefBase::Local(buffer) => {
                Some(Target { buffer, owner: None, chunks: Some(rank.chunks(buffer)) })
            }
            RefBase::Remote(_) | RefBase::Switch(_) if !self.typed => None,
            RefBase::Remote(_)
                if want.base == Base::LocalOrRemote && channel_type != ChannelType::Memory =>
            {
                let found = format_args!("a remote chunk with channel type {channel_type}");
                report.fault(place, found, "channel type memory, to reduce from remote chunks");
                None
            }
            RefBase::Remote(id) => {
                let known = block.remotes(channel_type);
                let Some(&global) = nth(known, id) else {
                    report.fault(
                        || place().key("buffer_id"),
                        format_args!("{channel_type} remote buffer {id}"),
                        below(known.len(), "the block's remote buffers of this type"),
                    );
                    return None;
                };
                // A block's list that leads nowhere has been reported with the list.
                let remote = nth(&rank.gpu.remote_buffers, global)?;
                let owner = nth(&self.checker.tables.ranks, remote.rank);
                let chunks = owner.map(|owner| owner.chunks(remote.buffer));
                Some(Target { buffer: remote.buffer, owner: Some(remote.rank), chunks })
            }
            RefBase::Switch(id) => {
                let known = block.channels(ChannelType::Switch);
                let Some(&global) = nth(known, id) else {
                    report.fault(
                        || place().key("switch_channel_id"),
                        format_args!("switch channel {id}"),
                        below(known.len(), "the block's switch channels"),
                    );
                    return None;
                };
                let switch = nth(&rank.switches, global)?;
                Some(Target { buffer: switch.buffer, owner: None, chunks: switch.chunks })
            }
        }
    }

    /// Checks that the references that go together have the same size.
    fn sizes(&self, rule: Sizes, report: &mut Report) {
        let (src, dst) = (&self.op.src, &self.op.dst);
        let place = |key, position| move || self.at.place().at(key, position).key("size");
        match rule {
            Sizes::Paired if src.len() != dst.len() => report.fault(
                || self.at.place().key("dst_buff"),
                count(dst.len() as u64, "reference", "references"),
                format_args!("{}, one for each of src_buff", src.len()),
            ),
            Sizes::Paired => {
                for (position, (src, dst)) in src.iter().zip(dst).enumerate() {
                    if src.size != dst.size {
                        report.fault(
                            place("dst_buff", position),
                            size(dst.size),
                            format_args!("{}, as in src_buff[{position}]", src.size),
                        );
                    }
                }
            }
            Sizes::Equal => {
                let Some(first) = src.first() else { return };
                let rest =
                    src.iter().enumerate().skip(1).map(|(at, chunk)| ("src_buff", at, chunk));
                let all =
                    rest.chain(dst.iter().enumerate().map(|(at, chunk)| ("dst_buff", at, chunk)));
                for (key, position, chunk) in all.filter(|(.., chunk)| chunk.size != first.size) {
                    report.fault(
                        place(key, position),
                        size(chunk.size),
                        format_args!("{}, as in src_buff[0]", first.size),
                    );
                }
            }
        }
    }

    /// Checks that each port channel leads to the rank whose chunk is written through it.
    fn ends(&self, report: &mut Report) {
        let (rank, block) = (self.checker.rank, self.checker.block);
        let channels = block.channels(ChannelType::Port);
        let remotes = block.remotes(ChannelType::Port);
        for (position, (&id, chunk)) in self.op.channel_ids.iter().zip(&self.op.dst).enumerate() {
            let RefBase::Remote(remote) = chunk.base else { continue };
            let peer = nth(channels, id).and_then(|&global| nth(&rank.port, global));
            let remote = nth(remotes, remote).and_then(|&id| nth(&rank.gpu.remote_buffers, id));
            if let (Some(peer), Some(owner)) = (peer, remote.map(|remote| remote.rank))
                && *peer != owner
            {
                report.fault(
                    || self.at.place().at("channel_ids", position),
                    format_args!("a channel to rank {peer}"),
                    format_args!("one to rank {owner}, whose chunk is written"),
                );
            }
        }
    }
}

fn size(chunks: u64) -> impl Display {
    count(chunks, "chunk", "chunks")
}
