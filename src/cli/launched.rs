//! A run whose ranks a launcher started, on one host or on many: this process is one of them.
//!
//! Rank 0 decides what is run: it alone reads plans, and gives the job to the others. Every rank tells all others
//! what it measured, so that all end with the same verdict, and rank 0 prints it. There is no parent that could watch
//! the ranks; they watch each other.

use super::collect::{Collector, Finished};
use super::job::{Event, Job};
use super::launch::warn;
use super::progress::{Pace, Progress};
use super::ranks::{self, Rank};
use super::report::{Report, Start};
use super::{CliError, MeasureArgs, measure};
use antiphon::executor::launcher::{Found, VARIABLES};
use antiphon::executor::selection::Devices;
use std::collections::BTreeSet;
use std::process::ExitCode;

/// What a launcher says, if this run is to be one of its ranks.
pub fn find(args: &MeasureArgs, ranks: Option<u32>) -> Result<Option<Found>, CliError> {
    if args.threads || args.processes || ranks.is_some() {
        return Ok(None);
    }
    match ranks::find_launcher() {
        // One process is not a job that somebody started, but the ordinary command inside an allocation.
        Ok(found) if !args.launched => Ok(found.filter(|found| found.world > 1)),
        Ok(Some(found)) => Ok(Some(found)),
        Ok(None) => Err(CliError::Usage(format!(
            "cannot be a rank of a launched job: saw none of {VARIABLES}; start the ranks by one of these, or set \
             ANTIPHON_RANK, ANTIPHON_WORLD and ANTIPHON_COMM_ID; a job of one rank takes ANTIPHON_WORLD=1 alone"
        ))),
        Err(error) => Err(CliError::Usage(format!(
            "{error}\n  (--processes starts the ranks here and asks no launcher)"
        ))),
    }
}

/// What is known of a run's ranks before there is a job.
pub struct Started {
    /// The node of each rank.
    pub nodes: Vec<u32>,
    /// Some machine has more ranks than cores.
    pub crowded: bool,
    /// What the ranks run on.
    pub devices: Devices,
}

/// Takes this rank's part in a run. `plan` makes the job, on rank 0.
pub fn run(
    found: &Found,
    args: &MeasureArgs,
    plan: impl FnOnce(&Started) -> Result<Job, CliError>,
) -> Result<ExitCode, CliError> {
    let label = |error: CliError| match error {
        // Usage errors keep their exit status.
        CliError::Usage(text) => CliError::Usage(format!("rank {}: {text}", found.rank)),
        other => CliError::Rank(format!("rank {}: {other}", found.rank)),
    };
    let options = args.options().map_err(label)?;
    let number = ranks::number_on_host().map_err(label)?;
    let device = ranks::device(args.device, number).map_err(label)?;
    let rank = Rank::join(found, options.with_device(device)).map_err(label)?;
    let job = agree(&rank, found, plan).map_err(|error| {
        rank.abort(&error.to_string());
        label(error)
    })?;
    follow(&rank, found, &job, args.json).map_err(label)
}

/// Gets the job from rank 0.
fn agree(
    rank: &Rank,
    found: &Found,
    plan: impl FnOnce(&Started) -> Result<Job, CliError>,
) -> Result<Job, CliError> {
    if found.rank != 0 {
        let lines = rank.exchange(&[])?;
        let line = lines.first().map(|line| String::from_utf8_lossy(line)).unwrap_or_default();
        return Job::from_line(&line);
    }
    let job =
        plan(&Started { nodes: rank.nodes()?, crowded: rank.crowded(), devices: rank.devices()? })?;
    if job.settings.world != found.world {
        let name = job.plans.first().map_or("", |plan| plan.name.as_str());
        return Err(CliError::Usage(format!(
            "cannot run plan `{name}` over {} ranks, which {} started: it is made for {}; start as many",
            found.world, found.launcher, job.settings.world
        )));
    }
    rank.exchange(job.to_line()?.as_bytes())?;
    Ok(job)
}

/// Runs the job; every rank hears what every other measured.
fn follow(rank: &Rank, found: &Found, job: &Job, json: bool) -> Result<ExitCode, CliError> {
    let items = job.settings.items.len();
    let (progress, mut report) = if found.rank == 0 {
        let nodes: BTreeSet<u32> = rank.nodes()?.into_iter().collect();
        let launcher = Some(found.launcher);
        let start = Start { mode: "launched", launcher, nodes: nodes.len() };
        (Progress::new(items as u64, Pace::Uneven), Some(Report::begin(job, start, json)?))
    } else {
        (Progress::silent(), None)
    };
    let mut collector = Collector::new(found.world, items);
    let mut wrong = 0;
    let mut failure: Option<CliError> = None;
    let mut listen = |event: Event| match event {
        Event::Phase { item, phase } => progress.say(format!("size {}: {phase}", item + 1)),
        Event::NotProven { plan, why } => progress.aside(|| warn(&plan, &why)),
        Event::Ready | Event::Done => {}
        // What failed first is the cause of the rest.
        Event::Failed { message } => {
            failure.get_or_insert(CliError::Rank(message));
        }
        measured @ Event::Measured { .. } => {
            let taken = gather(rank, &mut collector, &measured).and_then(|finished| {
                let Some(finished) = finished else { return Ok(()) };
                wrong += finished.wrong.unwrap_or(0);
                progress.step();
                report.as_mut().map_or(Ok(()), |report| report.take(finished, &progress))
            });
            if let Err(error) = taken {
                rank.abort(&error.to_string());
                failure.get_or_insert(error);
            }
        }
    };
    measure::run(rank, job, &mut listen);
    drop(progress);
    if let Some(error) = failure {
        return Err(error);
    }
    // Nobody leaves while others may still need it.
    rank.barrier()?;
    match report {
        Some(report) => report.end(&rank.pids(), &rank.wires()),
        None => Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
    }
}

/// Tells all ranks what this one measured of an item, and puts together what they did.
fn gather(
    rank: &Rank,
    collector: &mut Collector,
    measured: &Event,
) -> Result<Option<Finished>, CliError> {
    let garbled = |error| CliError::Executor(format!("cannot pass on what was measured: {error}"));
    let mine = serde_json::to_vec(measured).map_err(garbled)?;
    let mut finished = None;
    for (peer, bytes) in (0..).zip(rank.exchange(&mine)?) {
        let event = serde_json::from_slice(&bytes).map_err(garbled)?;
        finished = collector.event(peer, event).or(finished);
    }
    Ok(finished)
}
