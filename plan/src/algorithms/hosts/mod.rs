//! Which built-in algorithm to use on hosts, by message size: as `antiphon tune` measured it for some ranks on some machine,
//! and as the simulator predicts where nobody has measured.
//!
//! [`derive()`] makes steps of what was measured, `cargo xtask defaults --from` writes them into the table, and
//! [`select`](super::select()) reads that. What is predicted, for a [machine](host()) whose numbers were measured, is written by
//! `cargo xtask defaults --predict`.

mod derive;
mod predict;
mod predicted;
mod table;

use super::select::{counted, nearest};
use super::{Algorithm, Choice, Handshake, Rooted, Shape};
use crate::model::Collective;

pub use derive::{Timed, derive, derive_rooted};
pub use predict::{SIMULATED, host, placed, predict, predict_rooted};

/// An algorithm, and the messages it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<A = Algorithm> {
    /// Bytes of the largest message, as [`select`](super::select()) counts them.
    pub up_to: u64,
    /// The algorithm.
    pub algorithm: A,
}

/// Ranks, as far as the choice for a message hangs on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Whether ranks share cores: some machine has more of them than cores.
    pub crowded: bool,
    /// Nodes that the ranks are spread over; 2 stands for more.
    pub nodes: usize,
    /// Ranks of each node.
    pub per_node: usize,
}

/// What serves a collective of ranks like these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule<A: 'static = Algorithm> {
    /// The ranks.
    pub place: Place,
    /// The collective.
    pub collective: Collective,
    /// The steps, from the smallest messages on; the last one is for all larger messages.
    pub steps: &'static [Step<A>],
}

/// The machines that the rules were measured on; none where nothing was measured.
pub fn measured_on() -> &'static [&'static str] {
    table::MEASURED_ON
}

/// The rules that were measured.
pub fn measured() -> &'static [Rule] {
    table::RULES
}

/// The measured rules of gather and scatter. A step names a plan of their own or, if it is `None`, stands for the
/// blocks of [`alltoallv`](super::alltoallv), which stay inside a node.
pub fn measured_rooted() -> &'static [Rule<Option<Rooted>>] {
    table::ROOTED
}

/// The rules that are predicted, for what was not measured.
pub fn predicted() -> &'static [Rule] {
    predicted::RULES
}

/// The predicted rules of gather and scatter, with steps like those of [`measured_rooted`].
pub fn predicted_rooted() -> &'static [Rule<Option<Rooted>>] {
    predicted::ROOTED
}

/// A rule, as the tables have them.
const fn of<A>(
    crowded: bool,
    nodes: usize,
    per_node: usize,
    collective: Collective,
    steps: &'static [Step<A>],
) -> Rule<A> {
    Rule { place: Place { crowded, nodes, per_node }, collective, steps }
}

/// A step, likewise.
const fn to<A: Copy>(up_to: u64, algorithm: A) -> Step<A> {
    Step { up_to, algorithm }
}

/// For all messages that are left.
const ALL: u64 = u64::MAX;

impl Place {
    /// That of a plan's ranks.
    pub fn of(shape: Shape) -> Self {
        let nodes = shape.nodes.max(1);
        let per_node = (shape.ranks / nodes).max(1);
        // A rank that is alone on its node shares its cores with nobody; ranks that only count as alone on theirs are treated
        // alike.
        let alone = nodes > 1 && per_node == 1;
        let crowded = shape.handshake == Handshake::Hub && !alone;
        Place { crowded, nodes: nodes.min(2), per_node }
    }
}

/// The rule for ranks in such a place: the one whose number of ranks per node is nearest to theirs by ratio, or the larger
/// of two equally near. For the same ranks, a measured rule goes before a predicted one.
pub fn rule(collective: &Collective, place: Place) -> Option<&'static Rule> {
    near(|| measured().iter().chain(predicted()), collective, place)
}

/// As [`rule`], of the rules of gather and scatter.
pub fn rule_rooted(collective: &Collective, place: Place) -> Option<&'static Rule<Option<Rooted>>> {
    near(|| measured_rooted().iter().chain(predicted_rooted()), collective, place)
}

/// The rule for ranks in such a place, of all that are known.
fn near<A, I: Iterator<Item = &'static Rule<A>>>(
    all: impl Fn() -> I,
    collective: &Collective,
    place: Place,
) -> Option<&'static Rule<A>> {
    let alike = |one: &&Rule<A>| {
        one.collective == *collective
            && (one.place.crowded, one.place.nodes) == (place.crowded, place.nodes)
    };
    let known = || all().filter(alike);
    let per_node = nearest(place.per_node, known().map(|one| one.place.per_node))?;
    known().find(|one| one.place.per_node == per_node)
}

impl<A: Copy> Rule<A> {
    /// What serves a message of so many ranks.
    fn at(&self, bytes: u64, ranks: usize) -> Option<A> {
        let known = self.place.nodes * self.place.per_node;
        let bytes = counted(&self.collective, bytes, (known, ranks));
        self.steps.iter().find(|step| bytes <= step.up_to).map(|step| step.algorithm)
    }
}

/// As [`select`](super::select()), of which it is the whole.
pub(super) fn select(collective: &Collective, bytes: u64, shape: Shape) -> Option<Choice> {
    let rule = rule(collective, Place::of(shape))?;
    Some(Choice { algorithm: rule.at(bytes, shape.ranks)?, shape })
}

/// The plan that serves a gather or a scatter on hosts, where the root's buffer, the larger one, has `bytes` bytes; over
/// several nodes there always is one. `None` means that the blocks of [`alltoallv`](super::alltoallv) serve it, as they do
/// inside a node where nobody has measured.
pub fn select_rooted(collective: &Collective, bytes: u64, shape: Shape) -> Option<Choice<Rooted>> {
    let rule = rule_rooted(collective, Place::of(shape))?;
    Some(Choice { algorithm: rule.at(bytes, shape.ranks)??, shape })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithms::SumOrder;

    /// What is chosen for ranks like these.
    fn at(collective: &Collective, bytes: u64, place: Place) -> Option<Algorithm> {
        let Place { crowded, nodes, per_node } = place;
        let handshake = if crowded { Handshake::Hub } else { Handshake::Everyone };
        let shape = Shape { nodes, handshake, ..Shape::new(nodes * per_node) };
        let choice = select(collective, bytes, shape)?;
        assert_eq!(choice.shape, shape);
        Some(choice.algorithm)
    }

    #[test]
    fn every_rule_serves_all_messages_of_its_ranks_in_one_order_of_sums() {
        for rule in measured().iter().chain(predicted()) {
            let Rule { place, collective, steps } = rule;
            assert!(steps.windows(2).all(|pair| pair[0].up_to < pair[1].up_to), "{rule:?}");
            assert_eq!(steps.last().map(|step| step.up_to), Some(u64::MAX), "{rule:?}");
            assert!((1..=2).contains(&place.nodes) && place.per_node > 0, "{rule:?}");
            for step in *steps {
                assert_eq!(step.algorithm.collective(), *collective);
                assert_eq!(step.algorithm.is_hierarchical(), place.nodes > 1, "{rule:?}");
                let order = step.algorithm.sum_order();
                assert!(matches!(order, SumOrder::Ranks | SumOrder::Nodes), "{rule:?}");
                assert_eq!(at(collective, step.up_to, *place), Some(step.algorithm), "{rule:?}");
            }
        }
    }

    #[test]
    fn every_rule_of_a_gather_or_scatter_serves_all_messages_of_its_ranks() {
        for rule in measured_rooted().iter().chain(predicted_rooted()) {
            let Rule { place, collective, steps } = rule;
            assert!(steps.windows(2).all(|pair| pair[0].up_to < pair[1].up_to), "{rule:?}");
            assert_eq!(steps.last().map(|step| step.up_to), Some(u64::MAX), "{rule:?}");
            let Place { crowded, nodes, per_node } = *place;
            assert!((1..=2).contains(&nodes) && nodes * per_node > 1, "{rule:?}");
            let handshake = if crowded { Handshake::Hub } else { Handshake::Everyone };
            let shape = Shape { nodes, handshake, ..Shape::new(nodes * per_node) };
            for Step { up_to, algorithm } in *steps {
                let fits = |one: Rooted| {
                    one.collective() == *collective && one.is_hierarchical() == (nodes > 1)
                };
                assert!(algorithm.map_or(nodes == 1, fits), "{rule:?}");
                let chosen = algorithm.map(|algorithm| Choice { algorithm, shape });
                assert_eq!(select_rooted(collective, *up_to, shape), chosen, "{rule:?}");
            }
        }
    }

    #[test]
    fn a_gather_goes_by_the_rule_of_the_nearest_ranks_and_by_its_blocks_where_there_is_none() {
        static STEPS: [Step<Option<Rooted>>; 2] = [
            Step { up_to: 1024, algorithm: Some(Rooted::GatherPackets) },
            Step { up_to: u64::MAX, algorithm: None },
        ];
        static RULES: [Rule<Option<Rooted>>; 1] = [Rule {
            place: Place { crowded: false, nodes: 1, per_node: 4 },
            collective: Collective::Gather,
            steps: &STEPS,
        }];
        let found = |collective, crowded, per_node| {
            near(|| RULES.iter(), &collective, Place { crowded, nodes: 1, per_node })
        };
        let rule = found(Collective::Gather, false, 8).expect("the one there is");
        // By the block: eight ranks have twice as many.
        let at = |bytes, ranks| rule.at(bytes, ranks).expect("all sizes have a step");
        assert_eq!((at(1024, 4), at(1025, 4)), (Some(Rooted::GatherPackets), None));
        assert_eq!((at(2048, 8), at(2056, 8)), (Some(Rooted::GatherPackets), None));
        assert_eq!(found(Collective::Gather, true, 4), None);
        assert_eq!(found(Collective::Scatter, false, 4), None);
    }

    #[test]
    fn each_rule_is_there_once_and_what_was_measured_is_not_predicted() {
        fn key<A>(rule: &Rule<A>) -> (Place, String) {
            (rule.place, rule.collective.name().to_owned())
        }
        let mut keys: Vec<_> = measured().iter().chain(predicted()).map(key).collect();
        keys.extend(measured_rooted().iter().chain(predicted_rooted()).map(key));
        let all = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), all, "drop from SIMULATED what table.rs has");
        assert_eq!(measured().is_empty(), measured_on().is_empty());
    }

    #[test]
    fn ranks_of_any_number_are_served_wherever_they_are() {
        for algorithm in Algorithm::ALL {
            let collective = algorithm.collective();
            for (crowded, nodes) in [(false, 1), (true, 1), (false, 2), (true, 2)] {
                for per_node in 1..20 {
                    for bytes in [0, 1 << 10, 1 << 30, u64::MAX] {
                        let place = Place { crowded, nodes, per_node };
                        let chosen = at(&collective, bytes, place).expect("a built-in collective");
                        assert_eq!(chosen.collective(), collective, "{place:?} {bytes}");
                        assert_eq!(chosen.is_hierarchical(), nodes > 1, "{place:?} {bytes}");
                    }
                }
            }
        }
        for collective in [Collective::Gather, Collective::Scatter] {
            for (handshake, per_node) in [Handshake::Everyone, Handshake::Hub]
                .into_iter()
                .flat_map(|h| (1..20).map(move |n| (h, n)))
            {
                for bytes in [0, 1 << 10, 1 << 30, u64::MAX] {
                    let shape = Shape { nodes: 3, handshake, ..Shape::new(3 * per_node) };
                    let chosen = select_rooted(&collective, bytes, shape).expect("over nodes");
                    let chosen = chosen.algorithm;
                    assert!(chosen.is_hierarchical() && chosen.collective() == collective);
                }
            }
        }
        let two = Place { crowded: false, nodes: 1, per_node: 2 };
        for collective in [Collective::AllToAllV, Collective::AllGatherV, Collective::Test] {
            assert_eq!(at(&collective, 1, two), None);
        }
    }

    #[test]
    fn where_each_rank_has_a_block_the_block_counts() {
        for crowded in [false, true] {
            for collective in
                [Collective::AllGather, Collective::ReduceScatter, Collective::AllToAll]
            {
                // The largest number there is a rule for, and twice as many.
                let ranks = |rule: &Rule| {
                    let place = rule.place;
                    let like = (place.crowded, place.nodes) == (crowded, 1);
                    (like && rule.collective == collective).then_some(place.per_node)
                };
                let most = measured().iter().chain(predicted()).filter_map(ranks).max().unwrap();
                for block in (0..24).map(|power| 1 << power) {
                    let of = |ranks: usize| {
                        let place = Place { crowded, nodes: 1, per_node: ranks };
                        at(&collective, block * ranks as u64, place)
                    };
                    assert_eq!(of(most), of(2 * most), "{collective} {block}");
                }
            }
        }
    }

    #[test]
    fn who_is_alone_on_a_node_shares_no_cores() {
        let crowded = |nodes, ranks| {
            let shape = Shape { nodes, handshake: Handshake::Hub, ..Shape::new(ranks) };
            Place::of(shape)
        };
        assert_eq!(crowded(4, 4), Place { crowded: false, nodes: 2, per_node: 1 });
        assert_eq!(crowded(4, 8), Place { crowded: true, nodes: 2, per_node: 2 });
        assert_eq!(crowded(1, 1), Place { crowded: true, nodes: 1, per_node: 1 });
        assert_eq!(crowded(0, 0), Place { crowded: true, nodes: 1, per_node: 1 });
    }
}
