//! Channels with tags: of the channels between two ranks, those with equal tags are paired.
//!
//! A plan pairs the k-th channel of one rank with the k-th of the other. So channels are numbered as they are made, and
//! once all are known, those between two ranks exchange their numbers until the tags fit.

use super::{Channel, Misuse, Program};
use crate::model::{ChannelType, Gpu};
use crate::passes::pairing::End;
use std::collections::HashMap;

/// The numbers that channels have in the plan, where they are others than while the program was written.
#[derive(Debug, Default)]
pub(super) struct Numbers(HashMap<End, u64>);

impl Numbers {
    /// Whether all channels keep their numbers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of a channel in the plan.
    pub fn of(&self, end: End) -> u64 {
        self.0.get(&end).copied().unwrap_or(end.2)
    }

    /// Gives the channels of blocks their numbers.
    pub fn apply(&self, gpus: &mut [Gpu]) {
        if self.is_empty() {
            return;
        }
        for gpu in gpus {
            for (kind, ids) in gpu.threadblocks.iter_mut().flat_map(|block| &mut block.channels) {
                ids.iter_mut().for_each(|id| *id = self.of((*kind, gpu.id, *id)));
            }
        }
    }
}

impl Program {
    /// A new channel as [`channel`](Self::channel) makes it, but paired with the peer's channel of its kind that has
    /// the same tag: the k-th with this tag with the peer's k-th, and the k-th without one likewise.
    ///
    /// # Errors
    /// [`Misuse::Rank`]. Tags without counterparts are found when the program is finished: [`Misuse::Tags`].
    pub fn tagged_channel(
        &mut self,
        kind: ChannelType,
        destination: i64,
        source: i64,
        tag: &str,
    ) -> Result<Channel, Misuse> {
        let channel = self.channel(kind, destination, source)?;
        self.tags.insert((kind, channel.source, channel.id), tag.into());
        Ok(channel)
    }

    /// The numbers by which all tags fit.
    pub(super) fn numbers(&self) -> Result<Numbers, Misuse> {
        let mut numbers = Numbers::default();
        if self.tags.is_empty() {
            return Ok(numbers);
        }
        for kind in [ChannelType::Memory, ChannelType::Port] {
            let between = self.between(kind);
            for (&(first, second), here) in &between {
                if first >= second {
                    continue;
                }
                let there = between.get(&(second, first)).map_or(&[][..], Vec::as_slice);
                self.fit(kind, (first, here), (second, there), &mut numbers)?;
            }
        }
        Ok(numbers)
    }

    /// The numbers of the channels from one rank to another, in their order.
    fn between(&self, kind: ChannelType) -> HashMap<(u64, u64), Vec<u64>> {
        let mut between: HashMap<(u64, u64), Vec<u64>> = HashMap::new();
        for (rank, tables) in (0..).zip(&self.ranks) {
            let peers = if kind == ChannelType::Port { &tables.port } else { &tables.memory };
            for (id, &peer) in (0..).zip(peers) {
                between.entry((rank, peer)).or_default().push(id);
            }
        }
        between
    }

    fn fit(
        &self,
        kind: ChannelType,
        (first, here): (u64, &[u64]),
        (second, there): (u64, &[u64]),
        numbers: &mut Numbers,
    ) -> Result<(), Misuse> {
        let tag = |rank, id| self.tags.get(&(kind, rank, id)).map(|tag| &**tag);
        let mut counterparts: HashMap<Option<&str>, Vec<u64>> = HashMap::new();
        for &id in there.iter().rev() {
            counterparts.entry(tag(second, id)).or_default().push(id);
        }
        // Paired channels first, then those that the other rank has no counterpart of.
        let (mut ours, mut alone, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
        for &id in here {
            match counterparts.get_mut(&tag(first, id)).and_then(Vec::pop) {
                Some(counterpart) => {
                    ours.push(id);
                    theirs.push(counterpart);
                }
                None => alone.push(id),
            }
        }
        let left: Vec<u64> = there.iter().copied().filter(|id| !theirs.contains(id)).collect();
        if !alone.is_empty() && !left.is_empty() {
            let tags = |rank, ids: &[u64]| {
                let mut tags: Vec<&str> =
                    ids.iter().map(|&id| tag(rank, id).unwrap_or("none")).collect();
                tags.dedup();
                tags.join(", ")
            };
            let (first_tags, second_tags) = (tags(first, &alone), tags(second, &left));
            return Err(Misuse::Tags { kind, first, second, first_tags, second_tags });
        }
        ours.extend(alone);
        theirs.extend(left);
        for (rank, order, slots) in [(first, ours, here), (second, theirs, there)] {
            let moved = order.iter().zip(slots).filter(|(id, slot)| id != slot);
            numbers.0.extend(moved.map(|(&id, &slot)| ((kind, rank, id), slot)));
        }
        Ok(())
    }
}
