//! What one block has stored and another reads, where a device shows it to others as late as it may.

use crate::copies::{read, write};
use crate::{on_simulator_with, on_threads, options};
use antiphon::DataType;
use antiphon::executor::{Call, Executor};
use antiphon::plan::builder::ProgramBuilder;
use antiphon::plan::model::{Collective, Plan};
use antiphon_tests::name_of;

const ELEMENTS: usize = 640;
const BYTES: u64 = ELEMENTS as u64 * 4;

/// The first block of a rank hands its input to the second, which hands it on to the output, and is not over before.
fn by_semaphores() -> Plan {
    let program = ProgramBuilder::new("by semaphores", Collective::Test, 1);
    let scratch = program.scratch(0, 1);
    let (stored, taken) = (program.semaphore(0, 0), program.semaphore(0, 0));
    let (first, second) = (program.block(0), program.block(0));
    first.copy(program.input(0).all(), scratch.all());
    first.release(&[stored]);
    first.acquire(&[taken]);
    second.acquire(&[stored]);
    second.copy(scratch.all(), program.output(0).all());
    second.release(&[taken]);
    program.build().unwrap()
}

fn by_a_barrier() -> Plan {
    let program = ProgramBuilder::new("by a barrier", Collective::Test, 1);
    let scratch = program.scratch(0, 1);
    let blocks = [program.block(0), program.block(0)];
    blocks[0].copy(program.input(0).all(), scratch.all());
    program.barrier(&blocks);
    blocks[1].copy(scratch.all(), program.output(0).all());
    program.barrier(&blocks);
    program.build().unwrap()
}

#[test]
fn blocks_have_what_others_have_released_to_them() {
    let test = name_of(blocks_have_what_others_have_released_to_them);
    if on_simulator_with(test, &[("ANTIPHON_GPUSIM_LATE", "1")]).is_none() {
        return;
    }
    on_threads(1, &options(), |rank| {
        let (executor, stream) = (Executor::new(&rank), rank.stream().unwrap());
        for plan in [by_semaphores(), by_a_barrier()] {
            let plan = executor.load(&plan).unwrap();
            let (input, output) = (rank.allocate(BYTES).unwrap(), rank.allocate(BYTES).unwrap());
            for round in 0..3 {
                let values: Vec<u32> = (1..=ELEMENTS as u32).map(|at| at * (round + 1)).collect();
                write(&stream, input.address(), &values);
                let (from, to) = ((input.address().cast_const(), BYTES), (output.address(), BYTES));
                let call = Call::new(&plan, DataType::U32, from, to);
                // SAFETY: the buffers hold the call's bytes and outlive the stream's work.
                unsafe { executor.execute(&call, &stream) }.unwrap();
                executor.synchronize(&stream).unwrap();
                assert_eq!(
                    read(&stream, output.address(), ELEMENTS),
                    values,
                    "{} {round}",
                    plan.name()
                );
            }
        }
    });
}
