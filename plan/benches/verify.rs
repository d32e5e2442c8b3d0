//! How long proofs take: `cargo bench -p antiphon-plan --bench verify`.
//!
//! The built-in algorithms for 8 ranks, the two-shot packet allreduce of 8 to 64 ranks with as many chunks to a part as there
//! are ranks, fused and as it was written, and the ring allreduce of 64 to 1024 ranks, held in memory. Times are the least of several
//! rounds; memory is the process's peak so far, so that the last line of a kind tells.

mod programs;

use antiphon_plan::algorithms::{Algorithm, Shape};
use antiphon_plan::model::Plan;
use antiphon_plan::program::Layout;
use antiphon_plan::verify::{Options, Verdict, verify};
use std::time::{Duration, Instant};

/// Peak memory of this process in MB, where the system tells.
fn peak() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kilobytes.unwrap_or(0.0) / 1e3
}

fn measure(name: &str, plan: &Plan, rounds: u32) -> Duration {
    let layout = Layout::new(plan).expect("a valid plan");
    let instructions: usize = layout.ranks.iter().map(|rank| rank.instructions.len()).sum();
    let accesses: usize = layout.ranks.iter().map(|rank| rank.accesses.len()).sum();
    let mut least = Duration::MAX;
    for _ in 0..rounds {
        let began = Instant::now();
        let report = verify(plan, &layout, Options::default());
        least = least.min(began.elapsed());
        assert_eq!(report.verdict, Verdict::Proven, "{name}");
    }
    println!(
        "{name:<40} {instructions:>9} instructions {accesses:>9} accesses: {least:>9.1?}, peak {:>6.0} MB",
        peak()
    );
    least
}

fn main() {
    let slowest = Algorithm::ALL.iter().filter_map(|algorithm| {
        let plan = algorithm.plan(Shape::new(8)).ok()?;
        Some(measure(&format!("{algorithm}, 8 ranks"), &plan, 20))
    });
    println!("slowest of 8 ranks: {:.1?}", slowest.max().unwrap_or_default());
    for ranks in [8, 16, 32, 64] {
        for (fuse, name) in [(true, "fused"), (false, "as written")] {
            let plan = programs::two_shot(ranks, fuse).expect("a valid program").plan;
            measure(&format!("two-shot packets, {ranks} ranks, {name}"), &plan, 3);
        }
    }
    for ranks in [64, 256, 1024] {
        let plan = Algorithm::AllReduceRing.plan(Shape::new(ranks)).expect("a valid shape");
        measure(&format!("ring allreduce, {ranks} ranks"), &plan, 1);
    }
}
