//! Sizes between measured ones: where two neighbours have different fastest candidates, one takes over from the other at a
//! size that a straight line between their times may miss. What is measured there finds it.

use antiphon::executor::selection::table::{Setting, Table, Times};
use std::ops::RangeInclusive;

/// A line between the times of two neighbours is good enough if the larger size is at most this fraction of the smaller.
const NEAR: (u64, u64) = (5, 4);
/// How many times as long as the fastest at a size another may take and be as good there. Where each of two neighbours'
/// fastest is as good at the other, it does not matter which is taken between them.
const AS_GOOD: f64 = 1.05;
/// Sizes are multiples of so many bytes: odd ones are slower to move, and rare.
const GRAIN: u64 = 16;

/// The sizes to measure next for these calls, ascending: one between any two neighbours of the table, within a range, that
/// need it. None are left to measure once this has been followed often enough, since neighbours come closer each time.
pub fn between(table: &Table, setting: &Setting, within: RangeInclusive<u64>) -> Vec<u64> {
    let sizes = table.iter().find(|(known, _)| *known == setting).map(|(_, sizes)| sizes);
    let known: Vec<(u64, &Times)> = sizes
        .into_iter()
        .flat_map(|sizes| sizes.range(within.clone()))
        .map(|(&bytes, times)| (bytes, times))
        .collect();
    let open = |pair: &[(u64, &Times)]| match *pair {
        [(low, from), (high, to)] if is_open(from, to) => middle(low, high),
        _ => None,
    };
    known.windows(2).filter_map(open).collect()
}

/// Whether different candidates are the fastest at two sizes, and it matters which is taken between them.
fn is_open(from: &Times, to: &Times) -> bool {
    let (Some(first), Some(second)) = (from.best(|_| true), to.best(|_| true)) else {
        return false;
    };
    let as_good = |times: &Times, other: &str, best: &str| match (times.of(other), times.of(best)) {
        (Some(time), Some(least)) => time as f64 <= least as f64 * AS_GOOD,
        _ => false,
    };
    first != second && !(as_good(from, second, first) && as_good(to, first, second))
}

/// A size between two, by ratio where they are far apart; none where they are near enough.
fn middle(low: u64, high: u64) -> Option<u64> {
    let (up, down) = NEAR;
    if u128::from(high) * u128::from(down) <= u128::from(low) * u128::from(up) {
        return None;
    }
    // Between a size and its double lies a half more, which both divide into pieces as even.
    let middle = match high - low <= low {
        true => low + (high - low) / 2,
        false => (u128::from(low) * u128::from(high)).isqrt() as u64,
    };
    let middle = middle / GRAIN * GRAIN;
    (middle > low).then_some(middle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon::executor::selection::table::{Kind, Machine};
    use antiphon::plan::model::Collective;

    /// A clock that was made up: what each candidate takes at a size, in nanoseconds.
    type Timer = fn(u64) -> Vec<(&'static str, u64)>;

    fn setting() -> Setting {
        let kind = Kind::Processes;
        let collective = Collective::AllReduce;
        Setting { collective, ranks: 2, nodes: 1, kind, in_place: false }
    }

    fn times(timer: Timer, bytes: u64) -> Times {
        Times::new(timer(bytes).into_iter().map(|(name, time)| (name.to_owned(), time)))
    }

    /// A table of what a timer says at these sizes, and between them as far as it is asked; and how much that was.
    fn tuned(timer: Timer, sizes: &[u64]) -> (Table, usize) {
        let mut table = Table::new(Machine { cpu: "an abacus".into(), cores: 2 });
        let (mut next, mut further) = (sizes.to_vec(), 0);
        while !next.is_empty() {
            for bytes in next {
                assert!(table.at(&setting(), bytes).is_none(), "{bytes} twice");
                table.record(&setting(), bytes, times(timer, bytes));
            }
            next = between(&table, &setting(), 16..=64 << 20);
            further += next.len();
        }
        (table, further)
    }

    /// The sizes of a tuning that nothing else was said to: 16 B to 64 MiB, each four times the one before.
    fn swept() -> Vec<u64> {
        (4..=26).step_by(2).map(|power| 1 << power).collect()
    }

    /// By how much the choice of a table is slower than the fastest, at worst, from 16 B to 64 MiB.
    fn worst(table: &Table, timer: Timer) -> (u64, f64) {
        let sizes = std::iter::successors(Some(16u64), |size| Some(size + size.div_ceil(40)));
        let ratio = |bytes| {
            let real = times(timer, bytes);
            let near = table.near(&setting(), bytes, &[]).unwrap();
            let taken = near.times.best(|_| true).and_then(|best| real.of(best)).unwrap();
            let least = real.best(|_| true).and_then(|best| real.of(best)).unwrap();
            (bytes, taken as f64 / least as f64)
        };
        let all = sizes.take_while(|&size| size <= 64 << 20).map(ratio);
        all.max_by(|one, other| one.1.total_cmp(&other.1)).unwrap()
    }

    #[test]
    fn a_choice_between_measured_sizes_is_hardly_slower_than_the_best() {
        // Names, what they take, and how many sizes between are measured at most.
        let timers: [(Timer, usize); 6] = [
            // Nobody takes over.
            (|bytes| vec![("a", 100 + bytes), ("b", 200 + bytes)], 0),
            // Lines, whose crossing a line between two sizes finds.
            (|bytes| vec![("packets", 300 + bytes), ("copies", 600 + bytes / 2)], 3),
            // The same time at both neighbours, nearly: it does not matter.
            (|bytes| vec![("a", 1000 + bytes / 1000), ("b", 1001 + bytes / 1001)], 0),
            // Packets that get dear beyond 700 bytes: the line from 256 to 1024 bytes says that they are dear at 512.
            (
                |bytes| {
                    let dear = if bytes > 700 { 200 } else { 0 };
                    vec![("packets", 400 + bytes / 8 + dear), ("copies", 550 + bytes / 16)]
                },
                3,
            ),
            // The same below 300 bytes.
            (
                |bytes| {
                    let dear = if bytes > 300 { 200 } else { 0 };
                    vec![("packets", 400 + bytes / 8 + dear), ("copies", 550 + bytes / 16)]
                },
                3,
            ),
            // Three in turn, the second of which gets dear.
            (
                |bytes| {
                    let dear = bytes.saturating_sub(24 << 10) / 2;
                    vec![("a", 100 + bytes), ("b", 900 + bytes / 4 + dear), ("c", 6000 + bytes / 9)]
                },
                6,
            ),
        ];
        for (number, (timer, most)) in timers.into_iter().enumerate() {
            let (table, further) = tuned(timer, &swept());
            assert!(further <= most, "timer {number}: {further} sizes");
            let (bytes, ratio) = worst(&table, timer);
            assert!(ratio <= 1.1, "timer {number}: {ratio} at {bytes}");
        }
        // It is what is measured between that does it.
        let dear = timers[3].0;
        let mut table = Table::new(Machine { cpu: "an abacus".into(), cores: 2 });
        for bytes in swept() {
            table.record(&setting(), bytes, times(dear, bytes));
        }
        assert!(worst(&table, dear).1 > 1.1);
    }

    #[test]
    fn what_is_measured_already_goes_on_where_it_was() {
        let timer: Timer = |bytes| vec![("a", 100 + bytes), ("b", 1000 + bytes / 9)];
        let (table, further) = tuned(timer, &swept());
        assert!(further > 1);
        assert!(between(&table, &setting(), 0..=u64::MAX).is_empty());
        // Whoever was interrupted after the first of them measures the others.
        let mut sizes = swept();
        sizes.push(512);
        assert_eq!(tuned(timer, &sizes), (table.clone(), further - 1));
        assert!(between(&table, &Setting { ranks: 4, ..setting() }, 0..=u64::MAX).is_empty());
        assert!(between(&table, &setting(), 1 << 20..=1 << 26).is_empty());
    }

    #[test]
    fn sizes_between_are_even_until_neighbours_are_near() {
        let cases = [
            (256, 1024, Some(512)),
            (512, 1024, Some(768)),
            (512, 768, Some(640)),
            (512, 640, None),
            (16, 64, Some(32)),
            // No multiple of 16 lies between.
            (16, 32, None),
            (1, 16, None),
            (0, 1 << 20, None),
            (7, 7, None),
            (1 << 62, u64::MAX, Some((1 << 63) - 16)),
        ];
        for (low, high, expected) in cases {
            assert_eq!(middle(low, high), expected, "{low} {high}");
        }
    }
}
