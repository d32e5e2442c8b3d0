//! Buffers that the application allocated itself, in all the ways in which allocators do: mapped by peers where that is
//! possible, staged where it is not.

use crate::devices::devices;
use crate::{cuda_only, cuda_only_with, device, on_devices, on_threads, options, simulated_alone};
use antiphon::DataType;
use antiphon::executor::{Call, Communicator, Executor, ExecutorError};
use antiphon::plan::algorithms::{Algorithm, Shape};
use antiphon_tests::application::{Application, CHUNK};
use antiphon_tests::harness::processes::{Ranks, role};
use antiphon_tests::{name_of, until};
use std::time::{Duration, Instant};

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
    add_up_in(application, rank, kind, [allocate(application), allocate(application)]);
}

/// The same in these buffers.
fn add_up_in(application: &Application, rank: &Communicator, kind: &str, buffers: [u64; 2]) {
    let executor = Executor::new(rank);
    let plan = Algorithm::AllReduceZeroCopy.plan(Shape::new(WORLD as usize)).unwrap();
    let plan = executor.load(&plan).unwrap();
    let stream = rank.stream().unwrap();
    let [input, output] = buffers;
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
    let test = name_of(any_allocators_buffers_are_added_up_on_threads);
    let Some(simulated) = cuda_only(test) else { return };
    let application = &Application::new(&simulated);
    for kind in KINDS {
        on_threads(WORLD, &options(), |rank| {
            application.enter(0);
            add_up(application, &rank, kind);
        });
    }
}

#[test]
fn calls_of_many_sizes_take_little_memory_of_the_device() {
    let test = name_of(calls_of_many_sizes_take_little_memory_of_the_device);
    let Some(simulated) = cuda_only(test) else { return };
    let application = &Application::new(&simulated);
    let plan = Algorithm::AllReduceTwoShotPackets.plan(Shape::new(WORLD as usize)).unwrap();
    let most = 4096;
    let used = on_threads(WORLD, &options(), |rank| {
        application.enter(0);
        let (executor, stream) = (Executor::new(&rank), rank.stream().unwrap());
        let plan = executor.load(&plan).unwrap();
        let [input, output] = [(); 2].map(|()| rank.allocate(most).unwrap());
        let call = |dtype: DataType, bytes| {
            let (from, to) = ((input.address().cast_const(), bytes), (output.address(), bytes));
            let call = Call::new(&plan, dtype, from, to);
            // SAFETY: both memories hold `most` bytes, and live until the stream has come so far.
            unsafe { executor.execute(&call, &stream) }.unwrap();
            executor.synchronize(&stream).unwrap();
        };
        call(DataType::U32, most);
        rank.barrier().unwrap();
        let before = application.used();
        rank.barrier().unwrap();
        for size in (1..=20).map(|number| number * 16) {
            call(DataType::U32, size);
            call(DataType::F32, size);
        }
        rank.barrier().unwrap();
        let used = application.used();
        // Before anybody frees something.
        rank.barrier().unwrap();
        used - before
    });
    // They fit what the first call was given: no page for each of forty sets of byte ranges, nor for another kernel's tables.
    assert_eq!(used, [0, 0], "bytes");
}

#[test]
fn any_allocators_buffers_are_added_up_in_processes() {
    let test = name_of(any_allocators_buffers_are_added_up_in_processes);
    if cuda_only(test).is_some() {
        Ranks::start(name_of(rank_with_any_allocators_buffers), WORLD, "").succeed();
    }
}

/// One process of the test above. To open IPC handles waits for kernels here, and kernels would for the handles.
#[test]
fn rank_with_any_allocators_buffers() {
    let Some(role) = role() else { return };
    let test = name_of(rank_with_any_allocators_buffers);
    let application = Application::new(&cuda_only(test).expect("started on the simulator"));
    let rank = role.connect(&options().with_device(Some(device()))).unwrap();
    for kind in KINDS {
        add_up(&application, &rank, kind);
    }
    assert!(!application.is_simulated() || application.opened() == 0);
}

/// For tests in which to open IPC handles waits for no kernel.
const AT_ONCE: [(&str, &str); 1] = [("ANTIPHON_GPUSIM_WAITS", "0")];

#[test]
fn memory_of_cudamalloc_is_mapped_where_that_is_asked_for() {
    let test = name_of(memory_of_cudamalloc_is_mapped_where_that_is_asked_for);
    let Some(simulated) = cuda_only_with(test, &AT_ONCE) else { return };
    if simulated_alone(test, &simulated).is_some() {
        Ranks::start(name_of(rank_that_maps_memory_of_cudamalloc), WORLD, "").succeed();
    }
}

/// One process of the test above.
#[test]
fn rank_that_maps_memory_of_cudamalloc() {
    let Some(role) = role() else { return };
    let test = name_of(rank_that_maps_memory_of_cudamalloc);
    let application = Application::new(&cuda_only(test).expect("started on the simulator"));
    let options = options().with_device(Some(device())).with_legacy_ipc(true);
    add_up(&application, &role.connect(&options).unwrap(), KINDS[2]);
    assert!(application.opened() > 0);
}

#[test]
fn registered_memory_is_mapped_before_the_first_call() {
    let test = name_of(registered_memory_is_mapped_before_the_first_call);
    let Some(simulated) = cuda_only_with(test, &AT_ONCE) else { return };
    if simulated_alone(test, &simulated).is_some() {
        Ranks::start(name_of(rank_that_registers_memory), WORLD, "").succeed();
    }
}

/// One process of the test above.
#[test]
fn rank_that_registers_memory() {
    let Some(role) = role() else { return };
    let test = name_of(rank_that_registers_memory);
    let application = Application::new(&cuda_only(test).expect("started on the simulator"));
    let options = options().with_device(Some(device())).with_legacy_ipc(true);
    let rank = role.connect(&options).unwrap();
    let bytes = WORDS as u64 * 8;
    let register = |address: u64| {
        rank.register(std::ptr::with_exposed_provenance(address as usize), bytes).unwrap()
    };
    // Memory that nobody can import.
    assert!(!register(KINDS[1].1(&application)));
    let buffers = [(); 2].map(|()| KINDS[2].1(&application));
    for address in [buffers[0], buffers[1], buffers[0]] {
        assert!(register(address));
    }
    // The control thread maps what the peer has registered, without a call of anybody.
    until("both buffers to be mapped", || application.opened() >= 2);
    add_up_in(&application, &rank, "registered", buffers);
    assert_eq!(application.opened(), 2);
}

/// So many that a peer comes too late to map one of them.
const FREED: usize = 300;

#[test]
fn memory_that_is_freed_before_a_peer_has_mapped_it_breaks_nothing() {
    let test = name_of(memory_that_is_freed_before_a_peer_has_mapped_it_breaks_nothing);
    let Some(simulated) = cuda_only(test) else { return };
    if simulated_alone(test, &simulated).is_none() {
        return;
    }
    let application = &Application::new(&simulated);
    on_devices(&devices(WORLD, WORLD), &options(), |rank| {
        application.enter(rank.rank() as i32);
        let bytes = WORDS as u64 * 8;
        for _ in 0..FREED {
            let address = KINDS[2].1(application);
            let pointer = std::ptr::with_exposed_provenance(address as usize);
            assert!(rank.register(pointer, bytes).unwrap());
            application.free(address);
        }
        add_up(application, &rank, KINDS[2]);
    });
}

/// So long it may be mapped in time again and again.
const ATTEMPTS: Duration = Duration::from_secs(60);

#[test]
fn memory_that_is_freed_before_a_peer_has_mapped_it_ends_a_call_that_needs_it() {
    let test = name_of(memory_that_is_freed_before_a_peer_has_mapped_it_ends_a_call_that_needs_it);
    let Some(simulated) = cuda_only(test) else { return };
    if simulated_alone(test, &simulated).is_none() {
        return;
    }
    let application = &Application::new(&simulated);
    let plan = Algorithm::AllReduceZeroCopy.plan(Shape::new(WORLD as usize)).unwrap();
    let outcomes = || {
        on_devices(&devices(WORLD, WORLD), &options(), |rank| {
            application.enter(rank.rank() as i32);
            let (executor, stream) = (Executor::new(&rank), rank.stream().unwrap());
            let plan = executor.load(&plan).unwrap();
            let others = [(); 10].map(|()| application.allocate(64));
            let [input, output] = [(); 2].map(|()| application.allocate(64));
            rank.barrier().unwrap();
            if rank.rank() == 0 {
                // The peer is still about these.
                for address in others {
                    rank.register(std::ptr::with_exposed_provenance(address as usize), 64).unwrap();
                }
            }
            let from = (std::ptr::with_exposed_provenance(input as usize), 64);
            let to = (std::ptr::with_exposed_provenance_mut(output as usize), 64);
            let call = Call::new(&plan, DataType::U64, from, to);
            // SAFETY: the buffers hold the call's bytes, and the driver frees none before its device's kernels are over.
            let launched = unsafe { executor.execute(&call, &stream) };
            if rank.rank() == 0 {
                application.free(input);
            }
            launched.and_then(|()| executor.synchronize(&stream)).err()
        })
    };
    let began = Instant::now();
    let mut tried = std::iter::repeat_with(outcomes).take_while(|_| began.elapsed() < ATTEMPTS);
    let failed = tried.find(|errors| errors[1].is_some());
    let errors = failed.expect("it is once freed before it is mapped");
    let error = errors[1].as_ref().unwrap();
    assert!(matches!(error, ExecutorError::Freed { rank: 1, peer: 0, .. }), "{error}");
}

/// More than peers keep mapped that no launch uses.
const LAUNCHES: u64 = 40;
/// Longer than a rank that launches nothing takes until it unmaps what it was told to.
const IDLE: Duration = Duration::from_millis(1200);

#[test]
fn buffers_of_queued_launches_stay_mapped_in_processes() {
    let test = name_of(buffers_of_queued_launches_stay_mapped_in_processes);
    let Some(simulated) = cuda_only_with(test, &AT_ONCE) else { return };
    if simulated_alone(test, &simulated).is_some() {
        Ranks::start(name_of(rank_with_many_buffers), WORLD, "").succeed();
    }
}

/// One process of the test above: rank 0 is far ahead with other buffers in each launch.
#[test]
fn rank_with_many_buffers() {
    let Some(role) = role() else { return };
    let test = name_of(rank_with_many_buffers);
    let application = Application::new(&cuda_only(test).expect("started on the simulator"));
    let options = options().with_device(Some(device())).with_legacy_ipc(true);
    let rank = role.connect(&options).unwrap();
    let executor = Executor::new(&rank);
    let plan = Algorithm::AllReduceZeroCopy.plan(Shape::new(WORLD as usize)).unwrap();
    let plan = executor.load(&plan).unwrap();
    let stream = rank.stream().unwrap();
    let values =
        |rank: u32, launch: u64| (0..8u64).map(move |at| at * 1000 + launch * 10 + u64::from(rank));
    let buffers: Vec<_> = (0..LAUNCHES)
        .map(|launch| {
            let [input, output] = [(); 2].map(|()| application.allocate(64));
            application.write(input, &values(rank.rank(), launch).collect::<Vec<_>>());
            (input, output)
        })
        .collect();
    let execute = |&(input, output): &(u64, u64)| {
        let from = (std::ptr::with_exposed_provenance(input as usize), 64);
        let to = (std::ptr::with_exposed_provenance_mut(output as usize), 64);
        let call = Call::new(&plan, DataType::U64, from, to);
        // SAFETY: the buffers hold the call's bytes, and live as long as the process.
        unsafe { executor.execute(&call, &stream) }.unwrap();
    };
    if rank.rank() == 0 {
        buffers.iter().for_each(execute);
        rank.barrier().unwrap();
    } else {
        rank.barrier().unwrap();
        std::thread::sleep(IDLE);
        buffers.iter().for_each(execute);
    }
    executor.synchronize(&stream).unwrap();
    for (launch, &(_, output)) in (0..).zip(&buffers) {
        let sums: Vec<_> = values(0, launch).zip(values(1, launch)).map(|(a, b)| a + b).collect();
        assert_eq!(application.read(output, 8), sums, "launch {launch}");
    }
    rank.barrier().unwrap();
}

#[test]
fn a_graph_keeps_its_staging_when_a_larger_call_needs_more() {
    let test = name_of(a_graph_keeps_its_staging_when_a_larger_call_needs_more);
    if cuda_only(test).is_some() {
        Ranks::start(name_of(rank_with_a_graph_of_staged_buffers), WORLD, "").succeed();
    }
}

/// One process of the test above.
#[test]
fn rank_with_a_graph_of_staged_buffers() {
    let Some(role) = role() else { return };
    let test = name_of(rank_with_a_graph_of_staged_buffers);
    let application = Application::new(&cuda_only(test).expect("started on the simulator"));
    let rank = role.connect(&options().with_device(Some(device()))).unwrap();
    let executor = Executor::new(&rank);
    let plan = Algorithm::AllReduceZeroCopy.plan(Shape::new(WORLD as usize)).unwrap();
    let plan = executor.load(&plan).unwrap();
    let raw = application.stream();
    let place = std::ptr::without_provenance_mut(raw as usize);
    // SAFETY: the stream was made just now, and nobody destroys it.
    let stream = unsafe { rank.device().adopt_stream(place) }.unwrap();
    let [input, output] = [(); 2].map(|()| application.segment(0, 3, false));
    let execute = |words: u64| {
        let from = (std::ptr::with_exposed_provenance(input as usize), words * 8);
        let to = (std::ptr::with_exposed_provenance_mut(output as usize), words * 8);
        let call = Call::new(&plan, DataType::U64, from, to);
        // SAFETY: the buffers hold the call's bytes, and live as long as the process.
        unsafe { executor.execute(&call, &stream) }.unwrap();
    };
    let check = |what: &str, round: u64, launch: &dyn Fn()| {
        let values = |rank: u64| (0..64u64).map(move |at| at * (rank + 1) + round);
        application.write(input, &values(u64::from(rank.rank())).collect::<Vec<_>>());
        rank.barrier().unwrap();
        launch();
        application.finish(raw);
        let sums: Vec<_> = values(0).zip(values(1)).map(|(a, b)| a + b).collect();
        assert_eq!(application.read(output, 64), sums, "{what}");
    };
    check("a launch", 1, &|| execute(64));
    application.begin(raw);
    execute(64);
    let graph = application.end(raw);
    let executable = application.instantiate(graph);
    // Staging of 4 MiB takes the place of that of the graph.
    check("a larger one", 2, &|| execute(WORDS as u64));
    rank.barrier().unwrap();
    std::thread::sleep(IDLE);
    for round in 3..5 {
        check("a replay", round, &|| application.replay(executable, raw));
    }
    rank.barrier().unwrap();
    application.destroy(graph, executable);
}
