//! Moments of a machine, seconds to minutes long: in some, messages take twice the time that they take in others, and what is
//! the fastest in one need not be so in the next. Close calls are therefore measured in several, each time with ranks of their
//! own, a while after the time before.

use antiphon::executor::selection::table::{Setting, Table, Times};
use std::ops::RangeInclusive;

/// How many times as long as the fastest another may take and be close: as far apart may a moment set two of which the other
/// is the faster in the next one.
const CLOSE: f64 = 2.0;

/// The sizes `within` a range at which such calls were measured in fewer than `moments` and are to be measured once more, since
/// another candidate is close to the fastest.
pub fn close(
    table: &Table,
    setting: &Setting,
    within: RangeInclusive<u64>,
    moments: u32,
) -> Vec<u64> {
    let known = table.iter().filter(|(known, _)| *known == setting);
    let known = known.flat_map(|(_, sizes)| sizes.range(within.clone()));
    let left = known.filter(|(_, times)| times.moments() < moments && is_close(times));
    left.map(|(&bytes, _)| bytes).collect()
}

fn is_close(times: &Times) -> bool {
    let mut fastest = times.iter().map(|(_, time)| time as f64);
    let limit = fastest.next().unwrap_or(0.0).max(1.0) * CLOSE;
    fastest.next().is_some_and(|next| next <= limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_is_at_most_twice_as_slow() {
        let times = |b| Times::new([("a".to_owned(), 100), ("b".to_owned(), b)]);
        assert!(is_close(&times(200)) && is_close(&times(100)) && is_close(&times(51)));
        assert!(!is_close(&times(201)));
        assert!(!is_close(&Times::new([("a".to_owned(), 100)])));
    }
}
