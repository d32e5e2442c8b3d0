//! Derives from measured times which algorithm is the fastest, by size, and ignores what is only noise.
//!
//! Of all ways to give each measured size an algorithm, the one with the least total loss is taken. The total is the sum of
//! what each algorithm loses against the fastest at its size, and of a price for each change from one algorithm to another. So
//! an algorithm takes over where that saves more than it costs, at one size or at several neighbouring ones together, and one
//! odd measurement changes nothing.

use super::Step;
use crate::algorithms::{Algorithm, Rooted, SumOrder};

/// The price of a change, as a fraction of the fastest time at a size. A single odd size between two others takes two changes,
/// so the others' algorithm must lose twice as much there; one at an end takes one.
const CHANGE: f64 = 0.25;

/// What was measured at a size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timed<A = Algorithm> {
    /// Bytes of the message.
    pub bytes: u64,
    /// Algorithms, and what a call took by each, in nanoseconds.
    pub times: Vec<(A, u64)>,
}

/// The steps for these sizes, which must rise: each algorithm with the largest measured message that it is for, and the last
/// algorithm for all larger messages as well. There are no steps where nothing was measured.
///
/// It considers only algorithms that were measured at all sizes and that add in rank or node order.
pub fn derive(sizes: &[Timed]) -> Vec<Step> {
    let in_order = |one: &Algorithm| matches!(one.sum_order(), SumOrder::Ranks | SumOrder::Nodes);
    of(sizes, Algorithm::ALL.into_iter().filter(in_order))
}

/// As [`derive()`], of a gather or a scatter: `None` stands for the blocks of [`alltoallv`](crate::algorithms::alltoallv).
pub fn derive_rooted(sizes: &[Timed<Option<Rooted>>]) -> Vec<Step<Option<Rooted>>> {
    of(sizes, std::iter::once(None).chain(Rooted::ALL.map(Some)))
}

/// The steps, from the algorithms of `all` that were measured at all sizes; of two that are equally good, the earlier one.
fn of<A: Copy + PartialEq>(sizes: &[Timed<A>], all: impl Iterator<Item = A>) -> Vec<Step<A>> {
    let timed = |one: &Timed<A>, algorithm| one.times.iter().any(|(known, _)| *known == algorithm);
    let candidates: Vec<A> =
        all.filter(|algorithm| sizes.iter().all(|one| timed(one, *algorithm))).collect();
    let mut steps: Vec<Step<A>> = Vec::new();
    for (at, timed) in least(sizes, &candidates).into_iter().zip(sizes) {
        let algorithm = candidates[at];
        match steps.last_mut() {
            Some(last) if last.algorithm == algorithm => last.up_to = timed.bytes,
            _ => steps.push(Step { up_to: timed.bytes, algorithm }),
        }
    }
    if let Some(last) = steps.last_mut() {
        last.up_to = u64::MAX;
    }
    steps
}

/// What each candidate loses at a size against the fastest of them, in parts of its time.
fn losses<A: PartialEq>(timed: &Timed<A>, candidates: &[A]) -> Vec<f64> {
    let time = |algorithm: &A| {
        let found = timed.times.iter().find(|(known, _)| known == algorithm);
        found.map_or(u64::MAX, |(_, time)| (*time).max(1)) as f64
    };
    let times: Vec<f64> = candidates.iter().map(time).collect();
    let fastest = times.iter().copied().fold(f64::INFINITY, f64::min);
    times.into_iter().map(|time| time / fastest - 1.0).collect()
}

/// By size the position of the candidate to take, with the least loss of all; of equal ones one with fewer changes.
fn least<A: PartialEq>(sizes: &[Timed<A>], candidates: &[A]) -> Vec<usize> {
    let mut lost = vec![0.0; candidates.len()];
    // By size and candidate, the candidate of the size before that it follows.
    let mut follows: Vec<Vec<usize>> = Vec::new();
    for timed in sizes {
        let Some((best, least)) = first_least(&lost) else { return Vec::new() };
        let mut after = Vec::with_capacity(candidates.len());
        for (at, loss) in losses(timed, candidates).into_iter().enumerate() {
            let stays = lost[at] <= least + CHANGE;
            after.push(if stays { at } else { best });
            lost[at] = loss + if stays { lost[at] } else { least + CHANGE };
        }
        follows.push(after);
    }
    let Some((mut at, _)) = first_least(&lost) else { return Vec::new() };
    let mut taken = Vec::with_capacity(sizes.len());
    for after in follows.iter().rev() {
        taken.push(at);
        at = after[at];
    }
    taken.reverse();
    taken
}

/// The first of the least numbers, and which it is.
fn first_least(all: &[f64]) -> Option<(usize, f64)> {
    all.iter().copied().enumerate().min_by(|(_, one), (_, other)| one.total_cmp(other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Algorithm::*;

    const THREE: [Algorithm; 3] =
        [AllReduceOneShotPackets, AllReduceTwoShotPackets, AllReduceZeroCopy];

    /// Times of [`THREE`] at 16 bytes, 64, and so on.
    fn timed(rows: &[[u64; 3]]) -> Vec<Timed> {
        let row = |(at, times): (usize, &[u64; 3])| Timed {
            bytes: 16 << (2 * at),
            times: THREE.into_iter().zip(*times).collect(),
        };
        rows.iter().enumerate().map(row).collect()
    }

    #[test]
    fn an_algorithm_takes_over_where_that_saves_more_than_a_change_costs() {
        let [one, two, copy] = THREE;
        const ALL: u64 = u64::MAX;
        type Case<'a> = (&'a [[u64; 3]], &'a [(u64, Algorithm)]);
        let cases: [Case<'_>; 11] = [
            (&[], &[]),
            (&[[100, 110, 120]], &[(ALL, one)]),
            // One takes over from another, and then a third.
            (
                &[[10, 20, 30], [10, 20, 30], [20, 10, 30], [30, 10, 20], [40, 30, 10]],
                &[(64, one), (1024, two), (ALL, copy)],
            ),
            // Within noise: one serves all.
            (&[[100, 105, 200], [102, 100, 200], [103, 100, 150], [100, 101, 120]], &[(ALL, one)]),
            // One odd size.
            (&[[10, 20, 20], [10, 20, 20], [14, 20, 10], [10, 20, 20]], &[(ALL, one)]),
            (&[[12, 20, 10], [10, 20, 20], [10, 20, 20]], &[(ALL, one)]),
            // One that is no accident.
            (
                &[[10, 20, 20], [10, 20, 20], [16, 20, 10], [10, 20, 20]],
                &[(64, one), (256, copy), (ALL, one)],
            ),
            (&[[13, 20, 10], [10, 20, 20], [10, 20, 20]], &[(16, copy), (ALL, one)]),
            // A little at several neighbours.
            (
                &[[10, 20, 20], [10, 20, 20], [115, 300, 100], [115, 300, 100], [115, 300, 100]],
                &[(64, one), (ALL, copy)],
            ),
            (&[[10, 20, 20], [10, 20, 20], [110, 300, 100], [110, 300, 100]], &[(ALL, one)]),
            // What takes no time at all.
            (&[[0, 0, 0], [0, 1, 0]], &[(ALL, one)]),
        ];
        for (rows, expected) in cases {
            let steps = derive(&timed(rows));
            let steps: Vec<_> = steps.iter().map(|step| (step.up_to, step.algorithm)).collect();
            assert_eq!(steps, expected, "{rows:?}");
        }
    }

    #[test]
    fn a_gather_has_plans_of_its_own_where_they_save_more_than_a_change_costs() {
        let own = [None, Some(Rooted::GatherPackets), Some(Rooted::GatherZeroCopy)];
        let timed =
            |bytes, times: [u64; 3]| Timed { bytes, times: own.into_iter().zip(times).collect() };
        let steps = |rows: &[Timed<Option<Rooted>>]| {
            derive_rooted(rows)
                .into_iter()
                .map(|step| (step.up_to, step.algorithm))
                .collect::<Vec<_>>()
        };
        let rows = [timed(16, [20, 10, 12]), timed(64, [20, 10, 12]), timed(256, [20, 30, 28])];
        assert_eq!(steps(&rows), [(64, own[1]), (u64::MAX, None)]);
        assert_eq!(steps(&[timed(16, [10, 10, 10])]), [(u64::MAX, None)]);
        assert_eq!(steps(&[]), []);
    }

    #[test]
    fn noise_in_what_is_measured_is_none_in_what_is_derived() {
        // One is faster up to 1 KiB, by a third, another above; each time is off by up to a twentieth.
        let clean: Vec<[u64; 3]> =
            (0..12).map(|at| if at < 4 { [300, 900, 400] } else { [400, 900, 300] }).collect();
        let expected = derive(&timed(&clean));
        assert_eq!(expected.len(), 2);
        let mut seed = 1u64;
        for _ in 0..1000 {
            let mut noisy = clean.clone();
            for time in noisy.iter_mut().flatten() {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                *time = *time * (95 + (seed >> 33) % 11) / 100;
            }
            assert_eq!(derive(&timed(&noisy)), expected, "{noisy:?}");
        }
    }

    #[test]
    fn what_adds_in_another_order_or_was_measured_in_part_is_not_looked_at() {
        let mut sizes = timed(&[[10, 20, 30], [10, 20, 30]]);
        for one in &mut sizes {
            one.times.extend([(AllReduceRing, 1), (AllReduceSwitch, 1)]);
        }
        sizes[1].times.push((AllReduceHub, 1));
        let step = Step { up_to: u64::MAX, algorithm: AllReduceOneShotPackets };
        assert_eq!(derive(&sizes), [step]);
        sizes.iter_mut().for_each(|one| one.times.clear());
        assert_eq!(derive(&sizes), []);
    }
}
