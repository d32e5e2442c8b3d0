//! How long it takes to write and compile large programs: `cargo bench -p antiphon-plan --bench dsl`.
//!
//! The two-shot packet allreduce of n ranks: every rank's part of the message has n chunks. Each rank puts the peers'
//! parts into their scratch, reduces its own part chunk by chunk and peer by peer, puts the result into the peers'
//! scratch, and unpacks theirs: n·(2·(n−1) + n·(n−1) + (n−1)) operations as they are written. The ring alltoall passes
//! every block round the ring, a step at a time.

use antiphon_plan::builder::{BuildError, ProgramBuilder};
use antiphon_plan::dsl::Compiled;
use antiphon_plan::model::{Collective, Protocol};
use antiphon_plan::{Style, read, write};
use std::hint::black_box;
use std::time::{Duration, Instant};

const ROUNDS: usize = 5;

fn two_shot(ranks: usize) -> Result<Compiled, BuildError> {
    let p = ProgramBuilder::new("two_shot_packets", Collective::AllReduce, ranks)
        .chunk_factor(ranks)
        .protocol(Protocol::LL)
        .double_scratch(true);
    let inputs: Vec<_> = (0..ranks).map(|rank| p.scratch(rank, ranks * ranks)).collect();
    let results: Vec<_> = (0..ranks).map(|rank| p.scratch(rank, ranks * ranks)).collect();
    let part = |rank: usize| rank * ranks..(rank + 1) * ranks;
    for me in 0..ranks {
        let tb = p.block(me);
        for peer in p.peers(me) {
            tb.put_packets(p.input(me).chunks(part(peer)), inputs[peer].chunks(part(me)));
        }
        for chunk in 0..ranks {
            let own = p.input(me).chunk(me * ranks + chunk);
            for peer in p.peers(me) {
                tb.reduce_packets(own, &[inputs[me].chunk(peer * ranks + chunk)], own);
            }
        }
        for peer in p.peers(me) {
            tb.put_packets(p.input(me).chunks(part(me)), results[peer].chunks(part(me)));
        }
        for peer in p.peers(me) {
            tb.unpack_packets(results[me].chunks(part(peer)), p.input(me).chunks(part(peer)));
        }
    }
    p.in_place(true).compile()
}

fn ring_alltoall(ranks: usize) -> Result<Compiled, BuildError> {
    let p = ProgramBuilder::new("ring_alltoall", Collective::AllToAll, ranks);
    // What a rank still has to pass on after each step, one chunk for each distance still to go.
    let inbox: Vec<Vec<_>> = (0..ranks)
        .map(|rank| (1..ranks).map(|step| p.scratch(rank, ranks - step)).collect())
        .collect();
    let to_next: Vec<_> = (0..ranks).map(|rank| p.channel(rank, (rank + 1) % ranks)).collect();
    for me in 0..ranks {
        let (tb, next) = (p.block(me), (me + 1) % ranks);
        tb.copy(p.input(me).chunk(me), p.output(me).chunk(me));
        for away in 1..ranks {
            tb.put(p.input(me).chunk((me + away) % ranks), inbox[next][0].chunk(away - 1));
        }
        for step in 1..ranks {
            tb.signal(&[to_next[me]]);
            tb.wait(&[to_next[(me + ranks - 1) % ranks]]);
            let from = (me + ranks - step) % ranks;
            tb.copy(inbox[me][step - 1].chunk(0), p.output(me).chunk(from));
            for left in 1..ranks - step {
                tb.put(inbox[me][step - 1].chunk(left), inbox[next][step].chunk(left - 1));
            }
        }
    }
    p.compile()
}

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
    measure("two-shot", two_shot);
    measure("ring alltoall", ring_alltoall);
}
