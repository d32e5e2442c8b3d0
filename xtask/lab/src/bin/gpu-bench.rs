//! `gpu-bench`: the benchmark of `cargo xtask gpu-bench` as a program of its own, for the folder that `gpu-pack` makes.

use antiphon_lab::gpu_bench::{self, Options};
use clap::Parser;
use std::process::ExitCode;

/// Measure plans on one GPU, beside what the GPU itself can do
#[derive(Parser)]
#[command(name = "gpu-bench")]
struct Line {
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    match gpu_bench::run(&Line::parse().options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gpu-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
