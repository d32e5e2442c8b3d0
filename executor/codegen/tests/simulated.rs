//! Generated kernels on the simulated driver, a test fixture: none of this ran on a GPU.

#[macro_use]
#[path = "../../../tests/gpusim/tests/support/mod.rs"]
mod support;
mod world;

// Cargo builds the driver's library for it.
use antiphon_gpusim as _;

use antiphon_codegen::interpret::interpreted;
use antiphon_codegen::{Target, Variant, generate};
use antiphon_plan::DataType;
use antiphon_plan::algorithms::{Algorithm, Shape, examples};
use antiphon_plan::builder::ProgramBuilder;
use antiphon_plan::interpret::{Interpreter, Memory};
use antiphon_plan::model::{Collective, Plan};
use antiphon_plan::program::{CallSizes, Layout};
use support::Driver;
use world::{Make, World};

const F32: Variant = Variant { target: Target::Cuda, dtype: DataType::F32, op: None };

/// Both kinds of kernels.
const MAKES: [(&str, Make); 2] = [("generated", generate), ("interpreting", interpreted)];

/// Runs launches of a plan with changing data, and compares all outputs with the interpreter's.
fn compare(driver: &Driver, plan: &Plan, input: usize, output: usize) {
    for (what, make) in MAKES {
        compare_with((what, make), driver, plan, input, output);
    }
}

fn compare_with(
    (what, make): (&str, Make),
    driver: &Driver,
    plan: &Plan,
    input: usize,
    output: usize,
) {
    let name = format!("{} by the {what} kernel", plan.name);
    let layout = Layout::new(plan).unwrap();
    let sizes =
        CallSizes { input: 4 * input as u64, output: 4 * output as u64, element: 4, strict: false };
    let mut world = World::with(make, driver, &layout, F32, sizes);
    let count = layout.ranks.len();
    let mut interpreter = Interpreter::new(&layout);
    let buffers: Vec<[u64; 2]> = (0..count)
        .map(|_| [input, output].map(|elements| world::zeroed(driver, 4 * elements as u64)))
        .collect();
    for launch in 0..3 {
        // Small integers, so that no order of additions rounds.
        let value = |rank: usize, k: usize| ((rank * 31 + k * 7 + launch * 13) % 64) as f32;
        let mut memories = Vec::new();
        for (rank, [from, to]) in buffers.iter().enumerate() {
            let values: Vec<f32> = (0..input).map(|k| value(rank, k)).collect();
            driver.write(*from, &values);
            let before: Vec<f32> = (0..output).map(|k| -value(rank, k)).collect();
            let wide = |values: &[f32]| values.iter().map(|&value| f64::from(value)).collect();
            if plan.in_place {
                driver.write(*to, &values);
                world.place(rank, *to, *to);
                let both = Memory::in_place(wide(&values), 0..input, 0..output);
                memories.push(both.expect("as long as each other"));
            } else {
                driver.write(*to, &before);
                world.place(rank, *from, *to);
                memories.push(Memory::separate(wide(&values), wide(&before)));
            }
        }
        world.start();
        world.finish();
        interpreter.launch(sizes, &mut memories).unwrap();
        for (rank, [_, to]) in buffers.iter().enumerate() {
            let found: Vec<f32> = driver.read(*to, output);
            let found: Vec<f64> = found.into_iter().map(f64::from).collect();
            assert_eq!(found, memories[rank].output(), "{name}: rank {rank}, launch {launch}");
            assert_eq!(world.over(rank), launch as u64 + 1);
        }
    }
}

#[test]
fn built_in_algorithms_compute_what_the_interpreter_does() {
    let driver = Driver::start();
    let (ranks, each) = (4, 301);
    for algorithm in Algorithm::ALL.into_iter().filter(|algorithm| !algorithm.is_hierarchical()) {
        let plan = algorithm.plan(Shape::new(ranks)).unwrap();
        use antiphon_plan::model::Collective::*;
        let (input, output) = match algorithm.collective() {
            AllGather => (each, ranks * each),
            ReduceScatter => (ranks * each, each),
            _ => (ranks * each, ranks * each),
        };
        compare(&driver, &plan, input, output);
    }
}

#[test]
fn pipelines_semaphores_and_switches_do_too() {
    let driver = Driver::start();
    for (name, plan) in examples().unwrap() {
        if name.starts_with("allgather_pipeline") {
            compare(&driver, &plan, 20_001, 40_002);
        } else if name.starts_with("allreduce_switch") {
            compare(&driver, &plan, 1204, 1204);
        }
    }
}

/// A block keeps what it has found of the first 32 ranks in shared memory, of raw memory and of packets' alike.
#[test]
fn ranks_of_which_a_block_keeps_nothing_are_reached_too() {
    let driver = Driver::start();
    let ranks = 34;
    for algorithm in [Algorithm::AllGatherZeroCopy, Algorithm::AllGatherPackets] {
        compare(&driver, &algorithm.plan(Shape::new(ranks)).unwrap(), 5, 5 * ranks);
    }
}

/// It keeps its tables there too, unless they are too long, as those of two hundred copies that do not join are.
#[test]
fn tables_that_are_too_large_for_a_block_are_read_where_they_are() {
    let driver = Driver::start();
    let chunks = 200;
    let program = ProgramBuilder::new("backwards", Collective::Test, 2)
        .chunk_counts(chunks, chunks)
        .fuse(false);
    for rank in 0..2 {
        let (input, output) = (program.input(rank), program.output(rank));
        let block = program.block(rank);
        for at in 0..chunks {
            block.copy(input.chunk(at), output.chunk(chunks - 1 - at));
        }
    }
    let elements = 3 * chunks;
    compare(&driver, &program.build().unwrap(), elements, elements);
}

/// Few kinds of moves have functions of their own, the others count their sides.
#[test]
fn moves_of_many_kinds_compute_what_the_interpreter_does() {
    let driver = Driver::start();
    let (most, packets) = (8, 5);
    let kinds = most - 1 + packets;
    let program =
        ProgramBuilder::new("kinds", Collective::Test, 2).chunk_counts(most, kinds).fuse(false);
    let scratch = [0, 1].map(|rank| program.scratch(rank, packets));
    for (rank, peer) in [(0, 1), (1, 0)] {
        let (input, output) = (program.input(rank), program.output(rank));
        let (own, far) = (&scratch[rank], &scratch[peer]);
        let _ = program.channel(rank, peer);
        let block = program.block(rank);
        let mut results = (0..kinds).map(|at| output.chunk(at));
        let mut next = || results.next().expect("one for each");
        for reads in 2..=most {
            let all: Vec<_> = (0..reads).map(|at| input.chunk(at)).collect();
            block.reduce(&all, next());
        }
        for at in 0..packets {
            block.put_packets(input.chunk(at), far.chunk(at));
        }
        for reads in 1..=packets {
            let all: Vec<_> = (0..reads).map(|at| own.chunk(at)).collect();
            block.reduce_packets(input.chunk(most - 1), &all, next());
        }
    }
    let plan = program.build().unwrap();
    let text = generate(&Layout::new(&plan).unwrap(), 0, F32).unwrap().text;
    for call in ["move_bytes<Sum, 2, 1>(l", "move_bytes_counted<Sum>(l", "move_packets_wide<Sum>(l"]
    {
        assert!(text.contains(call), "{call}");
    }
    compare(&driver, &plan, 301 * most, 301 * kinds);
}
