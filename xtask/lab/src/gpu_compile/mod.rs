//! `cargo xtask gpu-compile`: generated kernels through the vendors' own compilers, to machine code, without a GPU.
//!
//! Every operator on every data type and the built-in and example plans by NVRTC and by hipRTC, and what holds instructions of one
//! architecture for all of them, and by the oldest NVRTC that is served; on request, all for all. Where bodies of operations stand alone, no
//! register may spill. What compiles here has not run.

pub(crate) mod compilers;
mod loops;
mod report;
mod texts;
pub(crate) mod times;

use crate::{Error, Result, section};
use antiphon_codegen::Target;
use compilers::{Code, Compiled, Compiler};
use report::Report;
use std::collections::HashSet;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

/// What is compiled.
#[derive(clap::Args)]
pub struct Options {
    /// Compile everything for every architecture, and plans of another implementation where they are at hand; takes long
    #[arg(long)]
    all: bool,
    /// Measure how long programs of many steps take to compile instead
    #[arg(long)]
    times: bool,
    /// Count instructions of the hot loops instead, of what NVRTC compiles; its registers, and that none spill
    #[arg(long, conflicts_with = "times")]
    loops: bool,
    /// Write the table to this document rather than only printing it
    #[arg(long, value_name = "PATH")]
    write: Option<PathBuf>,
    /// Compile only texts whose name has this
    only: Option<String>,
}

/// The architectures of NVIDIA, the one that is compiled for in full first.
const CUDA: [&str; 3] = ["sm_90", "sm_80", "sm_100"];
/// That of AMD.
const HIP: &str = "gfx90a";

/// The compilers of each vendor.
const VENDORS: [&[(Target, Code)]; 2] = [
    &[(Target::Cuda, Code::Machine), (Target::Cuda, Code::MachineOfOldest)],
    &[(Target::Hip, Code::Machine)],
];

/// A text to compile.
struct Text {
    name: String,
    text: String,
    /// Whether it is bodies alone, whose registers must do.
    bodies: bool,
    when: When,
}

/// When a text is compiled.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd)]
enum When {
    /// For every architecture.
    Always,
    /// For the first architecture of each vendor, unless everything is compiled.
    Once,
    /// Where everything is compiled.
    All,
}

/// What makes a table for the page of measurements.
type Table = fn() -> Result<String>;

/// Compiles.
///
/// # Errors
/// A compiler that cannot be had, a text that does not compile, or registers that spill.
pub fn run(options: &Options) -> Result<()> {
    let tables: [(bool, &str, Table); 2] = [
        (options.times, "kernel compile times", times::table),
        (options.loops, "kernel loops", loops::table),
    ];
    if let Some((_, name, table)) = tables.into_iter().find(|(wanted, ..)| *wanted) {
        let table = table()?;
        print!("{table}");
        return match &options.write {
            Some(document) => section::write(document, name, &table),
            None => Ok(()),
        };
    }
    if options.write.is_some() {
        return Err(Error::message("cannot write a table: saw neither --times nor --loops"));
    }
    let started = Instant::now();
    // What is missing is installed by one thread.
    let vendors = VENDORS.iter().map(|codes| codes.iter().map(opened).collect());
    let vendors: Vec<Vec<_>> = vendors.collect::<Result<_>>()?;
    // AMD's takes one text at a time, so the vendors' compile side by side.
    let reports: Vec<_> = thread::scope(|scope| {
        let started = vendors.iter().map(|opened| scope.spawn(|| reported(opened, options)));
        let started: Vec<_> = started.collect();
        let joined = started.into_iter().map(|vendor| vendor.join());
        joined.map(|report| report.unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    let reports = reports.into_iter().collect::<Result<Vec<_>>>()?;
    let report = reports.into_iter().fold(Report::default(), Report::and);
    report.print(started.elapsed());
    report.end()
}

fn opened(&code: &(Target, Code)) -> Result<((Target, Code), Compiler)> {
    let compiler = Compiler::open(code.0, code.1)?;
    println!("{}", compiler.name());
    Ok((code, compiler))
}

/// What comes out of the compilers of a vendor, one after the other.
fn reported(compilers: &[((Target, Code), Compiler)], options: &Options) -> Result<Report> {
    let mut report = Report::default();
    for &((target, code), ref compiler) in compilers {
        let texts = texts::all(target, options.all)?;
        let jobs = jobs((target, code), &texts, options);
        // By what spills is judged: hipRTC tells nothing of that, and machine code of the oldest is nobody's who has a newer one.
        let inlined = (target, code) == (Target::Cuda, Code::Machine);
        for ((text, architecture), compiled) in jobs.iter().zip(compile(compiler, &jobs, inlined)) {
            report.add((text, text.bodies && inlined), architecture, &compiled?);
        }
    }
    Ok(report)
}

/// Which texts are compiled for what; none twice for the same.
fn jobs<'t>(
    (target, code): (Target, Code),
    texts: &'t [Text],
    options: &Options,
) -> Vec<(&'t Text, &'static str)> {
    let oldest = code == Code::MachineOfOldest;
    let architectures: &[&str] = match target {
        // One is enough, and the newest it does not know.
        Target::Cuda if oldest => &CUDA[..1],
        Target::Cuda => &CUDA,
        Target::Hip => &[HIP],
    };
    let mut seen = HashSet::new();
    let mut jobs = Vec::new();
    for (number, &architecture) in architectures.iter().enumerate() {
        let most = if number == 0 && !oldest { When::Once } else { When::Always };
        let wanted = |text: &&Text| {
            options.only.as_ref().is_none_or(|only| text.name.contains(only))
                && (options.all || text.when <= most)
        };
        let texts = texts.iter().filter(wanted);
        jobs.extend(texts.map(|text| (text, architecture)));
    }
    jobs.retain(|&(text, architecture)| seen.insert((&text.text, architecture)));
    jobs
}

/// What becomes of each, in their order, bodies `inlined` or not. As many at once as the compiler may.
fn compile(compiler: &Compiler, jobs: &[(&Text, &str)], inlined: bool) -> Vec<Result<Compiled>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let done = std::iter::from_fn(|| {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let (text, architecture) = jobs.get(at)?;
            Some((at, compiler.compile(&text.text, architecture, text.bodies && inlined)))
        });
        done.collect::<Vec<_>>()
    };
    let mut done: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..compiler.at_once()).map(|_| scope.spawn(work)).collect();
        let joined = workers.into_iter().map(|worker| worker.join());
        joined.flat_map(|done| done.unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    done.sort_by_key(|&(at, _)| at);
    done.into_iter().map(|(_, compiled)| compiled).collect()
}

fn failed(what: &str, log: &str) -> Error {
    Error::message(format!("cannot compile {what}:\n{log}"))
}
