//! All orders in which blocks may come to what they contend for.
//!
//! A depth-first search over the choices of a walk, each path walked anew from the start. Choices for different
//! counters commute, so of orders that differ only in such choices one is walked (sleep sets).

use super::state::{Object, Script};

/// One choice on the current path.
#[derive(Clone, Debug)]
struct Point {
    /// Who could come next.
    options: Vec<(u32, Object)>,
    /// Of them, those whose orders are covered elsewhere.
    asleep: Vec<(u32, Object)>,
    /// Who came.
    chosen: (u32, Object),
}

/// The search.
#[derive(Debug, Default)]
pub(super) struct Search {
    path: Vec<Point>,
    /// Choices made in the current walk.
    depth: usize,
    /// What sleeps at the current depth.
    asleep: Vec<(u32, Object)>,
}

impl Search {
    /// Begins the next walk.
    pub fn begin(&mut self) {
        self.depth = 0;
        self.asleep.clear();
    }

    /// Prepares the next path; `false` if all were walked.
    pub fn next(&mut self) -> bool {
        while let Some(mut point) = self.path.pop() {
            point.asleep.push(point.chosen);
            let untried = point.options.iter().find(|option| !point.asleep.contains(option));
            if let Some(&chosen) = untried {
                point.chosen = chosen;
                self.path.push(point);
                return true;
            }
        }
        false
    }

    /// The order of the current path: who came to what.
    pub fn order(&self) -> impl Iterator<Item = (u32, Object)> + '_ {
        self.path.iter().map(|point| point.chosen)
    }
}

impl Script for Search {
    fn choose(&mut self, options: &[(u32, Object)]) -> Option<u32> {
        if self.depth == self.path.len() {
            let asleep = std::mem::take(&mut self.asleep);
            let chosen = *options.iter().find(|option| !asleep.contains(option))?;
            self.path.push(Point { options: options.to_vec(), asleep, chosen });
        }
        let point = &self.path[self.depth];
        self.depth += 1;
        let counter = counter(point.chosen.1);
        let still = point.asleep.iter().filter(|(_, object)| self::counter(*object) != counter);
        self.asleep = still.copied().collect();
        Some(point.chosen.0)
    }
}

/// The counter through which choices depend on each other. Waits and signals of one channel are matched by number, so
/// only the order among the waits matters, and the order among the signals.
fn counter(object: Object) -> (u8, u32) {
    match object {
        Object::Signals(at) => (0, at),
        Object::Waits(at) => (1, at),
        Object::Semaphore(at) => (2, at),
        Object::Barrier(at) => (3, at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Walks all orders of blocks that each come once to one counter.
    fn orders(blocks: &[(u32, Object)]) -> Vec<Vec<u32>> {
        let mut search = Search::default();
        let mut found = Vec::new();
        loop {
            search.begin();
            let mut left = blocks.to_vec();
            let mut order = Vec::new();
            while !left.is_empty() {
                let Some(next) = search.choose(&left) else { break };
                left.retain(|&(block, _)| block != next);
                order.push(next);
            }
            if left.is_empty() {
                found.push(order);
            }
            if !search.next() {
                return found;
            }
        }
    }

    #[test]
    fn orders_at_one_counter_are_all_walked_and_others_once() {
        let at = |counter| Object::Semaphore(counter);
        assert_eq!(orders(&[(0, at(0)), (1, at(0)), (2, at(0))]).len(), 6);
        assert_eq!(orders(&[(0, at(0)), (1, at(1)), (2, at(2))]).len(), 1);
        assert_eq!(orders(&[(0, at(0)), (1, at(0)), (2, at(1)), (3, at(1))]).len(), 4);
        assert_eq!(orders(&[]), [Vec::<u32>::new()]);
    }
}
