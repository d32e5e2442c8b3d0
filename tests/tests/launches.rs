//! How launches live together: streams, communicators, groups, memory of either kind, calls that differ, ranks that do
//! not come, aborts, and what is refused.

use antiphon::executor::hal::Stream;
use antiphon::executor::{Call, Communicator, Executor, ExecutorError, LoadedPlan, Options};
use antiphon::oracle::{Inputs, Problem};
use antiphon::plan::algorithms::{Algorithm, Shape};
use antiphon::plan::model::Plan;
use antiphon::plan::program::{CallSizes, Layout};
use antiphon::{DataType, ReduceOp};
use antiphon_tests::harness::plans::{Buffers, buffers};
use antiphon_tests::harness::{Area, Case, Source, on_threads, options, run_case, seed};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

fn plan(algorithm: Algorithm, ranks: u32) -> Plan {
    algorithm.plan(Shape::new(ranks as usize)).unwrap()
}

/// One call of one rank, with its memory.
struct Job {
    executor: Executor,
    loaded: Arc<LoadedPlan>,
    input: Area,
    output: Area,
    bytes: Buffers,
    inputs: Inputs,
    number: u64,
    rank: u32,
}

impl Job {
    /// `number` makes the input differ from other jobs'.
    fn new(communicator: &Communicator, plan: &Plan, elements: u64, number: u64) -> Job {
        let bytes = buffers(plan, elements, 4);
        let executor = Executor::new(communicator);
        let loaded = executor.load(plan).unwrap();
        let ranks = communicator.world();
        let op = plan.reduces().then_some(ReduceOp::Sum);
        let inputs = Inputs { seed: seed(), ranks, dtype: DataType::F32, op };
        let rank = communicator.rank();
        let mut input = Area::new(communicator, Source::Own, bytes.input).unwrap();
        let mut output = Area::new(communicator, Source::Own, bytes.output).unwrap();
        input.edit(|bytes| inputs.stream(rank, number).fill(DataType::F32, 0, bytes));
        output.edit(|bytes| bytes.fill(0x5A));
        Job { executor, loaded, input, output, bytes, inputs, number, rank }
    }

    fn call(&self) -> Call<'_> {
        Call {
            plan: &self.loaded,
            input: self.input.address(),
            output: self.output.address(),
            input_bytes: self.bytes.input,
            output_bytes: self.bytes.output,
            dtype: DataType::F32,
            op: None,
            counts: None,
        }
    }

    fn run(&self) -> Result<(), ExecutorError> {
        // SAFETY: the areas have the call's lengths and outlive it.
        unsafe { self.executor.run(&self.call()) }
    }

    /// The caller synchronises the stream before the job is dropped.
    fn submit(&self, stream: &Arc<dyn Stream>) -> Result<(), ExecutorError> {
        // SAFETY: as above; every test synchronises before it drops its jobs.
        unsafe { self.executor.execute(&self.call(), stream) }
    }

    fn assert_right(&self, what: &str) {
        let collective = self.loaded.collective();
        let problem = Problem::new(collective, &self.inputs, self.number, self.bytes.output / 4);
        let verdict = problem.expect("a collective").check(self.rank, 0, &self.output.bytes());
        assert_eq!(verdict.wrong, 0, "{what}, job {}: {:?}", self.number, verdict.first);
    }
}

#[test]
fn several_plans_run_at_once_on_streams_of_each_rank() {
    let gather = plan(Algorithm::AllGatherZeroCopy, 3);
    let packets = plan(Algorithm::AllReduceTwoShotPackets, 3);
    let cases = [("two plans", [&gather, &packets]), ("one plan", [&packets, &packets])];
    for (what, plans) in cases {
        let ranks = on_threads(3, &options(), |communicator| {
            let streams = [communicator.stream().unwrap(), communicator.stream().unwrap()];
            let jobs: Vec<Job> = (0..40)
                .map(|number| {
                    Job::new(&communicator, plans[number % 2], 100 + number as u64, number as u64)
                })
                .collect();
            for (number, job) in jobs.iter().enumerate() {
                job.submit(&streams[number % 2]).unwrap();
            }
            // Each rank waits for them in another order.
            let first = communicator.rank() as usize % 2;
            for stream in [&streams[first], &streams[1 - first]] {
                jobs[0].executor.synchronize(stream).unwrap();
            }
            jobs.iter().for_each(|job| job.assert_right(what));
            communicator.barrier().unwrap();
        });
        ranks.unwrap();
    }
}

#[test]
fn one_thread_drives_all_ranks_in_any_order() {
    for algorithm in
        [Algorithm::AllReduceZeroCopy, Algorithm::AllReduceRing, Algorithm::AllToAllPackets]
    {
        let plan = plan(algorithm, 4);
        let communicators = Communicator::in_process(4, &options()).unwrap();
        let streams: Vec<_> = communicators.iter().map(|c| c.stream().unwrap()).collect();
        let mut jobs = Vec::new();
        for launch in 0..12u64 {
            let orders = [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]];
            for rank in orders[launch as usize % 3] {
                let job = Job::new(&communicators[rank], &plan, 777, launch);
                job.submit(&streams[rank]).unwrap();
                jobs.push(job);
            }
        }
        for rank in [1, 3, 0, 2] {
            jobs[rank].executor.synchronize(&streams[rank]).unwrap();
        }
        jobs.iter().for_each(|job| job.assert_right(algorithm.name()));
    }
}

#[test]
fn two_communicators_may_be_used_in_opposite_orders() {
    let plan = plan(Algorithm::AllReduceZeroCopy, 2);
    // One thread drives both ranks of both communicators.
    let groups = [0, 1].map(|_| Communicator::in_process(2, &options()).unwrap());
    let streams =
        [0, 1].map(|group| [0, 1].map(|rank| groups[group][rank as usize].stream().unwrap()));
    let mut jobs = Vec::new();
    for launch in 0..10 {
        for (rank, order) in [(0, [0usize, 1]), (1, [1, 0])] {
            for group in order {
                let job = Job::new(&groups[group][rank], &plan, 500, launch * 2 + group as u64);
                job.submit(&streams[group][rank]).unwrap();
                jobs.push(job);
            }
        }
    }
    for [first, second] in &streams {
        jobs[0].executor.synchronize(second).unwrap();
        jobs[0].executor.synchronize(first).unwrap();
    }
    jobs.iter().for_each(|job| job.assert_right("one thread"));
    drop((jobs, streams));
    // A thread for each rank, which waits only after it has called both.
    let [first, second] = groups;
    std::thread::scope(|scope| {
        for (rank, pair) in first.into_iter().zip(second).enumerate() {
            let plan = &plan;
            scope.spawn(move || {
                let pair = [pair.0, pair.1];
                let streams = [pair[0].stream().unwrap(), pair[1].stream().unwrap()];
                for launch in 0..20u64 {
                    let order = if rank == 0 { [0, 1] } else { [1, 0] };
                    let jobs = order.map(|group| {
                        let job = Job::new(&pair[group], plan, 300, launch);
                        job.submit(&streams[group]).unwrap();
                        job
                    });
                    for group in order {
                        jobs[0].executor.synchronize(&streams[group]).unwrap();
                    }
                    jobs.iter().for_each(|job| job.assert_right("two threads"));
                    pair.iter().for_each(|communicator| communicator.barrier().unwrap());
                }
            });
        }
    });
}

#[test]
fn memory_of_either_kind_works_with_and_without_access_through_the_kernel() {
    for access in [true, false] {
        for algorithm in [Algorithm::AllReduceZeroCopy, Algorithm::AllGatherZeroCopy] {
            let plan = plan(algorithm, 3);
            for elements in [0, 1, 3, 1023, 100_003] {
                let case = Case {
                    launches: 6,
                    mover: Some(1),
                    mixed: true,
                    reuse: true,
                    ..Case::new(algorithm.name(), &plan, buffers(&plan, elements, 4))
                };
                let options = options().with_process_access(access);
                let ranks = on_threads(3, &options, |communicator| run_case(&communicator, &case));
                for outcome in ranks.unwrap() {
                    let outcome = outcome.unwrap_or_else(|error| panic!("{error}; {case}"));
                    assert_eq!(outcome.wrong, None, "access {access}");
                }
            }
        }
    }
}

#[test]
fn groups_of_ranks_make_calls_of_their_own() {
    let pair = plan(Algorithm::AllReduceTwoShotPackets, 2);
    let trio = plan(Algorithm::AllGatherZeroCopy, 3);
    let whole = plan(Algorithm::AllReduceZeroCopy, 5);
    let ranks = on_threads(5, &options(), |world| {
        let rank = world.rank();
        // Ranks 0, 2, 4 in reverse order, and ranks 1 and 3.
        let group = world.split(Some(rank % 2), 10 - rank).unwrap().expect("a group");
        assert_eq!(group.world(), if rank % 2 == 0 { 3 } else { 2 });
        assert_eq!(group.rank(), [2, 1, 1, 0, 0][rank as usize]);
        let plan = if rank % 2 == 0 { &trio } else { &pair };
        for number in 0..5 {
            let (inner, outer) =
                (Job::new(&group, plan, 99, number), Job::new(&world, &whole, 55, number));
            inner.run().unwrap();
            outer.run().unwrap();
            inner.assert_right("in the group");
            outer.assert_right("in the world");
            world.barrier().unwrap();
        }
        assert!(world.split(None, 0).unwrap().is_none());
    });
    ranks.unwrap();
}

/// The ranks' errors from one call of each, made differently by rank 1.
fn differ(what: impl Fn(&Communicator) -> Result<(), ExecutorError> + Sync) -> Vec<ExecutorError> {
    let start = Instant::now();
    let ranks = on_threads(2, &options(), |communicator| what(&communicator));
    let ranks: Vec<_> = ranks.unwrap().into_iter().map(|rank| rank.unwrap_err()).collect();
    // Told at once, not when the limit of 30 s has passed.
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    ranks
}

#[test]
fn ranks_that_call_different_things_are_told_so() {
    let sum = plan(Algorithm::AllReduceZeroCopy, 2);
    let packets = plan(Algorithm::AllReduceTwoShotPackets, 2);
    let other_name = packets.name.as_str();
    type Change<'a> = (&'a str, &'a Plan, u64, DataType, Option<ReduceOp>, &'a str);
    let cases: [Change<'_>; 4] = [
        ("size", &sum, 96, DataType::F32, None, "384 bytes in"),
        ("plan", &packets, 100, DataType::F32, None, other_name),
        ("dtype", &sum, 100, DataType::I32, None, "i32"),
        ("op", &sum, 100, DataType::F32, Some(ReduceOp::Max), "max"),
    ];
    for (what, other, elements, dtype, op, word) in cases {
        let errors = differ(|communicator| {
            let differs = communicator.rank() == 1;
            let job = Job::new(communicator, if differs { other } else { &sum }, 100, 0);
            let mut call = job.call();
            if differs {
                (call.input_bytes, call.output_bytes) = (elements * 4, elements * 4);
                (call.dtype, call.op) = (dtype, op);
            }
            // SAFETY: the areas have at least the call's lengths and outlive it.
            unsafe { job.executor.run(&call) }
        });
        for error in errors {
            let text = error.to_string();
            assert!(
                matches!(error, ExecutorError::Mismatch { .. } | ExecutorError::Aborted { .. }),
                "{what}: {text}"
            );
            for needed in [word, "400 bytes in", "f32", "rank 0", "rank 1", sum.name.as_str()] {
                assert!(text.contains(needed), "{what}: no `{needed}` in: {text}");
            }
        }
    }
}

#[test]
fn a_rank_that_does_not_come_is_named() {
    let plan = plan(Algorithm::AllReduceZeroCopy, 3);
    let options = Options::default().with_timeout(Some(Duration::from_millis(300)));
    let through = Barrier::new(3);
    let ranks = on_threads(3, &options, |communicator| {
        let job = Job::new(&communicator, &plan, 1000, 0);
        let outcome = if communicator.rank() == 2 { Ok(()) } else { job.run() };
        through.wait();
        outcome
    });
    for (rank, outcome) in ranks.unwrap().into_iter().enumerate() {
        let Err(error) = outcome else {
            assert_eq!(rank, 2);
            continue;
        };
        let text = error.to_string();
        let kind = matches!(error, ExecutorError::Stalled { .. } | ExecutorError::Aborted { .. });
        assert!(kind, "{text}");
        assert!(text.contains("rank 2"), "{text}");
        assert!(text.contains("it has not entered launch 1"), "{text}");
        assert!(error.breaks_communicator());
    }
}

#[test]
fn an_abort_from_another_thread_ends_every_wait() {
    let plan = plan(Algorithm::AllReduceRing, 3);
    for streams in [false, true] {
        let start = Instant::now();
        let waiting = Barrier::new(4);
        let mut communicators = Communicator::in_process(3, &options()).unwrap();
        let absent = communicators.pop().expect("three ranks");
        std::thread::scope(|scope| {
            let ranks: Vec<_> = communicators
                .into_iter()
                .map(|communicator| {
                    let (plan, waiting) = (&plan, &waiting);
                    scope.spawn(move || {
                        let job = Job::new(&communicator, plan, 10_000, 0);
                        waiting.wait();
                        let outcome = if streams {
                            let stream = communicator.stream().unwrap();
                            let submitted = job.submit(&stream);
                            submitted.and_then(|()| job.executor.synchronize(&stream))
                        } else {
                            job.run()
                        };
                        let error = outcome.unwrap_err();
                        // And every later call, too.
                        let later = job.run().unwrap_err();
                        for error in [error, later] {
                            let ExecutorError::Aborted { by, ref reason, .. } = error else {
                                panic!("{error}")
                            };
                            assert_eq!((by, reason.as_str()), (2, "enough"));
                        }
                        assert!(communicator.failure().is_some());
                    })
                })
                .collect();
            let aborter = absent.clone();
            let waiting = &waiting;
            scope.spawn(move || {
                waiting.wait();
                aborter.abort("enough");
            });
            waiting.wait();
            ranks.into_iter().for_each(|rank| rank.join().unwrap());
        });
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        assert!(absent.failure().is_some());
    }
}

#[test]
fn a_refused_call_leaves_the_communicator_as_it_was() {
    let plan = plan(Algorithm::AllReduceZeroCopy, 2);
    let ranks = on_threads(2, &options(), |communicator| {
        let strict = Executor::strict(&communicator);
        let job = Job::new(&communicator, &plan, 102, 0);
        let chunks = plan.gpus[0].input_chunks;
        assert!(chunks > 1, "the plan divides its buffers");
        let refused = |call: Call<'_>, executor: &Executor, word: &str| {
            // SAFETY: as for every job.
            let error = unsafe { executor.run(&call) }.unwrap_err();
            assert!(!error.breaks_communicator(), "{error}");
            assert!(error.to_string().contains(word), "no `{word}` in: {error}");
        };
        // The format's reference divides by the chunks, and has no tail.
        let bytes = |bytes| Call { input_bytes: bytes, output_bytes: bytes, ..job.call() };
        refused(bytes(101 * 4), &strict, "must be a multiple of 16 bytes");
        refused(bytes(401), &job.executor, "");
        refused(
            Call { input: job.input.address().wrapping_add(2), ..bytes(400) },
            &job.executor,
            "element size",
        );
        refused(Call { output_bytes: 396, ..bytes(400) }, &job.executor, "");
        job.run().unwrap();
        job.assert_right("after refusals");
        communicator.barrier().unwrap();
    });
    ranks.unwrap();
}

#[test]
fn a_plan_for_another_number_of_ranks_is_refused() {
    let communicators = Communicator::in_process(3, &options()).unwrap();
    let error =
        Executor::new(&communicators[0]).load(&plan(Algorithm::AllReduceRing, 4)).unwrap_err();
    assert!(matches!(error, ExecutorError::World { ranks: 4, world: 3, .. }), "{error}");
    assert!(error.to_string().contains("use a communicator of 4 ranks"), "{error}");
}

#[test]
fn sizes_above_four_gibibytes_are_lowered() {
    const GIB: u64 = 1 << 30;
    for algorithm in Algorithm::ALL {
        let plan = plan(algorithm, 4);
        let layout = Layout::new(&plan).unwrap();
        for elements in [9 * GIB + 5, 64 * GIB + 1] {
            let Buffers { input, output } = buffers(&plan, elements, 2);
            let sizes = CallSizes { input, output, element: 2, strict: false };
            let mut highest = 0;
            for rank in 0..4 {
                let program = layout.program(rank, sizes);
                let program = program.unwrap_or_else(|error| panic!("{algorithm}: {error}"));
                let segments = program.segments.iter().map(|segment| segment.len);
                highest = program.offsets.iter().copied().chain(segments).fold(highest, u64::max);
            }
            assert!(highest >= 4 * GIB, "{algorithm}, {elements} elements: {highest}");
        }
    }
}
