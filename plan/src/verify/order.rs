//! In which order a plan's reductions combine the inputs, read off the values that a walk leaves in the outputs.

use super::promise::Wanted;
use super::values::{Origin, ValueId, Values};
use super::walk::Walk;
use crate::program::{Instruction, Layout};
use std::collections::HashSet;
use std::fmt;

/// In which order the reductions of a plan combine the inputs of its ranks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SumOrder {
    /// In rank order, rounded once, at every position of every output.
    Ranks,
    /// In this order at every position of every output: numbers are ranks, and what is in parentheses is rounded to the type
    /// of the elements before it is combined further. Equal texts are equal orders.
    Fixed(String),
    /// Not in one order at every position, or not on every rank.
    Varies,
    /// As the hardware of a switch channel has it, which may be another order each time the plan is loaded.
    Hardware,
}

impl SumOrder {
    /// One word for each kind.
    pub const fn name(&self) -> &'static str {
        match self {
            SumOrder::Ranks => "ranks",
            SumOrder::Fixed(_) => "fixed",
            SumOrder::Varies => "varies",
            SumOrder::Hardware => "hardware",
        }
    }
}

impl fmt::Display for SumOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SumOrder::Ranks => f.write_str("sums add in rank order at every position"),
            SumOrder::Fixed(order) => write!(f, "sums add as {order} at every position"),
            SumOrder::Varies => {
                f.write_str("sums add in orders that differ from position to position, or by rank")
            }
            SumOrder::Hardware => f.write_str("sums add as the hardware of a switch decides"),
        }
    }
}

/// An order of inputs: ranks, and where what is rounded before it goes on begins and ends.
type Tree = Vec<u32>;

const BEGIN: u32 = u32::MAX;
const END: u32 = u32::MAX - 1;
/// Longest tree that is followed: maxima may take an input any number of times.
const LONGEST: usize = 1 << 16;
/// Consecutive ranks from which on a text names the first and the last only.
const RUN: usize = 4;

/// The orders that were seen so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Orders {
    one: Option<Tree>,
    varies: bool,
}

impl Orders {
    /// Looks at every output of a walk that came to its end.
    pub fn note(&mut self, walk: &Walk<'_>) {
        let Some(promise) = walk.promise().filter(|_| walk.setting.promise.is_none()) else {
            return;
        };
        let mut known: HashSet<ValueId> = HashSet::new();
        for (rank, output) in (0..).zip(&walk.outputs) {
            for (cell, &value) in (0..).zip(output) {
                if self.varies {
                    return;
                }
                let reduced = matches!(promise.wanted(rank, cell), Wanted::All { .. });
                if reduced && known.insert(value) {
                    self.see(&walk.values, value);
                }
            }
        }
    }

    fn see(&mut self, values: &Values, value: ValueId) {
        let mut tree = Tree::new();
        let whole = grow(values, value, &mut tree).is_some();
        self.varies = !whole || self.one.as_ref().is_some_and(|one| *one != tree);
        self.one.get_or_insert(tree);
    }

    /// What they come to; `None` if nothing is reduced.
    pub fn told(self, layout: &Layout) -> Option<SumOrder> {
        let one = self.one?;
        let mut all = layout.ranks.iter().flat_map(|rank| &rank.instructions);
        let hardware = |instruction: &Instruction| matches!(instruction, Instruction::Move { multicast: Some(_), sources, .. } if sources.len() > 1);
        if all.any(hardware) {
            return Some(SumOrder::Hardware);
        }
        if self.varies {
            return Some(SumOrder::Varies);
        }
        let ranks = one.iter().copied().filter(|&token| token != BEGIN && token != END);
        // A lone rank's input is rounded by nobody.
        let flat = one.len() <= layout.ranks.len() + 2;
        let in_order = flat && ranks.eq(0..layout.ranks.len() as u32);
        Some(if in_order { SumOrder::Ranks } else { SumOrder::Fixed(text(&one)) })
    }
}

/// Writes down a value's order. Of the two that are combined first, either may come first: the result is the same.
fn grow(values: &Values, value: ValueId, tree: &mut Tree) -> Option<()> {
    if tree.len() >= LONGEST {
        return None;
    }
    match values.origin(value) {
        Origin::Input { rank, .. } => tree.push(rank),
        Origin::Before(_) => return None,
        Origin::Combined(_, parts) => {
            tree.push(BEGIN);
            let start = tree.len();
            for (position, &part) in parts.iter().enumerate() {
                let middle = tree.len();
                grow(values, part, tree)?;
                if position == 1 && first_rank(&tree[start..]) > first_rank(&tree[middle..]) {
                    tree[start..].rotate_left(middle - start);
                }
            }
            tree.push(END);
        }
    }
    Some(())
}

/// The rank that a part of a tree begins with.
fn first_rank(part: &[u32]) -> Option<u32> {
    part.iter().copied().find(|&token| token != BEGIN)
}

/// A tree in words, without the parentheses around it all.
fn text(tree: &[u32]) -> String {
    let inner = match tree {
        [BEGIN, inner @ .., END] => inner,
        all => all,
    };
    let mut text = String::new();
    let mut rest = inner;
    while let [token, after @ ..] = rest {
        if *token == END {
            text.push(')');
            rest = after;
            continue;
        }
        if !text.is_empty() && !text.ends_with('(') {
            text.push_str(" + ");
        }
        if *token == BEGIN {
            text.push('(');
            rest = after;
            continue;
        }
        let run = (*token..END).zip(rest).take_while(|(rank, token)| rank == *token).count();
        if run >= RUN {
            text.push_str(&format!("{token} + … + {}", rest[run - 1]));
            rest = &rest[run..];
        } else {
            text.push_str(&token.to_string());
            rest = after;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_types::ReduceOp;

    #[test]
    fn what_is_the_same_bits_is_the_same_order_and_nothing_else_is() {
        let mut values = Values::new(0, &[1; 6], 1).unwrap();
        let [a, b, c, d, e, f] = [0, 1, 2, 3, 4, 5].map(|rank| values.input(rank, 1));
        let mut of = |parts: &[ValueId]| values.combine(ReduceOp::Sum, parts);
        let (ab, ba, cd) = (of(&[a, b]), of(&[b, a]), of(&[c, d]));
        let cases = [
            (of(&[a, b, c]), "0 + 1 + 2"),
            (of(&[b, a, c]), "0 + 1 + 2"),
            (of(&[a, c, b]), "0 + 2 + 1"),
            (of(&[ab, c]), "(0 + 1) + 2"),
            (of(&[c, ba]), "(0 + 1) + 2"),
            (of(&[c, d, a]), "2 + 3 + 0"),
            (of(&[cd, ab]), "(0 + 1) + (2 + 3)"),
            (of(&[ab, cd, e]), "(0 + 1) + (2 + 3) + 4"),
            (of(&[a, b, c, d, f]), "0 + … + 3 + 5"),
            (a, "0"),
        ];
        for (value, expected) in cases {
            let mut tree = Tree::new();
            assert_eq!(grow(&values, value, &mut tree), Some(()));
            assert_eq!(text(&tree), expected);
        }
        let mut more = a;
        for _ in 0..80 {
            more = values.combine(ReduceOp::Max, &[more, more]);
        }
        assert_eq!(grow(&values, more, &mut Tree::new()), None, "it has no end");
    }
}
