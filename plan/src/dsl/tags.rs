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
        // Paired channels come first, then those without a counterpart on the other rank.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dsl::{On, Settings};
    use crate::model::{ChannelTable, Collective, Plan};
    use crate::passes::DataSync;
    use proptest::prelude::*;

    /// A program in which the k-th tag of each rank makes a channel to the other, whose only user is block `block_of(tag)`.
    /// Rank 0 signals over its channels and rank 1 waits.
    fn program(here: &[&str], there: &[&str], block_of: impl Fn(&str, usize) -> u64) -> Program {
        let mut p = Program::new(Settings::new("p", Collective::Test, 2).chunks(1, 1)).unwrap();
        for (rank, tags) in [(0, here), (1, there)] {
            for (k, tag) in tags.iter().enumerate() {
                let kind = ChannelType::Port;
                let channel = match *tag {
                    "" => p.channel(kind, 1 - rank, rank),
                    tag => p.tagged_channel(kind, 1 - rank, rank, tag),
                };
                let before = tags[..k].iter().filter(|before| *before == tag).count();
                let (channel, on) = (channel.unwrap(), On::block(block_of(tag, before)));
                match rank {
                    0 => p.signal(channel, on, DataSync::NONE, false),
                    _ => p.wait(channel, on, DataSync::NONE, false),
                }
                .unwrap();
            }
        }
        p
    }

    /// For each block of a rank, the positions of its channels among those to its peer.
    fn positions(plan: &Plan, rank: usize) -> Vec<Vec<u64>> {
        let gpu = &plan.gpus[rank];
        for table in &gpu.channels {
            let ChannelTable::Peers { connected_to, .. } = table else { panic!("no switch here") };
            assert!(connected_to.iter().all(|&peer| peer == 1 - rank as u64));
        }
        let ids = gpu.threadblocks.iter().map(|block| match &block.channels[..] {
            [] => Vec::new(),
            [(_, ids)] => ids.clone(),
            more => panic!("one type of channels, saw {more:?}"),
        });
        ids.collect()
    }

    #[test]
    fn what_fits_keeps_its_numbers() {
        for tags in [&["a", "b"][..], &["", ""], &["a", "", "a"]] {
            let p = program(tags, tags, |_, _| 0);
            assert!(p.numbers().unwrap().is_empty(), "{tags:?}");
        }
    }

    #[test]
    fn a_channel_that_only_one_rank_has_comes_last() {
        let mut p = Program::new(Settings::new("p", Collective::Test, 2).chunks(1, 1)).unwrap();
        let kind = ChannelType::Memory;
        p.tagged_channel(kind, 1, 0, "alone").unwrap();
        let over = p.tagged_channel(kind, 1, 0, "both").unwrap();
        let back = p.tagged_channel(kind, 0, 1, "both").unwrap();
        p.signal(over, On::block(0), DataSync::NONE, false).unwrap();
        p.wait(back, On::block(0), DataSync::NONE, false).unwrap();
        let plan = p.finish().unwrap().plan;
        assert_eq!((positions(&plan, 0), positions(&plan, 1)), (vec![vec![0]], vec![vec![0]]));
    }

    #[test]
    fn tags_of_one_rank_only_are_refused_on_both() {
        let p = program(&["a", "b", ""], &["a", "c"], |_, _| 0);
        let text = p.finish().unwrap_err().to_string();
        assert!(text.contains("saw tags b, none only on rank 0 and c only on rank 1"), "{text}");
    }

    #[test]
    fn signals_are_counted_by_the_pairs_of_tags() {
        let mut p = program(&["a", "b"], &["b", "a"], |_, _| 0);
        p.check_pairing().unwrap();
        let more = Channel { kind: ChannelType::Port, source: 0, destination: 1, id: 0 };
        p.signal(more, On::block(0), DataSync::NONE, false).unwrap();
        let text = p.finish().unwrap_err().to_string();
        assert!(text.contains("saw 2 signals and 1 waits"), "{text}");
    }

    proptest! {
        /// Whatever the order, the channels of each tag, one after another, are at the same positions on both ranks.
        #[test]
        fn equal_tags_meet(
            here in proptest::collection::vec(proptest::sample::select(vec!["", "a", "b", "c"]), 1..8),
            order in any::<proptest::sample::Index>(),
            swap in any::<bool>(),
        ) {
            let mut there = here.clone();
            there.rotate_left(order.index(here.len()));
            if swap {
                there.reverse();
            }
            let block = |tag: &str, before: usize| {
                8 * ["", "a", "b", "c"].iter().position(|known| *known == tag).unwrap() as u64 + before as u64
            };
            let plan = program(&here, &there, block).finish().unwrap().plan;
            let (one, mut other) = (positions(&plan, 0), positions(&plan, 1));
            other.resize(one.len(), Vec::new());
            prop_assert_eq!(one, other);
        }
    }
}
