//! Starting the ranks of a run, as processes or as threads, and seeing them through.

use super::CliError;
use super::children::Children;
use super::collect::{Collector, Finished, Notice};
use super::job::{Event, Job};
use super::measure;
use super::progress::Progress;
use super::ranks::Rank;
use super::signals;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// How ranks are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One process each.
    Processes,
    /// One thread of this process each.
    Threads,
}

impl Mode {
    /// The name in output.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Processes => "processes",
            Mode::Threads => "threads",
        }
    }
}

/// How long the other ranks have to say what they saw, once one has failed, before they are killed. They learn of
/// a failure within a second.
const GRACE: Duration = Duration::from_secs(3);

/// Runs a job to its end. `finished` gets each item as soon as the last rank has reported it. Returns the process
/// id of each rank.
pub fn launch(
    job: Job,
    mode: Mode,
    progress: &Progress,
    mut finished: impl FnMut(Finished) -> Result<(), CliError>,
) -> Result<Vec<u32>, CliError> {
    let (sender, receiver) = channel();
    // Before any thread or child exists, so that all of them inherit the mask.
    signals::watch(sender.clone())?;
    let world = job.settings.world;
    let collector = Collector::new(world, job.settings.items.len());
    progress.say("starting ranks");
    match mode {
        Mode::Processes => {
            // Dropped on every way out, which kills and reaps whoever is left.
            let mut children = Children::spawn(&job, &sender)?;
            let pids = children.pids();
            let label = |rank: u32| match pids.get(rank as usize) {
                Some(pid) => format!("rank {rank} (pid {pid})"),
                None => format!("rank {rank}"),
            };
            let how = |rank| children.how_ended(rank);
            follow(&receiver, collector, progress, &mut finished, how, label)?;
            Ok(pids)
        }
        Mode::Threads => {
            start_threads(job, &sender)?;
            let how = |_| "ended without a word".to_owned();
            let label = |rank| format!("rank {rank} (thread)");
            follow(&receiver, collector, progress, &mut finished, how, label)?;
            Ok(vec![std::process::id(); world as usize])
        }
    }
}

/// Takes notices until every rank has ended, or until the grace after a failure is over.
fn follow(
    receiver: &Receiver<Notice>,
    mut collector: Collector,
    progress: &Progress,
    finished: &mut impl FnMut(Finished) -> Result<(), CliError>,
    mut how_ended: impl FnMut(u32) -> String,
    label: impl Fn(u32) -> String,
) -> Result<(), CliError> {
    let mut deadline: Option<Instant> = None;
    while !collector.all_ended() {
        let notice = match deadline {
            None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(end) => receiver.recv_timeout(end.saturating_duration_since(Instant::now())),
        };
        let Ok(notice) = notice else { break };
        match notice {
            Notice::Interrupted { name, number } => {
                return Err(CliError::Interrupted { name, number });
            }
            Notice::Ended { rank } => collector.ended(rank, || how_ended(rank)),
            Notice::Event { rank, event } => {
                match &event {
                    Event::Phase { item, phase } => {
                        progress.say(format!("size {}: {phase}", item + 1));
                    }
                    Event::NotProven { plan, why } => progress.aside(|| warn(plan, why)),
                    _ => {}
                }
                if let Some(item) = collector.event(rank, event) {
                    progress.step();
                    finished(item)?;
                }
            }
        }
        if collector.failed() && deadline.is_none() {
            deadline = Some(Instant::now() + GRACE);
        }
    }
    collector.outcome(label)
}

/// Says that a plan runs that may be wrong.
pub fn warn(plan: &str, why: &str) {
    eprintln!("warning: plan `{plan}` is not proven correct: {why}; see `antiphon plan verify`");
}

/// Warns where `variable` is `off`, as it is for what cargo runs in this repository, since what a command leaves behind has no
/// effect then.
pub fn warn_if_off(variable: &str, effect: &str) {
    if std::env::var_os(variable).is_some_and(|value| value == "off") {
        eprintln!("warning: {variable} is off here, so {effect}; unset it, or set it to nothing");
    }
}

fn start_threads(job: Job, sender: &Sender<Notice>) -> Result<(), CliError> {
    let ranks = Rank::all_in_process(&job.settings)?;
    let job = Arc::new(job);
    for (number, rank) in (0u32..).zip(ranks) {
        let (job, sender) = (Arc::clone(&job), sender.clone());
        let body = move || {
            let mut report = |event| {
                // The receiver is gone only when the run is over anyway.
                let _ = sender.send(Notice::Event { rank: number, event });
            };
            // The panic's own message has gone to standard error; peers must not wait for this rank.
            if catch_unwind(AssertUnwindSafe(|| measure::run(&rank, &job, &mut report))).is_err() {
                rank.abort("a rank's thread panicked");
                report(Event::Failed { message: "panicked".into() });
            }
            drop(rank);
            let _ = sender.send(Notice::Ended { rank: number });
        };
        std::thread::Builder::new()
            .name(format!("rank {number}"))
            .spawn(body)
            .map_err(CliError::no_thread)?;
    }
    Ok(())
}
