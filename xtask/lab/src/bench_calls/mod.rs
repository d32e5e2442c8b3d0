//! `cargo xtask bench-calls`: what a call costs by each way in, side by side: an allreduce of 16 bytes between two idle ranks.
//!
//! Two processes make the calls; `ways` knows each way, and takes turns among them, so that all see the same machine. Python's
//! are made by two processes of their own, in turns with these.

mod ways;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use clap::Args;

use crate::bench::machine;
use crate::{Error, Result, repo, section};

/// What to measure, and where to write it.
#[derive(Args, Debug)]
pub struct Options {
    /// Calls of each way in a turn
    #[arg(long, default_value_t = 20_000)]
    calls: usize,
    /// Turns of each way
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// A Python that has the package antiphon; without one there is no row for it
    #[arg(long)]
    python: Option<PathBuf>,
    /// Write the table into this document, relative to the workspace root
    #[arg(long)]
    write: Option<PathBuf>,
    /// Measure what was built for debugging, to try the task itself
    #[arg(long)]
    debug: bool,
}

/// Which process of the two this is.
#[derive(Args, Debug)]
pub struct RankOptions {
    #[arg(long)]
    rank: u32,
    /// Where the ranks meet
    #[arg(long)]
    address: String,
    #[arg(long)]
    calls: usize,
    /// The folder of libantiphon_c.so and libantiphon_nccl.so
    #[arg(long)]
    libraries: PathBuf,
}

/// The way that others are held against.
const BARE: &str = "Executor";

/// What Python's ranks run: they say the nanoseconds of each call as the others do.
const PYTHON: &str = "
import os, sys, time
import numpy, antiphon
x, calls, clock = numpy.ones(4, numpy.float32), int(sys.argv[1]), time.perf_counter_ns
one = antiphon.Communicator.from_environment()
cores = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, {cores[one.rank % len(cores)]})
def measure(count):
    taken = []
    for _ in range(count):
        x[:] = 1
        start = clock()
        one.all_reduce(x)
        taken.append(clock() - start)
    return taken
measure(200)
taken = measure(calls)
if one.rank == 0:
    print('\\n'.join(f'Python\\t{t}' for t in taken))
";

/// Measures, prints the table, and writes it where wanted.
///
/// # Errors
/// What cargo, the ranks or the file system say.
pub fn run(options: &Options) -> Result<()> {
    if cfg!(debug_assertions) && !options.debug {
        let text = "cannot measure calls of a debug build: run `cargo xtask bench-calls`";
        return Err(Error::message(text.to_owned()));
    }
    let mut build = repo::cargo();
    build.args(["build", "-p", "antiphon-ffi", "-p", "antiphon-nccl", "--lib"]);
    if !options.debug {
        build.arg("--release");
    }
    repo::stream("build the libraries", &mut build)?;
    let libraries = repo::target_dir().join(if options.debug { "debug" } else { "release" });
    let mut samples = Samples::default();
    for round in 0..options.rounds {
        let meeting = format!("{}{round:08x}", std::process::id());
        let ranks = (0..2).map(|rank| start_rank(options, &libraries, rank, &meeting));
        samples.take(ranks.collect::<Result<Vec<_>>>()?)?;
        if let Some(python) = &options.python {
            let ranks =
                (0..2).map(|rank| start_python(options, python, &libraries, rank, &meeting));
            samples.take(ranks.collect::<Result<Vec<_>>>()?)?;
        }
    }
    let machine: String = machine::describe().iter().map(|line| format!("- {line}\n")).collect();
    let Options { calls, rounds, .. } = options;
    let made = format!("Made by `cargo xtask bench-calls --calls {calls} --rounds {rounds}`.");
    let text = format!("{made}\n\n{machine}\n{}", samples.table()?);
    println!("{text}");
    match &options.write {
        Some(path) => section::write(path, "bench-calls", &text),
        None => Ok(()),
    }
}

/// One of the two processes of all ways but Python's.
///
/// # Errors
/// What a call says.
pub fn rank(options: &RankOptions) -> Result<()> {
    let taken = ways::measure(options.rank, &options.address, options.calls, &options.libraries);
    let taken = taken.map_err(|why| Error::message(format!("rank {}: {why}", options.rank)))?;
    let mut out = String::new();
    for (name, times) in taken.iter().filter(|_| options.rank == 0) {
        for time in times {
            out.push_str(&format!("{name}\t{time}\n"));
        }
    }
    print!("{out}");
    Ok(())
}

fn start_rank(options: &Options, libraries: &PathBuf, rank: u32, meeting: &str) -> Result<Child> {
    let own = std::env::current_exe().map_err(Error::io("find this program".to_owned()))?;
    let mut command = Command::new(own);
    command.args(["bench-calls-rank", "--rank", &rank.to_string()]);
    command.args(["--address", &format!("antiphon-calls-{meeting}")]);
    command.args(["--calls", &options.calls.to_string(), "--libraries"]).arg(libraries);
    command.env("ANTIPHON_LIB_PATH", libraries.join("libantiphon_c.so"));
    start(command.env("ANTIPHON_DEVICE", "host"))
}

fn start_python(
    options: &Options,
    python: &PathBuf,
    libraries: &Path,
    rank: u32,
    meeting: &str,
) -> Result<Child> {
    let mut command = Command::new(python);
    command.env("ANTIPHON_LIB_PATH", libraries.join("libantiphon_c.so"));
    command.args(["-c", PYTHON, &options.calls.to_string()]);
    command.env("ANTIPHON_RANK", rank.to_string()).env("ANTIPHON_WORLD", "2");
    start(command.env("ANTIPHON_COMM_ID", format!("antiphon-{meeting:0>32}")))
}

fn start(command: &mut Command) -> Result<Child> {
    // All ways run the plan of the rule by size, by the library that was built just now.
    command.env("ANTIPHON_TUNING", "off");
    for name in ["ANTIPHON_NCCL_LIB_PATH", "MSCCLPP_NCCL_LIB_PATH", "ANTIPHON_REPRODUCIBLE"] {
        command.env_remove(name);
    }
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    spawned.map_err(Error::io(format!("start {command:?}")))
}

/// Nanoseconds of every call, by way, in the order in which the ways came.
#[derive(Debug, Default)]
struct Samples(Vec<(String, Vec<u64>)>);

impl Samples {
    /// Takes what the ranks print. All end before any of them is found to have failed.
    fn take(&mut self, ranks: Vec<Child>) -> Result<()> {
        let ended: Vec<_> = ranks.into_iter().map(Child::wait_with_output).collect();
        for output in ended {
            let output = output.map_err(Error::io("wait for a rank".to_owned()))?;
            if !output.status.success() {
                return Err(Error::message(format!("a rank ended with {}", output.status)));
            }
            self.read(&String::from_utf8_lossy(&output.stdout))?;
        }
        Ok(())
    }

    fn read(&mut self, text: &str) -> Result<()> {
        for line in text.lines() {
            let parsed =
                line.split_once('\t').and_then(|(name, time)| Some((name, time.parse().ok()?)));
            let (name, time): (&str, u64) = parsed
                .ok_or_else(|| Error::message(format!("cannot read what a rank says: `{line}`")))?;
            match self.0.iter_mut().find(|(known, _)| known == name) {
                Some((_, times)) => times.push(time),
                None => self.0.push((name.to_owned(), vec![time])),
            }
        }
        Ok(())
    }

    fn table(mut self) -> Result<String> {
        self.0.iter_mut().for_each(|(_, times)| times.sort_unstable());
        let bare = self.0.iter().find(|(name, _)| name == BARE);
        let bare = bare.and_then(|(_, times)| quantile(times, 0.5));
        let bare = bare.ok_or_else(|| Error::message(format!("no call of the {BARE}'s own")))?;
        let mut text = String::from(
            "| allreduce of 16 B, 2 ranks, called by | p50, ns | p99, ns | p50 more than the Executor's, ns |\n|---|---|---|---|\n",
        );
        for (name, times) in &self.0 {
            let of = |share| quantile(times, share).unwrap_or(0);
            let more = of(0.5).cast_signed() - bare.cast_signed();
            text.push_str(&format!("| {name} | {} | {} | {more} |\n", of(0.5), of(0.99)));
        }
        Ok(text)
    }
}

/// The value that this share of the sorted times do not exceed.
fn quantile(sorted: &[u64], share: f64) -> Option<u64> {
    let at = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_held_against_the_bare_call() {
        let mut samples = Samples::default();
        for time in 1..=100 {
            samples.read(&format!("{BARE}\t{time}\nC\t{}", time + 7)).expect("lines");
        }
        let table = samples.table().expect("a table");
        assert!(table.contains("| Executor | 50 | 99 | 0 |\n| C | 57 | 106 | 7 |\n"), "{table}");
    }

    #[test]
    fn what_no_rank_says_is_refused() {
        assert!(Samples::default().read("C seven").is_err());
        assert!(Samples::default().table().is_err());
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(quantile(&[3], 0.99), Some(3));
    }
}
