//! First calls beside launches that wait, on a driver that lets what first calls ask for wait for all kernels of the device.

use crate::caller::Caller;
use crate::heard::{heard, listen};
use crate::{COMPILING, device, on_simulator_with, on_threads, options};
use antiphon::DataType;
use antiphon::executor::Communicator;
use antiphon::plan::algorithms::{Algorithm, Shape};
use antiphon::plan::builder::ProgramBuilder;
use antiphon::plan::model::{Collective, Plan};
use antiphon_tests::{name_of, until_within};
use std::sync::Barrier;

const BYTES: u64 = 256;

/// Each rank copies, and touches nothing of another.
fn alone() -> Plan {
    let program = ProgramBuilder::new("alone", Collective::Test, 2);
    for rank in 0..2 {
        program.block(rank).copy(program.input(rank).all(), program.output(rank).all());
    }
    program.build().unwrap()
}

/// Said by who begins to wait.
const WAITS: &str = "code is loaded once no launch is under way";

/// Listens; whether somebody has begun to wait.
fn waits_to_load() -> impl Fn() -> bool {
    listen();
    || heard(WAITS) > 0
}

#[test]
fn who_makes_a_first_call_keeps_nobody_from_launching() {
    let test = name_of(who_makes_a_first_call_keeps_nobody_from_launching);
    if on_simulator_with(test, &[("ANTIPHON_GPUSIM_WAITS", "load")]).is_none() {
        return;
    }
    let waits_to_load = waits_to_load();
    let launched = Barrier::new(2);
    let plan = Algorithm::AllReduceZeroCopy.plan(Shape::new(2)).unwrap();
    on_threads(2, &options(), |rank| {
        let (sums, copies) =
            (Caller::new(&rank, &plan, BYTES), Caller::new(&rank, &alone(), BYTES));
        sums.execute().unwrap();
        sums.synchronize().unwrap();
        rank.barrier().unwrap();
        if rank.rank() == 1 {
            // Waits for rank 0.
            sums.execute().unwrap();
            launched.wait();
            sums.synchronize().unwrap();
            copies.execute().unwrap();
        } else {
            launched.wait();
            std::thread::scope(|scope| {
                // Waits for the launch above: it loads the code.
                scope.spawn(|| copies.execute().unwrap());
                until_within(COMPILING, "the other thread to wait", &waits_to_load);
                sums.execute().unwrap();
                sums.synchronize().unwrap();
            });
        }
        copies.synchronize().unwrap();
        rank.barrier().unwrap();
    });
}

/// What moves elements takes no code for a type if there is some for another of the same size. So nothing waits here, though
/// another rank's launch waits for this thread.
#[test]
fn plans_that_only_move_data_have_one_kernel_for_all_types_of_a_size() {
    let test = name_of(plans_that_only_move_data_have_one_kernel_for_all_types_of_a_size);
    if on_simulator_with(test, &[("ANTIPHON_GPUSIM_WAITS", "load")]).is_none() {
        return;
    }
    listen();
    let launched = Barrier::new(2);
    let plan = Algorithm::AllReduceZeroCopy.plan(Shape::new(2)).unwrap();
    let types = |size: usize| DataType::ALL.into_iter().filter(move |dtype| dtype.size() == size);
    let sizes = [1, 2, 4, 8];
    let waits = on_threads(2, &options(), |rank| {
        let (sums, copies) =
            (Caller::new(&rank, &plan, BYTES), Caller::new(&rank, &alone(), BYTES));
        sums.execute().unwrap();
        for first in sizes.into_iter().filter_map(|size| types(size).next()) {
            copies.execute_as(first).unwrap();
        }
        sums.synchronize().unwrap();
        copies.synchronize().unwrap();
        rank.barrier().unwrap();
        let before = heard(WAITS);
        if rank.rank() == 1 {
            // Waits for rank 0.
            sums.execute().unwrap();
            launched.wait();
        } else {
            launched.wait();
            for dtype in sizes.into_iter().flat_map(types) {
                copies.execute_as(dtype).unwrap();
            }
            copies.synchronize().unwrap();
            sums.execute().unwrap();
        }
        sums.synchronize().unwrap();
        rank.barrier().unwrap();
        heard(WAITS) - before
    });
    assert_eq!(waits, [0, 0], "code was loaded for a type of a size that has some");
}

/// Also the first launch of a rank, for which another one has made all that it takes. Ranks send each other packets, so no buffer
/// is mapped.
#[test]
fn a_rank_launches_for_the_first_time_while_another_makes_something() {
    let test = name_of(a_rank_launches_for_the_first_time_while_another_makes_something);
    if on_simulator_with(test, &[("ANTIPHON_GPUSIM_WAITS", "load")]).is_none() {
        return;
    }
    let waits_to_load = waits_to_load();
    let waits = Barrier::new(2);
    let plan = Algorithm::AllReduceOneShotPackets.plan(Shape::new(2)).unwrap();
    on_threads(2, &options(), |rank| {
        let (sums, copies) =
            (Caller::new(&rank, &plan, BYTES), Caller::new(&rank, &alone(), BYTES));
        rank.barrier().unwrap();
        if rank.rank() == 1 {
            sums.execute().unwrap();
            std::thread::scope(|scope| {
                // Waits for the launch above, which waits for rank 0: it loads the code.
                scope.spawn(|| copies.execute().unwrap());
                until_within(COMPILING, "the other thread to wait", &waits_to_load);
                waits.wait();
            });
        } else {
            waits.wait();
            sums.execute().unwrap();
        }
        sums.synchronize().unwrap();
        copies.synchronize().unwrap();
        rank.barrier().unwrap();
    });
}

/// All that a first call asks a driver for waits for the device here. Ranks send each other packets, so no buffer is mapped.
#[test]
fn ranks_that_share_a_device_are_prepared_before_the_first_of_them_launches() {
    let test = name_of(ranks_that_share_a_device_are_prepared_before_the_first_of_them_launches);
    let slow = [("ANTIPHON_GPUSIM_WAITS", "pin,open,peer,map,load")];
    if on_simulator_with(test, &slow).is_none() {
        return;
    }
    const WORLD: usize = 3;
    let ranks = Communicator::in_process_over(&vec![device(); WORLD], &options()).unwrap();
    let plans = [Algorithm::AllReduceOneShotPackets, Algorithm::AllReduceTwoShotPackets];
    for plan in plans.map(|algorithm| algorithm.plan(Shape::new(WORLD)).unwrap()) {
        let callers: Vec<_> = ranks.iter().map(|rank| Caller::new(rank, &plan, BYTES)).collect();
        for _ in 0..2 {
            // One after the other: the first ones wait for the last on the device.
            callers.iter().for_each(|caller| caller.execute().unwrap());
            callers.iter().for_each(|caller| caller.synchronize().unwrap());
        }
    }
}
