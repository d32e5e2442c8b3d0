//! How long it takes to load a large plan and to lower it for a new size.
//!
//! `cargo run --release -p antiphon-plan --example load` prints the p50 and the best of 50 rounds each.

use antiphon_plan::algorithms::{Algorithm, Shape};
use antiphon_plan::program::{CallSizes, Layout, Program};
use antiphon_plan::{Style, check, read, write};
use std::hint::black_box;
use std::time::{Duration, Instant};

fn time(what: &str, mut work: impl FnMut()) {
    let mut times: Vec<Duration> = (0..50)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    println!("{what:<40} p50 {:>9.1?}  best {:>9.1?}", times[times.len() / 2], times[0]);
}

fn main() {
    let text = |blocks: usize| {
        let shape = Shape { blocks, ..Shape::new(8) };
        let plan = Algorithm::AllReduceZeroCopy.plan(shape).expect("a built-in plan");
        let mut text = Vec::new();
        write(&plan, Style::Compact, &mut text).expect("writing to memory");
        text
    };
    let per_block = text(2).len() - text(1).len();
    let large = text((2 << 20) / per_block);
    let plan = read(&large).expect("what was written").plan;
    let ops: usize =
        plan.gpus.iter().flat_map(|gpu| &gpu.threadblocks).map(|tb| tb.ops.len()).sum();
    println!("plan of 8 ranks, {} bytes, {ops} operations", large.len());
    time("read", || drop(black_box(read(&large))));
    time("check", || check(&plan).expect("a valid plan"));
    time("lower, first step (all ranks)", || drop(black_box(Layout::new(&plan))));
    let layout = Layout::new(&plan).expect("a valid plan");
    let mut program = Program::default();
    let own = layout.ranks[0].instructions.len();
    let mut input = 1 << 20;
    time(&format!("lower, new size ({own} instructions)"), || {
        input += 4096;
        let sizes = CallSizes { input, output: input, element: 4, strict: false };
        layout.program_into(0, sizes, &mut program).expect("a size");
        black_box(&program);
    });
    time("all: read, check, both steps", || {
        let plan = read(&large).expect("a plan").plan;
        check(&plan).expect("a valid plan");
        let layout = Layout::new(&plan).expect("a plan");
        let sizes = CallSizes { input, output: input, element: 4, strict: false };
        black_box(layout.program(0, sizes).expect("a size"));
    });
}
