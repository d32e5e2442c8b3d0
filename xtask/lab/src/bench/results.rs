//! Result lines and what becomes of them: parsing, and medians over rounds.

use std::collections::BTreeMap;

use super::job::{Collective, Job, Place};
use super::probe::{self, Distance};

/// Which row a measurement belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// How many ranks ran.
    pub ranks: usize,
    /// What they ran.
    pub collective: Collective,
    /// Over one buffer or two.
    pub place: Place,
    /// The row's size in bytes.
    pub bytes: usize,
}

/// What was measured in one row; times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Timed iterations.
    pub iterations: usize,
    /// Median of the iterations' slowest ranks.
    pub p50: u64,
    /// 99th percentile of the same.
    pub p99: u64,
    /// Median with the reading of the output inside the timing.
    pub read_p50: u64,
    /// 99th percentile of the same.
    pub read_p99: u64,
}

/// The line of a finished row, as harness.c prints it too. `None`: the subject has no such operation.
pub fn line(key: &Key, times: Option<&Times>) -> String {
    let Key { ranks, collective, place, bytes } = key;
    let Some(Times { iterations, p50, p99, read_p50, read_p99 }) = times else {
        return format!(
            "ROWSKIP collective={collective} place={place} bytes={bytes} ranks={ranks}"
        );
    };
    format!(
        "RESULT collective={collective} place={place} bytes={bytes} ranks={ranks} iters={iterations} \
         p50_ns={p50} p99_ns={p99} read_p50_ns={read_p50} read_p99_ns={read_p99}"
    )
}

/// Reads a RESULT line; anything else, as an MPI launcher may print, is `None`.
pub fn parse(line: &str) -> Option<(Key, Times)> {
    let fields: BTreeMap<&str, &str> =
        line.trim().strip_prefix("RESULT ")?.split(' ').filter_map(|f| f.split_once('=')).collect();
    let number = |name: &str| fields.get(name)?.parse::<u64>().ok();
    let count = |name: &str| number(name).and_then(|n| usize::try_from(n).ok());
    let key = Key {
        ranks: count("ranks")?,
        collective: fields.get("collective")?.parse().ok()?,
        place: fields.get("place")?.parse().ok()?,
        bytes: count("bytes")?,
    };
    let times = Times {
        iterations: count("iters")?,
        p50: number("p50_ns")?,
        p99: number("p99_ns")?,
        read_p50: number("read_p50_ns")?,
        read_p99: number("read_p99_ns")?,
    };
    Some((key, times))
}

/// All rounds of all subjects.
#[derive(Clone, Debug, Default)]
pub struct Results {
    rounds: BTreeMap<Key, BTreeMap<String, Vec<Round>>>,
    alike: Option<Alike>,
}

/// Which rows are not told apart by how far the cores were from each other.
#[derive(Clone, Copy, Debug)]
pub struct Alike {
    /// Those with more ranks than this: who has a core matters more to them.
    pub ranks: usize,
    /// Those whose buffers, of all ranks together and out of place, take so many bytes: more than any cache has, so that
    /// memory bounds them, and how far lines travel does not.
    pub bytes: usize,
}

/// One round's row, and how far apart the cores were before and after it in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Round {
    times: Times,
    line: [u64; 2],
}

impl Results {
    /// Results in which some rows are not told apart by the cores' distance.
    pub fn with(alike: Alike) -> Self {
        Results { alike: Some(alike), ..Results::default() }
    }

    /// At which distance a row was measured; `None` where it changed meanwhile.
    fn distance(&self, key: &Key, line: [u64; 2], limit: u64) -> Option<Distance> {
        let Key { ranks, collective, place, bytes } = *key;
        let job = Job { collective, place, count: bytes / size_of::<f32>(), ranks };
        let is_alike = |alike: Alike| ranks > alike.ranks || job.total_bytes() >= alike.bytes;
        if self.alike.is_some_and(is_alike) {
            return Some(Distance::Any);
        }
        probe::distance(line, limit)
    }

    /// Adds one round's row of a subject; `line` is the probe before and after it.
    pub fn add(&mut self, subject: &str, key: Key, times: Times, line: [u64; 2]) {
        let subjects = self.rounds.entry(key).or_default();
        subjects.entry(subject.into()).or_default().push(Round { times, line });
    }

    fn all(&self) -> impl Iterator<Item = (&Key, &Round)> {
        let rows = self.rounds.iter();
        rows.flat_map(|(key, subjects)| subjects.values().flatten().map(move |round| (key, round)))
    }

    /// The limit between near and far, in nanoseconds a line.
    pub fn limit(&self) -> u64 {
        probe::limit(self.all().flat_map(|(_, round)| round.line))
    }

    /// The shortest and the longest time that a line took, in nanoseconds.
    pub fn lines(&self) -> Option<(u64, u64)> {
        let seen = || self.all().flat_map(|(_, round)| round.line);
        Some((seen().min()?, seen().max()?))
    }

    /// How many rows were measured at each distance, and while it changed.
    pub fn census(&self) -> BTreeMap<Option<Distance>, usize> {
        let limit = self.limit();
        let mut census = BTreeMap::new();
        for (key, round) in self.all() {
            *census.entry(self.distance(key, round.line, limit)).or_default() += 1;
        }
        census
    }

    /// Every row that some subject ran, in the order of the tables.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        self.rounds.keys().copied()
    }

    /// A subject's row: the median of each figure over the rounds at one distance, and their iterations together.
    pub fn median(&self, key: &Key, subject: &str, distance: Distance) -> Option<Times> {
        let limit = self.limit();
        let here = |round: &&Round| self.distance(key, round.line, limit) == Some(distance);
        let rounds = self.rounds.get(key)?.get(subject)?.iter().filter(here);
        let rounds: Vec<Times> = rounds.map(|round| round.times).collect();
        let middle = |figure: fn(&Times) -> u64| median(rounds.iter().map(figure).collect());
        Some(Times {
            iterations: rounds.iter().map(|t| t.iterations).sum(),
            p50: middle(|t| t.p50)?,
            p99: middle(|t| t.p99)?,
            read_p50: middle(|t| t.read_p50)?,
            read_p99: middle(|t| t.read_p99)?,
        })
    }
}

/// The middle value; the mean of the two middle ones where their number is even.
fn median(mut values: Vec<u64>) -> Option<u64> {
    values.sort_unstable();
    let upper = *values.get(values.len() / 2)?;
    let lower = values[(values.len() - 1) / 2];
    Some(lower.midpoint(upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key =
        Key { ranks: 2, collective: Collective::Allgather, place: Place::In, bytes: 4096 };

    fn times(p50: u64) -> Times {
        Times { iterations: 2000, p50, p99: 2 * p50, read_p50: 3 * p50, read_p99: 4 * p50 }
    }

    #[test]
    fn a_line_is_read_back() {
        assert_eq!(parse(&line(&KEY, Some(&times(17)))), Some((KEY, times(17))));
    }

    #[test]
    fn other_lines_are_no_results() {
        for text in ["", "RESULT", "RESULT bytes=4", "mpirun: RESULT of all", &line(&KEY, None)] {
            assert_eq!(parse(text), None, "{text}");
        }
        let torn = line(&KEY, Some(&times(17)));
        assert_eq!(parse(&torn[..torn.len() / 2]), None);
    }

    #[test]
    fn rounds_fold_to_the_median_of_their_distance() {
        let mut results = Results::default();
        for (p50, line) in [(30, 50), (10, 50), (20, 60), (900, 200), (4000, 210)] {
            results.add("floor", KEY, times(p50), [line; 2]);
        }
        results.add("floor", KEY, times(1), [50, 200]);
        let median_at = |distance| results.median(&KEY, "floor", distance);
        let row = |p50, rounds: usize| Some(Times { iterations: rounds * 2000, ..times(p50) });
        assert_eq!(median_at(Distance::Near), row(20, 3));
        assert_eq!(median_at(Distance::Far), row(2450, 2));
        assert_eq!(results.median(&KEY, "gloo", Distance::Near), None);
        let census = [(None, 1), (Some(Distance::Near), 3), (Some(Distance::Far), 2)];
        assert_eq!(results.census(), BTreeMap::from(census));
        // Two contributions of 4 KiB and two gathered buffers of 8.
        for (ranks, bytes, alike) in [(2, 24 << 10, true), (1, usize::MAX, true), (2, 24577, false)]
        {
            results.alike = Some(Alike { ranks, bytes });
            let any = results.median(&KEY, "floor", Distance::Any);
            assert_eq!(any, row(25, 6).filter(|_| alike), "{ranks} ranks, {bytes} bytes");
            assert_eq!(results.census().contains_key(&Some(Distance::Near)), !alike);
        }
    }
}
