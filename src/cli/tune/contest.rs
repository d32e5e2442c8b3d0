//! Which of several candidates is the fastest, by medians of several passes: one pass may fall into a moment, or onto memory,
//! that suits one of them.

/// How many times as long as the fastest a candidate may take and still be the fastest.
const CLOSE: f64 = 1.25;
/// How many times as long as the fastest a candidate may take and still be measured beside close ones: a moment that slows
/// these in one pass must not make it look faster than them.
const BESIDE: f64 = 2.0;
/// How many times as long as the fastest of a pass the fastest of all passes may take there, and be confirmed by it.
const CONFIRMED: f64 = 1.03;
/// Passes that must confirm the fastest.
const CONFIRMATIONS: usize = 3;
/// Passes at most.
const PASSES: usize = 8;

/// The passes so far. All ranks record the same, and so decide alike.
#[derive(Clone, Debug, Default)]
pub struct Contest {
    /// By pass the median of each candidate; none of those that did not take part.
    passes: Vec<Vec<Option<u64>>>,
}

impl Contest {
    /// Adds a pass: who took part, and the medians, which are as many.
    pub fn record(&mut self, candidates: usize, who: &[usize], medians: &[u64]) {
        let mut pass = vec![None; candidates];
        for (&candidate, &median) in who.iter().zip(medians) {
            pass[candidate] = Some(median);
        }
        self.passes.push(pass);
    }

    /// The candidates to be measured again: those that may be the fastest, and those not far behind; none if it is settled.
    pub fn again(&self) -> Vec<usize> {
        let Some(first) = self.passes.first() else { return Vec::new() };
        let all: Vec<Option<u64>> = (0..first.len()).map(|one| self.median(one)).collect();
        let Some((best, least)) = fastest(&all) else { return Vec::new() };
        let within = |factor: f64| {
            let is = |time: &u64| *time as f64 <= least.max(1) as f64 * factor;
            (0..all.len()).filter(|&one| all[one].as_ref().is_some_and(is)).collect::<Vec<usize>>()
        };
        let confirms = |pass: &&Vec<Option<u64>>| match (pass[best], fastest(pass)) {
            (Some(own), Some((_, least))) => own as f64 <= least.max(1) as f64 * CONFIRMED,
            _ => false,
        };
        let confirmed = self.passes.iter().rev().take_while(confirms).count();
        let settled = confirmed >= CONFIRMATIONS || self.passes.len() >= PASSES;
        if settled || within(CLOSE).len() < 2 { Vec::new() } else { within(BESIDE) }
    }

    /// The median of a candidate's passes.
    fn median(&self, candidate: usize) -> Option<u64> {
        let mut times: Vec<u64> = self.passes.iter().filter_map(|pass| pass[candidate]).collect();
        times.sort_unstable();
        times.get(times.len().saturating_sub(1) / 2).copied()
    }
}

/// The first of the fastest, and its time.
fn fastest(times: &[Option<u64>]) -> Option<(usize, u64)> {
    let known = times.iter().enumerate().filter_map(|(at, time)| time.map(|time| (at, time)));
    known.min_by_key(|&(at, time)| (time, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who is measured again after these passes of all candidates.
    fn again(passes: &[&[u64]]) -> Vec<usize> {
        let mut contest = Contest::default();
        for pass in passes {
            contest.record(pass.len(), &(0..pass.len()).collect::<Vec<_>>(), pass);
        }
        contest.again()
    }

    #[test]
    fn close_candidates_are_measured_until_the_fastest_is_confirmed() {
        let cases: [(&[&[u64]], &[usize]); 8] = [
            // Far apart: one pass says it.
            (&[&[100, 126, 300]], &[]),
            (&[&[100, 124, 300]], &[0, 1]),
            (&[&[100, 124, 199]], &[0, 1, 2]),
            (&[&[100, 124, 300], &[100, 120, 300]], &[0, 1]),
            (&[&[100, 124, 300], &[100, 120, 300], &[101, 122, 300]], &[]),
            // The first pass fell into another moment.
            (&[&[120, 100], &[100, 120], &[100, 120]], &[0, 1]),
            (&[&[120, 100], &[100, 120], &[100, 120], &[100, 120]], &[]),
            // Equal within what confirms.
            (&[&[100, 102], &[103, 101], &[100, 101]], &[]),
        ];
        for (passes, expected) in cases {
            assert_eq!(again(passes), expected, "{passes:?}");
        }
    }

    #[test]
    fn an_order_that_never_settles_ends_all_the_same() {
        let turns: Vec<&[u64]> =
            [&[100u64, 120][..], &[120, 100][..]].into_iter().cycle().take(8).collect();
        for passes in 1..8 {
            assert_eq!(again(&turns[..passes]), [0, 1], "{passes} passes");
        }
        assert!(again(&turns).is_empty());
    }

    #[test]
    fn nothing_measured_and_nothing_close_asks_for_nothing() {
        assert!(Contest::default().again().is_empty());
        assert!(again(&[&[]]).is_empty());
        assert!(again(&[&[0]]).is_empty());
        assert_eq!(again(&[&[0, 0]]), [0, 1]);
    }

    #[test]
    fn who_did_not_take_part_keeps_what_it_had() {
        let mut contest = Contest::default();
        contest.record(3, &[0, 1, 2], &[100, 110, 300]);
        contest.record(3, &[0, 1], &[130, 140]);
        contest.record(3, &[0, 1], &[131, 120]);
        assert_eq!([0, 1, 2].map(|one| contest.median(one)), [Some(130), Some(120), Some(300)]);
        assert_eq!(contest.again(), [0, 1]);
    }
}
