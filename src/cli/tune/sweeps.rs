//! Sweeps over the cells: a machine has moments, seconds to minutes long, in which messages take twice the time that they take
//! in others, and what is the fastest in one need not be so in the next. Each sweep has ranks of its own and comes after all
//! cells of the one before.

use antiphon::executor::selection::table::{Setting, Times};

/// Sweeps over a cell whose candidates are close.
const SWEEPS: usize = 3;
/// How many times as long as the fastest another may take and be close: as far apart may a moment set two of which the other
/// is the faster in the next one.
const CLOSE: f64 = 2.0;

/// What the sweeps so far have measured.
#[derive(Debug, Default)]
pub struct Sweeps(Vec<Taken>);

/// The times of a call of one size, by sweep.
#[derive(Debug)]
struct Taken {
    setting: Setting,
    bytes: u64,
    times: Vec<Times>,
}

impl Sweeps {
    /// Takes the times of a call; those of all its sweeps together.
    pub fn record(&mut self, setting: &Setting, bytes: u64, times: Times) -> Times {
        let is_this = |taken: &Taken| taken.bytes == bytes && taken.setting == *setting;
        let at = self.0.iter().position(is_this).unwrap_or_else(|| {
            self.0.push(Taken { setting: setting.clone(), bytes, times: Vec::new() });
            self.0.len() - 1
        });
        let taken = &mut self.0[at];
        taken.times.push(times);
        together(&taken.times)
    }

    /// The sizes of such calls that are to be measured once more, since another candidate is close to the fastest.
    pub fn close(&self, setting: &Setting) -> Vec<u64> {
        let is_close = |taken: &&Taken| {
            let times = together(&taken.times);
            let mut times = times.iter().map(|(_, time)| time as f64);
            let limit = times.next().unwrap_or(0.0).max(1.0) * CLOSE;
            let left = taken.times.len() < SWEEPS && taken.setting == *setting;
            left && times.next().is_some_and(|next| next <= limit)
        };
        let mut sizes: Vec<u64> = self.0.iter().filter(is_close).map(|taken| taken.bytes).collect();
        sizes.sort_unstable();
        sizes
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
    use antiphon::executor::selection::table::Kind;
    use antiphon::plan::model::Collective;

    fn times(pairs: &[(&str, u64)]) -> Times {
        Times::new(pairs.iter().map(|&(name, time)| (name.to_owned(), time)))
    }

    #[test]
    fn what_is_close_is_swept_again_and_moments_count_alike() {
        let setting = |ranks| Setting {
            collective: Collective::AllReduce,
            ranks,
            nodes: 1,
            kind: Kind::Processes,
            in_place: false,
        };
        let (ours, others) = (&setting(2), &setting(4));
        let mut sweeps = Sweeps::default();
        // Far apart: one sweep says it.
        let all = sweeps.record(ours, 64, times(&[("a", 100), ("b", 201)]));
        assert_eq!(all.best(|_| true), Some("a"));
        assert!(sweeps.close(ours).is_empty());
        // A moment in which all is fast, and `a` more so; two in which `b` is the faster by less.
        let moments = [[100, 120], [300, 290], [305, 300]];
        for (number, [a, b]) in moments.into_iter().enumerate() {
            sweeps.record(others, 16, times(&[("a", a), ("b", 3 * b)]));
            let all = sweeps.record(ours, 16, times(&[("a", a), ("b", b)]));
            assert_eq!(all.best(|_| true), Some("a"), "{all:?}");
            assert_eq!(sweeps.close(ours), if number < 2 { &[16][..] } else { &[] });
            assert!(sweeps.close(others).is_empty());
        }
        let all = together(&[times(&[("a", 100), ("b", 400)]), times(&[("a", 400), ("b", 100)])]);
        assert_eq!(all, times(&[("a", 200), ("b", 200)]));
        assert_eq!(together(&[times(&[("a", 0)])]), times(&[("a", 1)]));
    }
}
