//! `cargo xtask gpu-compile`: generated kernels through the vendors' own compilers, to machine code, without a GPU.
//!
//! Every operator on every data type, and the built-in and example plans, by NVRTC for three architectures and by hipRTC for
//! one. Where bodies of operations stand alone, no register may spill. What compiles here has not run.

mod compilers;
mod report;
mod texts;

use crate::{Error, Result};
use antiphon_codegen::Target;
use compilers::{Compiled, Compiler};
use report::Report;
use std::collections::HashSet;
use std::time::Instant;

/// What is compiled.
#[derive(clap::Args)]
pub struct Options {
    /// Compile everything for every architecture, and plans of another implementation where they are at hand; takes long
    #[arg(long)]
    all: bool,
    /// Compile only texts whose name has this
    only: Option<String>,
}

/// The architectures of NVIDIA, the one that is compiled for in full first.
const CUDA: [&str; 3] = ["sm_90", "sm_80", "sm_100"];
/// That of AMD.
const HIP: &str = "gfx90a";

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
    /// For the first architecture alone, unless everything is compiled.
    Once,
    /// Where everything is compiled.
    All,
}

/// Compiles.
///
/// # Errors
/// A compiler that cannot be had, a text that does not compile, or registers that spill.
pub fn run(options: &Options) -> Result<()> {
    let started = Instant::now();
    let mut report = Report::default();
    for target in [Target::Cuda, Target::Hip] {
        let compiler = Compiler::open(target)?;
        println!("{}", compiler.name());
        let texts = texts::all(target, options.all)?;
        let architectures: &[&str] = if target == Target::Cuda { &CUDA } else { &[HIP] };
        for (number, architecture) in architectures.iter().enumerate() {
            let first = number == 0 && target == Target::Cuda;
            let mut seen = HashSet::new();
            for text in &texts {
                let wanted = options.only.as_ref().is_none_or(|only| text.name.contains(only));
                let most = if first { When::Once } else { When::Always };
                let wanted = wanted && (options.all || text.when <= most);
                if !wanted || !seen.insert(&text.text) {
                    continue;
                }
                let compiled = compiler.compile(&text.text, architecture, text.bodies)?;
                report.add(text, architecture, &compiled);
            }
        }
    }
    report.print(started.elapsed());
    report.end()
}

fn failed(what: &str, log: &str) -> Error {
    Error::message(format!("cannot compile {what}:\n{log}"))
}
