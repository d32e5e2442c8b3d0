//! Plans whose sizes come with each call: counts of all kinds from launch to launch, and counts that two ranks do not agree
//! on.

use crate::devices::devices;
use crate::{on_ranks, on_simulator, on_simulator_of, on_threads, options};
use antiphon::DataType;
use antiphon::executor::selection::SelectionError;
use antiphon::executor::{
    Call, Code, CodeCall, Collectives, Communicator, Counts, Executor, ExecutorError, Extent,
    LoadedPlan, Registry, Terms,
};
use antiphon::plan::algorithms::{Shape, alltoallv};
use antiphon::plan::model::Collective;
use antiphon_tests::harness::{Area, Random, Source, seed};
use antiphon_tests::name_of;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const WORLD: u32 = 3;
const GUARD: u8 = 0x5A;

/// What the byte `at` of what `from` sends to `to` is, in launch `launch`.
fn byte(launch: u64, from: u32, to: u32, at: usize) -> u8 {
    (launch as u8).wrapping_mul(31) ^ (from * 7 + to * 3) as u8 ^ at as u8
}

struct Launch {
    send: Vec<Extent>,
    receive: Vec<Extent>,
    input: Area,
    output: Area,
    bytes: [u64; 2],
}

impl Launch {
    /// A launch of elements of 4 bytes, in which each rank sends each as many as `matrix` says.
    fn new(rank: &Communicator, launch: u64, matrix: &[[u64; 3]; 3]) -> Self {
        let own = rank.rank() as usize;
        let send = Extent::packed(&matrix[own]);
        let receive = Extent::packed(&[0, 1, 2].map(|from| matrix[from][own]));
        let bytes =
            [&send, &receive].map(|blocks| blocks.iter().map(|block| block.count * 4).sum());
        let area = |bytes| Area::new(rank, Source::Own, bytes).unwrap();
        let (mut input, mut output) = (area(bytes[0]), area(bytes[1]));
        output.edit(|all| all.fill(GUARD));
        for (to, block) in (0..).zip(&send) {
            let start = block.offset as usize * 4;
            input.edit(|all| {
                let block = &mut all[start..start + block.count as usize * 4];
                for (at, cell) in block.iter_mut().enumerate() {
                    *cell = byte(launch, rank.rank(), to, at);
                }
            });
        }
        Launch { send, receive, input, output, bytes }
    }

    fn call<'a>(&'a self, plan: &'a Arc<LoadedPlan>) -> Call<'a> {
        let from = (self.input.address().cast_const(), self.bytes[0]);
        let to = (self.output.address(), self.bytes[1]);
        let counts = Counts { send: &self.send, receive: &self.receive };
        Call::new(plan, DataType::U32, from, to).with_counts(counts)
    }

    fn check(&self, rank: u32, launch: u64) {
        let all = self.output.bytes();
        for (from, block) in (0..).zip(&self.receive) {
            let start = block.offset as usize * 4;
            for (at, found) in all[start..start + block.count as usize * 4].iter().enumerate() {
                let expected = byte(launch, from, rank, at);
                assert_eq!(*found, expected, "rank {rank} launch {launch} from {from} byte {at}");
            }
        }
    }
}

#[test]
fn every_count_arrives_from_launch_to_launch() {
    if on_simulator(name_of(every_count_arrives_from_launch_to_launch)).is_none() {
        return;
    }
    let seed = seed();
    println!("seed {seed}");
    let mut random = Random::new(seed, 3);
    let mut matrices = vec![[[0; 3]; 3], [[0, 900, 0], [0; 3], [0; 3]]];
    for values in [&[0, 1][..], &[0, 1, 7, 64, 1025], &[33]] {
        matrices.push([[(); 3]; 3].map(|row| row.map(|()| random.one_of(values))));
    }
    for blocks in [1, 2] {
        let plan = alltoallv::zero_copy(Shape { blocks, ..Shape::new(WORLD as usize) }).unwrap();
        on_threads(WORLD, &options(), |rank| {
            let executor = Executor::new(&rank);
            let plan = executor.load(&plan).unwrap();
            let stream = rank.stream().unwrap();
            let launches: Vec<Launch> =
                (0..).zip(&matrices).map(|(at, matrix)| Launch::new(&rank, at, matrix)).collect();
            for launch in &launches {
                // SAFETY: the areas hold the call's bytes and outlive the stream's work.
                unsafe { executor.execute(&launch.call(&plan), &stream) }.unwrap();
            }
            executor.synchronize(&stream).unwrap();
            rank.barrier().unwrap();
            (0..).zip(&launches).for_each(|(at, launch)| launch.check(rank.rank(), at));
        });
    }
}

/// Runs a plan over the blocks that it is given, and counts its calls.
#[derive(Default)]
struct Relaying(AtomicU32);

impl Code for Relaying {
    fn collective(&self) -> Collective {
        Collective::AllToAllV
    }

    fn serves_devices(&self) -> bool {
        true
    }

    unsafe fn run(&self, call: &CodeCall<'_>) -> Result<(), ExecutorError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let plan = alltoallv::zero_copy(Shape::new(WORLD as usize));
        let plan = call.executor.load(&plan.map_err(SelectionError::Build)?)?;
        let buffers = ((call.input, call.input_bytes), (call.output, call.output_bytes));
        let launch = Call::new(&plan, call.dtype, buffers.0, buffers.1);
        let launch = launch.with_counts(call.counts.unwrap());
        // SAFETY: the buffers are the call's until it is complete.
        unsafe { call.executor.execute(&launch, call.stream.unwrap()) }
    }
}

#[test]
fn code_is_given_the_blocks_of_a_call() {
    if on_simulator(name_of(code_is_given_the_blocks_of_a_call)).is_none() {
        return;
    }
    let (registry, code) = (Registry::new(), Arc::new(Relaying::default()));
    registry.register_code("relaying", 1, Arc::clone(&code) as _, Terms::default()).unwrap();
    on_threads(WORLD, &options().with_registry(registry), |rank| {
        let on = Collectives::new(&rank).unwrap();
        let stream = rank.stream().unwrap();
        for (at, on_stream) in [(0, true), (1, false)] {
            let launch = Launch::new(&rank, at, &[[3, 0, 65], [1, 900, 2], [0, 0, 4]]);
            let buffers = (launch.input.address().cast_const(), launch.output.address());
            let sizes = (launch.bytes[0] / 4, launch.bytes[1] / 4);
            let counts = Counts { send: &launch.send, receive: &launch.receive };
            let queue = on_stream.then_some(&stream);
            // SAFETY: the areas hold the call's bytes and outlive the stream's work.
            unsafe { on.all_to_all_v(buffers, sizes, counts, DataType::U32, queue) }.unwrap();
            on.executor().synchronize(&stream).unwrap();
            launch.check(rank.rank(), at);
            rank.barrier().unwrap();
        }
    });
    assert_eq!(code.0.load(Ordering::Relaxed), 2 * WORLD);
}

thread_local! {
    /// What the selector of this rank's thread answers.
    static CHOSEN: Cell<&'static str> = const { Cell::new("") };
}

#[test]
fn ranks_of_nodes_of_which_some_choose_code_and_some_transfers_are_told_so() {
    let test = name_of(ranks_of_nodes_of_which_some_choose_code_and_some_transfers_are_told_so);
    if on_simulator_of(test, WORLD as usize).is_none() {
        return;
    }
    for on_stream in [false, true] {
        let (registry, code) = (Registry::new(), Arc::new(Relaying::default()));
        registry.register_code("relaying", 1, Arc::clone(&code) as _, Terms::default()).unwrap();
        registry.set_selector(|_| Some(CHOSEN.get().to_owned()));
        let (devices, options) = (devices(WORLD, WORLD), options().with_registry(registry));
        let ranks = Communicator::in_process_at(&["a", "b", "b"], &devices, &options).unwrap();
        let errors = on_ranks(ranks, |rank| {
            CHOSEN.set(if rank.rank() == 1 { "relaying" } else { "transfers" });
            let on = Collectives::new(&rank).unwrap();
            let stream = rank.stream().unwrap();
            let launch = Launch::new(&rank, 0, &[[3, 0, 65], [1, 900, 2], [0, 0, 4]]);
            let buffers = (launch.input.address().cast_const(), launch.output.address());
            let sizes = (launch.bytes[0] / 4, launch.bytes[1] / 4);
            let counts = Counts { send: &launch.send, receive: &launch.receive };
            let queue = on_stream.then_some(&stream);
            // SAFETY: as above.
            let made = unsafe { on.all_to_all_v(buffers, sizes, counts, DataType::U32, queue) };
            made.and_then(|()| on.executor().synchronize(&stream)).unwrap_err()
        });
        for (rank, error) in errors.iter().enumerate() {
            let text = error.to_string();
            let told = text.contains("by transfers, rank 1 by code `relaying` 1");
            assert!(told && error.breaks_communicator(), "rank {rank}, {on_stream}: {text}");
        }
        let diverged = |error: &ExecutorError| match error.cause() {
            ExecutorError::Diverged { rank, .. } => *rank != 1,
            _ => false,
        };
        assert!(errors.iter().any(diverged), "{on_stream}: {errors:?}");
        assert_eq!(code.0.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn ranks_that_disagree_on_a_count_are_told_which() {
    if on_simulator(name_of(ranks_that_disagree_on_a_count_are_told_which)).is_none() {
        return;
    }
    let plan = alltoallv::zero_copy(Shape::new(WORLD as usize)).unwrap();
    let errors = on_threads(WORLD, &options(), |rank| {
        let executor = Executor::new(&rank);
        let plan = executor.load(&plan).unwrap();
        let mut matrix = [[5; 3]; 3];
        if rank.rank() == 1 {
            // It sends less to rank 2 than that expects.
            matrix[1][2] = 3;
        }
        let launch = Launch::new(&rank, 0, &matrix);
        // SAFETY: as above; the call is blocking.
        unsafe { executor.run(&launch.call(&plan)) }.unwrap_err()
    });
    let unequal = |error: &&ExecutorError| matches!(error, ExecutorError::Unequal { .. });
    let text = errors.iter().find(unequal).unwrap_or_else(|| panic!("{errors:?}")).to_string();
    for part in ["rank 1 sends 3 elements (send block 2)", "rank 2 expects 5"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
