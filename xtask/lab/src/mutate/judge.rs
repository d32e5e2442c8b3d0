//! What the judges say of a plan: the controlled engine by schedules, the verifier by proof or counterexample, and the
//! engine again by playing the counterexamples.
//!
//! Everything that is asked of either goes through here.

use super::cases::Call;
use super::random::Random;
use antiphon::executor::controlled::{LANES, Machine, Shown, search, shows};
use antiphon::plan::model::{Collective, Plan};
use antiphon::plan::program::Layout;
use antiphon::plan::schedule::{Case, Schedule};
use antiphon::plan::verify::{About, Note, Options, Refutation, Report, Verdict, verify};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// How a counterexample went when it was played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replay {
    /// The fault showed: a block that waits for ever, or other bytes.
    Shows,
    /// The two touches of a race happened in both orders, but no byte tells them apart.
    SameBytes,
    /// Nothing showed.
    Nothing,
}

/// What the verifier says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// No fault, in any order of any size. Of plans without a promise of their own, these are the faults that users must
    /// keep away from between launches.
    Proven(Vec<String>),
    /// Faults, each with how its counterexample went.
    Refuted(Vec<(Refutation, Replay)>),
    /// Neither, for these reasons.
    NotProven(Vec<String>),
}

/// What the judges say of one plan.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// The first schedule that showed a fault, and in which calls.
    pub shown: Option<(Case, Schedule)>,
    /// Schedules that were run.
    pub schedules: u32,
    /// What the verifier says.
    pub said: Said,
    /// A judge that broke down, in its words.
    pub broken: Vec<String>,
    /// What the verifier took.
    pub time: Duration,
}

/// What follows from what the judges say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conclusion {
    /// Some schedule showed a fault.
    pub shows: bool,
    /// The verifier refutes the plan.
    pub flagged: bool,
    /// The verifier proves it, and notes what users must not do between launches, as the schedules' users do.
    pub noted: bool,
    /// The verifier neither proves nor refutes it.
    pub not_proven: bool,
    /// The best that any counterexample did.
    pub replay: Replay,
}

impl Conclusion {
    /// Neither a schedule nor a counterexample shows a fault.
    pub fn equivalent(self) -> bool {
        !self.shows && self.replay != Replay::Shows
    }

    /// Flagged although nothing ever shows, and not even the orders of a race can be told to happen.
    pub fn false_alarm(self) -> bool {
        self.flagged && !self.shows && self.replay == Replay::Nothing
    }

    /// A race that happens, but of which nothing was seen to depend on it.
    pub fn silent_race(self) -> bool {
        self.flagged && !self.shows && self.replay == Replay::SameBytes
    }

    /// Proven although a fault shows.
    pub fn missed(self) -> bool {
        self.shows && !self.flagged && !self.not_proven && !self.noted
    }

    /// A schedule shows a fault, and the verifier says nothing of it, whether it proves the plan or not.
    pub fn unnoticed(self) -> bool {
        self.shows && !self.flagged && !self.noted
    }
}

impl Judgement {
    /// What follows.
    pub fn conclusion(&self) -> Conclusion {
        let replay = match &self.said {
            Said::Refuted(all) => {
                let best = |wanted| all.iter().any(|(_, replay)| *replay == wanted);
                match (best(Replay::Shows), best(Replay::SameBytes)) {
                    (true, _) => Replay::Shows,
                    (false, true) => Replay::SameBytes,
                    (false, false) => Replay::Nothing,
                }
            }
            _ => Replay::Nothing,
        };
        Conclusion {
            shows: self.shown.is_some(),
            flagged: matches!(self.said, Said::Refuted(_)),
            noted: matches!(&self.said, Said::Proven(notes) if !notes.is_empty()),
            not_proven: matches!(self.said, Said::NotProven(_)),
            replay,
        }
    }

    /// Counterexamples, and those of them that show nothing.
    pub fn refutations(&self) -> (usize, usize) {
        let Said::Refuted(all) = &self.said else { return (0, 0) };
        (all.len(), all.iter().filter(|(_, replay)| *replay == Replay::Nothing).count())
    }
}

/// Asks both judges about a plan that passed the checks and lowers. The calls that the plan accepts share `schedules`
/// schedules, which `seed` and `name` decide.
pub fn judge(plan: &Plan, calls: &[Call], schedules: u32, seed: u64, name: &str) -> Judgement {
    let mut judgement = Judgement {
        shown: None,
        schedules: 0,
        said: Said::NotProven(Vec::new()),
        broken: Vec::new(),
        time: Duration::ZERO,
    };
    let layout = match Layout::new(plan) {
        Ok(layout) => layout,
        Err(error) => {
            judgement.broken.push(error.to_string());
            return judgement;
        }
    };
    let calls: Vec<_> = calls.iter().filter(|call| call.fits(&layout)).collect();
    let mut random = Random::new(seed, &["schedules", name]);
    for (number, call) in (0u32..).zip(&calls) {
        let all = calls.len() as u32;
        let share = schedules / all + u32::from(number < schedules % all);
        let seed = random.draw();
        let found = guarded("the engine", || {
            let mut machine = Machine::new(&layout, call.0, LANES).map_err(|e| e.to_string())?;
            Ok(search(&mut machine, share, seed))
        });
        judgement.schedules += share;
        match found {
            Ok(None) => {}
            Ok(Some(schedule)) => {
                judgement.shown = Some((call.0, schedule));
                break;
            }
            Err(text) => judgement.broken.push(text),
        }
    }
    let start = Instant::now();
    let report = guarded("the verifier", || Ok(verify(plan, &layout, Options::default())));
    judgement.time = start.elapsed();
    match report {
        Ok(report) => judgement.said = said(&layout, report, &mut judgement.broken),
        Err(text) => judgement.broken.push(text),
    }
    judgement
}

fn said(layout: &Layout, report: Report, broken: &mut Vec<String>) -> Said {
    match report.verdict {
        Verdict::Proven => {
            let of_users = |note: &Note| note.about == About::Reuse;
            let promises = layout.collective != Collective::Test;
            let notes = report.notes.into_iter().filter(|note| !promises && of_users(note));
            Said::Proven(notes.map(|note| note.text).collect())
        }
        Verdict::NotProven(reasons) => Said::NotProven(reasons),
        Verdict::Refuted(refutations) => {
            let mut replayed = Vec::with_capacity(refutations.len());
            for refutation in refutations {
                let played = guarded("a counterexample", || {
                    shows(layout, &refutation).map_err(|error| error.to_string())
                });
                let replay = match played {
                    Ok(Some(Shown::NoDifference)) => Replay::SameBytes,
                    Ok(Some(_)) => Replay::Shows,
                    Ok(None) => Replay::Nothing,
                    Err(text) => {
                        broken.push(text);
                        Replay::Nothing
                    }
                };
                replayed.push((refutation, replay));
            }
            Said::Refuted(replayed)
        }
    }
}

/// What `ask` gives; a panic is a finding about who was asked, not the end of the measurement.
fn guarded<T>(who: &str, ask: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let asked = catch_unwind(AssertUnwindSafe(ask)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("panicked: {}", text.unwrap_or_else(|| "with no text".to_owned())))
    });
    asked.map_err(|text| format!("{who}: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_from_what_is_said() {
        let of = |shows, flagged, noted, replay| Conclusion {
            shows,
            flagged,
            noted,
            not_proven: false,
            replay,
        };
        let missed = of(true, false, false, Replay::Nothing);
        assert!(missed.missed() && missed.unnoticed() && !missed.equivalent());
        let noted = of(true, false, true, Replay::Nothing);
        assert!(!noted.missed() && !noted.unnoticed() && !noted.equivalent());
        let alarm = of(false, true, false, Replay::Nothing);
        assert!(alarm.false_alarm() && alarm.equivalent() && !alarm.silent_race());
        let silent = of(false, true, false, Replay::SameBytes);
        assert!(silent.silent_race() && silent.equivalent() && !silent.false_alarm());
        let played = of(false, true, false, Replay::Shows);
        assert!(!played.equivalent() && !played.false_alarm() && !played.missed());
        let unsure = Conclusion { not_proven: true, ..missed };
        assert!(!unsure.missed() && unsure.unnoticed());
    }

    #[test]
    fn who_breaks_down_is_named() {
        let broken = guarded::<()>("the judge", || panic!("out of {}", "words"));
        assert_eq!(broken, Err("the judge: panicked: out of words".to_owned()));
    }
}
