//! Sweeps over the cells: a machine has moments, seconds to minutes long, in which messages take twice the time that they take
//! in others, and what is the fastest in one need not be so in the next. Each sweep has ranks of its own and comes after
//! all cells of the one before.

use super::contest;
use antiphon::executor::selection::table::Times;

/// Sweeps over a cell whose candidates are close.
const SWEEPS: usize = 3;

/// What the sweeps so far have measured, by cell.
#[derive(Debug)]
pub struct Sweeps(Vec<Vec<Times>>);

impl Sweeps {
    /// Of so many cells, none of which is measured yet.
    pub fn new(cells: usize) -> Self {
        Sweeps(vec![Vec::new(); cells])
    }

    /// Takes the times of a cell; those of all its sweeps together.
    pub fn record(&mut self, cell: usize, times: Times) -> Times {
        self.0[cell].push(times);
        together(&self.0[cell])
    }

    /// Whether a cell is to be measured once more, since another candidate is close to the fastest.
    pub fn again(&self, cell: usize) -> bool {
        let taken = &self.0[cell];
        let times = together(taken);
        taken.len() < SWEEPS && contest::close(times.iter().map(|(_, time)| time))
    }
}

/// The geometric mean of each candidate's times, so that a moment in which all are slow counts no more than another.
fn together(sweeps: &[Times]) -> Times {
    let Some(first) = sweeps.first() else { return Times::default() };
    Times::new(first.iter().map(|(name, _)| {
        let times = sweeps.iter().filter_map(|times| times.of(name));
        let logarithms: Vec<f64> = times.map(|time| (time.max(1) as f64).ln()).collect();
        let mean = logarithms.iter().sum::<f64>() / logarithms.len() as f64;
        (name.to_owned(), mean.exp().round() as u64)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(pairs: &[(&str, u64)]) -> Times {
        Times::new(pairs.iter().map(|&(name, time)| (name.to_owned(), time)))
    }

    #[test]
    fn what_is_close_is_swept_again_and_moments_count_alike() {
        let mut sweeps = Sweeps::new(2);
        // Far apart: one sweep says it.
        assert_eq!(sweeps.record(0, times(&[("a", 100), ("b", 126)])).best(|_| true), Some("a"));
        assert!(!sweeps.again(0));
        // A moment in which all is fast, and `a` more so; two in which `b` is the faster by less.
        let moments = [[100, 120], [300, 290], [305, 300]];
        for (number, [a, b]) in moments.into_iter().enumerate() {
            let all = sweeps.record(1, times(&[("a", a), ("b", b)]));
            assert_eq!(all.best(|_| true), Some("a"), "{all:?}");
            assert_eq!(sweeps.again(1), number < 2);
        }
        let all = together(&[times(&[("a", 100), ("b", 400)]), times(&[("a", 400), ("b", 100)])]);
        assert_eq!(all, times(&[("a", 200), ("b", 200)]));
        assert_eq!(together(&[times(&[("a", 0)])]), times(&[("a", 1)]));
    }
}
