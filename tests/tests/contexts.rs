//! More streams and plans than a communicator keeps memory for: those used least recently make room, on all ranks alike, and come
//! again when they are used again.

use antiphon::executor::hal::Stream;
use antiphon::executor::{Call, Communicator, Executor, LoadedPlan};
use antiphon::plan::algorithms::{Algorithm, Shape};
use antiphon::plan::model::Plan;
use antiphon::{DataType, ReduceOp};
use antiphon_tests::harness::processes::{Ranks, role};
use antiphon_tests::harness::{Random, on_hosts, on_threads, options, seed};
use antiphon_tests::{name_of, until};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::Arc;

/// Far more than are kept, with two plans each.
const STREAMS: usize = 200;
const ROUNDS: u64 = 150;
/// Calls under way at once.
const SIDE_BY_SIDE: usize = 6;
const ELEMENTS: usize = 96;

fn plans(shape: Shape) -> [Plan; 2] {
    // One with packets, whose flags count launches, and one whose ranks read each other's buffers.
    [Algorithm::AllReduceTwoShotPackets, Algorithm::AllReduceZeroCopy]
        .map(|algorithm| algorithm.plan(shape).unwrap())
}

/// A call that is under way.
struct Sum {
    input: Vec<i32>,
    output: Vec<i32>,
    number: i32,
}

impl Sum {
    fn new(rank: u32, number: i32) -> Self {
        let value = |at: usize| at as i32 * (rank as i32 + 1) + number;
        Sum { input: (0..ELEMENTS).map(value).collect(), output: vec![-1; ELEMENTS], number }
    }

    fn call<'a>(&mut self, plan: &'a Arc<LoadedPlan>) -> Call<'a> {
        let bytes = (ELEMENTS * 4) as u64;
        let from = (self.input.as_ptr().cast(), bytes);
        let to = (self.output.as_mut_ptr().cast(), bytes);
        Call { op: Some(ReduceOp::Sum), ..Call::new(plan, DataType::I32, from, to) }
    }

    fn assert_right(&self, world: u32) {
        let (ranks, factors) = (world as i32, (world * (world + 1) / 2) as i32);
        let expected = (0..ELEMENTS).map(|at| at as i32 * factors + ranks * self.number);
        assert!(
            self.output.iter().copied().eq(expected),
            "call {}: {:?}",
            self.number,
            self.output
        );
    }
}

/// Sums on streams that come in a random order, the same on all ranks: now and then one that has not been used for long.
fn sum_on_many_streams(communicator: &Communicator, plans: &[Plan]) {
    let (rank, world) = (communicator.rank(), communicator.world());
    let executor = Executor::new(communicator);
    let plans: Vec<_> = plans.iter().map(|plan| executor.load(plan).unwrap()).collect();
    let streams: Vec<Arc<dyn Stream>> =
        (0..STREAMS).map(|_| communicator.stream().unwrap()).collect();
    let mut random = Random::new(seed(), 5);
    let mut number = 0;
    for _ in 0..ROUNDS {
        let mut under_way: Vec<(Sum, &Arc<dyn Stream>)> = Vec::new();
        for _ in 0..SIDE_BY_SIDE {
            // Some come often.
            let among = random.one_of(&[3, STREAMS as u64]);
            let stream = &streams[random.below(among) as usize];
            let plan = &plans[random.below(plans.len() as u64) as usize];
            number += 1;
            let mut sum = Sum::new(rank, number);
            // SAFETY: both buffers hold the call's bytes, and stay until their stream is through.
            unsafe { executor.execute(&sum.call(plan), stream) }.unwrap();
            under_way.push((sum, stream));
        }
        for (sum, stream) in under_way {
            executor.synchronize(stream).unwrap();
            sum.assert_right(world);
        }
    }
}

#[test]
fn streams_without_number_give_right_sums_on_threads() {
    println!("seed {}", seed());
    for world in [2, 5] {
        let plans = plans(Shape::new(world as usize));
        on_threads(world, &options(), |rank| sum_on_many_streams(&rank, &plans)).unwrap();
    }
}

#[test]
fn streams_without_number_give_right_sums_over_nodes() {
    println!("seed {}", seed());
    let hierarchical = Algorithm::ALL
        .into_iter()
        .filter(|one| one.is_hierarchical() && one.name().starts_with("allreduce"));
    let shape = Shape { nodes: 2, ..Shape::new(4) };
    let plans: Vec<Plan> = hierarchical.map(|one| one.plan(shape).unwrap()).collect();
    assert!(!plans.is_empty());
    on_hosts(&["a", "a", "b", "b"], &options(), |rank| sum_on_many_streams(&rank, &plans)).unwrap();
}

#[test]
fn processes_with_few_descriptors_have_enough() {
    Ranks::start(name_of(rank_with_few_descriptors), 3, "").succeed();
}

/// A process of the test above.
#[test]
fn rank_with_few_descriptors() {
    let Some(role) = role() else { return };
    // Each context takes one, and one for what stands in for buffers that peers cannot map; there would be eight hundred.
    let limit = Rlimit { current: Some(400), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let communicator = role.connect(&options()).unwrap();
    sum_on_many_streams(&communicator, &plans(Shape::new(3)));
}

#[test]
fn a_rank_that_lacks_what_a_call_takes_tells_the_others() {
    Ranks::start(name_of(rank_of_which_one_has_no_descriptors), 2, "").succeed();
}

/// A process of the test above.
#[test]
fn rank_of_which_one_has_no_descriptors() {
    let Some(role) = role() else { return };
    let communicator = role.connect(&options().with_timeout(None)).unwrap();
    let executor = Executor::new(&communicator);
    let [plan, _] = plans(Shape::new(2)).map(|plan| executor.load(&plan).unwrap());
    let text = if communicator.rank() == 0 {
        // In a call of its own it would wait for the other.
        until("it to be told", || communicator.failure().is_some());
        communicator.failure().unwrap().to_string()
    } else {
        let mut sum = Sum::new(1, 1);
        let call = sum.call(&plan);
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(3), ..before }).unwrap();
        // SAFETY: both buffers hold the call's bytes, and outlive it.
        let error = unsafe { executor.run(&call) }.unwrap_err();
        setrlimit(Resource::Nofile, before).unwrap();
        error.to_string()
    };
    assert!(text.contains("allocate host memory") && text.contains("ulimit -n"), "{text}");
    communicator.abort("the test is over");
}
