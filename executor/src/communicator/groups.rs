//! Communicators made from others: all ranks by color, some ranks, and pairs.

use super::join::{Greeted, Join};
use super::{Communicator, Options, garbled, name};
use crate::error::{Doing, ExecutorError};
use crate::registry::Installed;
use crate::sync::lock;
use antiphon_bootstrap::{Bootstrap, BootstrapError, Operation};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The numbers of groups of two ranks, by their purpose and by the direction of their data (from the lower rank to the higher,
/// and back). Splits are numbered from 0, so that none has these numbers.
const PAIRS: [[u64; 2]; 2] = [[u64::MAX, u64::MAX - 1], [u64::MAX - 2, u64::MAX - 3]];
/// Tells subsets from splits; they are numbered from here.
const SUBSETS: u64 = 1 << 63;

/// Which way data goes between this rank and a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Direction {
    /// From this rank.
    Out,
    /// To this rank.
    In,
}

/// What goes between this rank and a peer, which has a queue of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purpose {
    /// What is sent and received.
    Calls,
    /// Blocks of collectives.
    Blocks,
}

/// A queue of transfers between this rank and a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Way {
    /// The peer.
    pub peer: u32,
    pub direction: Direction,
    pub purpose: Purpose,
}

impl Communicator {
    /// Divides the ranks into groups: ranks of one `color` form a new communicator, ordered by `key`, which may be negative, then by
    /// rank. Every rank calls it; a rank that passes `None` joins no group. Until its group has formed, what breaks this communicator,
    /// such as an abort, ends the call. If this communicator is called `dp`, the new one of color 2 is called `dp/2`.
    ///
    /// # Errors
    /// The communicator's failure, or what the bootstrap reports. Errors name ranks by their numbers in this communicator.
    pub fn split(
        &self,
        color: Option<u32>,
        key: impl Into<i64>,
    ) -> Result<Option<Communicator>, ExecutorError> {
        self.split_as(color, key, None)
    }

    /// As [`split`](Self::split), with a name for the new communicator, which is as in [`Options::name`].
    ///
    /// # Errors
    /// As [`split`](Self::split); `Argument` for the name, before any rank hears of it.
    pub fn split_as(
        &self,
        color: Option<u32>,
        key: impl Into<i64>,
        name: Option<&str>,
    ) -> Result<Option<Communicator>, ExecutorError> {
        name.map_or(Ok(()), name::check)?;
        let split = self.split_by(color, key.into(), name);
        split.map_err(|error| self.shared.whose.names(error))
    }

    fn split_by(
        &self,
        color: Option<u32>,
        key: i64,
        name: Option<&str>,
    ) -> Result<Option<Communicator>, ExecutorError> {
        let number = self.shared.splits.fetch_add(1, Ordering::Relaxed);
        let mut mine = key.to_le_bytes().to_vec();
        mine.extend(color.map_or(u64::MAX, u64::from).to_le_bytes());
        let all = self.exchange_for(Operation::Split, &mine)?;
        let Some(color) = color else { return Ok(None) };
        let mut members: Vec<(i64, u32)> = Vec::new();
        for (rank, blob) in (0..).zip(&all) {
            let words = blob.as_chunks::<8>().0;
            let [key, theirs] = words else {
                return Err(self.shared.unmet(garbled(rank, blob.len())));
            };
            if u64::from_le_bytes(*theirs) == u64::from(color) {
                members.push((i64::from_le_bytes(*key), rank));
            }
        }
        members.sort_unstable();
        let ranks: Vec<u32> = members.into_iter().map(|(_, rank)| rank).collect();
        let end = self.group(number, &ranks)?;
        let inherited = || self.name().map(|own| name::of_split(own, color));
        let name = name.map(str::to_owned).or_else(inherited);
        let form = || self.form(Arc::clone(&end), name).map_err(|error| error.renumbered(&ranks));
        self.shared.failure.unless_broken(&end, form).map(Some)
    }

    /// The communicator of some of the ranks, in this order: each of them calls it with the same list, and the others have
    /// no part in it. It works, too, where this communicator is broken, if those that are listed live. Until the ranks have come,
    /// an abort of this communicator by another thread of this rank ends the call. It has this communicator's name, in whose place
    /// it may stand.
    ///
    /// # Errors
    /// `Argument` for a list without this rank, or with a rank that there is not or twice; what the bootstrap reports, such as
    /// `PeerLost` for a rank of the list that is lost. Errors name ranks by their numbers in this communicator.
    pub fn subset(&self, ranks: &[u32]) -> Result<Communicator, ExecutorError> {
        self.subset_as(ranks, None)
    }

    /// As [`subset`](Self::subset), with a name for the new communicator, which is as in [`Options::name`].
    ///
    /// # Errors
    /// As [`subset`](Self::subset); `Argument` for the name.
    pub fn subset_as(
        &self,
        ranks: &[u32],
        name: Option<&str>,
    ) -> Result<Communicator, ExecutorError> {
        name.map_or(Ok(()), name::check)?;
        let name = name.or(self.name());
        let some = || {
            self.check_listed(ranks)?;
            self.among(ranks, name).map_err(|error| error.renumbered(ranks))
        };
        some().map_err(|error| self.shared.whose.names(error))
    }

    /// Checks a list of ranks that are to make a communicator.
    fn check_listed(&self, ranks: &[u32]) -> Result<(), ExecutorError> {
        let bad = |saw: String| ExecutorError::Argument {
            what: "make a communicator of some ranks",
            saw,
            allowed: "ranks of the communicator, each once, this one among them",
        };
        let world = self.world();
        let mut sorted = ranks.to_vec();
        sorted.sort_unstable();
        if let Some(&rank) = sorted.iter().find(|&&rank| rank >= world) {
            return Err(bad(format!("rank {rank} of {world}")));
        }
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(bad(format!("rank {} twice", twice[0])));
        }
        if sorted.binary_search(&self.rank()).is_err() {
            return Err(bad(format!(
                "a list of {} ranks without rank {}",
                ranks.len(),
                self.rank()
            )));
        }
        Ok(())
    }

    /// As [`subset`](Self::subset), of a list that makes a communicator; in errors ranks have their numbers in it.
    fn among(&self, ranks: &[u32], name: Option<&str>) -> Result<Communicator, ExecutorError> {
        let end = loop {
            // Numbered for each list of ranks: only the ranks on it know that it was asked for.
            let number = {
                let subsets = &self.shared.subsets;
                let mut subsets = lock(subsets);
                let count = subsets.entry(ranks.to_vec()).or_insert(0);
                *count += 1;
                SUBSETS + *count
            };
            let end = self.group(number, ranks)?;
            // If the others gave this group up before this rank came to it, they are at the next one.
            if !matches!(end.check(), Err(BootstrapError::Aborted { .. })) {
                break end;
            }
        };
        let form = || self.form(Arc::clone(&end), name.map(str::to_owned));
        self.shared.failure.unless_aborted(&end, form)
    }

    /// The ranks that this rank knows to be gone, in order: they have died, have left this communicator, or cannot be reached any
    /// more. It tells them also when the communicator is broken, and of those that went later than what broke it; ranks may come
    /// to know of a loss at different times. Does not wait.
    pub fn lost(&self) -> Vec<u32> {
        self.shared.bootstrap.gone()
    }

    /// This rank's end of the group of itself and a peer, for data that goes one way. The lower of the two is rank 0 there.
    ///
    /// # Errors
    /// `Argument` for this rank itself, and for one that there is not.
    pub(crate) fn pair_end(&self, way: Way) -> Result<Arc<dyn Bootstrap>, ExecutorError> {
        let Way { peer, direction, purpose } = way;
        let (rank, world) = (self.rank(), self.world());
        if peer == rank || peer >= world {
            return Err(ExecutorError::Argument {
                what: "pair up with a rank",
                saw: format!("rank {peer} on rank {rank} of {world}"),
                allowed: "other ranks of the communicator",
            });
        }
        let upward = (rank < peer) == (direction == Direction::Out);
        let number = PAIRS[purpose as usize][usize::from(!upward)];
        self.group(number, &self.pair_names(peer))
    }

    /// This rank's end of a group of some ranks. No other group that this communicator's ranks make has this number.
    fn group(&self, number: u64, ranks: &[u32]) -> Result<Arc<dyn Bootstrap>, ExecutorError> {
        // With the identity, no group that other communicators make over the same bootstrap has it either, now or later.
        Ok(self.shared.bootstrap.group(self.shared.identity ^ number, ranks)?)
    }

    /// Brings up this rank's end of a [pair](Self::pair_end): returns when the peer has come. The pair has its own numbers for
    /// the two ranks; [`pair_names`](Self::pair_names) says which ranks they stand for. Its errors use them, but not what peers
    /// are told of a failure.
    ///
    /// # Errors
    /// What broke this communicator meanwhile; else what the bootstrap reports.
    pub(crate) fn form_pair(
        &self,
        end: Arc<dyn Bootstrap>,
        peer: u32,
    ) -> Result<Communicator, ExecutorError> {
        // What is installed serves no transfer.
        let none = Installed::none("transfers use none");
        // All of a pair is on one stream already, whose launches and replays share what they leave.
        let options = self.shared.options.clone().with_installed(none).with_one_lane(false);
        let options = options.of_pair(self.shared.whose.pair_with(peer, end.rank()));
        // A peer of this node that leaves because of a loss has left, for `Shared::has_left`, only once this rank has heard of
        // the loss.
        let near = self.shared.peers[peer as usize].same_node;
        let parted = || !near || self.shared.has_left(peer);
        let has_left = || self.shared.bootstrap.has_left(peer) == Ok(true) && parted();
        let form = || {
            let mut begun = self.begin(&end, &options)?;
            match begun.greet(has_left)? {
                true => begun.come(),
                false => Err(self.shared.deserted(peer, Doing::default()).of_whole()),
            }
        };
        let formed = self.shared.failure.unless_broken(&end, form)?;
        formed.shared.failure.is_part_of(&self.shared.failure, self.pair_names(peer));
        Ok(formed)
    }

    /// The ranks of the pair of this rank and a peer, in the pair's order.
    pub(crate) fn pair_names(&self, peer: u32) -> [u32; 2] {
        [self.rank().min(peer), self.rank().max(peer)]
    }

    /// Brings up this rank's end of a group, under a name if it gets one: returns when all of it have come.
    ///
    /// # Errors
    /// What the bootstrap reports.
    fn form(
        &self,
        end: Arc<dyn Bootstrap>,
        name: Option<String>,
    ) -> Result<Communicator, ExecutorError> {
        let options = self.shared.options.clone().with_name(name);
        let formed = self.begin(&end, &options).and_then(Greeted::come);
        // The peers would wait for this rank in vain, so they are told.
        formed.inspect_err(|error| end.abort(&format!("it was given up: {error}")))
    }

    fn begin(&self, end: &Arc<dyn Bootstrap>, options: &Options) -> Result<Greeted, ExecutorError> {
        let begun = Join::begin(Arc::clone(end), &self.shared.device, options);
        let begun = begun.inspect_err(|_| end.let_go())?;
        Ok(begun.among(self.shared.yields).in_own_group())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::scope;
    use std::time::Duration;

    #[test]
    fn an_abort_ends_a_split_whose_group_does_not_form() {
        let [gone, ranks @ ..] = &Communicator::in_process(3, &Options::default()).unwrap()[..]
        else {
            unreachable!()
        };
        scope(|scope| {
            let split =
                |rank| scope.spawn(move || Communicator::split(rank, Some(7), 0).unwrap_err());
            let begun: Vec<_> = ranks.iter().map(split).collect();
            // What a split tells first; but then it does not join the group.
            let (key, color) = (0u64.to_le_bytes(), 7u64.to_le_bytes());
            gone.exchange_for(Operation::Split, &[key, color].concat()).unwrap();
            gone.abort("enough");
            for split in begun {
                let text = split.join().unwrap().to_string();
                assert!(text.contains("enough") && text.contains("rank 0"), "{text}");
            }
        });
    }

    #[test]
    fn a_subset_that_does_not_form_names_ranks_by_their_numbers_in_the_whole() {
        let options = Options::default().with_timeout(Some(Duration::from_secs(60)));
        let mut ranks = Communicator::in_process(3, &options).unwrap();
        drop(ranks.pop());
        let error = ranks[1].subset(&[1, 2]).unwrap_err();
        assert_eq!((error.peer(), ranks[1].lost()), (Some(2), vec![2]), "{error}");
        assert!(error.to_string().contains("rank 2 "), "{error}");
    }

    #[test]
    fn a_group_of_a_split_that_does_not_form_names_ranks_by_their_numbers_in_the_whole() {
        let options = Options::default().with_timeout(Some(Duration::from_secs(60)));
        let mut ranks = Communicator::in_process(3, &options).unwrap();
        let last = ranks.pop().unwrap();
        let error = scope(|scope| {
            scope.spawn(|| ranks[0].split(None, 0).map(drop).unwrap());
            // Says that it is of rank 1's group, and leaves.
            scope.spawn(move || {
                let mine = [0i64.to_le_bytes(), 1u64.to_le_bytes()].concat();
                last.exchange_for(Operation::Split, &mine).unwrap();
            });
            ranks[1].split(Some(1), 0).map(drop).unwrap_err()
        });
        assert_eq!(error.peer(), Some(2), "{error}");
        assert!(error.to_string().contains("rank 2 "), "{error}");
    }

    #[test]
    fn ranks_that_exchange_and_ranks_that_split_are_told_so() {
        for hosts in [["this"; 2], ["this", "that"]] {
            let options = Options::default().with_timeout(Some(Duration::from_secs(60)));
            let ranks = Communicator::in_process_on(&hosts, &options).unwrap();
            let texts = scope(|scope| {
                // As long as what a split exchanges.
                let exchange = scope.spawn(|| ranks[0].exchange(&[0; 16]).unwrap_err());
                let split = scope.spawn(|| ranks[1].split(Some(0), 0).map(drop).unwrap_err());
                [exchange, split].map(|rank| rank.join().unwrap().to_string())
            });
            // Whoever finds it first tells the other.
            let told =
                [("exchange", 1, "split"), ("split", 0, "exchange")].map(|(own, peer, theirs)| {
                    format!(
                        "cannot finish {own}: rank {peer} (pid {}) called {theirs} ",
                        std::process::id()
                    )
                });
            let said = |text: &String| told.iter().any(|told| text.contains(told));
            assert!(texts.iter().all(said), "{texts:?}");
            assert!(ranks.iter().all(|rank| rank.failure().is_some()), "{texts:?}");
        }
    }
}
