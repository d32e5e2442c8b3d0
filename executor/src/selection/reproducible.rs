//! Reproducible mode: one order of sums for all calls of a communicator.
//!
//! It is the order that every built-in algorithm keeps which the rule by size takes: rank order on one node; over several,
//! the inputs of each node in rank order, and their sums in node order. What is registered must be shown to add likewise.

use super::{Question, Selected, Spread};
use crate::registry::Misfit;
use crate::sync::lock;
use antiphon_plan::algorithms::{Algorithm, Shape, SumOrder as Designed};
use antiphon_plan::program::Layout;
use antiphon_plan::verify::{self, SumOrder};
use antiphon_types::ReduceOp;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Whether a call asks for one order, and the order would show in its bits.
pub(crate) fn demands(question: &Question<'_>) -> bool {
    let rounds = question.op.is_some_and(|op| !matches!(op, ReduceOp::Min | ReduceOp::Max));
    question.reproducible && rounds && question.dtype.is_float()
}

/// Whether a plan that adds as the verifier has found may serve a call.
///
/// # Errors
/// That it may not, if the call asks for another order.
pub(crate) fn admit(
    question: &Question<'_>,
    found: impl FnOnce() -> Option<SumOrder>,
) -> Result<(), Misfit> {
    if !demands(question) {
        return Ok(());
    }
    let (found, wanted) = (found(), order(question.spread));
    if found.is_some() && found == wanted {
        return Ok(());
    }
    Err(Misfit::Order { found, wanted })
}

/// Whether a built-in algorithm may serve a call.
///
/// # Errors
/// That it may not, if the call asks for one order and it adds in another.
pub(crate) fn admit_built_in(question: &Question<'_>, selected: &Selected) -> Result<(), Misfit> {
    match selected {
        Selected::Sized(choice) => match choice.algorithm.sum_order() {
            Designed::Ring => admit(question, || Some(SumOrder::Varies)),
            Designed::Hardware => admit(question, || Some(SumOrder::Hardware)),
            Designed::Ranks | Designed::Nodes => Ok(()),
        },
        _ => Ok(()),
    }
}

/// What the verifier says of the order of a plan's sums.
pub(crate) fn order_of(plan: &antiphon_plan::model::Plan, layout: &Layout) -> Option<SumOrder> {
    verify::verify(plan, layout, verify::Options::default()).order
}

/// The order in which reproducible sums add on these ranks; `None` if it is not shown, which would be a mistake of ours.
fn order(spread: Spread) -> Option<SumOrder> {
    static KNOWN: Mutex<BTreeMap<(u32, u32), Option<SumOrder>>> = Mutex::new(BTreeMap::new());
    let Spread { ranks, nodes, .. } = spread;
    if nodes == 1 {
        return Some(SumOrder::Ranks);
    }
    let known = || lock(&KNOWN);
    if let Some(order) = known().get(&(ranks, nodes)) {
        return order.clone();
    }
    // All of them add alike over nodes; this one is the quickest to look at.
    let shape = Shape { nodes: nodes as usize, ..Shape::new(ranks as usize) };
    let plan = Algorithm::ReduceHierarchicalPackets.plan(shape).ok();
    let order = plan.and_then(|plan| order_of(&plan, &Layout::new(&plan).ok()?));
    known().insert((ranks, nodes), order.clone());
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{Code, CodeCall, Registry, Terms};
    use crate::selection::{Devices, Wish, select};
    use antiphon_plan::model::Collective;
    use antiphon_types::DataType;

    struct Nothing;

    impl Code for Nothing {
        fn collective(&self) -> Collective {
            Collective::AllReduce
        }

        unsafe fn run(&self, _: &CodeCall<'_>) -> Result<(), crate::ExecutorError> {
            Ok(())
        }
    }

    #[test]
    fn what_adds_in_another_order_or_may_does_not_serve_reproducible_sums() {
        let registry = Registry::new();
        let named = |name: &str| Terms { name: Some(name.to_owned()), ..Terms::default() };
        let shape = Shape::new(4);
        let plan = |algorithm: Algorithm| algorithm.plan(shape).unwrap();
        registry.register(plan(Algorithm::AllReduceHub), named("by rank")).unwrap();
        registry.register(plan(Algorithm::AllReduceRing), named("round")).unwrap();
        let spread = Spread { ranks: 4, nodes: 1, crowded: false, devices: Devices::Host };
        let question = Question::new(&Collective::AllReduce, spread, 1 << 20, DataType::F16);
        let chosen = |question: &Question<'_>| {
            let choice = registry.choose(question).unwrap();
            (choice.candidate.name().to_owned(), choice.to_string())
        };
        let reproducible = Question { reproducible: true, ..question };
        assert_eq!(chosen(&question).0, "round");
        let (name, text) = chosen(&reproducible);
        assert_eq!(name, "by rank", "{text}");
        for ring in ["round (registered plan)", "allreduce_ring (built-in algorithm)"] {
            let line = text.lines().find(|line| line.contains(ring)).unwrap();
            assert!(line.contains("sums add in orders that differ from position to"), "{line}");
        }
        // Where no order shows in the bits, none is asked for.
        for other in [
            Question { dtype: DataType::I32, ..reproducible },
            Question { op: Some(ReduceOp::Max), ..reproducible },
        ] {
            assert_eq!(chosen(&other).0, "round");
        }
        let later = Registry::new();
        later.register_code("code", 1, std::sync::Arc::new(Nothing), Terms::default()).unwrap();
        assert_eq!(later.choose(&question).unwrap().candidate.name(), "code");
        let choice = later.choose(&reproducible).unwrap();
        assert!(choice.to_string().contains("code (registered code): is code, of whose sums"));
        assert_eq!(choice.candidate.name(), "allreduce_zero_copy");
    }

    #[test]
    fn over_nodes_a_plan_that_adds_as_the_built_in_ones_do_serves_and_rank_order_does_not() {
        let spread = Spread { ranks: 4, nodes: 2, crowded: false, devices: Devices::Host };
        let question = Question::new(&Collective::AllReduce, spread, 64, DataType::F32);
        let question = Question { reproducible: true, ..question };
        let fixed = SumOrder::Fixed("(0 + 1) + (2 + 3)".to_owned());
        assert_eq!(admit(&question, || Some(fixed.clone())), Ok(()));
        for found in [Some(SumOrder::Ranks), Some(SumOrder::Hardware), None] {
            let misfit = admit(&question, || found.clone()).unwrap_err();
            let wanted = Some(fixed.clone());
            assert_eq!(misfit, Misfit::Order { found, wanted }, "{misfit}");
        }
    }

    #[test]
    fn the_rule_by_size_keeps_one_order_on_all_ranks_of_a_communicator() {
        for (ranks, nodes) in [(1, 1), (2, 1), (5, 1), (2, 2), (4, 2), (12, 3)] {
            for crowded in [false, true] {
                let spread = Spread { ranks, nodes, crowded, devices: Devices::Host };
                let designed = if nodes == 1 { Designed::Ranks } else { Designed::Nodes };
                for collective in
                    [Collective::AllReduce, Collective::ReduceScatter, Collective::Reduce]
                {
                    for bytes in (0..32).map(|power| (1_u64 << power) - 1) {
                        let wish =
                            Wish { collective: &collective, bytes, in_place: false, root: 0 };
                        let Ok(Selected::Sized(choice)) = select(spread, wish) else {
                            panic!("no choice for {collective} of {bytes} bytes on {spread:?}")
                        };
                        assert_eq!(choice.algorithm.sum_order(), designed, "{choice:?} {bytes}");
                    }
                }
                assert!(order(spread).is_some(), "{spread:?}");
            }
        }
    }
}
