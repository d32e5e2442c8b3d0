//! `cargo xtask bench-peers`: collectives of Antiphon, of MPI libraries and Gloo, and of a hand-written floor, measured by one loop.
//!
//! This module takes the options and goes through the rounds; [`peers`] knows how a subject is installed, built and started,
//! [`launch`] runs a group of processes, [`antiphon`] and bench/harness.c are the loop itself, [`report`] writes the tables,
//! [`replay`] those of earlier runs.

pub mod antiphon;
pub mod control;
pub mod executor;
pub mod hosts;
pub mod job;
pub mod launch;
pub mod machine;
pub mod options;
pub mod page;
pub mod peers;
pub mod probe;
pub mod replay;
pub mod report;
pub mod results;

use std::collections::BTreeSet;
use std::time::Duration;

use antiphon::{Load, Seat};
use antiphon_tests::Folder;
use control::Control;
use job::{Collective, Job, Place};
use launch::Ending;
use options::{Options, RankOptions};
use peers::{Group, Ready};
use report::Column;
use results::{Alike, Results};

use crate::{Error, Result, section};

/// Rows whose buffers, over all ranks, need more are left out.
const MOST_BYTES: usize = 1 << 30;

/// More than the caches of the machines that this runs on hold.
const CACHES: usize = 64 << 20;

/// Which rows are not told apart by the cores' distance on this machine.
fn alike() -> Alike {
    Alike { ranks: machine::cores(), bytes: CACHES }
}

/// Measures what `options` ask for, prints the tables, and writes them where wanted.
pub fn run(options: &Options) -> Result<()> {
    if options.list {
        peers::all().iter().for_each(|s| println!("{}", s.name()));
        return Ok(());
    }
    if !options.from.is_empty() {
        return publish(options, &replay::section(&options.from)?);
    }
    let machine = machine::describe();
    let subjects = prepare(options)?;
    let mut bench = Bench { options, results: Results::with(alike()), slow: BTreeSet::new() };
    for round in 1..=options.rounds() {
        for &ranks in &options.ranks {
            for &collective in &options.collectives {
                for subject in &subjects {
                    bench.group(round, ranks, collective, subject)?;
                }
            }
        }
    }
    publish(options, &bench.section(&machine, &subjects))
}

/// Prints a section, and writes it where it is wanted.
fn publish(options: &Options, section: &str) -> Result<()> {
    println!("\n{section}");
    match &options.write {
        Some(path) => section::write(path, "bench-peers", section),
        None => Ok(()),
    }
}

/// Installs and builds the wanted subjects; those that cannot be had are skipped aloud.
fn prepare(options: &Options) -> Result<Vec<Ready>> {
    let known = peers::all();
    for name in options.subjects.iter().flatten() {
        if !known.iter().any(|s| s.name() == name) {
            let names: Vec<&str> = known.iter().map(|s| s.name()).collect();
            return Err(Error::message(format!(
                "cannot measure `{name}`: allowed {}",
                names.join(", ")
            )));
        }
    }
    let wanted = |name: &str| options.subjects.as_ref().is_none_or(|s| s.iter().any(|w| w == name));
    let mut ready = Vec::new();
    for subject in known.into_iter().filter(|s| wanted(s.name())) {
        match subject.prepare(!options.no_install) {
            Ok(subject) => ready.push(subject),
            Err(error) => println!("SKIP subject={}: {error}", subject.name()),
        }
    }
    Ok(ready)
}

struct Bench<'a> {
    options: &'a Options,
    results: Results,
    /// Who ran out of time with which collective and number of ranks: not tried again in later rounds.
    slow: BTreeSet<(&'static str, Collective, usize)>,
}

impl Bench<'_> {
    fn group(
        &mut self,
        round: usize,
        ranks: usize,
        collective: Collective,
        subject: &Ready,
    ) -> Result<()> {
        let name = subject.subject.name();
        let yields = ranks > machine::cores();
        let identity = (name, collective, ranks);
        let sizes = self.sizes(round, ranks, collective);
        if !subject.runs(yields) || self.slow.contains(&identity) || sizes.is_empty() {
            return Ok(());
        }
        let load = Load {
            collective,
            sizes,
            places: self.options.places.clone(),
            iterations: self.options.iterations(),
            iterations_large: self.options.iterations_large(),
            budget: self.options.budget(yields),
            yields,
        };
        let most = load.iterations.max(load.iterations_large);
        let control = Control::create(subject.participants(ranks), most)?;
        let rendezvous = Folder::new(std::env::temp_dir(), "antiphon-bench");
        let rendezvous = rendezvous.map_err(Error::io("make a folder for a group's meeting"))?;
        let path = control.path();
        let group = Group { ranks, load: &load, control: &path, rendezvous: rendezvous.path() };
        let commands = subject.commands(&group);
        let mut rows = Vec::new();
        let before = probe::line_ns();
        let ending = launch::run(commands, &control, limit(&load), &mut |line| {
            match results::parse(line) {
                Some((key, times)) => rows.push((key, times)),
                None if line.starts_with("ROWSKIP ") => {}
                None => return,
            }
            println!("round={round} subject={name} {line}");
        });
        let line = [before, probe::line_ns()];
        println!("round={round} subject={name} LINE before_ns={} after_ns={}", line[0], line[1]);
        for (key, times) in rows {
            self.results.add(name, key, times, line);
        }
        let reason = match ending {
            Ending::Done => return Ok(()),
            Ending::OutOfTime(limit) => {
                self.slow.insert(identity);
                format!("still running after {} s; not tried again", limit.as_secs())
            }
            Ending::Failed(reason) => reason,
        };
        println!(
            "SKIP round={round} subject={name} collective={collective} ranks={ranks}: {reason}"
        );
        Ok(())
    }

    /// The sizes that fit into memory; what does not is said in the first round.
    fn sizes(&self, round: usize, ranks: usize, collective: Collective) -> Vec<usize> {
        let fits = |&bytes: &usize| {
            let job = Job { collective, place: Place::Out, count: bytes / size_of::<f32>(), ranks };
            job.total_bytes() <= MOST_BYTES
        };
        let (fit, not): (Vec<usize>, Vec<usize>) = self.options.sizes().into_iter().partition(fits);
        if round == 1 && !not.is_empty() {
            let not: Vec<String> = not.into_iter().map(report::size).collect();
            let limit = report::size(MOST_BYTES);
            println!(
                "SKIP collective={collective} ranks={ranks} bytes={}: buffers above {limit}",
                not.join(",")
            );
        }
        fit
    }

    fn section(&self, machine: &[String], subjects: &[Ready]) -> String {
        let made = format!("Made by `{}`.", self.options.command_line());
        let facts: Vec<String> =
            machine.iter().cloned().chain(subjects.iter().map(title)).collect();
        let column =
            |s: &Ready| Column { name: s.subject.name().into(), peer: s.subject.is_peer() };
        let columns: Vec<Column> = subjects.iter().map(column).collect();
        page::section(&self.results, &columns, &made, &facts)
    }
}

fn title(subject: &Ready) -> String {
    format!("{}: {}", subject.subject.name(), subject.title)
}

/// Long enough for every row to use up its budget, its start and its twenty iterations of the slowest kind.
pub fn limit(load: &Load) -> Duration {
    let rows = u32::try_from(load.sizes.len() * load.places.len()).unwrap_or(u32::MAX);
    Duration::from_secs(30) + (load.budget * 2 + Duration::from_secs(5)) * rows
}

/// One process of a group of Antiphon ranks, started by [`run`].
pub fn rank(options: &RankOptions) -> Result<()> {
    let entry = executor::entry(&options.subject).ok_or_else(|| {
        Error::message(format!("cannot measure `{}`: no such set-up", options.subject))
    })?;
    let control = Control::open(&options.control)?;
    let seat = Seat {
        participant: options.participant,
        participants: control.participants(),
        ranks: options.ranks,
        rendezvous: options.rendezvous.clone(),
    };
    let joined =
        antiphon::pin(seat.participant).and_then(|()| (entry.open)(&seat).map_err(Error::Message));
    let mut subject = joined.inspect_err(|_| control.fail())?;
    antiphon::measure(&control, &seat, &options.load(), &mut *subject, &mut |key, times| {
        println!("{}", results::line(&key, times.as_ref()));
    })
}
