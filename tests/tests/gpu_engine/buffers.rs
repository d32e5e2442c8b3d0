//! Buffers that the application allocated itself, in all the ways in which allocators do: mapped by peers where that is
//! possible, staged where it is not.

use crate::{beside_cuda, device, on_threads, options};
use antiphon::DataType;
use antiphon::executor::{Call, Communicator, Executor};
use antiphon::plan::algorithms::{Algorithm, Shape};
use antiphon_tests::application::{Application, CHUNK};
use antiphon_tests::harness::processes::{Ranks, role};

/// Words of 64 bits of a buffer that begins in one chunk and ends in the next but one.
const WORDS: usize = CHUNK / 8 + 200;
const BEGIN: u64 = CHUNK as u64 - 800;
const WORLD: u32 = 2;

type Allocate = fn(&Application) -> u64;

/// The ways, with their names.
const KINDS: [(&str, Allocate); 3] = [
    ("chunks", |application| application.segment(0, 3, true) + BEGIN),
    ("chunks that nobody can import", |application| application.segment(0, 3, false) + BEGIN),
    ("cudaMalloc", |application| application.allocate(WORDS * 8)),
];

/// Adds up the ranks' buffers of one kind, twice, and compares the sums.
fn add_up(application: &Application, rank: &Communicator, (kind, allocate): (&str, Allocate)) {
    let executor = Executor::new(rank);
    let plan = Algorithm::AllReduceZeroCopy.plan(Shape::new(WORLD as usize)).unwrap();
    let plan = executor.load(&plan).unwrap();
    let stream = rank.stream().unwrap();
    let [input, output] = [allocate(application), allocate(application)];
    for round in 1..=2u64 {
        let values = |rank: u64| (0..WORDS as u64).map(move |at| at * (rank + round));
        application.write(input, &values(u64::from(rank.rank())).collect::<Vec<_>>());
        rank.barrier().unwrap();
        let bytes = WORDS as u64 * 8;
        let from = (std::ptr::with_exposed_provenance(input as usize), bytes);
        let to = (std::ptr::with_exposed_provenance_mut(output as usize), bytes);
        let call = Call::new(&plan, DataType::U64, from, to);
        // SAFETY: the buffers hold the call's bytes, and live as long as the process.
        unsafe { executor.execute(&call, &stream) }.unwrap();
        executor.synchronize(&stream).unwrap();
        let sums: Vec<u64> = values(0).zip(values(1)).map(|(a, b)| a + b).collect();
        assert!(application.read(output, WORDS) == sums, "{kind}, round {round}");
        rank.barrier().unwrap();
    }
}

#[test]
fn any_allocators_buffers_are_added_up_on_threads() {
    let test = "buffers::any_allocators_buffers_are_added_up_on_threads";
    let Some(simulated) = beside_cuda(test) else { return };
    let application = &Application::new(&simulated);
    for kind in KINDS {
        on_threads(WORLD, &options(), |rank| {
            application.enter(0);
            add_up(application, &rank, kind);
        });
    }
}

#[test]
fn any_allocators_buffers_are_added_up_in_processes() {
    let test = "buffers::any_allocators_buffers_are_added_up_in_processes";
    if beside_cuda(test).is_some() {
        Ranks::start("buffers::rank_with_any_allocators_buffers", WORLD, "").succeed();
    }
}

/// One process of the test above.
#[test]
fn rank_with_any_allocators_buffers() {
    let Some(role) = role() else { return };
    let test = "buffers::rank_with_any_allocators_buffers";
    let application = Application::new(&beside_cuda(test).expect("started on the simulator"));
    let rank = role.connect(&options().with_device(Some(device()))).unwrap();
    for kind in KINDS {
        add_up(&application, &rank, kind);
    }
}
