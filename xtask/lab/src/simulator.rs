//! Whether predictions put algorithms in the right order: those of this machine against the clock.

use crate::{Error, Result};
use antiphon::calibrate;
use antiphon::plan::algorithms::{Algorithm, Handshake, Shape};
use antiphon::plan::model::Collective;
use antiphon::plan::program::{CallSizes, Layout};
use antiphon::plan::simulate::{Topology, simulate};
use clap::Args;
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// Pairs that differ by less are nobody's business.
const APART: f64 = 1.2;
/// The share of pairs that must be in order.
const TARGET: f64 = 0.9;

/// What to compare.
#[derive(Debug, Args)]
pub struct Options {
    /// Topology file of this machine [default: measure it now]
    #[arg(long)]
    topology: Option<PathBuf>,
    /// Numbers of ranks, each at least 1
    #[arg(long, value_delimiter = ',', default_values = ["2", "4", "8"])]
    ranks: Vec<NonZeroUsize>,
    /// Message sizes in bytes
    #[arg(long, value_delimiter = ',', default_values_t = [1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22])]
    sizes: Vec<u64>,
    /// Timed launches of each algorithm at each size
    #[arg(long, default_value_t = 50)]
    launches: usize,
    /// Compare the fastest launches, not the median ones: for a machine that is not quiet
    #[arg(long)]
    fastest: bool,
    /// Print every time, and every pair in the wrong order
    #[arg(short, long)]
    verbose: bool,
}

/// One algorithm at one size.
struct Case {
    name: String,
    measured: f64,
    predicted: f64,
}

/// Runs all built-in algorithms on the clock and in the simulator, and counts the pairs in the right order.
///
/// # Errors
/// Something cannot be run, or too few pairs are in order.
pub fn check(options: &Options) -> Result<()> {
    let error = |error: &dyn std::fmt::Display| Error::message(error.to_string());
    let topology = match &options.topology {
        None => calibrate::host().map_err(|e| error(&e))?,
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|e| error(&e))?;
            Topology::parse(&text).map_err(|e| error(&e))?
        }
    };
    if options.verbose {
        println!("{}", topology.to_text());
    }
    let (mut right, mut apart) = (0, 0);
    for ranks in options.ranks.iter().map(|ranks| ranks.get()) {
        let (mut right_here, mut apart_here) = (0, 0);
        for collective in collectives() {
            for &bytes in &options.sizes {
                let cases = cases(&collective, ranks, bytes, &topology, options)?;
                for (at, a) in cases.iter().enumerate() {
                    for b in &cases[at + 1..] {
                        let ratio = a.measured / b.measured;
                        if ratio.max(1.0 / ratio) < APART {
                            continue;
                        }
                        apart_here += 1;
                        let agree = (a.predicted < b.predicted) == (a.measured < b.measured);
                        right_here += u32::from(agree);
                        if !agree && options.verbose {
                            let predicted = a.predicted / b.predicted;
                            println!(
                                "wrong: {ranks} ranks, {bytes} B: {} / {} is {ratio:.2}, predicted {predicted:.2}",
                                a.name, b.name
                            );
                        }
                    }
                }
            }
        }
        println!("{ranks} ranks: {right_here} of {apart_here} pairs in order");
        right += right_here;
        apart += apart_here;
    }
    let share = if apart == 0 { 1.0 } else { f64::from(right) / f64::from(apart) };
    println!("all: {right} of {apart} pairs in order, {:.1} %", 100.0 * share);
    if share < TARGET {
        return Err(Error::message(format!(
            "the simulator puts {:.1} % of the pairs in order, allowed {:.0} % or more; run it on a quiet machine",
            100.0 * share,
            100.0 * TARGET
        )));
    }
    Ok(())
}

fn collectives() -> Vec<Collective> {
    let mut found: Vec<Collective> = Vec::new();
    for algorithm in Algorithm::ALL {
        if !found.contains(&algorithm.collective()) {
            found.push(algorithm.collective());
        }
    }
    found
}

fn cases(
    collective: &Collective,
    ranks: usize,
    bytes: u64,
    topology: &Topology,
    options: &Options,
) -> Result<Vec<Case>> {
    let error = |error: &dyn std::fmt::Display| Error::message(error.to_string());
    let sizes = sizes(collective, ranks as u64, bytes);
    let mut cases = Vec::new();
    // On one node, hierarchical algorithms are others under another name.
    for algorithm in Algorithm::all_for(collective).filter(|algorithm| !algorithm.is_hierarchical())
    {
        for handshake in [Handshake::Everyone, Handshake::Hub] {
            let shape = Shape { handshake, ..Shape::new(ranks) };
            let plan = algorithm.plan(shape).map_err(|e| error(&e))?;
            let same = algorithm.plan(Shape::new(ranks)).map_err(|e| error(&e))? == plan;
            if handshake == Handshake::Hub && same {
                continue;
            }
            let times = calibrate::time(&plan, sizes, options.launches).map_err(|e| error(&e))?;
            let layout = Layout::new(&plan).map_err(|e| error(&e))?;
            let timeline = simulate(&layout, sizes, topology).map_err(|e| error(&e))?;
            let hub = if handshake == Handshake::Hub { " (hub)" } else { "" };
            let name = format!("{algorithm}{hub}");
            let measured = if options.fastest { times.least() } else { times.median() };
            let predicted = timeline.end;
            if options.verbose {
                println!(
                    "{ranks} ranks, {bytes:>8} B, {name:<36} measured {:>10.2} us, predicted {:>10.2} us",
                    measured * 1e6,
                    predicted * 1e6
                );
            }
            cases.push(Case { name, measured, predicted });
        }
    }
    Ok(cases)
}

/// The buffers of a message of floats of so many bytes, as nccl-tests counts them.
fn sizes(collective: &Collective, ranks: u64, bytes: u64) -> CallSizes {
    let block = (bytes / ranks / 4).max(1) * 4;
    let (input, output) = match collective {
        Collective::AllGather => (block, block * ranks),
        Collective::ReduceScatter => (block * ranks, block),
        _ => (block * ranks, block * ranks),
    };
    CallSizes { input, output, element: 4, strict: false }
}
