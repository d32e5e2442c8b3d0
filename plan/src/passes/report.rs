//! What the passes did to a program, for its author.

use crate::model::OpKind;
use std::collections::BTreeMap;
use std::fmt;

/// Why two neighbouring operations, of kinds that can be one, stayed two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// Their channels are of different types.
    ChannelType,
    /// They use the same channel, once each.
    SameChannel,
    /// They move different numbers of chunks.
    Size,
    /// They are done by different slices of a thread-block group.
    Slice,
    /// They start from different sources.
    Source,
    /// They end in different destinations.
    Destination,
    /// They reduce with different operators.
    Operator,
    /// The second sends something else than the first produces.
    OtherChunk,
    /// One operation would accumulate where two overwrite.
    Overwrites,
    /// One operation would read before the other has written, or write before the other has.
    Hazard,
    /// They use different channels.
    OtherChannel,
    /// One operation would not write the chunk between them, which is used elsewhere.
    Kept,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Refusal::ChannelType => "their channels are of different types",
            Refusal::SameChannel => "they use the same channel",
            Refusal::Size => "they move different numbers of chunks",
            Refusal::Slice => "different slices of a thread-block group do them",
            Refusal::Source => "they start from different sources",
            Refusal::Destination => "they end in different destinations",
            Refusal::Operator => "they reduce with different operators",
            Refusal::OtherChunk => "the second sends something else than the first produces",
            Refusal::Overwrites => {
                "the second overwrites what the first reduced, and one would add to it"
            }
            Refusal::Hazard => "they share chunks, and the second must see the first done",
            Refusal::OtherChannel => "they use different channels",
            Refusal::Kept => "one would not write the chunk between them, which is used elsewhere",
        })
    }
}

/// What the passes did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Operations as recorded, without block synchronisations.
    pub recorded: usize,
    /// Operations of the plan before replication, without block synchronisations.
    pub fused: usize,
    /// Block synchronisations that the author wrote.
    pub meetings_recorded: usize,
    /// Block synchronisations of the plan before replication.
    pub meetings: usize,
    /// Operations that were divided, because instances would have met in their chunks.
    pub divided: usize,
    /// The pieces that they became.
    pub pieces: usize,
    /// How often which pair of neighbours was not fused, and why.
    pub refusals: BTreeMap<(OpKind, OpKind, Refusal), usize>,
}

impl Report {
    /// Counts a pair that stayed two.
    pub fn refuse(&mut self, first: OpKind, second: OpKind, why: Refusal) {
        *self.refusals.entry((first, second, why)).or_default() += 1;
    }

    /// Adds what the passes did elsewhere.
    pub fn merge(&mut self, other: Report) {
        self.recorded += other.recorded;
        self.fused += other.fused;
        self.meetings_recorded += other.meetings_recorded;
        self.meetings += other.meetings;
        self.divided += other.divided;
        self.pieces += other.pieces;
        for (pair, count) in other.refusals {
            *self.refusals.entry(pair).or_default() += count;
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { recorded, fused, meetings_recorded, meetings, divided, pieces, refusals } =
            self;
        write!(f, "operations: {recorded} recorded, {fused} fused")?;
        write!(f, "\nblock synchronisations: {meetings_recorded} written, {meetings} in the plan")?;
        if *divided > 0 {
            write!(
                f,
                "\ndivided: {divided} operations into {pieces}, in whose chunks instances would have met"
            )?;
        }
        for ((first, second, why), count) in refusals {
            write!(f, "\nnot fused: {first} with {second}, {count} times: {why}")?;
        }
        Ok(())
    }
}
