//! What launches of a communicator share must not leak from one call to the next.

use antiphon_executor::plan::algorithms::{Algorithm, Shape};
use antiphon_executor::plan::builder::ProgramBuilder;
use antiphon_executor::plan::model::{Collective, Plan};
use antiphon_executor::{
    Call, Communicator, DataType, Executor, ExecutorError, LoadedPlan, Options, ReduceOp,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn plans(world: usize) -> Vec<Plan> {
    let shape = Shape::new(world);
    let algorithms = Algorithm::all_for(&Collective::AllReduce);
    algorithms.into_iter().map(|algorithm| algorithm.plan(shape).unwrap()).collect()
}

fn communicators(world: u32) -> Vec<Communicator> {
    let options = Options::default().with_timeout(Some(Duration::from_secs(10)));
    Communicator::in_process(world, &options).unwrap()
}

fn on_every_rank(world: u32, work: impl Fn(Communicator) + Sync) {
    std::thread::scope(|scope| {
        for communicator in communicators(world) {
            scope.spawn(|| work(communicator));
        }
    });
}

fn sum(
    executor: &Executor,
    plan: &Arc<LoadedPlan>,
    input: &[f32],
    op: Option<ReduceOp>,
) -> Vec<f32> {
    let mut output = vec![f32::NAN; input.len()];
    let bytes = size_of_val(input) as u64;
    let call = Call {
        plan,
        input: input.as_ptr().cast(),
        output: output.as_mut_ptr().cast(),
        input_bytes: bytes,
        output_bytes: bytes,
        dtype: DataType::F32,
        op,
        counts: None,
    };
    // SAFETY: both vectors hold `bytes` bytes and live past the call.
    unsafe { executor.run(&call) }.unwrap();
    output
}

#[test]
fn a_plan_at_the_address_of_a_dropped_one_is_still_another_plan() {
    on_every_rank(1, |communicator| {
        let executor = Executor::new(&communicator);
        let mut plan = plans(1).remove(0);
        let kept = executor.load(&plan).unwrap();
        sum(&executor, &kept, &[1.0], None);
        for round in 0..64u64 {
            plan.max_message_size = u64::MAX;
            let equal = executor.load(&plan).unwrap();
            sum(&executor, &equal, &[1.0], None);
            drop(equal);
            // Refuses the size, unless it is taken for the plan that was there before.
            plan.max_message_size = 3;
            let refusing = executor.load(&plan).unwrap();
            let (input, mut output) = ([1f32], [0f32]);
            let call = Call {
                plan: &refusing,
                input: input.as_ptr().cast(),
                output: output.as_mut_ptr().cast(),
                input_bytes: 4,
                output_bytes: 4,
                dtype: DataType::F32,
                op: None,
                counts: None,
            };
            // SAFETY: both arrays are four bytes long.
            assert!(unsafe { executor.run(&call) }.is_err(), "round {round}");
        }
    });
}

#[test]
fn a_first_call_without_elements_leaves_scratch_for_the_next() {
    for world in [2, 4] {
        for plan in plans(world as usize) {
            on_every_rank(world, |communicator| {
                let executor = Executor::new(&communicator);
                let plan = executor.load(&plan).unwrap();
                for count in [0, 1, 1000, 0, 1024, 3, 0, 1000] {
                    let found = sum(&executor, &plan, &vec![2.0; count], None);
                    assert_eq!(found, vec![2.0 * world as f32; count], "{} {count}", plan.name());
                }
            });
        }
    }
}

#[test]
fn executors_of_one_communicator_take_turns() {
    let plan = &plans(2)[0];
    on_every_rank(2, |communicator| {
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let executor = Executor::new(&communicator);
                    let plan = executor.load(plan).unwrap();
                    for _ in 0..200 {
                        assert_eq!(sum(&executor, &plan, &[1.5; 100], None), [3.0; 100]);
                    }
                });
            }
        });
    });
}

#[test]
fn a_rank_that_is_left_alone_says_so_and_breaks_the_communicator_for_all() {
    let options = Options::default().with_timeout(Some(Duration::from_millis(50)));
    let ranks = Communicator::in_process(3, &options).unwrap();
    let executors: Vec<_> = ranks.iter().map(Executor::new).collect();
    let plan = executors[0].load(&plans(3)[0]).unwrap();
    let (input, mut output) = ([1f32; 8], [0f32; 8]);
    let call = Call {
        plan: &plan,
        input: input.as_ptr().cast(),
        output: output.as_mut_ptr().cast(),
        input_bytes: 32,
        output_bytes: 32,
        dtype: DataType::F32,
        op: None,
        counts: None,
    };
    // SAFETY: both arrays are 32 bytes long and live past the call.
    let error = unsafe { executors[0].run(&call) }.unwrap_err().to_string();
    for part in ["rank 1", "rank 2", "has not entered launch 1", "block 0", "op "] {
        assert!(error.contains(part), "{part}: {error}");
    }
    for rank in &ranks[1..] {
        let began = Instant::now();
        while rank.failure().is_none() {
            assert!(began.elapsed() < Duration::from_secs(10), "{rank:?} was not told");
            std::thread::yield_now();
        }
        // SAFETY: as above.
        let again = unsafe { executors[rank.rank() as usize].run(&call) }.unwrap_err().to_string();
        assert!(again.contains("aborted by rank 0"), "{again}");
    }
}

/// One call of a rank: 32 bytes each way.
fn call_once(rank: &Communicator, plan: &Plan) -> Result<(), ExecutorError> {
    let executor = Executor::new(rank);
    let plan = executor.load(plan)?;
    let (input, mut output) = ([1f32; 8], [0f32; 8]);
    let (from, to) = ((input.as_ptr().cast(), 32), (output.as_mut_ptr().cast(), 32));
    // SAFETY: both arrays are 32 bytes long and live past the call.
    unsafe { executor.run(&Call::new(&plan, DataType::F32, from, to)) }
}

#[test]
fn a_rank_that_leaves_without_the_call_ends_those_of_the_others_though_there_is_no_limit() {
    let plan = &plans(3)[0];
    for waits_already in [false, true] {
        let options = Options::default().with_timeout(None);
        let mut ranks = Communicator::in_process(3, &options).unwrap();
        let leaver = ranks.pop();
        std::thread::scope(|scope| {
            let leaver = waits_already.then_some(leaver).flatten();
            let calls: Vec<_> =
                ranks.iter().map(|rank| scope.spawn(move || call_once(rank, plan))).collect();
            drop(leaver);
            for call in calls {
                let text = call.join().unwrap().unwrap_err().to_string();
                for part in ["rank 2", "left the communicator without making this call"] {
                    assert!(text.contains(part), "{part}: {text}");
                }
            }
        });
    }
}

/// Its other communicators are its own affair.
#[test]
fn a_rank_that_leaves_a_part_of_the_ranks_without_the_call_ends_those_of_the_others() {
    let plan = &plans(2)[0];
    let options = Options::default().with_timeout(None);
    let ranks = Communicator::in_process(2, &options).unwrap();
    std::thread::scope(|scope| {
        let calls: Vec<_> = ranks
            .iter()
            .map(|rank| {
                scope.spawn(move || {
                    let part = rank.split(Some(0), rank.rank()).unwrap().unwrap();
                    call_once(&part, plan).unwrap();
                    let call = (rank.rank() == 0).then(|| call_once(&part, plan));
                    drop(part);
                    // All stay as long as the call takes.
                    rank.barrier().unwrap();
                    call
                })
            })
            .collect();
        let mut calls = calls.into_iter().filter_map(|call| call.join().unwrap());
        let text = calls.next().unwrap().unwrap_err().to_string();
        for part in ["rank 1", "left the communicator without making this call"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    });
}

/// Rank 1 hands something to rank 0, and leaves; rank 0 still waits for rank 2.
#[test]
fn a_rank_that_leaves_after_its_part_of_the_call_breaks_nothing() {
    let program = ProgramBuilder::new("of two", Collective::SendRecv, 3);
    let (first, second) = (program.channel(0, 1), program.channel(0, 2));
    program.block(1).put(program.input(1).all(), program.output(0).all());
    program.block(1).signal(&[first]);
    program.block(2).signal(&[second]);
    program.block(0).wait(&[first, second]);
    let plan = &program.build().unwrap();
    let options = Options::default().with_timeout(None).with_verification(false);
    let ranks = Communicator::in_process(3, &options).unwrap();
    let [waits, leaves, late] = <[_; 3]>::try_from(ranks).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| call_once(&waits, plan));
        call_once(&leaves, plan).unwrap();
        drop(leaves);
        // Time in which it would find that rank 1 has left without the call.
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(100) {
            assert!(waits.failure().is_none(), "{:?}", waits.failure());
            std::thread::yield_now();
        }
        call_once(&late, plan).unwrap();
        waiting.join().unwrap().unwrap();
    });
}
