//! The command line of the tasks that have the library. `cargo xtask` hands them on.

use std::path::PathBuf;
use std::process::ExitCode;

use antiphon_lab::bench::{self, hosts, options::Options, options::RankOptions};
use antiphon_lab::{
    Result, bench_calls, defaults, gpu_bench, gpu_compile, gpu_pack, gpu_prebuilt, mutate,
    simulator,
};
use clap::{Parser, Subcommand};

/// Developer tasks that have the library
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Line {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Write the tables of which built-in algorithm serves which sizes into the manual
    Defaults {
        /// Keep what `antiphon tune` wrote into these files, and derive from what is kept who serves which sizes on hosts
        #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["predict", "measured"])]
        from: Vec<PathBuf>,
        /// Ask the simulator what is the fastest on GPUs, and on hosts that nobody has measured, and write it into the tables that
        /// are chosen by
        #[arg(long, conflicts_with = "measured")]
        predict: bool,
        /// Fit the machine that stands for hosts to what is kept of two ranks; of these files, which `antiphon info --measure`
        /// wrote here, their medians, else as it is kept
        #[arg(long, value_name = "FILE", num_args = 0.., conflicts_with_all = ["from", "predict", "measured"])]
        fit: Option<Vec<PathBuf>>,
        /// Tables of `antiphon tune`: write instead how the rule does by them
        #[arg(long, value_name = "FILE", num_args = 1..)]
        measured: Vec<PathBuf>,
        /// With it, another such table: write instead how the choices by that one do
        #[arg(long, value_name = "FILE", requires = "measured")]
        tuned_by: Option<PathBuf>,
        /// Ask the simulator where presets of the Python package beat what is built in on GPUs, and write that instead; takes a
        /// Python that has the package, which ANTIPHON_PYTHON names
        #[arg(long, conflicts_with_all = ["from", "predict", "measured"])]
        presets: bool,
        /// With it: only see that the manual says so
        #[arg(long, requires = "presets")]
        check: bool,
    },
    /// Break plans on purpose and measure whether the verifier notices
    Mutate(mutate::options::Options),
    /// Compile generated kernels by the vendors' compilers, without a GPU
    GpuCompile(gpu_compile::Options),
    /// Compile the interpreting kernel for machines without a compiler, into the repository
    GpuPrebuilt,
    /// Measure plans on one GPU, beside what the GPU itself can do
    GpuBench(gpu_bench::Options),
    /// Pack a folder that checks and measures a machine with a GPU
    GpuPack(gpu_pack::Options),
    /// Measure collectives beside MPI libraries, Gloo and a hand-written floor
    BenchPeers(Options),
    /// Measure allreduce over two hosts (network namespaces) beside Open MPI, and the wire below it
    BenchHosts(hosts::options::Options),
    /// Measure what a call costs from Rust, C, NCCL's interface and Python, beside the Executor's own
    BenchCalls(bench_calls::Options),
    /// Hold predictions for this machine against the clock: are algorithms in the right order?
    CheckSimulator(simulator::Options),
    /// One process of a measured group; started by bench-peers and bench-hosts
    #[command(hide = true)]
    BenchRank(RankOptions),
    /// One process of bench-calls
    #[command(hide = true)]
    BenchCallsRank(bench_calls::RankOptions),
}

fn run(task: &Task) -> Result<()> {
    match task {
        Task::Defaults { from, .. } if !from.is_empty() => defaults::derived::run(from),
        Task::Defaults { fit: Some(fit), .. } => defaults::host::run(fit),
        Task::Defaults { predict: true, .. } => {
            defaults::predicted::run()?;
            defaults::host::rules::run()?;
            defaults::host::held::run()
        }
        Task::Defaults { presets: true, check, .. } => defaults::presets::run(*check),
        Task::Defaults { measured, tuned_by, .. } if !measured.is_empty() => {
            defaults::measured::run(measured, tuned_by.as_deref())
        }
        Task::Defaults { .. } => defaults::run(),
        Task::Mutate(options) => mutate::run(options),
        Task::GpuCompile(options) => gpu_compile::run(options),
        Task::GpuPrebuilt => gpu_prebuilt::run(),
        Task::GpuBench(options) => gpu_bench::run(options),
        Task::GpuPack(options) => gpu_pack::run(options),
        Task::BenchPeers(options) => bench::run(options),
        Task::BenchHosts(options) => hosts::run(options),
        Task::CheckSimulator(options) => simulator::check(options),
        Task::BenchRank(options) => bench::rank(options),
        Task::BenchCalls(options) => bench_calls::run(options),
        Task::BenchCallsRank(options) => bench_calls::rank(options),
    }
}

fn main() -> ExitCode {
    match run(&Line::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_tasks_are_those_that_are_handed_on() {
        let command = Line::command();
        let shown = command.get_subcommands().filter(|task| !task.is_hide_set());
        let mut own: Vec<(String, String)> = shown
            .map(|task| (task.get_name().to_owned(), task.get_about().unwrap().to_string()))
            .collect();
        own.sort();
        let known = xtask::lab::TASKS.map(|(name, what)| (name.to_owned(), what.to_owned()));
        assert_eq!(own, known);
    }
}
