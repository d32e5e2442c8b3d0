//! How long it takes to write and compile large programs: `cargo bench -p antiphon-plan --bench dsl`.
//!
//! The two-shot packet allreduce of n ranks: every rank's part of the message has n chunks. Each rank puts the peers'
//! parts into their scratch, reduces its own part chunk by chunk and peer by peer, puts the result into the peers'
//! scratch, and unpacks theirs: n·(2·(n−1) + n·(n−1) + (n−1)) operations as they are written. The ring alltoall passes
//! every block round the ring, a step at a time.

mod programs;

use antiphon_plan::builder::BuildError;
use antiphon_plan::dsl::Compiled;
use antiphon_plan::{Style, read, write};
use std::hint::black_box;
use std::time::{Duration, Instant};

const ROUNDS: usize = 5;

fn least<T>(mut work: impl FnMut() -> T) -> Duration {
    let times = (0..ROUNDS).map(|_| {
        let began = Instant::now();
        black_box(work());
        began.elapsed()
    });
    times.min().unwrap_or_default()
}

fn measure(name: &str, program: fn(usize) -> Result<Compiled, BuildError>) {
    for ranks in [8, 16, 32, 64] {
        let compiled = program(ranks).expect("a valid program");
        let plan = &compiled.plan;
        let blocks = || plan.gpus.iter().flat_map(|gpu| &gpu.threadblocks);
        let ops: usize = blocks().map(|block| block.ops.len()).sum();
        let refs: usize =
            blocks().flat_map(|block| &block.ops).map(|op| op.src.len() + op.dst.len()).sum();
        let compile = least(|| program(ranks));
        let mut text = Vec::new();
        write(plan, Style::Compact, &mut text).expect("memory takes it");
        let writing = least(|| {
            let mut text = Vec::with_capacity(text.len());
            write(plan, Style::Compact, &mut text).map(|()| text)
        });
        let reading = least(|| read(&text));
        println!(
            "{name:>14} {ranks:>3} ranks: {:>7} operations written, {ops:>6} in the plan with {refs:>7} references; \
             compiled in {compile:>8.1?}, {:>5.1} MB of compact JSON written in {writing:>8.1?}, read in {reading:>8.1?}",
            compiled.report.recorded,
            text.len() as f64 / 1e6,
        );
    }
}

fn main() {
    measure("two-shot", |ranks| programs::two_shot(ranks, true));
    measure("ring alltoall", programs::ring_alltoall);
}
