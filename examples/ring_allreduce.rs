//! A ring allreduce: partial sums travel once round the ring of ranks, then the results do.
//!
//! `cargo run --release --example ring_allreduce` compiles it, runs it and says what it sums.

use antiphon::DataType;
use antiphon::executor::{Call, Communicator, Executor, Options};
use antiphon::plan::builder::{BuildError, ProgramBuilder};
use antiphon::plan::model::{Collective, Plan};
use std::error::Error;
use std::io::{self, Write};

/// The program.
fn ring_allreduce(ranks: usize) -> Result<Plan, BuildError> {
    let p = ProgramBuilder::new("ring_allreduce", Collective::AllReduce, ranks);
    // What arrives from the previous rank in each step.
    let inbox: Vec<_> = (0..ranks).map(|rank| p.scratch(rank, ranks - 1)).collect();
    let to_next: Vec<_> = (0..ranks).map(|rank| p.channel(rank, (rank + 1) % ranks)).collect();

    for me in 0..ranks {
        let (tb, next) = (p.block(me), (me + 1) % ranks);
        let (input, output) = (p.input(me), p.output(me));
        let from_previous = to_next[(me + ranks - 1) % ranks];
        // The slice that this rank sends on in a step: what it received in the step before.
        let pass_on = |step: usize| (me + 2 * ranks - step) % ranks;

        tb.put(input.chunk(pass_on(0)), inbox[next].chunk(0));
        for step in 1..ranks {
            tb.signal(&[to_next[me]]);
            tb.wait(&[from_previous]);
            let (received, own) = (inbox[me].chunk(step - 1), input.chunk(pass_on(step)));
            if step < ranks - 1 {
                tb.reduce(&[received, own], received);
                tb.put(received, inbox[next].chunk(step));
            } else {
                tb.reduce(&[received, own], output.chunk(pass_on(step)));
                tb.put(output.chunk(pass_on(step)), p.output(next).chunk(pass_on(step)));
            }
        }
        for step in ranks..2 * ranks - 1 {
            tb.signal(&[to_next[me]]);
            tb.wait(&[from_previous]);
            if step < 2 * ranks - 2 {
                tb.put(output.chunk(pass_on(step)), p.output(next).chunk(pass_on(step)));
            }
        }
    }
    p.build()
}

/// Runs the plan with a thread for each rank; rank r contributes r + 1 everywhere.
fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    const ELEMENTS: usize = 1 << 18;
    let plan = ring_allreduce(4)?;
    let ranks = Communicator::in_process(4, &Options::default())?;
    let sums = std::thread::scope(|scope| {
        let ranks = ranks.iter().map(|rank| {
            let plan = &plan;
            scope.spawn(move || -> Result<f32, Box<dyn Error + Send + Sync>> {
                let executor = Executor::new(rank);
                let loaded = executor.load(plan)?;
                let input = vec![rank.rank() as f32 + 1.0; ELEMENTS];
                let mut output = vec![0.0f32; ELEMENTS];
                let bytes = size_of_val(&input[..]) as u64;
                let (from, to) = (input.as_ptr().cast(), output.as_mut_ptr().cast());
                let call = Call::new(&loaded, DataType::F32, (from, bytes), (to, bytes));
                // SAFETY: both vectors have the call's lengths, and only the call touches them until it returns.
                unsafe { executor.run(&call) }?;
                // Peers may still be reading this rank's input.
                rank.barrier()?;
                let first = output[0];
                assert!(output.iter().all(|&sum| sum == first), "every element has the same sum");
                Ok(first)
            })
        });
        let ranks: Vec<_> = ranks.collect();
        let joined = ranks.into_iter().map(|rank| rank.join().expect("a rank does not panic"));
        joined.collect::<Result<Vec<f32>, _>>()
    })?;
    let summed = "4 ranks summed 1 + 2 + 3 + 4";
    // Who reads may have gone, as `head` goes: that is no failure.
    let _ = writeln!(io::stdout(), "{summed} over {ELEMENTS} elements: {sums:?}");
    Ok(())
}
