//! Transfers under way: what each asks of the network, and when it is done.

use super::costs::Costs;
use super::network::Network;
use crate::program::{Access, Area, Program, RankLayout, Segment, Span};

/// Whose transfer it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// An operation of this block.
    Block(u32),
    /// What this port's proxy works on.
    Port(u32),
}

/// A transfer under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    pub owner: Owner,
    /// Shared things that still carry some of it.
    pub pending: u32,
    /// When it is done at the earliest: how fast one block is.
    pub earliest: f64,
    /// Seconds from the last byte to the end.
    pub tail: f64,
}

/// Everything that is asked of the network by one transfer.
#[derive(Clone, Debug, Default)]
pub(super) struct Demand {
    /// Bytes by number of the shared thing.
    bytes: Vec<u64>,
    /// Those with any, in order of first mention.
    pub things: Vec<(u32, u64)>,
    /// Seconds that one block takes for it.
    pub seconds: f64,
    /// Seconds after the last byte until the block has it.
    pub tail: f64,
    /// Bytes stored.
    pub stored: u64,
}

/// What of a segment lies in a window, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    offsets: u32,
    skip: u64,
    raw_skip: u64,
    /// Bytes in raw areas.
    pub len: u64,
    /// Bytes of payload in packet areas.
    pub padded: u64,
}

impl Piece {
    pub(super) fn new(segment: &Segment, window: Option<(u64, u64)>) -> Option<Self> {
        let (low, high) = match window {
            None => (0, u64::MAX),
            Some((iteration, unit)) => {
                (iteration.saturating_mul(unit), (iteration + 1).saturating_mul(unit))
            }
        };
        let begin = low.saturating_sub(segment.position).min(segment.padded);
        let end = high.saturating_sub(segment.position).min(segment.padded);
        let piece = Piece {
            offsets: segment.offsets,
            skip: begin,
            raw_skip: begin.min(segment.len),
            len: end.min(segment.len).saturating_sub(begin),
            padded: end - begin,
        };
        (piece.padded > 0).then_some(piece)
    }

    /// Where the piece starts in the area of its access number `side`.
    pub(super) fn start(&self, program: &Program, side: usize, access: &Access) -> u64 {
        let skip = if access.area == Area::Packets { self.skip } else { self.raw_skip };
        program.offsets[self.offsets as usize + side] + skip
    }
}

/// Who moves what from where to where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Movement<'a> {
    pub rank: u32,
    pub sources: &'a [Access],
    pub destinations: &'a [Access],
    /// The members of a switch channel, if the move has one.
    pub group: Option<&'a [u32]>,
    /// Whether a block moves it; else a network card or copy engine.
    pub block: bool,
}

/// The accesses of a span.
pub(super) fn accesses(layout: &RankLayout, span: Span) -> &[Access] {
    &layout.accesses[span.range()]
}

impl Demand {
    fn ask(&mut self, thing: u32, bytes: u64) {
        let at = thing as usize;
        if self.bytes.len() <= at {
            self.bytes.resize(at + 1, 0);
        }
        if self.bytes[at] == 0 && bytes > 0 {
            self.things.push((thing, 0));
        }
        self.bytes[at] += bytes;
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        for (thing, _) in self.things.drain(..) {
            self.bytes[thing as usize] = 0;
        }
        (self.seconds, self.tail, self.stored) = (0.0, 0.0, 0);
    }

    /// Ends the asking.
    pub(super) fn close(&mut self) {
        for (thing, bytes) in &mut self.things {
            *bytes = self.bytes[*thing as usize];
        }
    }

    /// Adds one piece: `len` raw bytes, or `padded` bytes of payload, at every access.
    pub(super) fn add(
        &mut self,
        network: &Network,
        costs: &Costs,
        moved: &Movement<'_>,
        len: u64,
        padded: u64,
    ) {
        let Movement { rank, sources, destinations, block, .. } = *moved;
        // Bytes on the wire, and seconds of a block for a first or only, and for a further access.
        let wire = |access: &Access| match access.area {
            Area::Packets => 2 * padded,
            Area::Input | Area::Output | Area::Scratch => len,
        };
        let seconds = |access: &Access, first: bool| match access.area {
            Area::Packets => padded as f64 * costs.payload,
            _ if first => len as f64 * costs.side,
            _ => len as f64 * costs.combine,
        };
        let reads = self.group(network, moved, sources);
        for (at, access) in sources.iter().enumerate() {
            let bytes = wire(access);
            if !network.cached {
                self.ask(network.memory(access.rank), bytes);
            }
            if access.rank != rank || reads {
                self.seconds += bytes as f64 * network.crossing;
                self.ask(network.out(access.rank, rank), bytes);
                if let Some(into) = network.into(access.rank, rank).filter(|_| !reads || at == 0) {
                    self.ask(into, bytes);
                }
                if block {
                    self.tail = self.tail.max(2.0 * network.latency(access.rank, rank));
                }
            } else if matches!(access.area, Area::Packets | Area::Scratch)
                && let Some(fetch) = network.fetch(rank)
            {
                self.seconds += bytes as f64 * network.crossing;
                self.ask(fetch, bytes);
            }
            if at == 0 || !reads {
                self.seconds += seconds(access, at == 0);
            }
        }
        let stores = self.group(network, moved, destinations);
        // What a proxy moves comes from its one source, wherever that is.
        let from = if block { rank } else { sources.first().map_or(rank, |access| access.rank) };
        for (at, access) in destinations.iter().enumerate() {
            let bytes = wire(access);
            self.stored += bytes;
            if !network.cached {
                self.ask(network.memory(access.rank), bytes);
            }
            if access.rank != from || stores {
                self.seconds += bytes as f64 * network.crossing;
                if at == 0 || !stores {
                    self.ask(network.out(from, access.rank), bytes);
                }
                if let Some(into) = network.into(from, access.rank) {
                    self.ask(into, bytes);
                }
            }
            if at == 0 || !stores {
                self.seconds += seconds(access, true);
            }
        }
    }

    /// Whether the switch does these accesses as one.
    fn group(&self, network: &Network, moved: &Movement<'_>, accesses: &[Access]) -> bool {
        let Some(members) = moved.group else { return false };
        network.multicast
            && accesses.len() == members.len()
            && accesses.iter().zip(members).all(|(access, &member)| access.rank == member)
            && members.iter().all(|&member| network.together(member, moved.rank))
    }
}
