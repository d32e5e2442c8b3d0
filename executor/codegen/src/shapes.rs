//! Which moves of a text have functions of their own, so that the time it takes to compile stays bounded.
//!
//! A move's own function is code for its very number of sides: compilers take a tenth of a second and more over each. So those
//! that blocks do most often have theirs, up to so many sides in all, and the rest share the interpreting kernel's, which count
//! their sides while they run and make the same bits.

use crate::calls::{Call, WIDEST};
use crate::repeat::Node;
use crate::skeleton::Code;
use antiphon_plan::ReduceOp;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

/// The most sides of all moves together that have functions of their own, copies apart: as many as the plans need that people
/// write. A move of all of eight ranks has 16.
const SIDES: usize = 20;

/// A plan's operators, as a call has them.
type Operators<'a> = &'a dyn Fn(ReduceOp) -> ReduceOp;

/// What moves are there.
#[derive(Default)]
pub(crate) struct Shapes {
    /// Of each function that counts no sides: how often blocks call it, as far as that is known, and its sides.
    all: BTreeMap<String, (u64, usize)>,
}

impl Shapes {
    /// Adds those of a block.
    pub fn add(&mut self, block: &[Node], op: Operators<'_>) {
        self.nodes(block, 1, op);
    }

    fn nodes(&mut self, nodes: &[Node], times: u64, op: Operators<'_>) {
        for node in nodes {
            match node {
                Node::Times(more, body) if Call::each(body, *more).is_some() => {}
                Node::Times(more, body) => {
                    self.nodes(body, times.saturating_mul(u64::from(*more)), op);
                }
                Node::Pipeline(body) => self.nodes(body, times, op),
                Node::Step(code @ Code::Move { sources, destinations, .. }, _) => {
                    let sides = sources.len() + destinations.len();
                    // The function of longer lists is one for all of them.
                    if sources.len().max(destinations.len()) > WIDEST {
                        continue;
                    }
                    // What depends on the unit is no move's function.
                    let Call { function, .. } = Call::of(code, op, 1);
                    let (uses, _) = self.all.entry(function).or_insert((0, sides));
                    *uses = uses.saturating_add(times);
                }
                Node::Step(..) => {}
            }
        }
    }

    /// Those that have no functions of their own.
    pub fn shared(&self) -> Shared {
        let mut all: Vec<_> = self.all.iter().collect();
        // Of what is used as often, the fewest sides first.
        all.sort_by_key(|(_, (uses, sides))| (Reverse(*uses), *sides));
        let mut left = SIDES;
        all.retain(|(_, (_, sides))| {
            let is_own = *sides <= COPY || *sides <= left;
            if is_own && *sides > COPY {
                left -= sides;
            }
            !is_own
        });
        Shared { functions: all.into_iter().map(|(function, _)| function.clone()).collect() }
    }
}

/// Sides of a copy.
const COPY: usize = 2;

/// Functions in whose place others stand that count sides.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    functions: HashSet<String>,
}

impl Shared {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// The call of a step, as [`Call::of`].
    pub fn call(&self, code: &Code, op: Operators<'_>, unit: u64) -> Call {
        let call = Call::of(code, op, unit);
        if self.functions.contains(&call.function) { Call::counted(code, op, unit) } else { call }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repeat::fold;
    use crate::skeleton::Skeleton;
    use antiphon_plan::algorithms::{Algorithm, Shape, examples};
    use antiphon_plan::program::Layout;

    fn sum(sources: usize, destinations: usize) -> Node {
        let code = Code::Move {
            sources: vec![false; sources],
            destinations: vec![false; destinations],
            op: ReduceOp::Sum,
            multicast: false,
        };
        Node::Step(code, 1 + (sources + destinations) as u32)
    }

    /// The functions that are shared, of blocks of such moves.
    fn shared(blocks: &[Vec<Node>]) -> Vec<String> {
        let mut shapes = Shapes::default();
        blocks.iter().for_each(|block| shapes.add(block, &|op| op));
        let mut all: Vec<_> = shapes.shared().functions.into_iter().collect();
        all.sort();
        all
    }

    #[test]
    fn few_moves_have_functions_of_their_own() {
        assert_eq!(shared(&[vec![sum(8, 8), sum(1, 1), sum(8, 8)]]), [""; 0]);
        assert_eq!(shared(&[vec![sum(8, 1)], vec![sum(7, 1), sum(1, 1)]]), [""; 0]);
        // There is one for all of these.
        assert_eq!(shared(&[vec![sum(9, 9), sum(20, 1)]]), [""; 0]);
    }

    #[test]
    fn of_many_those_do_that_are_called_most_often() {
        let often = Node::Times(9, vec![sum(3, 2)]);
        let all = vec![sum(7, 4), sum(8, 3), sum(8, 3), often, sum(1, 1), sum(2, 1), sum(2, 2)];
        // Of 20 sides 5 and 11 are taken, then 3; copies have theirs in any case.
        assert_eq!(
            shared(std::slice::from_ref(&all)),
            ["move_bytes<Sum, 2, 2>", "move_bytes<Sum, 7, 4>"]
        );
        assert_eq!(
            shared(&[all, vec![sum(7, 4); 4]]),
            ["move_bytes<Sum, 2, 2>", "move_bytes<Sum, 8, 3>"]
        );
    }

    #[test]
    fn moves_that_share_count_their_sides() {
        let mut shapes = Shapes::default();
        shapes.add(&[sum(8, 8), sum(8, 8), sum(7, 8)], &|op| op);
        let shared = shapes.shared();
        let call = |sources, destinations| {
            let Node::Step(code, _) = sum(sources, destinations) else { unreachable!() };
            let call = shared.call(&code, &|op| op, 1);
            call.text("o", &call.numbers(), "w")
        };
        assert_eq!(call(8, 8), "move_bytes<Sum, 8, 8>(l, o, w)");
        assert_eq!(call(7, 8), "move_bytes_counted<Sum>(l, o, 7, 8, w)");
    }

    /// What ranks are one kernel, too.
    #[test]
    fn plans_that_come_with_antiphon_have_room() {
        let built_in = Algorithm::ALL.into_iter().flat_map(|algorithm| {
            let plans = [2, 4, 8, 16].map(|ranks| algorithm.plan(Shape::new(ranks)));
            plans.into_iter().filter_map(Result::ok)
        });
        let plans: Vec<_> =
            built_in.chain(examples().unwrap().into_iter().map(|(_, plan)| plan)).collect();
        assert!(plans.len() > 100, "{}", plans.len());
        for plan in plans {
            let layout = Layout::new(&plan).unwrap();
            let mut shapes = Shapes::default();
            for rank in 0..layout.ranks.len() as u32 {
                let blocks = Skeleton::of(&layout, rank).blocks;
                blocks.iter().for_each(|block| shapes.add(&fold(block), &|op| op));
            }
            assert!(shapes.shared().is_empty(), "{}: {:?}", plan.name, shapes.shared());
        }
    }
}
