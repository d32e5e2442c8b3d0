//! Signals between devices that do not add to each other's memory in single steps, as over PCIe: the count is stored.

use crate::copies::{read, write};
use crate::devices::{device_of, devices, every_right_plan_over_devices};
use crate::{on_devices, on_simulator, on_simulator_with, options};
use antiphon::DataType;
use antiphon::executor::{Call, Communicator, Executor};
use antiphon::plan::builder::ProgramBuilder;
use antiphon::plan::model::{Collective, Plan};
use antiphon_tests::harness::processes::{Ranks, role};
use antiphon_tests::name_of;

/// Devices without such steps.
const APART: [(&str, &str); 1] = [("ANTIPHON_GPUSIM_ATOMICS", "0")];

/// Thread blocks that signal by one channel.
const BLOCKS: usize = 8;

/// Each block of rank 0 hands a chunk to rank 1 and says so on the channel that all share, several times over; a block of rank 1 takes
/// what has come once it has heard all, and says that it has.
fn by_one_channel(rounds: usize) -> Plan {
    let program = ProgramBuilder::new("by one channel", Collective::Test, 2);
    let program = program.chunk_counts(BLOCKS, BLOCKS);
    let (channel, scratch) = (program.channel(0, 1), program.scratch(1, BLOCKS));
    let givers: Vec<_> = (0..BLOCKS).map(|_| program.block(0)).collect();
    for (at, giver) in givers.iter().enumerate() {
        giver.put(program.input(0).chunk(at), scratch.chunk(at));
        (0..rounds).for_each(|_| giver.signal(&[channel]));
    }
    let taker = program.block(1);
    (0..rounds * BLOCKS).for_each(|_| taker.wait(&[channel]));
    taker.copy(scratch.all(), program.output(1).all());
    taker.signal(&[channel]);
    givers[0].wait(&[channel]);
    program.build().unwrap()
}

#[test]
fn no_signal_of_blocks_that_share_a_channel_is_lost() {
    let test = name_of(no_signal_of_blocks_that_share_a_channel_is_lost);
    if on_simulator_with(test, &APART).is_none() {
        return;
    }
    on_devices(&devices(2, 2), &options(), |rank| signal_by_one_channel(&rank));
}

/// Runs a plan whose blocks signal by one channel, some times.
fn signal_by_one_channel(rank: &Communicator) {
    const ELEMENTS: usize = 16 * BLOCKS;
    const BYTES: u64 = ELEMENTS as u64 * 4;
    let (executor, stream) = (Executor::new(rank), rank.stream().unwrap());
    let plan = executor.load(&by_one_channel(8)).unwrap();
    let (input, output) = (rank.allocate(BYTES).unwrap(), rank.allocate(BYTES).unwrap());
    for round in 1..=4 {
        let values: Vec<u32> = (1..=ELEMENTS as u32).map(|at| at * round).collect();
        write(&stream, input.address(), &values);
        let (from, to) = ((input.address().cast_const(), BYTES), (output.address(), BYTES));
        let call = Call::new(&plan, DataType::U32, from, to);
        // SAFETY: the buffers hold the call's bytes and outlive the stream's work.
        unsafe { executor.execute(&call, &stream) }.unwrap();
        executor.synchronize(&stream).unwrap();
        if rank.rank() == 1 {
            assert_eq!(read(&stream, output.address(), ELEMENTS), values, "round {round}");
        }
    }
}

/// Rank 0 sees its own device alone, and maps memory of the other all the same, as drivers let it.
#[test]
fn no_signal_to_a_device_that_a_process_does_not_see_is_lost() {
    if on_simulator(name_of(no_signal_to_a_device_that_a_process_does_not_see_is_lost)).is_none() {
        return;
    }
    let one = [("ANTIPHON_GPUSIM_DEVICES", "1")];
    Ranks::start_in(name_of(rank_beside_a_hidden_device), &[&one, &[]], "").succeed();
}

/// One process of the test above.
#[test]
fn rank_beside_a_hidden_device() {
    let Some(role) = role() else { return };
    let options = options().with_device(Some(device_of(role.rendezvous.rank, 2)));
    signal_by_one_channel(&role.connect(&options).unwrap());
}

#[test]
fn every_right_plan_gives_the_right_result() {
    if on_simulator_with(name_of(every_right_plan_gives_the_right_result), &APART).is_some() {
        every_right_plan_over_devices(&[2]);
    }
}
