//! What one launch costs beside the moving of bytes: ranks that one thread submits, four bytes each.
//!
//! `cargo run --release -p antiphon-executor --example overhead` prints nanoseconds per launch and rank, the least and
//! the median of many batches, for blocking calls of a lone rank and for launches on streams of two.

use antiphon_executor::{Call, Communicator, DataType, Executor, Options};
use antiphon_plan::algorithms::{Algorithm, Shape};
use antiphon_plan::builder::ProgramBuilder;
use antiphon_plan::model::Collective;
use std::error::Error;
use std::time::Instant;

const BATCHES: usize = 200;
const LAUNCHES: u32 = 2000;

fn main() -> Result<(), Box<dyn Error>> {
    let program = ProgramBuilder::new("copy", Collective::SendRecv, 1);
    program.block(0).copy(program.input(0).all(), program.output(0).all());
    let alone = Communicator::in_process(1, &Options::default())?;
    let executor = Executor::new(&alone[0]);
    let plan = executor.load(&program.build()?)?;
    let memory = alone[0].allocate(256)?;
    let call = |plan, base: *mut u8| Call {
        plan,
        input: base.cast_const(),
        output: base.wrapping_add(128),
        input_bytes: 4,
        output_bytes: 4,
        dtype: DataType::F32,
        op: None,
        counts: None,
    };
    let one = call(&plan, memory.address());
    // SAFETY: both halves of the memory are longer than four bytes, and nobody else uses them.
    measure("one rank, blocking", 1, || Ok(unsafe { executor.run(&one) }?))?;

    let ranks = Communicator::in_process(2, &Options::default())?;
    let executors: Vec<_> = ranks.iter().map(Executor::new).collect();
    let plan = executors[0].load(&Algorithm::AllReduceOneShotPackets.plan(Shape::new(2))?)?;
    let mut streams = Vec::new();
    let mut memories = Vec::new();
    for rank in &ranks {
        streams.push(rank.stream()?);
        memories.push(rank.allocate(256)?);
    }
    measure("two ranks, streams", 2, || {
        for ((executor, stream), memory) in executors.iter().zip(&streams).zip(&memories) {
            // SAFETY: as above; the streams are waited for before the memory goes.
            unsafe { executor.execute(&call(&plan, memory.address()), stream) }?;
        }
        for (executor, stream) in executors.iter().zip(&streams) {
            executor.synchronize(stream)?;
        }
        Ok(())
    })
}

fn measure(
    what: &str,
    ranks: u32,
    mut launch: impl FnMut() -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let mut times = Vec::with_capacity(BATCHES);
    for _ in 0..BATCHES {
        let began = Instant::now();
        for _ in 0..LAUNCHES {
            launch()?;
        }
        times.push(began.elapsed().as_nanos() as f64 / f64::from(LAUNCHES * ranks));
    }
    times.sort_by(f64::total_cmp);
    println!("{what}: {:.0} ns at least, {:.0} ns median", times[0], times[BATCHES / 2]);
    Ok(())
}
