//! Pairs of ranks between which transfers go. A pair is formed when its first transfer comes; only callers that wait for the
//! transfer wait for that.

use super::Collectives;
use super::served::Service;
use super::transfers::Told;
use crate::communicator::Communicator;
pub(super) use crate::communicator::Way;
use crate::error::ExecutorError;
use crate::selection::order::panicked;
use crate::sync::{lock, not_done, or_panicked, shielded};
use antiphon_hal::HalError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::time::Instant;

/// A pair, formed, or why it is not.
pub(super) type Formed = Result<Collectives, ExecutorError>;

const FORM: &str = "form a pair of ranks";

/// What comes once a pair is formed, or could not be.
type Turn = Box<dyn FnOnce(&Formed) + Send>;

/// The pair of this rank and a peer for a queue of transfers.
pub(super) enum Pair {
    /// The peer has not come yet. These turns are taken, in this order, once it has.
    Forming(Vec<Turn>),
    /// The pair is formed, and all turns that waited for it were taken.
    Formed(Collectives),
    /// The pair could not be formed, and is not tried again: the peer has the other halves of the transfers that failed here, and
    /// would match them with later ones.
    Failed(ExecutorError),
}

impl Pair {
    /// The pair's communicator, if it is broken. Those of a `whole` that is broken break with it, though some may have yet to hear of it.
    fn broken(&self, whole: bool) -> Option<&Communicator> {
        match self {
            Pair::Formed(pair) if whole || pair.communicator().shared.failed() => {
                Some(pair.communicator())
            }
            _ => None,
        }
    }
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Pair::Forming(turns) => write!(f, "forming, {} wait", turns.len()),
            Pair::Formed(pair) => pair.communicator().fmt(f),
            Pair::Failed(error) => write!(f, "failed: {error}"),
        }
    }
}

impl Communicator {
    /// The pair for a queue of transfers, if it is formed.
    pub(super) fn formed(&self, way: Way) -> Option<Collectives> {
        match lock(&self.shared.queues.pairs).get(&way) {
            Some(Pair::Formed(pair)) => Some(pair.clone()),
            _ => None,
        }
    }

    /// The pair for a queue of transfers, if it is formed and this communicator is not broken.
    ///
    /// # Errors
    /// What broke this communicator.
    pub(super) fn usable(&self, way: Way) -> Result<Option<Collectives>, ExecutorError> {
        match self.broken() {
            Some(failure) => Err(failure),
            None => Ok(self.formed(way)),
        }
    }

    /// Gives the pair for a queue of transfers to `turn`: at once if the pair is formed, otherwise on another thread once it is,
    /// behind the turns that came before. Returns without waiting for the peer.
    pub(super) fn with_pair(&self, way: Way, turn: impl FnOnce(&Formed) + Send + 'static) {
        let formed = match self.usable(way) {
            Ok(Some(pair)) => Ok(pair),
            Err(failure) => Err(failure),
            Ok(None) => {
                let mut pairs = lock(&self.shared.queues.pairs);
                match pairs.get_mut(&way) {
                    // Formed since this thread looked.
                    Some(Pair::Formed(pair)) => Ok(pair.clone()),
                    Some(Pair::Failed(error)) => Err(error.clone()),
                    Some(Pair::Forming(turns)) => return turns.push(Box::new(turn)),
                    None => {
                        pairs.insert(way, Pair::Forming(vec![Box::new(turn)]));
                        drop(pairs);
                        // On hosts, too: one that has let go of the communicator answers so.
                        self.invite(way);
                        return self.begin_pair(way);
                    }
                }
            }
        };
        have_turn(way, turn, &formed);
    }

    /// The pair for a queue of transfers, once it is formed.
    pub(super) fn pair(&self, way: Way) -> impl FnOnce() -> Formed + use<> {
        let (tell, told) = mpsc::channel();
        self.with_pair(way, move |formed| drop(tell.send(formed.clone())));
        // Whoever has the turn takes it.
        move || told.recv().unwrap_or_else(|_| Err(not_done(FORM, "its thread ended".to_owned())))
    }

    /// Has this rank form its ends of pairs that peers begin to form on devices. A transfer there has to wait until its pair is
    /// formed, and must not wait for a call of the peer. A rank that is invited does not invite in turn.
    pub(super) fn accept_invitations(&self) {
        if self.shared.gpu.is_none() {
            return;
        }
        let (weak, whose) = (Arc::downgrade(&self.shared), self.shared.whose.clone());
        self.invitations().accept_by(move |way| {
            if weak.strong_count() == 0 {
                return false;
            }
            let weak = weak.clone();
            let join = move || {
                if let Some(shared) = weak.upgrade() {
                    Communicator { shared }.join_pair(way);
                }
            };
            // Not on the control thread, which must never drop the last handle of the communicator.
            let thread = std::thread::Builder::new().name("antiphon-pair".to_owned());
            let spawned = thread.spawn(join).inspect_err(|error| {
                log::warn!(
                    "{}",
                    whose.says(format_args!("rank {} waits for a pair: {error}", way.peer))
                );
            });
            spawned.is_ok()
        });
    }

    /// Forms a pair that the peer has begun to form, unless it is formed or being formed.
    fn join_pair(&self, way: Way) {
        if self.broken().is_some() {
            return;
        }
        let new = {
            let mut pairs = lock(&self.shared.queues.pairs);
            let new = !pairs.contains_key(&way);
            if new {
                pairs.insert(way, Pair::Forming(Vec::new()));
            }
            new
        };
        if new {
            self.end_pair(way, self.make_pair(way));
        }
    }

    /// Has a pair formed by a thread of its own: one pair may wait for what another has to do, on this rank and on others.
    fn begin_pair(&self, way: Way) {
        let on = self.clone();
        let form = move || on.end_pair(way, on.make_pair(way));
        let thread = std::thread::Builder::new().name("antiphon-pair".to_owned());
        if let Err(error) = thread.spawn(form) {
            self.end_pair(way, Err(no_thread(error)));
        }
    }

    /// Ends the forming of a pair, formed or failed: everyone who waits for it gets a turn. A failure is final, and the peer is
    /// told of it: otherwise its later transfers would wait for this rank in vain.
    fn end_pair(&self, way: Way, formed: Formed) {
        let pair = match &formed {
            Ok(pair) => pair,
            Err(error) => {
                let failed = Pair::Failed(error.clone());
                let before = lock(&self.shared.queues.pairs).insert(way, failed);
                // The peer is told before any turn here ends by the failure.
                if let Ok(end) = self.pair_end(way) {
                    end.abort(&error.to_string());
                }
                if let Some(Pair::Forming(turns)) = before {
                    have_turns(way, turns, &formed);
                }
                return;
            }
        };
        loop {
            let turns = {
                let mut pairs = lock(&self.shared.queues.pairs);
                match pairs.get_mut(&way) {
                    // Later transfers must not overtake these turns, so the pair counts as formed only when they were taken.
                    Some(Pair::Forming(turns)) if !turns.is_empty() => std::mem::take(turns),
                    _ => {
                        pairs.insert(way, Pair::Formed(pair.clone()));
                        drop(pairs);
                        // Also ends the pair if the communicator was broken while the pair was being formed.
                        return self.ends_too(pair.communicator());
                    }
                }
            };
            have_turns(way, turns, &formed);
        }
    }

    /// Forms a pair: returns when the peer has come.
    fn make_pair(&self, way: Way) -> Formed {
        let end = self.pair_end(way)?;
        let formed = or_panicked(FORM, || {
            let formed = self.form_pair(end, way.peer)?;
            Collectives::served_by(&formed, |spread, _| Service::of_transfers(spread))
        });
        formed.map_err(|error| Told::of(self, way).error(error))
    }

    /// What broke a pair.
    pub(crate) fn pair_failure(&self) -> Option<ExecutorError> {
        lock(&self.shared.queues.pairs).iter().find_map(|(&way, pair)| match pair {
            Pair::Formed(pair) => {
                let failure = pair.communicator().failure()?;
                Some(Told::of(self, way).error(failure))
            }
            Pair::Failed(error) => Some(error.clone()),
            Pair::Forming(_) => None,
        })
    }

    /// Whether all transfers are complete. A pair that is being formed still has some to come.
    pub(super) fn pairs_are_complete(&self) -> bool {
        lock(&self.shared.queues.pairs).values().all(|pair| match pair {
            Pair::Formed(pair) => pair.communicator().is_complete(),
            // Also while waiting transfers get their turns: before that they are no launches that anything counts.
            Pair::Forming(_) => false,
            Pair::Failed(_) => true,
        })
    }

    /// Waits until no thread works on launches of this rank that have failed, nor on its transfers of pairs that are broken; on devices
    /// also until peers have ended theirs.
    pub(crate) fn settle_broken(&self) {
        let began = Instant::now();
        let broken = self.all_broken();
        broken.iter().for_each(|one| one.shared.settle());
        // Launches on hosts that fail wait themselves.
        if self.shared.gpu.is_some() {
            broken.iter().for_each(|one| one.shared.await_near(began));
        }
    }

    /// The same without waiting: whether that is so. The pairs stay where they are, for whoever polls must not be the last to hold one.
    pub(crate) fn has_settled(&self) -> bool {
        let whole = self.shared.failed();
        let pairs = lock(&self.shared.queues.pairs);
        let mut broken = pairs.values().filter_map(|pair| pair.broken(whole));
        broken.all(|one| one.shared.is_settled()) && (!whole || self.shared.is_settled())
    }

    /// The communicators of pairs that are broken, and this one if it is.
    fn all_broken(&self) -> Vec<Communicator> {
        let whole = self.shared.failed();
        let pairs = lock(&self.shared.queues.pairs);
        let broken = pairs.values().filter_map(|pair| pair.broken(whole));
        broken.chain(whole.then_some(self)).cloned().collect()
    }
}

/// Takes the turns of those who waited for a pair, one after the other.
fn have_turns(way: Way, turns: Vec<Turn>, formed: &Formed) {
    turns.into_iter().for_each(|turn| have_turn(way, turn, formed));
}

/// Takes a turn. If it panics, that does not keep others of its caller's, or those behind it, from their work.
fn have_turn(way: Way, turn: impl FnOnce(&Formed), formed: &Formed) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| turn(formed))) {
        let (peer, why) = (way.peer, panicked(&*panic));
        shielded(|| log::error!("a transfer with rank {peer} panicked: {why}"));
    }
}

fn no_thread(error: std::io::Error) -> ExecutorError {
    HalError::no_thread("for a pair of ranks", error).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::communicator::{Direction, Options, Purpose};
    use std::time::Duration;

    #[test]
    fn a_panic_is_told_to_who_waits_for_the_pair() {
        let formed: Formed = or_panicked(FORM, || panic!("no bits left"));
        let error = formed.map(drop).unwrap_err().to_string();
        assert!(error.contains("form a pair of ranks: it panicked: no bits left"), "{error}");
    }

    /// Nor is a panic of the logger, which is told of it.
    #[test]
    fn a_turn_that_panics_takes_neither_its_caller_nor_those_behind_it_along() {
        let ranks = Communicator::in_process(2, &Options::default()).unwrap();
        let (direction, purpose) = (Direction::Out, Purpose::Calls);
        let way = Way { peer: 1, direction, purpose };
        let other = ranks[1].pair(Way { peer: 0, direction: Direction::In, purpose });
        let (tell, told) = mpsc::channel();
        ranks[0].with_pair(way, {
            let tell = tell.clone();
            move |_| {
                crate::sync::logger::panics(tell);
                panic!("oh no");
            }
        });
        ranks[0].pair(way)().unwrap();
        other().unwrap();
        while ranks[0].formed(way).is_none() {
            std::thread::yield_now();
        }
        crate::sync::logger::panics(tell);
        ranks[0].with_pair(way, |_| panic!("again"));
        for why in ["oh no", "again"] {
            let said = told.recv().unwrap();
            assert!(said.contains("rank 1 panicked") && said.contains(why), "{said}");
        }
    }

    #[test]
    fn an_abort_tells_nobody_of_pairs_that_were_not_begun() {
        let ranks = Communicator::in_process(3, &Options::default()).unwrap();
        ranks[0].abort("enough");
        for rank in &ranks {
            for way in ways(rank) {
                rank.pair_end(way).unwrap().check().unwrap();
            }
        }
    }

    #[test]
    fn a_pair_of_a_crowd_yields_its_core_though_two_are_none() {
        let cores = antiphon_hal::host::usable_cores();
        for world in [2, cores.max(2) + 1] {
            let ranks = Communicator::in_process(world, &Options::default()).unwrap();
            let crowded = ranks[0].crowded();
            assert_eq!(crowded, world > cores);
            let purpose = Purpose::Calls;
            let ends = [(0, 1, Direction::Out), (1, 0, Direction::In)];
            let ends = ends
                .map(|(rank, peer, direction)| ranks[rank].pair(Way { peer, direction, purpose }));
            for end in ends {
                let pair = end().unwrap();
                let shared = &pair.communicator().shared;
                assert_eq!((shared.crowded, shared.yields), (cores < 2, crowded), "{world}");
            }
        }
    }

    #[test]
    fn who_hears_that_a_pair_was_given_up_hears_the_ranks_of_the_whole() {
        let options = Options::default().with_timeout(Some(Duration::from_millis(500)));
        let ranks = Communicator::in_process(4, &options).unwrap();
        let purpose = Purpose::Calls;
        // The one gives up before the other comes.
        for (rank, peer, direction) in [(2, 3, Direction::Out), (3, 2, Direction::In)] {
            let formed = ranks[rank as usize].pair(Way { peer, direction, purpose })();
            let text = formed.map(drop).unwrap_err().to_string();
            assert!(text.contains(&format!("rank {peer}")), "{text}");
            assert!(!text.contains("rank 0") && !text.contains("rank 1"), "{text}");
        }
    }

    /// All pairs that a rank may have.
    fn ways(rank: &Communicator) -> Vec<Way> {
        let peers = (0..rank.world()).filter(|&peer| peer != rank.rank());
        let ways = peers.flat_map(|peer| {
            [Purpose::Calls, Purpose::Blocks].map(|purpose| {
                [Direction::Out, Direction::In].map(|direction| Way { peer, direction, purpose })
            })
        });
        ways.flatten().collect()
    }
}
