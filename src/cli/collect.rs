//! Putting together what the ranks report: an iteration lasts as long as its slowest rank, and a run fails with
//! the cause, not with what followed from it.

use super::CliError;
use super::job::Event;

/// A message of a rank, or about one.
#[derive(Debug)]
pub enum Notice {
    /// It reports.
    Event {
        /// The rank.
        rank: u32,
        /// What.
        event: Event,
    },
    /// It has ended, and nothing more will come from it.
    Ended {
        /// The rank.
        rank: u32,
    },
    /// Somebody wants the run to stop.
    Interrupted {
        /// Name of the signal.
        name: &'static str,
        /// Number of the signal.
        number: u8,
    },
}

/// An item that every rank has finished.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    /// Position in the job's items.
    pub item: usize,
    /// For each iteration the time of its slowest rank, in nanoseconds.
    pub times: Vec<u64>,
    /// Wrong elements over all ranks; `None` if nothing was checked.
    pub wrong: Option<u64>,
    /// The first mismatch of the lowest rank that has one.
    pub first: Option<String>,
    /// Elements over all ranks that were not compared, because the plan leaves them to chance.
    pub chance: u64,
}

/// The reports so far.
#[derive(Debug)]
pub struct Collector {
    world: u32,
    items: Vec<Partial>,
    /// How far each rank is.
    ends: Vec<End>,
    failures: Vec<Failure>,
}

#[derive(Clone, Debug, Default)]
struct Partial {
    reports: u32,
    times: Vec<u64>,
    wrong: Option<u64>,
    first: Option<(u32, String)>,
    chance: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Running,
    Reported,
    Ended,
}

#[derive(Clone, Debug)]
struct Failure {
    rank: u32,
    message: String,
    /// Whether the rank died instead of reporting: then it is the cause of what others report.
    death: bool,
}

impl Collector {
    /// Nothing has been reported yet.
    pub fn new(world: u32, items: usize) -> Self {
        Collector {
            world,
            items: vec![Partial::default(); items],
            ends: vec![End::Running; world as usize],
            failures: Vec::new(),
        }
    }

    /// Takes a report; the item it completes, if it does.
    pub fn event(&mut self, rank: u32, event: Event) -> Option<Finished> {
        match event {
            Event::Ready | Event::NotProven { .. } | Event::Phase { .. } => None,
            Event::Done => {
                self.set_end(rank, End::Reported);
                None
            }
            Event::Failed { message } => {
                self.set_end(rank, End::Reported);
                self.failures.push(Failure { rank, message, death: false });
                None
            }
            Event::Measured { item, times, wrong, first, chance } => {
                let partial = self.items.get_mut(item)?;
                partial.reports += 1;
                partial.times.resize(partial.times.len().max(times.len()), 0);
                for (slowest, time) in partial.times.iter_mut().zip(times) {
                    *slowest = (*slowest).max(time);
                }
                partial.chance += chance;
                if let Some(wrong) = wrong {
                    *partial.wrong.get_or_insert(0) += wrong;
                }
                if let Some(first) = first
                    && partial.first.as_ref().is_none_or(|(lowest, _)| rank < *lowest)
                {
                    partial.first = Some((rank, first));
                }
                (partial.reports == self.world).then(|| {
                    let Partial { times, wrong, first, chance, .. } = std::mem::take(partial);
                    Finished { item, times, wrong, first: first.map(|(_, text)| text), chance }
                })
            }
        }
    }

    /// A rank has ended; `how` says in words how, and counts if the rank had not said itself that it is through.
    pub fn ended(&mut self, rank: u32, how: impl FnOnce() -> String) {
        if self.end(rank) == End::Running {
            self.failures.push(Failure { rank, message: how(), death: true });
        }
        self.set_end(rank, End::Ended);
    }

    fn end(&self, rank: u32) -> End {
        self.ends.get(rank as usize).copied().unwrap_or(End::Ended)
    }

    fn set_end(&mut self, rank: u32, end: End) {
        if let Some(slot) = self.ends.get_mut(rank as usize) {
            *slot = end;
        }
    }

    /// Whether every rank has ended.
    pub fn all_ended(&self) -> bool {
        self.ends.iter().all(|&end| end == End::Ended)
    }

    /// Whether some rank has failed.
    pub fn failed(&self) -> bool {
        !self.failures.is_empty()
    }

    /// The outcome: an error names the cause first (a rank that died, else the first to fail) and then what the
    /// other ranks said. `label` names a rank, e.g. `rank 2 (pid 4711)`.
    pub fn outcome(&self, label: impl Fn(u32) -> String) -> Result<(), CliError> {
        let cause = self.failures.iter().position(|failure| failure.death).unwrap_or(0);
        let Some(failure) = self.failures.get(cause) else { return Ok(()) };
        let mut text = format!("{}: {}", label(failure.rank), failure.message);
        let (alike, mut others): (Vec<_>, Vec<_>) =
            self.failures.iter().partition(|other| other.message == failure.message);
        if alike.len() > 1 {
            text += &format!("\n  and the same on {} more", ranks(alike.len() - 1));
        }
        others.sort_by_key(|failure| failure.rank);
        const SHOWN: usize = 16;
        for failure in others.iter().take(SHOWN) {
            text += &format!("\n  {}: {}", label(failure.rank), failure.message);
        }
        if others.len() > SHOWN {
            text += &format!("\n  and {} more failed", ranks(others.len() - SHOWN));
        }
        Err(CliError::Rank(text))
    }
}

fn ranks(count: usize) -> String {
    format!("{count} rank{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(item: usize, times: &[u64], wrong: Option<u64>, first: Option<&str>) -> Event {
        let (times, first) = (times.to_vec(), first.map(str::to_owned));
        Event::Measured { item, times, wrong, first, chance: 1 }
    }

    fn text(collector: &Collector) -> String {
        collector
            .outcome(|rank| format!("rank {rank}"))
            .map_or_else(|e| e.to_string(), |()| "ok".into())
    }

    #[test]
    fn an_iteration_lasts_as_long_as_its_slowest_rank() {
        let mut collector = Collector::new(3, 2);
        assert_eq!(collector.event(1, measured(0, &[5, 9, 2], Some(1), Some("one"))), None);
        assert_eq!(collector.event(0, measured(0, &[7, 1, 2], Some(2), Some("zero"))), None);
        let finished = collector.event(2, measured(0, &[6, 6, 6], Some(0), None));
        let expected = Finished {
            item: 0,
            times: vec![7, 9, 6],
            wrong: Some(3),
            first: Some("zero".into()),
            chance: 3,
        };
        assert_eq!(finished, Some(expected));
        assert_eq!(collector.event(0, measured(1, &[1], None, None)), None);
        assert_eq!(collector.event(9, measured(7, &[1], None, None)), None, "no such item");
    }

    #[test]
    fn a_rank_that_died_is_the_cause() {
        let mut collector = Collector::new(3, 1);
        collector.event(0, Event::Failed { message: "peer gone".into() });
        collector.ended(2, || "was killed by signal 9".into());
        collector.event(1, Event::Failed { message: "peer gone too".into() });
        collector.ended(0, || unreachable!("rank 0 has reported"));
        collector.ended(1, || unreachable!("rank 1 has reported"));
        assert!(collector.all_ended() && collector.failed());
        let expected =
            "rank 2: was killed by signal 9\n  rank 0: peer gone\n  rank 1: peer gone too";
        assert_eq!(text(&collector), expected);
    }

    #[test]
    fn else_the_first_to_fail_is() {
        let mut collector = Collector::new(2, 1);
        collector.event(1, Event::Failed { message: "first".into() });
        collector.event(0, Event::Failed { message: "second".into() });
        assert_eq!(text(&collector), "rank 1: first\n  rank 0: second");
    }

    #[test]
    fn what_all_ranks_say_is_said_once() {
        let mut collector = Collector::new(4, 1);
        for rank in 0..3 {
            collector.event(rank, Event::Failed { message: "no port channels".into() });
        }
        collector.event(3, Event::Failed { message: "other".into() });
        let expected = "rank 0: no port channels\n  and the same on 2 ranks more\n  rank 3: other";
        assert_eq!(text(&collector), expected);
    }

    #[test]
    fn ranks_that_finish_end_well() {
        let mut collector = Collector::new(1, 0);
        collector.event(0, Event::Done);
        assert!(!collector.all_ended());
        collector.ended(0, || unreachable!("rank 0 was done"));
        assert!(collector.all_ended());
        assert_eq!(text(&collector), "ok");
    }
}
