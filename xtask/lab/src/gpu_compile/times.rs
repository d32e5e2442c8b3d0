//! How long the compilers take over long programs.
//!
//! Programs of random steps, since what repeats would become a loop: nothing a person would write is worse.

use super::compilers::{Code, Compiler};
use super::{CUDA, HIP, failed};
use crate::mutate::random::Random;
use crate::{Error, Result};
use antiphon_codegen::{Target, Variant, generate};
use antiphon_plan::builder::{BuildError, ProgramBuilder};
use antiphon_plan::model::{Collective, Plan};
use antiphon_plan::program::Layout;
use antiphon_plan::{DataType, ReduceOp};
use std::fmt::Write as _;
use std::time::Duration;

/// Steps of a rank's program, over all blocks.
const STEPS: [usize; 5] = [96, 384, 768, 1600, 4000];
/// Thread blocks that share them.
const BLOCKS: usize = 32;
/// How often each is compiled; the quickest counts, since other programs only slow it down.
const TIMES: usize = 3;

/// The table: a row for each length, a column for each compiler.
///
/// # Errors
/// A compiler that cannot be had, and a program that does not compile.
pub fn table() -> Result<String> {
    let mut out = String::from(
        "| steps in 32 blocks | lines of source | NVRTC 13, sm_90 | hipRTC, gfx90a |\n",
    );
    out.push_str("|---|---|---|---|\n");
    let compilers = [(Target::Cuda, CUDA[0]), (Target::Hip, HIP)];
    let mut opened = Vec::new();
    for (target, architecture) in compilers {
        opened.push((target, architecture, Compiler::open(target, Code::Machine)?));
    }
    for steps in STEPS {
        let plan = random(steps).map_err(|error| {
            Error::message(format!("cannot write a plan of {steps} steps: {error}"))
        })?;
        let lower =
            |error| Error::message(format!("cannot lower a plan of {steps} steps: {error}"));
        let layout = Layout::new(&plan).map_err(lower)?;
        let mut lines = 0;
        let mut cells = Vec::new();
        for (target, architecture, compiler) in &opened {
            let variant =
                Variant { target: *target, dtype: DataType::F16, op: Some(ReduceOp::Sum) };
            let made = generate(&layout, 0, variant);
            let text = made.map_err(|error| Error::message(error.to_string()))?.text;
            lines = lines.max(text.lines().count());
            let mut best = Duration::MAX;
            for _ in 0..TIMES {
                let compiled = compiler.compile(&text, architecture, false)?;
                compiled
                    .code
                    .map_err(|log| failed(&format!("{steps} steps for {architecture}"), &log))?;
                best = best.min(compiled.took);
            }
            cells.push(format!("{:.2} s", best.as_secs_f64()));
        }
        let _ = writeln!(out, "| {steps} | {lines} | {} |", cells.join(" | "));
    }
    Ok(out)
}

/// A plan whose first rank has so many steps, none of which is like its neighbours.
pub(crate) fn random(steps: usize) -> std::result::Result<Plan, BuildError> {
    let p = ProgramBuilder::new("random", Collective::Test, 2).chunk_counts(8, 8).fuse(false);
    let p = p.auto_sync(false);
    let (input, output) = (p.input(0), p.output(0));
    let (scratch, far) = (p.scratch(0, 8), p.scratch(1, 8));
    let _ = p.channel(0, 1);
    let mut random = Random::new(768, &[]);
    for _ in 0..BLOCKS {
        let block = p.block(0);
        for _ in 0..steps / BLOCKS {
            let mut any = |most: usize| (random.draw() % most as u64) as usize;
            let from: Vec<_> = (0..2 + any(4)).map(|at| input.chunk(at)).collect();
            let to: Vec<_> = (0..1 + any(3)).map(|at| far.chunk(at)).collect();
            let packets: Vec<_> = (0..1 + any(4)).map(|at| scratch.chunk(at)).collect();
            match any(8) {
                0 => block.copy(input.chunk(any(8)), output.chunk(0)),
                1 => block.put(input.chunk(any(8)), far.chunk(0)),
                2 => block.get(far.chunk(any(8)), output.chunk(1)),
                3 => block.reduce(&from, output.chunk(2)),
                4 => block.reduce_send(&from, output.chunk(3), &to),
                5 => block.copy_packets(input.chunk(0), scratch.chunk(any(8))),
                6 => block.put_packets(input.chunk(0), far.chunk(any(8))),
                _ => block.reduce_packets(input.chunk(0), &packets, output.chunk(4)),
            }
        }
    }
    p.build()
}
