//! Port channels over a wire that takes device memory: bytes go from one device's memory to the other's, with no copy in the
//! memory of a host where both ends can, and in parcels where one cannot. The wire is that of `examples/wire`, which maps the
//! buffers; a network card is not in it.

use crate::plans::{HALF, right, run_all};
use crate::ports::sum;
use crate::{backend, device, on_devices, on_threads, options};
use antiphon::DataType;
use antiphon::executor::hal::{Backend, Memory, driver};
use antiphon::executor::{Call, Communicator, Executor, Options};
use antiphon_tests::application::{Application, CHUNK};
use antiphon_tests::harness::processes::{Ranks, role};
use antiphon_tests::harness::{report, run_plans, seed};
use antiphon_tests::simulated::{Simulated, enter, pass_over};
use antiphon_tests::wire::example::example;
use antiphon_tests::{Folder, name_of};
use std::sync::Arc;

/// Where plugins of wires are.
const PLUGINS: &str = "ANTIPHON_WIRE_PLUGINS";
const WORDS: usize = 3000;
const BYTES: u64 = WORDS as u64 * 8;

/// As `on_simulator`, with the wire. Nobody writes the memory of AMD's devices so.
fn with_wire(test: &str, more: &[(&str, &str)]) -> Option<Simulated> {
    if backend() != Backend::Cuda {
        pass_over(test, "network cards may write the memory of CUDA's devices alone");
        return None;
    }
    let folder = env!("CARGO_TARGET_TMPDIR");
    // Inside, the process that has started this one has compiled it.
    if std::env::var_os(PLUGINS).is_some() {
        return enter(test, folder, more);
    }
    let made = Folder::new(folder, "gpu-wire").unwrap();
    let plugin = example(&made)?;
    let plugin = plugin.to_string_lossy();
    let all: Vec<_> = more.iter().copied().chain([(PLUGINS, &*plugin)]).collect();
    enter(test, folder, &all)
}

fn over_wire() -> Options {
    options().with_verification(false).with_wire(Some("unix".to_owned()))
}

/// Bytes that a rank has written without parcels.
fn direct(rank: &Communicator) -> u64 {
    rank.links().iter().map(|link| link.direct).sum()
}

#[test]
fn every_right_plan_with_ports_gives_the_right_result() {
    let test = name_of(every_right_plan_with_ports_gives_the_right_result);
    if with_wire(test, &[]).is_none() {
        return;
    }
    let seed = seed();
    println!("seed {seed}");
    let (mut failures, mut without_parcels) = (Vec::new(), 0);
    for entry in right(true) {
        let ranks = on_threads(entry.ranks(), &over_wire(), |rank| {
            let wrong = run_all(&rank, &entry, seed, HALF);
            (wrong, direct(&rank) > 0)
        });
        without_parcels += usize::from(ranks.iter().any(|(_, direct)| *direct));
        failures.extend(ranks.into_iter().flat_map(|(wrong, _)| wrong));
    }
    report(&failures);
    assert!(without_parcels > 5, "only {without_parcels} plans did without parcels");
}

#[test]
fn plans_give_the_right_result_in_processes() {
    let test = name_of(plans_give_the_right_result_in_processes);
    if with_wire(test, &[]).is_none() {
        return;
    }
    let seed = seed();
    println!("seed {seed}");
    Ranks::start(name_of(rank_over_the_wire), 2, &seed.to_string()).succeed();
}

/// A process of the test above.
#[test]
fn rank_over_the_wire() {
    let Some(role) = role() else { return };
    let seed: u64 = role.job.parse().unwrap();
    let all = role.connect(&over_wire().with_device(Some(device()))).unwrap();
    let mut without_parcels = 0;
    run_plans(&all, right(true), |rank, entry| {
        let wrong = run_all(rank, entry, seed, HALF);
        without_parcels += usize::from(direct(rank) > 0);
        wrong
    });
    assert!(without_parcels > 1, "only {without_parcels} plans did without parcels");
}

/// What a rank has in its buffer.
fn values(rank: u32, round: u64) -> impl Iterator<Item = u64> {
    (0..WORDS as u64).map(move |at| at * (u64::from(rank) + round))
}

/// Adds up two ranks' buffers, each sent to the other: as bytes, or as packets.
fn add_up(
    application: &Application,
    rank: &Communicator,
    packets: bool,
    rounds: u64,
    place: Place,
) {
    let executor = Executor::new(rank);
    let plan = executor.load(&sum(packets)).unwrap();
    let stream = rank.stream().unwrap();
    for round in 1..=rounds {
        let [input, output] = [(); 2].map(|()| (place.take)(application, rank.rank() as i32));
        let own: Vec<u64> = values(rank.rank(), round).collect();
        application.write(input, &own);
        let from = (std::ptr::with_exposed_provenance(input as usize), BYTES);
        let to = (std::ptr::with_exposed_provenance_mut(output as usize), BYTES);
        let call = Call::new(&plan, DataType::U64, from, to);
        // SAFETY: the buffers hold the call's bytes, and are given back once it is complete.
        unsafe { executor.execute(&call, &stream) }.unwrap();
        executor.synchronize(&stream).unwrap();
        let sums: Vec<u64> = values(0, round).zip(values(1, round)).map(|(a, b)| a + b).collect();
        assert!(application.read(output, WORDS) == sums, "{}, round {round}", place.name);
        rank.barrier().unwrap();
        [input, output].into_iter().for_each(|buffer| (place.give_back)(application, buffer));
    }
}

/// Where an application's buffers come from, and where they go.
#[derive(Clone, Copy)]
struct Place {
    name: &'static str,
    take: fn(&Application, i32) -> u64,
    give_back: fn(&Application, u64),
}

const MALLOC: Place = Place {
    name: "cudaMalloc",
    take: |application, _| application.allocate(BYTES as usize),
    give_back: |application, buffer| application.free(buffer),
};

/// Memory over two chunks, which has no one buffer for network cards.
const CHUNKS: Place = Place {
    name: "chunks",
    take: |application, device| application.segment(device, 2, true) + CHUNK as u64 - 800,
    give_back: |_, _| {},
};

/// Memory that no other process can map; network cards may have it all the same.
const PRIVATE: Place = Place {
    name: "chunks that nobody can import",
    take: |application, device| application.segment(device, 1, false) + 64,
    give_back: |_, _| {},
};

/// Runs rounds of [`add_up`] on two devices; what each rank wrote without parcels.
fn two_devices(simulated: &Simulated, packets: bool, rounds: u64, place: Place) -> Vec<u64> {
    let application = &Application::new(simulated);
    let devices = [0, 1].map(|at| driver(backend()).unwrap().open(at).unwrap());
    on_devices(&devices, &over_wire(), |rank| {
        application.enter(rank.rank() as i32);
        add_up(application, &rank, packets, rounds, place);
        direct(&rank)
    })
}

#[test]
fn bytes_go_from_device_to_device_and_packets_in_parcels() {
    let test = name_of(bytes_go_from_device_to_device_and_packets_in_parcels);
    let Some(simulated) = with_wire(test, &[]) else { return };
    // The first launch may come before the ranks have told each other of their memory.
    let bytes = two_devices(&simulated, false, 8, MALLOC);
    assert!(bytes.iter().all(|&bytes| bytes > 0 && bytes <= 8 * BYTES), "{bytes:?}");
    assert_eq!(two_devices(&simulated, true, 3, MALLOC), [0, 0]);
}

#[test]
fn a_device_that_does_not_order_a_cards_writes_gets_parcels_and_sends_without() {
    let test = name_of(a_device_that_does_not_order_a_cards_writes_gets_parcels_and_sends_without);
    let Some(simulated) = with_wire(test, &[("ANTIPHON_GPUSIM_UNORDERED", "1")]) else { return };
    let sent = two_devices(&simulated, false, 8, MALLOC);
    assert!(sent[0] == 0 && sent[1] > 0, "{sent:?}");
}

#[test]
fn memory_without_a_buffer_is_sent_in_parcels() {
    let test = name_of(memory_without_a_buffer_is_sent_in_parcels);
    let Some(simulated) = with_wire(test, &[]) else { return };
    assert_eq!(two_devices(&simulated, false, 4, CHUNKS), [0, 0], "sources without a buffer");
    let staged = two_devices(&simulated, false, 8, PRIVATE);
    assert!(staged.iter().all(|&bytes| bytes > 0), "{staged:?}");
}

/// Rank 0 frees what a wire has had while a launch of its waits for rank 1, and meets it on the host.
#[test]
fn a_barrier_frees_nothing_under_a_launch() {
    let test = name_of(a_barrier_frees_nothing_under_a_launch);
    let slow = [("ANTIPHON_GPUSIM_WAITS", "pin,open,peer,map")];
    if with_wire(test, &slow).is_none() {
        return;
    }
    let devices = [0, 1].map(|at| driver(backend()).unwrap().open(at).unwrap());
    on_devices(&devices, &over_wire(), |rank| {
        let executor = Executor::new(&rank);
        let plan = executor.load(&sum(false)).unwrap();
        let stream = rank.stream().unwrap();
        let launch = |buffers: &[Arc<dyn Memory>; 2]| {
            let [from, to] = buffers.each_ref().map(|memory| memory.address());
            let call = Call::new(&plan, DataType::U64, (from.cast_const(), BYTES), (to, BYTES));
            // SAFETY: the buffers outlive the launch, whose end is waited for.
            unsafe { executor.execute(&call, &stream) }.unwrap();
        };
        let buffers = || [(); 2].map(|()| rank.allocate(BYTES).unwrap());
        let (first, second) = (buffers(), buffers());
        for _ in 0..4 {
            launch(&first);
            launch(&second);
            executor.synchronize(&stream).unwrap();
        }
        rank.barrier().unwrap();
        if rank.rank() == 0 {
            launch(&second);
            drop(first);
        }
        rank.barrier().unwrap();
        if rank.rank() == 1 {
            launch(&second);
        }
        executor.synchronize(&stream).unwrap();
    });
}
