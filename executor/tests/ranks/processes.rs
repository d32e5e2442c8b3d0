//! Ranks in two processes, where no rank steps another's blocks.

use crate::support::processes;
use antiphon_executor::plan::algorithms::{Algorithm, Shape};
use antiphon_executor::plan::builder::ProgramBuilder;
use antiphon_executor::plan::model::{Collective, Plan};
use antiphon_executor::{Call, Communicator, DataType, Executor, Options, ReduceOp, Rendezvous};
use std::time::Duration;

/// The first block of each rank waits for what the second block of the other one sends.
fn plan() -> Plan {
    let program = ProgramBuilder::new("crossed", Collective::SendRecv, 2);
    let channel = program.channel(0, 1);
    for (rank, peer) in [(0, 1), (1, 0)] {
        program.block(rank).wait(&[channel]);
        let second = program.block(rank);
        second.put(program.input(rank).all(), program.output(peer).all());
        second.signal(&[channel]);
    }
    program.build().unwrap()
}

/// Runs `work` in both processes of a communicator with these options.
fn in_two_processes(test: impl Fn(), options: &Options, work: impl Fn(&Communicator)) {
    processes::in_two_processes(test, |rank, address| {
        let communicator =
            Communicator::connect(&Rendezvous::new(address, rank, 2), options).unwrap();
        work(&communicator);
        communicator.barrier().unwrap();
    });
}

fn options() -> Options {
    Options::default().with_timeout(Some(Duration::from_secs(5)))
}

#[test]
fn a_block_that_waits_does_not_keep_another_from_reaching_its_peer() {
    let test = a_block_that_waits_does_not_keep_another_from_reaching_its_peer;
    in_two_processes(test, &options(), |communicator| {
        let rank = communicator.rank();
        let executor = Executor::new(communicator);
        let plan = executor.load(&plan()).unwrap();
        for launch in 0..200u64 {
            let (input, mut output) = ([u64::from(rank) * 1000 + launch; 64], [0u64; 64]);
            let bytes = size_of_val(&input) as u64;
            let call = Call {
                plan: &plan,
                input: input.as_ptr().cast(),
                output: output.as_mut_ptr().cast(),
                input_bytes: bytes,
                output_bytes: bytes,
                dtype: DataType::U64,
                op: None,
                counts: None,
            };
            // SAFETY: both arrays hold `bytes` bytes and live past the call.
            unsafe { executor.run(&call) }.unwrap();
            assert_eq!(output, [u64::from(1 - rank) * 1000 + launch; 64]);
        }
    });
}

/// What no collective may touch, around every buffer.
const GUARD: f32 = -7777.0;
const MARGIN: usize = 5;

fn value(rank: usize, element: usize) -> f32 {
    (rank * 64 + element % 31) as f32
}

/// One collective on plain memory, in place or not, against its definition.
fn collective(executor: &Executor, rank: usize, what: &Collective, each: usize, in_place: bool) {
    let (inputs, outputs) = match what {
        Collective::AllGather => (each, 2 * each),
        Collective::ReduceScatter => (2 * each, each),
        _ => (2 * each, 2 * each),
    };
    // Where the input and the output begin.
    let (from, to) = match what {
        _ if !in_place => (MARGIN, 2 * MARGIN + inputs),
        Collective::AllGather => (MARGIN + rank * each, MARGIN),
        Collective::ReduceScatter => (MARGIN, MARGIN + rank * each),
        _ => (MARGIN, MARGIN),
    };
    let reduces = matches!(what, Collective::AllReduce | Collective::ReduceScatter);
    for algorithm in Algorithm::all_for(what) {
        let shape = Shape { in_place, blocks: 2, ..Shape::new(2) };
        let Ok(plan) = algorithm.plan(shape) else { continue };
        let plan = executor.load(&plan).unwrap();
        for op in [None, Some(ReduceOp::Avg)] {
            let mut memory = vec![GUARD; 3 * MARGIN + inputs + outputs];
            (0..inputs).for_each(|at| memory[from + at] = value(rank, at));
            let call = Call {
                plan: &plan,
                input: memory[from..].as_ptr().cast(),
                output: memory[to..].as_mut_ptr().cast(),
                input_bytes: 4 * inputs as u64,
                output_bytes: 4 * outputs as u64,
                dtype: DataType::F32,
                op: op.filter(|_| reduces),
                counts: None,
            };
            let case = format!("{algorithm} rank {rank} each {each} in place {in_place} {op:?}");
            // SAFETY: `memory` holds both buffers and outlives the call.
            unsafe { executor.run(&call) }.unwrap_or_else(|error| panic!("{case}: {error}"));
            let divisor = if call.op.is_some() { 2.0 } else { 1.0 };
            for at in 0..outputs {
                let sum = |at| (value(0, at) + value(1, at)) / divisor;
                let expected = match what {
                    Collective::AllReduce => sum(at),
                    Collective::ReduceScatter => sum(rank * each + at),
                    Collective::AllGather => value(at / each, at % each),
                    _ => value(at / each, rank * each + at % each),
                };
                assert_eq!(memory[to + at], expected, "{case} element {at}");
            }
            let outside = |at: &usize| {
                !(from..from + inputs).contains(at) && !(to..to + outputs).contains(at)
            };
            let touched = (0..memory.len()).filter(outside).find(|&at| memory[at] != GUARD);
            assert_eq!(touched, None, "{case}");
        }
    }
}

fn every_collective(communicator: &Communicator, sizes: &[usize]) {
    let executor = Executor::new(communicator);
    let rank = communicator.rank() as usize;
    for what in [
        Collective::AllReduce,
        Collective::AllGather,
        Collective::ReduceScatter,
        Collective::AllToAll,
    ] {
        for &each in sizes {
            for in_place in [false, true] {
                if what != Collective::AllToAll || !in_place {
                    collective(&executor, rank, &what, each, in_place);
                }
            }
        }
    }
}

#[test]
fn staged_plain_memory_gives_what_the_collective_says() {
    let test = staged_plain_memory_gives_what_the_collective_says;
    let options = options().with_process_access(false);
    in_two_processes(test, &options, |communicator| {
        every_collective(communicator, &[1, 33, 5000]);
    });
}

#[test]
fn plain_memory_reached_through_the_kernel_gives_what_the_collective_says() {
    let test = plain_memory_reached_through_the_kernel_gives_what_the_collective_says;
    in_two_processes(test, &options(), |communicator| {
        // One buffer below the size from which the kernel is used, and both above.
        every_collective(communicator, &[40_001, 100_003]);
    });
}
