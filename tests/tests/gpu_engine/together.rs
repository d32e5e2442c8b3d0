//! Ranks of a process that are one kernel.

use crate::faults::await_failure;
use crate::plans::right;
use crate::{
    LIMIT, PATIENCE, backend, device, on_simulator, on_simulator_alone, on_simulator_with,
    on_threads, options,
};
use antiphon::executor::hal::{Backend, Memory, Stream};
use antiphon::executor::{
    Call, Communicator, Executor, ExecutorError, KernelForm, LoadedPlan, RankCall,
};
use antiphon::plan::algorithms::{Algorithm, Shape};
use antiphon::plan::builder::ProgramBuilder;
use antiphon::plan::model::{Collective, OpKind, Plan};
use antiphon::{DataType, ReduceOp};
use antiphon_codegen::TOGETHER;
use antiphon_tests::harness::plans::{buffers, sizes};
use antiphon_tests::harness::{Case, Entry, report, run_case_by, run_cases, seed};
use antiphon_tests::name_of;
use antiphon_tests::recorder::Recorder;
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::time::{Duration, Instant};

const ELEMENTS: usize = 320;
const BYTES: u64 = ELEMENTS as u64 * 4;

/// One rank's part of a call, on its way to the thread that launches all.
struct Part {
    executor: Executor,
    plan: Arc<LoadedPlan>,
    stream: Arc<dyn Stream>,
    from: (usize, u64),
    to: (usize, u64),
    dtype: DataType,
    op: Option<ReduceOp>,
}

impl Part {
    fn call(&self) -> RankCall<'_> {
        let from = std::ptr::with_exposed_provenance(self.from.0);
        let to = std::ptr::with_exposed_provenance_mut(self.to.0);
        let call = Call::new(&self.plan, self.dtype, (from, self.from.1), (to, self.to.1));
        let call = Call { op: self.op, ..call };
        RankCall { executor: &self.executor, call, stream: &self.stream }
    }
}

/// Launches calls; all their buffers live until they are complete.
fn launch(parts: &[Part]) -> Result<(), ExecutorError> {
    let calls: Vec<_> = parts.iter().map(Part::call).collect();
    // SAFETY: whoever made the parts keeps the buffers.
    unsafe { Executor::execute_together(&calls) }
}

/// Where the calls of all ranks meet: the thread that comes last launches them.
struct Meeting {
    world: usize,
    /// The stream of all of them, where kernels of their own would wait for what is behind them; each has its own, if there is none.
    stream: Option<Arc<dyn Stream>>,
    state: Mutex<Met>,
    changed: Condvar,
}

#[derive(Default)]
struct Met {
    parts: Vec<Part>,
    round: u64,
    outcome: Option<Result<(), ExecutorError>>,
}

impl Meeting {
    fn run(
        &self,
        executor: &Executor,
        call: &Call<'_>,
        stream: &Arc<dyn Stream>,
    ) -> Result<(), ExecutorError> {
        let mut met = self.state.lock().unwrap();
        met.parts.push(Part {
            executor: executor.clone(),
            plan: Arc::clone(call.plan),
            stream: Arc::clone(stream),
            from: (call.input.expose_provenance(), call.input_bytes),
            to: (call.output.expose_provenance(), call.output_bytes),
            dtype: call.dtype,
            op: call.op,
        });
        if met.parts.len() == self.world {
            met.outcome = Some(launch(&std::mem::take(&mut met.parts)));
            met.round += 1;
            self.changed.notify_all();
        } else {
            let round = met.round;
            met = self.changed.wait_while(met, |met| met.round == round).unwrap();
        }
        met.outcome.clone().unwrap()?;
        drop(met);
        executor.synchronize(stream)
    }
}

/// Runs a plan as one rank, at a few of its sizes; what is wrong.
fn run_some(rank: &Communicator, entry: &Entry, meeting: &Meeting, seed: u64) -> Vec<String> {
    let stream = meeting.stream.clone().unwrap_or_else(|| rank.stream().unwrap());
    let run = |executor: &Executor, call: &Call<'_>| meeting.run(executor, call, &stream);
    let cases = sizes(&entry.plan, 4).into_iter().step_by(2).take(2).map(|(what, elements)| {
        let case = Case::new(&entry.name, &entry.plan, buffers(&entry.plan, elements, 4));
        (what, Case { mover: Some(1 % entry.ranks()), seed, ..case })
    });
    run_cases(rank.rank(), cases, |case| run_case_by(rank, case, &run))
}

#[test]
fn every_right_plan_gives_the_right_result_as_one_kernel() {
    let test = name_of(every_right_plan_gives_the_right_result_as_one_kernel);
    every_right_plan_as_one_kernel(test, KernelForm::Generated);
}

#[test]
fn every_right_plan_gives_the_right_result_as_one_kernel_that_interprets() {
    let test = name_of(every_right_plan_gives_the_right_result_as_one_kernel_that_interprets);
    every_right_plan_as_one_kernel(test, KernelForm::Interpreted);
}

fn every_right_plan_as_one_kernel(test: &str, form: KernelForm) {
    if on_simulator(test).is_none() {
        return;
    }
    let seed = seed();
    println!("seed {seed}");
    let (mut failures, mut plans) = (Vec::new(), 0);
    let entries = right(false).chain(right(true)).filter(|entry| entry.ranks() <= 4);
    for entry in entries {
        failures.extend(all_at_once(&entry, form, plans % 2 == 0, seed));
        plans += 1;
    }
    report(&failures);
    assert!(plans > 5, "only {plans} plans were found");
}

/// Runs a plan whose ranks are launched together, on one stream if they `share` it, at a few of its sizes; what is wrong.
pub fn all_at_once(entry: &Entry, form: KernelForm, share: bool, seed: u64) -> Vec<String> {
    let (state, changed) = (Mutex::default(), Condvar::new());
    let stream = share.then(|| device().stream().unwrap());
    let meeting = Meeting { world: entry.ranks() as usize, stream, state, changed };
    let options = options().with_verification(false).with_kernels(form);
    let of = |rank: Communicator| run_some(&rank, entry, &meeting, seed);
    on_threads(entry.ranks(), &options, of).into_iter().flatten().collect()
}

/// A rank whose buffers are filled and read by its own stream, as applications do.
struct Rank {
    communicator: Communicator,
    executor: Executor,
    plan: Arc<LoadedPlan>,
    stream: Arc<dyn Stream>,
    input: Arc<dyn Memory>,
    output: Arc<dyn Memory>,
    /// What rounds bring and leave.
    values: Arc<dyn Memory>,
    results: Arc<dyn Memory>,
}

const ROUNDS: u32 = 4;

/// What rank `rank` contributes to round `round`.
fn values(rank: u32, round: u32) -> Vec<u32> {
    (0..ELEMENTS as u32).map(|at| at * 3 + rank * 1000 + round * 70_000).collect()
}

fn sums(world: u32, round: u32) -> Vec<u32> {
    let all: Vec<_> = (0..world).map(|rank| values(rank, round)).collect();
    (0..ELEMENTS).map(|at| all.iter().map(|one| one[at]).sum()).collect()
}

/// Copies `bytes` bytes in a stream.
fn copy(stream: &dyn Stream, to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: callers give ranges of that length, which live until the stream is done.
    let _ = unsafe { stream.copy(to, from, bytes as u64) }.unwrap();
}

impl Rank {
    /// All ranks of a communicator on one device, whose plans become kernels of this form; on one stream, if `shared`.
    fn all(world: u32, plan: &Plan, form: KernelForm, shared: bool) -> Vec<Rank> {
        let devices = vec![device(); world as usize];
        let options = options().with_block_threads(Some(32)).with_kernels(form);
        let all = Communicator::in_process_over(&devices, &options).unwrap();
        let first = all[0].stream().unwrap();
        let rank = |communicator: Communicator| {
            let executor = Executor::new(&communicator);
            let plan = executor.load(plan).unwrap();
            let stream = if shared { Arc::clone(&first) } else { communicator.stream().unwrap() };
            let [input, output] = [(); 2].map(|()| communicator.allocate(BYTES).unwrap());
            let rounds = BYTES * u64::from(ROUNDS);
            let [values, results] = [(); 2].map(|()| communicator.allocate(rounds).unwrap());
            Rank { communicator, executor, plan, stream, input, output, values, results }
        };
        all.into_iter().map(rank).collect()
    }

    /// Brings what it contributes to all rounds to the device.
    fn bring(&self) {
        let rank = self.communicator.rank();
        let all: Vec<u32> = (0..ROUNDS).flat_map(|round| values(rank, round)).collect();
        let stream = self.communicator.stream().unwrap();
        copy(&*stream, self.values.address(), all.as_ptr().cast(), all.len() * 4);
        stream.synchronize().unwrap();
    }

    /// Puts the input of a round where the call reads it.
    fn before(&self, round: u32) {
        let from = self.values.address().wrapping_add(round as usize * BYTES as usize);
        copy(&*self.stream, self.input.address(), from, BYTES as usize);
    }

    /// Keeps what the call of a round gave.
    fn after(&self, round: u32) {
        let to = self.results.address().wrapping_add(round as usize * BYTES as usize);
        copy(&*self.stream, to, self.output.address(), BYTES as usize);
    }

    fn part(&self, op: Option<ReduceOp>) -> Part {
        Part {
            executor: self.executor.clone(),
            plan: Arc::clone(&self.plan),
            stream: Arc::clone(&self.stream),
            from: (self.input.address().expose_provenance(), BYTES),
            to: (self.output.address().expose_provenance(), BYTES),
            dtype: DataType::U32,
            op,
        }
    }

    /// What all rounds gave.
    fn results(&self) -> Vec<Vec<u32>> {
        self.executor.synchronize(&self.stream).unwrap();
        let stream = self.communicator.stream().unwrap();
        let mut all = vec![0u32; ROUNDS as usize * ELEMENTS];
        copy(&*stream, all.as_mut_ptr().cast(), self.results.address(), all.len() * 4);
        stream.synchronize().unwrap();
        all.chunks(ELEMENTS).map(<[u32]>::to_vec).collect()
    }
}

#[test]
fn one_kernel_keeps_the_order_of_all_its_streams() {
    // Ranks that are launched apart wait for each other, and to load code waits for them.
    let test = name_of(one_kernel_keeps_the_order_of_all_its_streams);
    if on_simulator_with(test, &[("ANTIPHON_GPUSIM_WAITS", "load")]).is_none() {
        return;
    }
    const WORLD: u32 = 4;
    let algorithms = [Algorithm::AllReduceTwoShotPackets, Algorithm::AllReduceZeroCopy];
    let forms = [KernelForm::Generated, KernelForm::Interpreted];
    let all = forms.into_iter().flat_map(|form| algorithms.map(|algorithm| (form, algorithm)));
    for ((form, algorithm), shared) in all.zip([false, true].into_iter().cycle()) {
        let plan = algorithm.plan(Shape::new(WORLD as usize)).unwrap();
        let all = Rank::all(WORLD, &plan, form, shared);
        all.iter().for_each(Rank::bring);
        for round in 0..ROUNDS {
            // Averages are divided behind the kernel.
            let op = (round % 2 == 1).then_some(ReduceOp::Avg);
            all.iter().for_each(|rank| rank.before(round));
            let parts: Vec<Part> = all.iter().map(|rank| rank.part(op)).collect();
            match round {
                // Some together and some alone, in any order: the same launches to all of them. In one stream they would wait
                // for what is behind them.
                2 if !shared => {
                    launch(&parts[2..]).unwrap();
                    launch(&parts[1..2]).unwrap();
                    launch(&parts[..1]).unwrap();
                }
                3 if !shared => {
                    launch(&parts[1..3]).unwrap();
                    launch(&[all[3].part(op), all[0].part(op)]).unwrap();
                }
                _ => launch(&parts).unwrap(),
            }
            all.iter().for_each(|rank| rank.after(round));
        }
        for rank in &all {
            for (round, found) in (0..).zip(rank.results()) {
                let divisor = if round % 2 == 1 { WORLD } else { 1 };
                let expected: Vec<u32> = sums(WORLD, round).iter().map(|n| n / divisor).collect();
                let rank = rank.communicator.rank();
                assert_eq!(found, expected, "{algorithm}, {form}, rank {rank}, round {round}");
            }
        }
    }
}

#[test]
fn ranks_that_are_one_kernel_are_one_node_of_a_graph() {
    let test = name_of(ranks_that_are_one_kernel_are_one_node_of_a_graph);
    let Some(simulated) = on_simulator(test) else { return };
    let application = Recorder::new(&simulated, backend());
    const WORLD: u32 = 2;
    for (algorithm, form) in [
        (Algorithm::AllReduceOneShotPackets, KernelForm::Generated),
        (Algorithm::AllReduceZeroCopy, KernelForm::Generated),
        (Algorithm::AllReduceOneShotPackets, KernelForm::Interpreted),
    ] {
        let plan = algorithm.plan(Shape::new(WORLD as usize)).unwrap();
        let mut all = Rank::all(WORLD, &plan, form, false);
        let (raw, stream) = application.adopt(&device());
        all[0].stream = stream;
        let own =
            |all: &[Rank]| launch(&all.iter().map(|rank| rank.part(None)).collect::<Vec<_>>());
        let (meet, stream) = (device().event().unwrap(), Arc::clone(&all[0].stream));
        all.iter().for_each(Rank::bring);
        all.iter().for_each(|rank| rank.before(0));
        own(&all).unwrap();
        all.iter().for_each(|rank| rank.executor.synchronize(&rank.stream).unwrap());
        let recorded = application.record(raw, || {
            let error = own(&all).unwrap_err().to_string();
            assert!(error.contains("saw 1 of 2 streams recorded into a graph"), "{error}");
            stream.record(&*meet).unwrap();
            all[1].stream.wait(&*meet).unwrap();
            own(&all).unwrap();
            all[1].stream.record(&*meet).unwrap();
            stream.wait(&*meet).unwrap();
        });
        assert!(application.nodes(recorded).is_none_or(|nodes| nodes == 1), "{algorithm}");
        for (round, replays) in [(1, 1), (2, 2), (3, 3)] {
            // The ranks' own streams are free: the graph runs in the first one's.
            for rank in &all {
                rank.before(round);
                rank.executor.synchronize(&rank.stream).unwrap();
            }
            (0..replays).for_each(|_| application.replay(recorded, raw));
            application.finish(raw);
            all.iter().for_each(|rank| rank.after(round));
        }
        for rank in &all {
            for (round, found) in (0..).zip(rank.results()).skip(1) {
                assert_eq!(found, sums(WORLD, round), "{algorithm}, {round} replays");
            }
        }
        // A launch counts on from the replays.
        own(&all).unwrap();
        all.iter().for_each(|rank| rank.after(0));
        for rank in &all {
            assert_eq!(rank.results()[0], sums(WORLD, ROUNDS - 1));
        }
        application.destroy(recorded);
    }
}

/// Each of `blocks` blocks of two ranks waits for all others.
fn crowd(blocks: usize) -> Plan {
    let program = ProgramBuilder::new("crowd", Collective::SendRecv, 2);
    for _ in 0..blocks {
        let there = program.channel(0, 1);
        let back = program.channel(1, 0);
        let [a, b] = [0, 1].map(|rank| program.block(rank));
        a.signal(&[there]);
        a.wait(&[back]);
        b.signal(&[back]);
        b.wait(&[there]);
    }
    let channel = program.channel(0, 1);
    let block = program.block(0);
    block.put(program.input(0).all(), program.output(1).all());
    block.signal(&[channel]);
    program.block(1).wait(&[channel]);
    program.build().unwrap()
}

#[test]
fn ranks_that_fill_the_device_run_and_one_block_more_is_refused() {
    let test = name_of(ranks_that_fill_the_device_run_and_one_block_more_is_refused);
    if on_simulator_alone(test, &[]).is_none() {
        return;
    }
    let all = |plan: &Plan| {
        let all = Rank::all(2, plan, KernelForm::Generated, false);
        all.iter().for_each(Rank::bring);
        all.iter().for_each(|rank| rank.before(0));
        let launched = launch(&all.iter().map(|rank| rank.part(None)).collect::<Vec<_>>());
        all.iter().for_each(|rank| rank.after(0));
        (launched, all)
    };
    // The simulated device has 16 multiprocessors, each for 32 blocks of 32 threads. Of AMD's one is left to the driver's own kernels.
    let room = if backend() == Backend::Rocm { 480 } else { 512 };
    let (launched, ranks) = all(&crowd(room / 2 - 1));
    launched.unwrap();
    assert_eq!(ranks[1].results()[0], values(0, 0));
    let (refused, ranks) = all(&crowd(room / 2));
    let error = refused.unwrap_err();
    assert!(matches!(error, ExecutorError::Argument { .. }), "{error}");
    let saw = format!("{} thread blocks of 32 threads", room + 2);
    assert!(error.to_string().contains(&saw), "{error}");
    assert!(ranks.iter().all(|rank| rank.communicator.failure().is_none()), "nothing is broken");
}

#[test]
fn threads_that_share_a_device_make_their_first_calls_at_once() {
    let test = name_of(threads_that_share_a_device_make_their_first_calls_at_once);
    // To load code waits for kernels that run, as it does with CUDA's driver.
    if on_simulator_with(test, &[("ANTIPHON_GPUSIM_WAITS", "load")]).is_none() {
        return;
    }
    const WORLD: u32 = 5;
    let plan = Algorithm::AllReduceTwoShotPackets.plan(Shape::new(WORLD as usize)).unwrap();
    for round in 0..20 {
        // Parts whose kernels are not the same, so that each is loaded.
        let (form, first) = match round % 2 {
            0 => (KernelForm::Interpreted, 1),
            _ => (KernelForm::Generated, 2),
        };
        let all = Rank::all(WORLD, &plan, form, false);
        all.iter().for_each(Rank::bring);
        all.iter().for_each(|rank| rank.before(0));
        let both = Barrier::new(2);
        // Each of them waits for the other, whoever comes first.
        let (some, others) = all.split_at(first);
        std::thread::scope(|scope| {
            for own in [some, others] {
                let both = &both;
                scope.spawn(move || {
                    let parts: Vec<Part> = own.iter().map(|rank| rank.part(None)).collect();
                    both.wait();
                    launch(&parts).unwrap();
                });
            }
        });
        all.iter().for_each(|rank| rank.after(0));
        for rank in &all {
            assert_eq!(rank.results()[0], sums(WORLD, 0), "round {round}");
        }
    }
}

#[test]
fn more_ranks_than_one_kernel_has_need_streams_of_their_own() {
    let test = name_of(more_ranks_than_one_kernel_has_need_streams_of_their_own);
    if on_simulator(test).is_none() {
        return;
    }
    const WORLD: u32 = TOGETHER as u32 + 1;
    let plan = Algorithm::AllReduceOneShotPackets.plan(Shape::new(WORLD as usize)).unwrap();
    for form in [KernelForm::Generated, KernelForm::Interpreted] {
        let mut all = Rank::all(WORLD, &plan, form, false);
        all.iter().for_each(Rank::bring);
        all.iter().for_each(|rank| rank.before(0));
        let own =
            |all: &[Rank]| launch(&all.iter().map(|rank| rank.part(None)).collect::<Vec<_>>());
        // The last one is another kernel.
        let second = Arc::clone(&all[1].stream);
        let last = std::mem::replace(&mut all[TOGETHER].stream, Arc::clone(&second));
        let error = own(&all).unwrap_err();
        assert!(matches!(error, ExecutorError::Argument { .. }), "{error}");
        assert!(error.to_string().contains("ranks 1 and 10 share a stream"), "{error}");
        // Those of one kernel may.
        all[TOGETHER].stream = last;
        all[2].stream = second;
        all[2].before(0);
        own(&all).unwrap();
        all.iter().for_each(|rank| rank.after(0));
        for rank in &all {
            assert_eq!(rank.results()[0], sums(WORLD, 0), "rank {}", rank.communicator.rank());
        }
    }
}

#[test]
fn a_rank_has_one_call_of_those_that_are_launched_together() {
    let test = name_of(a_rank_has_one_call_of_those_that_are_launched_together);
    if on_simulator(test).is_none() {
        return;
    }
    let plan = Algorithm::AllReduceZeroCopy.plan(Shape::new(2)).unwrap();
    let all = Rank::all(2, &plan, KernelForm::Generated, false);
    let parts = [&all[0], &all[1], &all[0]].map(|rank| rank.part(None));
    let error = launch(&parts).unwrap_err().to_string();
    assert!(error.contains("two calls of rank 0"), "{error}");
    launch(&parts[..2]).unwrap();
    all.iter().for_each(|rank| rank.executor.synchronize(&rank.stream).unwrap());
}

/// Rank 1's second block waits for a signal that rank 0 never sends.
fn hangs() -> Plan {
    let program = ProgramBuilder::new("hangs", Collective::SendRecv, 2);
    let channel = program.channel(0, 1);
    for rank in [0, 1] {
        program.block(rank).copy(program.input(rank).all(), program.output(rank).all());
    }
    program.block(0).signal(&[channel]);
    program.block(1).wait(&[channel]);
    let mut plan = program.build().unwrap();
    for block in &mut plan.gpus[0].threadblocks {
        block.ops.retain(|op| op.kind != OpKind::Signal);
    }
    plan
}

#[test]
fn one_kernel_that_does_not_end_is_ended_and_says_which_rank_waits() {
    let test = name_of(one_kernel_that_does_not_end_is_ended_and_says_which_rank_waits);
    if on_simulator(test).is_none() {
        return;
    }
    for aborted in [false, true] {
        let limit = if aborted { Duration::from_secs(60) } else { LIMIT };
        let options = options().with_timeout(Some(limit)).with_verification(false);
        let devices = vec![device(); 2];
        let all = Communicator::in_process_over(&devices, &options).unwrap();
        let plan = hangs();
        let parts: Vec<(Part, [Arc<dyn Memory>; 2])> = all
            .iter()
            .map(|rank| {
                let executor = Executor::new(rank);
                let plan = executor.load(&plan).unwrap();
                let [input, output] = [(); 2].map(|()| rank.allocate(64).unwrap());
                let (from, to) = (input.address(), output.address());
                let (from, to) = (from.expose_provenance(), to.expose_provenance());
                let stream = rank.stream().unwrap();
                let (from, to, dtype, op) = ((from, 64), (to, 64), DataType::F32, None);
                (Part { executor, plan, stream, from, to, dtype, op }, [input, output])
            })
            .collect();
        let calls: Vec<_> = parts.iter().map(|(part, _)| part.call()).collect();
        // SAFETY: the buffers live until both streams are done.
        unsafe { Executor::execute_together(&calls) }.unwrap();
        let began = Instant::now();
        if aborted {
            all[0].abort("enough");
        }
        let errors: Vec<_> = all.iter().map(await_failure).collect();
        for (part, _) in &parts {
            assert!(part.executor.synchronize(&part.stream).is_err(), "it was ended");
        }
        assert!(began.elapsed() < limit.min(PATIENCE) + PATIENCE);
        if aborted {
            assert!(matches!(errors[1], ExecutorError::Aborted { by: 0, .. }), "{}", errors[1]);
            continue;
        }
        let text = errors[1].to_string();
        assert!(matches!(errors[1], ExecutorError::Stalled { rank: 1, .. }), "{text}");
        for part in ["rank 1 block 1 waits at op 0 (wait)", "memory channel 0", "from rank 0"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
