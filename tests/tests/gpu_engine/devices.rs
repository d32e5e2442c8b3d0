//! Ranks on several devices: right results as threads and as processes, and devices that cannot work together.

use crate::faults::call;
use crate::plans::{ONE, right, run_all};
use crate::{
    backend, cuda_only, on_devices, on_simulator_alone, on_simulator_of, options, there_are,
};
use antiphon::DataType;
use antiphon::executor::hal::{Device, DeviceName, driver};
use antiphon::executor::{Call, Executor, ExecutorError, dealt_device, local_device, local_rank};
use antiphon::plan::algorithms::{Algorithm, Shape};
use antiphon::plan::builder::ProgramBuilder;
use antiphon::plan::model::Collective;
use antiphon_tests::application::{Application, CHUNK};
use antiphon_tests::harness::processes::{Ranks, role};
use antiphon_tests::harness::{report, run_plans, seed};
use antiphon_tests::name_of;
use std::collections::BTreeSet;
use std::sync::Arc;

/// How many devices ranks take turns on: two, and as many as there are.
const COUNTS: [u32; 2] = [2, 8];

/// The device of a rank, of `count` devices, or of as many as there are.
pub fn device_of(rank: u32, count: u32) -> Arc<dyn Device> {
    let driver = driver(backend()).unwrap();
    let there = driver.devices().unwrap().len() as u32;
    driver.open(rank % count.min(there)).unwrap()
}

/// The devices of all ranks, of `count` devices.
pub fn devices(world: u32, count: u32) -> Vec<Arc<dyn Device>> {
    (0..world).map(|rank| device_of(rank, count)).collect()
}

#[test]
fn every_right_plan_gives_the_right_result_on_threads_over_devices() {
    let test = name_of(every_right_plan_gives_the_right_result_on_threads_over_devices);
    if on_simulator_of(test, 2).is_some() {
        every_right_plan_over_devices(&COUNTS);
    }
}

/// Runs every right plan with its ranks as threads, over each of these numbers of devices.
pub fn every_right_plan_over_devices(counts: &[u32]) {
    let seed = seed();
    println!("seed {seed}");
    let options = options().with_verification(false);
    let mut failures = Vec::new();
    for entry in [false, true].into_iter().flat_map(right) {
        for &count in counts {
            let devices = devices(entry.ranks(), count);
            let ranks = on_devices(&devices, &options, |rank| run_all(&rank, &entry, seed, ONE));
            let over = |text| format!("{text} (over {count} devices)");
            failures.extend(ranks.into_iter().flatten().map(over));
        }
    }
    report(&failures);
}

#[test]
fn every_right_plan_gives_the_right_result_in_processes_over_devices() {
    let test = name_of(every_right_plan_gives_the_right_result_in_processes_over_devices);
    if on_simulator_of(test, 2).is_none() {
        return;
    }
    let seed = seed();
    println!("seed {seed}");
    let plans = [false, true].into_iter().flat_map(right);
    let worlds: BTreeSet<u32> = plans.map(|entry| entry.ranks()).collect();
    for world in worlds {
        for count in COUNTS {
            let job = format!("{seed} {count}");
            Ranks::start(name_of(rank_over_devices), world, &job).succeed();
        }
    }
}

/// One process of the test above.
#[test]
fn rank_over_devices() {
    let Some(role) = role() else { return };
    let (seed, count) = role.job.split_once(' ').unwrap();
    let (seed, count): (u64, u32) = (seed.parse().unwrap(), count.parse().unwrap());
    let device = device_of(role.rendezvous.rank, count);
    let options = options().with_verification(false).with_device(Some(device));
    let all = role.connect(&options).unwrap();
    let plans = [false, true].into_iter().flat_map(right);
    run_plans(&all, plans, |rank, entry| run_all(rank, entry, seed, ONE));
}

#[test]
fn devices_that_cannot_work_together_are_named_on_every_rank() {
    let test = name_of(devices_that_cannot_work_together_are_named_on_every_rank);
    if on_simulator_alone(test, &[("ANTIPHON_GPUSIM_PEERS", "0")]).is_none() {
        return;
    }
    let plan = Algorithm::AllReduceZeroCopy.plan(Shape::new(3)).unwrap();
    // Ranks 0 and 2 share a device.
    let errors = on_devices(&devices(3, 2), &options(), |rank| call(&rank, &plan, 192));
    // Also on a rank that has no channel to such a peer.
    let wide = ProgramBuilder::new("two of three", Collective::SendRecv, 3);
    let link = [wide.channel(0, 1)];
    wide.block(0).signal(&link);
    wide.block(1).wait(&link);
    let wide = wide.build().unwrap();
    // Of a communicator that was made of such a one, too.
    let others = on_devices(&devices(3, 3), &options(), |rank| {
        let called = call(&rank, &wide, 192).unwrap_err();
        let again = rank.split(Some(0), rank.rank()).unwrap().unwrap();
        [called, call(&again, &wide, 192).unwrap_err()]
    });
    let errors = errors.into_iter().map(Result::unwrap_err);
    for error in errors.chain(others.into_iter().flatten()) {
        let text = error.to_string();
        assert!(matches!(error, ExecutorError::Apart { .. }), "{text}");
        for part in ["rank 0 (", ":0 at 0000:10:00.0", "rank 1 (", "0000:11:00.0", "do not reach"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
    // One device needs nothing of the kind.
    for outcome in on_devices(&devices(3, 1), &options(), |rank| call(&rank, &plan, 192)) {
        outcome.unwrap();
    }
}

#[test]
fn what_a_process_does_not_see_is_said_to_be_hidden() {
    let test = name_of(what_a_process_does_not_see_is_said_to_be_hidden);
    if on_simulator_alone(test, &[]).filter(|_| there_are(test, 2)).is_none() {
        return;
    }
    // Rank 0 sees the first device alone, and its driver says nothing of the second. Rank 1 sees both, and reaches the first.
    let one = [("ANTIPHON_GPUSIM_DEVICES", "1"), ("ANTIPHON_GPUSIM_PEERS", "0")];
    Ranks::start_in(name_of(rank_beside_a_hidden_device), &[&one, &[]], "").succeed();
}

/// One process of the test above.
#[test]
fn rank_beside_a_hidden_device() {
    let Some(role) = role() else { return };
    let rank = role.rendezvous.rank;
    let options = options().with_device(Some(device_of(rank, 2)));
    let all = role.connect(&options).unwrap();
    let plan = Algorithm::AllReduceZeroCopy.plan(Shape::new(2)).unwrap();
    let text = call(&all, &plan, 128).unwrap_err().to_string();
    assert!(text.contains("VISIBLE_DEVICES hides its device"), "rank {rank}: {text}");
    // Rank 1, which reaches all, has launched.
    all.abort(&text);
}

/// Ranks of one process use each other's addresses only on one device: another one reaches what it has mapped.
#[test]
fn memory_that_nobody_can_import_is_staged_between_devices() {
    let test = name_of(memory_that_nobody_can_import_is_staged_between_devices);
    let Some(simulated) = cuda_only(test).filter(|_| there_are(test, 2)) else { return };
    let application = &Application::new(&simulated);
    let plan = Algorithm::AllReduceZeroCopy.plan(Shape::new(2)).unwrap();
    let (words, bytes) = (CHUNK / 8, CHUNK as u64);
    on_devices(&devices(2, 2), &options(), |rank| {
        // Prepares everything but staging.
        call(&rank, &plan, bytes).unwrap();
        rank.barrier().unwrap();
        let own = rank.rank().cast_signed();
        application.enter(own);
        let executor = Executor::new(&rank);
        let (plan, stream) = (executor.load(&plan).unwrap(), rank.stream().unwrap());
        let [input, output] = [(); 2].map(|()| application.segment(own, 1, false));
        let values = |rank: u64| (0..words as u64).map(move |at| at * (rank + 1));
        application.write(input, &values(u64::from(rank.rank())).collect::<Vec<_>>());
        rank.barrier().unwrap();
        let before = rank.device().epoch();
        let from = (std::ptr::with_exposed_provenance(input as usize), bytes);
        let to = (std::ptr::with_exposed_provenance_mut(output as usize), bytes);
        let call = Call::new(&plan, DataType::U64, from, to);
        // SAFETY: the buffers hold the call's bytes, and live as long as the process.
        unsafe { executor.execute(&call, &stream) }.unwrap();
        executor.synchronize(&stream).unwrap();
        assert_ne!(rank.device().epoch(), before, "no memory was allocated to stage it");
        let sums: Vec<u64> = values(0).zip(values(1)).map(|(a, b)| a + b).collect();
        assert!(application.read(output, words) == sums);
        rank.barrier().unwrap();
    });
}

/// A launcher has started the process as the sixth rank of its host, which has three devices.
#[test]
fn a_device_without_a_number_is_the_current_one_or_that_of_the_rank_on_its_host() {
    let test =
        name_of(a_device_without_a_number_is_the_current_one_or_that_of_the_rank_on_its_host);
    let environment =
        [("ANTIPHON_GPUSIM_DEVICES", "3"), ("LOCAL_RANK", "5"), ("ANTIPHON_LOCAL_RANK", "")];
    if on_simulator_alone(test, &environment).is_none() {
        return;
    }
    let device = |index| local_device(DeviceName { backend: backend(), index }).unwrap();
    assert_eq!((local_rank().unwrap(), device(None).index(), device(Some(1)).index()), (5, 2, 1));
    device(Some(1)).make_current().unwrap();
    assert_eq!(device(None).index(), 1);
    let elsewhere = std::thread::scope(|scope| scope.spawn(|| device(None).index()).join());
    assert_eq!(elsewhere.unwrap(), 2, "a device is current on a thread");
    let dealt = (0..4).map(|number| dealt_device(backend(), number).unwrap().index());
    assert_eq!(dealt.collect::<Vec<_>>(), [0, 1, 2, 0]);
}
