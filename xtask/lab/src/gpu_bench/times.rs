//! Times of things that take turns.

use crate::Result;
use std::time::{Duration, Instant};

/// How often something is measured.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Rounds that count.
    pub rounds: usize,
    /// Rounds before.
    pub warmup: usize,
    /// After how long no further round begins; each subject has one round at least.
    pub budget: Duration,
}

/// What is timed: does its work, and says how long the part that counts took.
pub type Work<'a> = Box<dyn FnMut() -> Result<Duration> + 'a>;

/// Something that is measured beside others.
pub struct Subject<'a> {
    /// Its name, the head of its column.
    pub name: String,
    /// Its work, or why there is none.
    pub work: Result<Work<'a>, String>,
}

impl<'a> Subject<'a> {
    /// A subject whose whole work counts.
    pub fn whole(name: impl Into<String>, mut work: impl FnMut() -> Result<()> + 'a) -> Self {
        let timed = move || {
            let start = Instant::now();
            work().map(|()| start.elapsed())
        };
        Subject::part(name, timed)
    }

    /// A subject that times itself.
    pub fn part(name: impl Into<String>, work: impl FnMut() -> Result<Duration> + 'a) -> Self {
        Subject { name: name.into(), work: Ok(Box::new(work)) }
    }

    /// A subject that cannot be measured here.
    pub fn missing(name: impl Into<String>, why: impl ToString) -> Self {
        Subject { name: name.into(), work: Err(why.to_string()) }
    }
}

/// Figures of a subject, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Rounds.
    pub rounds: usize,
    /// The median.
    pub p50: u64,
    /// The 99th percentile; of fewer than 100 rounds, the longest.
    pub p99: u64,
}

impl Times {
    /// The figures of some times; `None` of none.
    pub fn of(mut nanoseconds: Vec<u64>) -> Option<Times> {
        nanoseconds.sort_unstable();
        let rounds = nanoseconds.len();
        let p50 = *nanoseconds.get(rounds / 2)?;
        let p99 = nanoseconds[(rounds * 99 / 100).min(rounds - 1)];
        Some(Times { rounds, p50, p99 })
    }
}

/// What became of a subject.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Its name.
    pub name: String,
    /// Its figures, or why there are none.
    pub times: Result<Times, String>,
}

/// Measures subjects in turn: each once, then each once more. One that fails is out, and says why.
pub fn in_turn(mut subjects: Vec<Subject<'_>>, effort: Effort) -> Vec<Measured> {
    let mut seen: Vec<Vec<u64>> = vec![Vec::new(); subjects.len()];
    let mut round = |counts: bool| {
        for (subject, seen) in subjects.iter_mut().zip(&mut seen) {
            let Ok(work) = &mut subject.work else { continue };
            match work() {
                Ok(took) if counts => {
                    seen.push(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
                }
                Ok(_) => {}
                Err(error) => subject.work = Err(error.to_string()),
            }
        }
    };
    (0..effort.warmup).for_each(|_| round(false));
    let began = Instant::now();
    for at in 0..effort.rounds.max(1) {
        if at > 0 && began.elapsed() >= effort.budget {
            break;
        }
        round(true);
    }
    let outcome = |(subject, seen): (Subject<'_>, Vec<u64>)| {
        let none = || "it was not measured".to_owned();
        let times = subject.work.and_then(|_| Times::of(seen).ok_or_else(none));
        Measured { name: subject.name, times }
    };
    subjects.into_iter().zip(seen).map(outcome).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use std::cell::RefCell;

    #[test]
    fn figures_are_of_the_sorted_times() {
        assert_eq!(Times::of(Vec::new()), None);
        assert_eq!(Times::of(vec![7]), Some(Times { rounds: 1, p50: 7, p99: 7 }));
        let times = Times::of((1..=200).rev().collect());
        assert_eq!(times, Some(Times { rounds: 200, p50: 101, p99: 199 }));
    }

    #[test]
    fn subjects_take_turns_and_one_that_fails_is_out() {
        let order = RefCell::new(String::new());
        let mut left = 2;
        let subjects = vec![
            Subject::part("a", || {
                order.borrow_mut().push('a');
                Ok(Duration::from_nanos(5))
            }),
            Subject::part("b", || {
                order.borrow_mut().push('b');
                left -= 1;
                if left == 0 { Err(Error::message("worn out")) } else { Ok(Duration::ZERO) }
            }),
            Subject::missing("c", "there is none"),
        ];
        let effort = Effort { rounds: 3, warmup: 1, budget: Duration::from_secs(60) };
        let measured = in_turn(subjects, effort);
        assert_eq!(*order.borrow(), "ababaa");
        let found: Vec<_> = measured.iter().map(|one| one.times.clone()).collect();
        let five = Times { rounds: 3, p50: 5, p99: 5 };
        assert_eq!(found, [Ok(five), Err("worn out".into()), Err("there is none".into())]);
    }

    #[test]
    fn a_budget_that_is_spent_leaves_one_round() {
        let effort = Effort { rounds: 9, warmup: 0, budget: Duration::ZERO };
        let measured = in_turn(vec![Subject::part("a", || Ok(Duration::from_nanos(3)))], effort);
        assert_eq!(measured[0].times, Ok(Times { rounds: 1, p50: 3, p99: 3 }));
    }
}
