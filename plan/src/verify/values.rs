//! What memory holds, as symbols: an input, what was there before, or a reduction of such.

use antiphon_types::ReduceOp;
use std::collections::HashSet;

/// A value: equal numbers are equal bits.
pub(super) type ValueId = u32;

/// By which operator values are combined, and whether a switch does it. A switch adds in an order of its own, which may differ
/// the next time; and one block may have the switch add where another, which does not know of it yet, adds in software. Therefore
/// values that different instructions have a switch combine count as different bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct How {
    pub op: ReduceOp,
    /// The block and the instruction that have a switch combine the values; `None` in software.
    pub switch: Option<(u32, u32)>,
}

impl From<ReduceOp> for How {
    fn from(op: ReduceOp) -> Self {
        How { op, switch: None }
    }
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin<'a> {
    /// A cell of a rank's input, counted from the input's first, in a launch.
    Input { rank: u32, cell: u32, launch: u32 },
    /// What no launch has put there: a cell held it before the first, or its user has left it.
    Before(u32),
    /// Values combined in order.
    Combined(ReduceOp, &'a [ValueId]),
}

/// All values of a walk. Values of inputs, of memory before the first launch, and values that users leave are numbered by their
/// place.
#[derive(Debug)]
pub(super) struct Values {
    cells: u32,
    ranks: usize,
    /// Per launch and rank, the first value of the inputs written for it; ascending.
    inputs: Vec<(ValueId, u32, u32)>,
    /// How each combined value was made, and from which arguments.
    combined: Vec<(How, u32, u32)>,
    arguments: Vec<ValueId>,
    /// Positions in `combined`, plus 1, by hash; as many as a power of two, and at most half of them in use.
    table: Vec<u32>,
    /// The first number of the values that users leave in their outputs, and the first number of combined values.
    first_left: ValueId,
    first_combined: ValueId,
}

impl Values {
    /// Values for memory of `cells` cells, inputs of `inputs` cells by rank, and so many launches; `None` if 31 bits
    /// cannot number them.
    pub fn new(cells: u32, inputs: &[u32], launches: u32) -> Option<Self> {
        let mut next = cells;
        let mut first = Vec::with_capacity(inputs.len() * launches as usize);
        for launch in 1..=launches {
            for (rank, &count) in (0u32..).zip(inputs) {
                first.push((next, rank, launch));
                next = next.checked_add(count)?;
            }
        }
        let first_left = next;
        next = cells.checked_mul(launches).and_then(|left| next.checked_add(left))?;
        (next < 1 << 31).then(|| Values {
            cells,
            ranks: inputs.len(),
            inputs: first,
            combined: Vec::new(),
            arguments: Vec::new(),
            table: vec![0; 64],
            first_left,
            first_combined: next,
        })
    }

    /// What a user leaves in a cell after a launch.
    pub fn left(&self, cell: u32, launch: u32) -> ValueId {
        self.first_left + (launch - 1) * self.cells + cell
    }

    /// The first of the values of a rank's input in a launch, which are numbered by cell.
    pub fn input(&self, rank: u32, launch: u32) -> ValueId {
        self.inputs[(launch as usize - 1) * self.ranks + rank as usize].0
    }

    /// The values combined in order; of one value, that value.
    pub fn combine(&mut self, how: impl Into<How>, values: &[ValueId]) -> ValueId {
        if let [one] = *values {
            return one;
        }
        let how = how.into();
        let mut at = self.slot(hash(how, values));
        while let Some(known) = self.table[at].checked_sub(1) {
            let (other, start, end) = self.combined[known as usize];
            if other == how && self.arguments[start as usize..end as usize] == *values {
                return self.first_combined + known;
            }
            at = self.slot(at as u64 + 1);
        }
        let known = self.combined.len() as u32;
        let start = self.arguments.len() as u32;
        self.arguments.extend_from_slice(values);
        self.combined.push((how, start, self.arguments.len() as u32));
        self.table[at] = known + 1;
        if self.combined.len() * 2 > self.table.len() {
            self.grow();
        }
        self.first_combined + known
    }

    /// The place in the table for a hash.
    fn slot(&self, hash: u64) -> usize {
        hash as usize & (self.table.len() - 1)
    }

    fn grow(&mut self) {
        self.table = vec![0; self.table.len() * 4];
        for (known, &(how, start, end)) in (1..).zip(&self.combined) {
            let mut at = self.slot(hash(how, &self.arguments[start as usize..end as usize]));
            while self.table[at] != 0 {
                at = self.slot(at as u64 + 1);
            }
            self.table[at] = known;
        }
    }

    /// Where a value comes from.
    pub fn origin(&self, value: ValueId) -> Origin<'_> {
        if value < self.cells || (self.first_left..self.first_combined).contains(&value) {
            return Origin::Before(value);
        }
        if value >= self.first_combined {
            let (how, start, end) = self.combined[(value - self.first_combined) as usize];
            return Origin::Combined(how.op, &self.arguments[start as usize..end as usize]);
        }
        let at = self.inputs.partition_point(|&(first, ..)| first <= value) - 1;
        let (first, rank, launch) = self.inputs[at];
        Origin::Input { rank, cell: value - first, launch }
    }

    /// The inputs (and values before the first launch) that were combined into a value, ascending, with the operation.
    /// Of minima and maxima, every input once.
    pub fn leaves(&self, value: ValueId, limit: usize) -> Result<Leaves, Odd> {
        let operation = match self.origin(value) {
            Origin::Combined(op, _) => Some(op),
            _ => None,
        };
        let idempotent = operation.is_some_and(ReduceOp::is_idempotent);
        let mut seen = HashSet::new();
        let (mut leaves, mut repeats) = (Vec::new(), false);
        let mut open = vec![value];
        while let Some(value) = open.pop() {
            match self.origin(value) {
                Origin::Combined(op, _) if Some(op) != operation => return Err(Odd::Mixed),
                _ if idempotent && !seen.insert(value) => repeats = true,
                Origin::Combined(_, values) => open.extend_from_slice(values),
                _ => leaves.push(value),
            }
            if leaves.len() > limit {
                return Err(Odd::Many);
            }
        }
        leaves.sort_unstable();
        Ok(Leaves { operation, leaves, repeats })
    }
}

/// Where to begin to look for a value: equal values have equal hashes, and are compared as they are.
fn hash(How { op, switch }: How, values: &[ValueId]) -> u64 {
    const MIX: u64 = 0x9E37_79B9_7F4A_7C15;
    let by = switch.map_or(0, |(block, at)| (u64::from(block) + 1) << 32 | u64::from(at));
    let mut hash = op as u64 ^ by.wrapping_mul(MIX);
    for &value in values {
        hash = (hash.rotate_left(5) ^ u64::from(value)).wrapping_mul(MIX);
    }
    hash ^ hash >> 32
}

/// What was combined into a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leaves {
    /// With which operation; `None` for a value that was only copied.
    pub operation: Option<ReduceOp>,
    /// Inputs, and values before the first launch.
    pub leaves: Vec<ValueId>,
    /// Whether some of them are taken more than once, which only a minimum or maximum may do.
    pub repeats: bool,
}

/// A value that is no plain reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Odd {
    /// Several operations were used.
    Mixed,
    /// More values went in than the limit.
    Many,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_reductions_are_one_value_and_orders_differ() {
        let mut values = Values::new(10, &[4, 4], 2).unwrap();
        let (a, b) = (values.input(0, 1), values.input(1, 1));
        assert_eq!((a, b, values.input(0, 2)), (10, 14, 18));
        let ab = values.combine(ReduceOp::Sum, &[a, b]);
        let ba = values.combine(ReduceOp::Sum, &[b, a]);
        assert_ne!(ab, ba);
        assert_eq!(values.combine(ReduceOp::Sum, &[a, b]), ab);
        assert_eq!(values.combine(ReduceOp::Max, &[a]), a);
        let of = |by| How { op: ReduceOp::Sum, switch: Some(by) };
        let all = [(0, 7), (1, 7), (0, 8)].map(|by| values.combine(of(by), &[a, b]));
        let [first, second, third] = all;
        assert!(!all.contains(&ab) && first != second && first != third && second != third);
        assert_eq!(values.combine(of((0, 7)), &[a, b]), first);
        assert_eq!(values.leaves(first, 9), values.leaves(ab, 9));
        assert_eq!(values.leaves(ab, 9), values.leaves(ba, 9));
        assert_eq!(values.origin(b + 2), Origin::Input { rank: 1, cell: 2, launch: 1 });
        assert_eq!(values.origin(3), Origin::Before(3));
        let left = [values.left(3, 1), values.left(3, 2), values.left(4, 1)];
        assert_eq!(left.map(|value| values.origin(value)), left.map(Origin::Before));
        assert!(left[0] != left[1] && left[2] == left[0] + 1 && left[1] < ab);
    }

    #[test]
    fn sums_count_every_input_and_maxima_none_twice() {
        let mut values = Values::new(0, &[2], 1).unwrap();
        for (op, expected) in [(ReduceOp::Sum, vec![0, 0, 1]), (ReduceOp::Max, vec![0, 1])] {
            let inner = values.combine(op, &[0, 1]);
            let outer = values.combine(op, &[inner, 0]);
            let repeats = op == ReduceOp::Max;
            let expected = Leaves { operation: Some(op), leaves: expected, repeats };
            assert_eq!(values.leaves(outer, 3), Ok(expected));
        }
        let sum = values.combine(ReduceOp::Sum, &[0, 1]);
        let mixed = values.combine(ReduceOp::Max, &[sum, 0]);
        assert_eq!(values.leaves(mixed, 9), Err(Odd::Mixed));
    }

    #[test]
    fn values_that_double_again_and_again_are_not_followed_to_their_end() {
        for (op, expected) in [(ReduceOp::Sum, Err(Odd::Many)), (ReduceOp::Min, Ok(1))] {
            let mut values = Values::new(0, &[1], 1).unwrap();
            let mut value = 0;
            for _ in 0..80 {
                value = values.combine(op, &[value, value]);
            }
            assert_eq!(values.leaves(value, 100).map(|found| found.leaves.len()), expected);
        }
    }
}
