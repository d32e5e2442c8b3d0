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
    /// In rank order at every position of every output, with nothing stored on the way. How often that rounds is the element
    /// type's.
    Ranks,
    /// In this order at every position of every output: numbers are ranks, and what is in parentheses is rounded to the type
    /// of the elements before it is combined further. Equal texts are equal orders.
    Fixed(String),
    /// Not in one order at every position, or not on every rank.
    Varies,
    /// As the hardware of a switch channel has it, which may be another order each time the plan is loaded.
    Hardware,
    /// Unknown, because the plan's collective does not say which outputs are reductions, or because the order is too long
    /// to follow.
    Unknown,
}

impl SumOrder {
    /// One word for each kind.
    pub const fn name(&self) -> &'static str {
        match self {
            SumOrder::Ranks => "ranks",
            SumOrder::Fixed(_) => "fixed",
            SumOrder::Varies => "varies",
            SumOrder::Hardware => "hardware",
            SumOrder::Unknown => "unknown",
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
            SumOrder::Unknown => f.write_str("in which order sums add is not known"),
        }
    }
}

/// An order of inputs: ranks, and where what is rounded before it goes on begins and ends.
type Tree = Vec<u32>;

const BEGIN: u32 = u32::MAX;
const END: u32 = u32::MAX - 1;
/// Longest tree that is followed: maxima may take an input any number of times.
const LONGEST: usize = 1 << 20;
/// Tokens of all trees of a walk together that are written or moved.
const MOST_TOKENS: usize = 1 << 26;
/// Consecutive ranks from which on a text names the first and the last only.
const RUN: usize = 4;

/// The orders that were seen so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Orders {
    one: Option<Tree>,
    varies: bool,
    /// Some value was not followed to its end.
    unknown: bool,
}

impl Orders {
    /// Looks at every output of a walk that came to its end.
    pub fn note(&mut self, walk: &Walk<'_>) {
        let Some(promise) = walk.promise().filter(|_| walk.setting.promise.is_none()) else {
            self.unknown |= walk.setting.layout.combines();
            return;
        };
        let mut known: HashSet<ValueId> = HashSet::new();
        let mut left = MOST_TOKENS;
        for (rank, output) in (0..).zip(&walk.outputs) {
            for (cell, &value) in (0..).zip(output) {
                if self.varies || self.unknown {
                    return;
                }
                let reduced = matches!(promise.wanted(rank, cell), Wanted::All { .. });
                if reduced && known.insert(value) {
                    self.see(&walk.values, value, &mut left);
                }
            }
        }
    }

    fn see(&mut self, values: &Values, value: ValueId, left: &mut usize) {
        match tree(values, value, left) {
            None => self.unknown = true,
            Some(tree) => {
                self.varies = self.one.as_ref().is_some_and(|one| *one != tree);
                self.one.get_or_insert(tree);
            }
        }
    }

    /// What they come to; `None` if nothing is reduced.
    pub fn told(self, layout: &Layout) -> Option<SumOrder> {
        let mut all = layout.ranks.iter().flat_map(|rank| &rank.instructions);
        let one = match self.one {
            None => return self.unknown.then_some(SumOrder::Unknown),
            Some(_) if all.any(reduces_in_hardware) => return Some(SumOrder::Hardware),
            Some(_) if self.varies => return Some(SumOrder::Varies),
            Some(_) if self.unknown => return Some(SumOrder::Unknown),
            Some(one) => one,
        };
        let ranks = one.iter().copied().filter(|&token| token != BEGIN && token != END);
        // A lone rank's input is rounded by nobody.
        let flat = one.len() <= layout.ranks.len() + 2;
        let in_order = flat && ranks.eq(0..layout.ranks.len() as u32);
        Some(if in_order { SumOrder::Ranks } else { SumOrder::Fixed(text(&one)) })
    }
}

/// Whether an instruction has a switch combine values, in software or not.
pub(super) fn reduces_in_hardware(instruction: &Instruction) -> bool {
    matches!(instruction, Instruction::Move { multicast: Some(_), .. } if instruction.combines())
}

/// A part of a tree that is being written.
struct Open<'a> {
    parts: &'a [ValueId],
    /// How many of them are begun.
    begun: usize,
    /// Where the first of them begins in the tree, and where the latest does.
    at: [usize; 2],
    /// The rank that the first of them begins with, once it is written.
    first: u32,
}

/// The order in which a value was combined. Of the two parts that are combined first, the one that begins with the smaller
/// rank is written first, since the result is the same either way. `None` if the order is too long, takes more than `left`
/// tokens to write or move, or has parts that are no inputs.
fn tree(values: &Values, value: ValueId, left: &mut usize) -> Option<Tree> {
    let mut tree = Tree::new();
    let mut open: Vec<Open<'_>> = Vec::new();
    let mut next = value;
    loop {
        *left = left.checked_sub(1)?;
        if tree.len() >= LONGEST {
            return None;
        }
        // The rank that the part just written begins with.
        let mut first = match values.origin(next) {
            Origin::Before(_) => return None,
            Origin::Input { rank, .. } => {
                tree.push(rank);
                rank
            }
            Origin::Combined(_, parts) => {
                tree.push(BEGIN);
                let (at, first) = ([tree.len(); 2], u32::MAX);
                next = *parts.first()?;
                open.push(Open { parts, begun: 1, at, first });
                continue;
            }
        };
        next = loop {
            let Some(part) = open.last_mut() else { return Some(tree) };
            let [start, middle] = part.at;
            match part.begun {
                1 => part.first = first,
                2 if part.first > first => {
                    *left = left.checked_sub(tree.len() - start)?;
                    tree[start..].rotate_left(middle - start);
                    part.first = first;
                }
                _ => {}
            }
            if let Some(&more) = part.parts.get(part.begun) {
                part.begun += 1;
                part.at[1] = tree.len();
                break more;
            }
            tree.push(END);
            first = part.first;
            open.pop();
        };
    }
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
            let tree = tree(&values, value, &mut 100).expect("a short one");
            assert_eq!(text(&tree), expected);
        }
    }

    #[test]
    fn what_is_deep_is_followed_and_what_has_no_end_is_not() {
        let mut values = Values::new(0, &[1; 2], 1).unwrap();
        let [a, b] = [0, 1].map(|rank| values.input(rank, 1));
        let (mut deep, mut double) = (a, a);
        for _ in 0..100_000 {
            deep = values.combine(ReduceOp::Max, &[deep, b]);
        }
        for _ in 0..80 {
            double = values.combine(ReduceOp::Max, &[double, double]);
        }
        let found = tree(&values, deep, &mut MOST_TOKENS.clone()).expect("it has an end");
        assert_eq!(found.len(), 300_001);
        assert_eq!(tree(&values, deep, &mut 100_000), None);
        assert_eq!(tree(&values, double, &mut MOST_TOKENS.clone()), None);
    }
}
