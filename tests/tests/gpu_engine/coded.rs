//! Calls of ranks on devices that registered code serves: alone, in groups and in graphs, and ranks that disagree or fail.

use crate::devices::devices;
use crate::faults::await_failure;
use crate::{COMPILING, backend, device, on_devices, on_simulator, options};
use antiphon::executor::hal::{Backend, Memory, Stream, driver};
use antiphon::executor::selection::SelectionError;
use antiphon::executor::{
    Call, Code, CodeCall, Collectives, Communicator, ExecutorError, Factor, Group, Options,
    Registry, Request, Terms, What,
};
use antiphon::plan::algorithms::{Shape, allreduce};
use antiphon::plan::model::Collective;
use antiphon::{DataType, ReduceOp};
use antiphon_tests::recorder::Recorder;
use antiphon_tests::{name_of, until, until_within};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const WORLD: u32 = 2;
const ELEMENTS: usize = 300;
const BYTES: u64 = ELEMENTS as u64 * 4;

thread_local! {
    /// The rank that a thread of a test is, for selectors that choose by it.
    static RANK: Cell<u32> = const { Cell::new(0) };
}

/// What rank 0 does in the place of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Error,
    Panic,
}

/// Copies what it is to send by the stream, and sums the copies by a plan.
#[derive(Default)]
pub(crate) struct Adding {
    pub calls: AtomicU32,
    /// The copies, which replays use as well.
    kept: Mutex<Vec<Arc<dyn Memory>>>,
    fault: Option<Fault>,
}

impl Code for Adding {
    fn collective(&self) -> Collective {
        Collective::AllReduce
    }

    fn serves_devices(&self) -> bool {
        true
    }

    unsafe fn run(&self, call: &CodeCall<'_>) -> Result<(), ExecutorError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let communicator = call.executor.communicator();
        match self.fault.filter(|_| communicator.rank() == 0) {
            Some(Fault::Panic) => panic!("no more"),
            Some(Fault::Error) => {
                let (what, saw, allowed) = ("go on", "enough".to_owned(), "less");
                return Err(ExecutorError::Argument { what, saw, allowed });
            }
            None => {}
        }
        let stream = call.stream.expect("there is a stream on devices");
        assert!(stream.native().is_some(), "which the vendor's calls take");
        assert_eq!(stream.device(), communicator.device().index());
        let copy = communicator.allocate(call.input_bytes.max(1))?;
        let world = communicator.world() as usize;
        let plan = allreduce::hub(Shape::new(world)).map_err(SelectionError::Build)?;
        let plan = call.executor.load(&plan)?;
        let (from, to) = ((copy.address().cast_const(), call.input_bytes), call.output);
        let mut sum = Call::new(&plan, call.dtype, from, (to, call.output_bytes));
        sum.op = call.op;
        // SAFETY: the buffers are the call's until it is complete, and the copy is kept.
        unsafe {
            let _ = stream.copy(copy.address(), call.input, call.input_bytes)?;
            call.executor.execute(&sum, stream)?;
        }
        self.kept.lock().unwrap().push(copy);
        Ok(())
    }
}

/// A registry with code for unsigned numbers, so that others are served by what is built in.
pub(crate) fn adding() -> (Registry, Arc<Adding>) {
    let (registry, code) = (Registry::new(), Arc::new(Adding::default()));
    let terms = Terms { dtypes: vec![DataType::U32], ..Terms::default() };
    registry.register_code("adding", 1, Arc::clone(&code) as _, terms).unwrap();
    (registry, code)
}

pub(crate) fn over(registry: &Registry) -> Options {
    options().with_registry(registry.clone())
}

/// One rank, and its buffers: each call of a chain reads what the one before has written.
pub(crate) struct Rank {
    pub on: Collectives,
    rank: u32,
    stream: Arc<dyn Stream>,
    buffers: [Arc<dyn Memory>; 4],
}

impl Rank {
    pub fn new(communicator: &Communicator, stream: Arc<dyn Stream>) -> Self {
        let (on, rank) = (Collectives::new(communicator).unwrap(), communicator.rank());
        let buffers = [0; 4].map(|_| communicator.allocate(BYTES).unwrap());
        Rank { on, rank, stream, buffers }
    }

    fn value(rank: u32, round: u32, at: usize) -> u32 {
        at as u32 * (rank + 1) + round * 1000
    }

    /// Values of a round; nothing of what came before is left.
    pub fn fill(&self, round: u32) {
        let values: Vec<u32> = (0..ELEMENTS).map(|at| Self::value(self.rank, round, at)).collect();
        let nothing = vec![u32::MAX; ELEMENTS];
        let stream = self.on.communicator().stream().unwrap();
        for (at, memory) in self.buffers.iter().enumerate() {
            let from = if at == 0 { &values } else { &nothing };
            // SAFETY: both are as long, and live until the stream has come past.
            let copied = unsafe { stream.copy(memory.address(), from.as_ptr().cast(), BYTES) };
            copied.map(|_| stream.synchronize()).unwrap().unwrap();
        }
    }

    /// The sum of a buffer's elements over all ranks, in the next buffer.
    pub fn request(&self, from: usize, dtype: DataType) -> Request {
        Request {
            what: What::AllReduce,
            input: self.buffers[from].address().cast_const(),
            output: self.buffers[from + 1].address(),
            count: ELEMENTS as u64,
            dtype,
            op: ReduceOp::Sum,
            factor: None,
        }
    }

    pub fn call(&self, request: &Request, on_stream: bool) -> Result<(), ExecutorError> {
        // SAFETY: the buffers are as long as said, and live until the stream has come past.
        unsafe { self.on.call(request, on_stream.then_some(&self.stream)) }
    }

    /// Checks what is in a buffer behind so many sums.
    pub fn check(&self, sums: usize, round: u32, how: &str) {
        let mut found = vec![0u32; ELEMENTS];
        let stream = self.on.communicator().stream().unwrap();
        let from = self.buffers[sums].address().cast_const();
        // SAFETY: as for `fill`.
        let copied = unsafe { stream.copy(found.as_mut_ptr().cast(), from, BYTES) };
        copied.map(|_| stream.synchronize()).unwrap().unwrap();
        let world = self.on.communicator().world();
        let expected = |at: usize| {
            let sum: u32 = (0..world).map(|rank| Self::value(rank, round, at)).sum();
            sum * world.pow(sums as u32 - 1)
        };
        let wrong = (0..ELEMENTS).find(|&at| found[at] != expected(at));
        assert_eq!(wrong, None, "{how}, {sums} sums, rank {}", self.rank);
    }
}

#[test]
fn code_serves_with_and_without_a_stream() {
    if on_simulator(name_of(code_serves_with_and_without_a_stream)).is_none() {
        return;
    }
    for (world, count) in [(2, 1), (3, 3)] {
        let (registry, code) = adding();
        on_devices(&devices(world, count), &over(&registry), |communicator| {
            let rank = Rank::new(&communicator, communicator.stream().unwrap());
            for (round, on_stream) in [true, false, true].into_iter().enumerate() {
                rank.fill(round as u32);
                communicator.barrier().unwrap();
                for from in 0..3 {
                    rank.call(&rank.request(from, DataType::U32), on_stream).unwrap();
                }
                if on_stream {
                    rank.on.executor().synchronize(&rank.stream).unwrap();
                }
                rank.check(3, round as u32, &format!("stream {on_stream}"));
                until("the calls to be complete", || rank.on.is_complete());
            }
            communicator.barrier().unwrap();
        });
        assert_eq!(code.calls.load(Ordering::Relaxed), world * 9);
    }
}

/// Code that says nothing of devices.
struct OfHosts;

impl Code for OfHosts {
    fn collective(&self) -> Collective {
        Collective::AllReduce
    }

    unsafe fn run(&self, _call: &CodeCall<'_>) -> Result<(), ExecutorError> {
        panic!("it would read the device's memory")
    }
}

#[test]
fn code_that_does_not_say_so_is_not_asked_and_no_device_gets_memory_of_the_host() {
    let test =
        name_of(code_that_does_not_say_so_is_not_asked_and_no_device_gets_memory_of_the_host);
    if on_simulator(test).is_none() {
        return;
    }
    let (registry, code) = adding();
    registry.register_code("of hosts", 1, Arc::new(OfHosts), Terms::default()).unwrap();
    on_devices(&devices(WORLD, 1), &over(&registry), |communicator| {
        let rank = Rank::new(&communicator, communicator.stream().unwrap());
        let question = rank.on.question(&Collective::AllReduce, BYTES, DataType::F32);
        let said = rank.on.explain(&question).unwrap().to_string();
        assert!(
            said.contains("of hosts (registered code): is code, which serves memory"),
            "{said}"
        );
        let mut here = [0u32; 4];
        let at = here.as_mut_ptr().cast();
        let wrong = Request { input: at, output: at, count: 4, ..rank.request(0, DataType::U32) };
        let odd = Request { input: wrong.input.wrapping_add(1), ..rank.request(0, DataType::U32) };
        let mut group = Group::new();
        let said = "for registered code `adding`, allowed memory of the rank's own device";
        for (request, part) in [(wrong, said), (odd, "multiples of the element size")] {
            let error = rank.call(&request, true).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
            // SAFETY: it is refused.
            let gathered = unsafe { group.call(&rank.on, &request, Some(&rank.stream)) };
            let error = gathered.unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        assert!(group.is_empty());
        rank.fill(0);
        communicator.barrier().unwrap();
        // The next call works, and others are served by what is built in.
        for (from, dtype) in [(0, DataType::U32), (1, DataType::I32)] {
            rank.call(&rank.request(from, dtype), true).unwrap();
        }
        rank.on.executor().synchronize(&rank.stream).unwrap();
        rank.check(2, 0, "after refusals");
        communicator.barrier().unwrap();
    });
    assert_eq!(code.calls.load(Ordering::Relaxed), WORLD);
}

#[test]
fn ranks_on_devices_of_different_kinds_are_refused_code_on_all_of_them() {
    let test = name_of(ranks_on_devices_of_different_kinds_are_refused_code_on_all_of_them);
    if on_simulator(test).is_none() {
        return;
    }
    let host = driver(Backend::Host).unwrap().open(0).unwrap();
    for devices in [[device(), Arc::clone(&host)], [host, device()]] {
        let (registry, code) = adding();
        let errors = on_devices(&devices, &over(&registry), |communicator| {
            let rank = Rank::new(&communicator, communicator.stream().unwrap());
            let request = rank.request(0, DataType::U32);
            let mut group = Group::new();
            // SAFETY: it is refused.
            let gathered = unsafe { group.call(&rank.on, &request, None) };
            [rank.call(&request, true), gathered].map(Result::unwrap_err)
        });
        for error in errors.into_iter().flatten() {
            let text = error.to_string();
            assert!(matches!(error, ExecutorError::Apart { .. }), "{text}");
            for part in ["code `adding`", "rank 0 (", "rank 1 (", "of different kinds"] {
                assert!(text.contains(part), "{part}: {text}");
            }
        }
        assert_eq!(code.calls.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn ranks_that_disagree_are_told_so_before_code_runs() {
    if on_simulator(name_of(ranks_that_disagree_are_told_so_before_code_runs)).is_none() {
        return;
    }
    // What each chooses, the elements that it passes, and what the error says of each.
    let cases = [
        (["adding", "another"], [8, 8], ["code adding 1", "code another 1"]),
        (["adding", "newer"], [8, 8], ["code adding 1", "code newer 2"]),
        (["adding", "adding"], [8, 12], ["32 bytes in", "48 bytes in"]),
        (["adding", "allreduce_hub"], [8, 8], ["code adding 1", "allreduce"]),
        (["allreduce_hub", "adding"], [8, 8], ["allreduce", "code adding 1"]),
    ];
    for (names, counts, parts) in cases {
        let registry = Registry::new();
        let code = Arc::new(Adding::default());
        for (name, version) in [("adding", 1), ("another", 1), ("newer", 2)] {
            let code = Arc::clone(&code) as _;
            registry.register_code(name, version, code, Terms::default()).unwrap();
        }
        registry.set_selector(move |_| Some(names[RANK.get() as usize].to_owned()));
        let errors = on_devices(&devices(WORLD, 2), &over(&registry), |communicator| {
            RANK.set(communicator.rank());
            let rank = Rank::new(&communicator, communicator.stream().unwrap());
            let count = counts[rank.rank as usize];
            let request = Request { count, ..rank.request(0, DataType::U32) };
            let called = rank.call(&request, true);
            let ended = called.and_then(|()| rank.on.executor().synchronize(&rank.stream));
            ended.unwrap_err()
        });
        let told = errors.iter().find(|error| matches!(error, ExecutorError::Mismatch { .. }));
        let told = told.unwrap_or_else(|| panic!("{names:?}: {errors:?}")).to_string();
        for part in parts {
            assert!(told.contains(part), "{names:?}: {told}");
        }
        assert_eq!(code.calls.load(Ordering::Relaxed), 0, "{names:?}");
    }
}

#[test]
fn code_that_fails_or_panics_on_one_rank_ends_the_call_on_all() {
    if on_simulator(name_of(code_that_fails_or_panics_on_one_rank_ends_the_call_on_all)).is_none() {
        return;
    }
    for (fault, part) in [(Fault::Error, "cannot go on"), (Fault::Panic, "it panicked: no more")] {
        for grouped in [false, true] {
            let registry = Registry::new();
            let code = Arc::new(Adding { fault: Some(fault), ..Adding::default() });
            registry.register_code("failing", 1, code, Terms::default()).unwrap();
            let errors = on_devices(&devices(WORLD, 2), &over(&registry), |communicator| {
                let rank = Rank::new(&communicator, communicator.stream().unwrap());
                let request = rank.request(0, DataType::U32);
                let called = if grouped {
                    let mut group = Group::new();
                    // SAFETY: the buffers are as long as said, and live until the rank has failed.
                    unsafe { group.call(&rank.on, &request, Some(&rank.stream)) }.unwrap();
                    group.end()
                } else {
                    rank.call(&request, true)
                };
                let ended = called.and_then(|()| rank.on.executor().synchronize(&rank.stream));
                let error = ended.unwrap_err();
                assert!(rank.call(&request, true).is_err(), "the communicator is broken");
                error
            });
            assert!(matches!(errors[0], ExecutorError::Code { .. }), "{}", errors[0]);
            for error in errors {
                let error = error.to_string();
                assert!(error.contains("code `failing` failed on rank 0"), "{error}");
                assert!(error.contains(part), "{error}");
            }
        }
    }
}

#[test]
fn what_code_launches_is_recorded_and_replays_do_not_call_it() {
    let test = name_of(what_code_launches_is_recorded_and_replays_do_not_call_it);
    let Some(simulated) = on_simulator(test) else { return };
    let application = &Recorder::new(&simulated, backend());
    for (count, grouped) in [(1, false), (2, false), (2, true)] {
        let (registry, code) = adding();
        on_devices(&devices(WORLD, count), &over(&registry), |communicator| {
            let (raw, stream) = application.adopt(communicator.device());
            let rank = Rank::new(&communicator, stream);
            let chain = || {
                let requests = [(0, DataType::U32), (1, DataType::I32), (2, DataType::U32)];
                let requests = requests.map(|(from, dtype)| rank.request(from, dtype));
                if grouped {
                    let mut group = Group::new();
                    for request in requests {
                        // SAFETY: the buffers are as long as said, and outlive all replays.
                        unsafe { group.call(&rank.on, &request, Some(&rank.stream)) }.unwrap();
                    }
                    group.end().unwrap();
                } else {
                    requests.iter().for_each(|request| rank.call(request, true).unwrap());
                }
            };
            let round = |round: u32, work: &dyn Fn()| {
                rank.fill(round);
                communicator.barrier().unwrap();
                work();
                application.finish(raw);
                rank.check(3, round, &format!("{count} devices, grouped {grouped}"));
                communicator.barrier().unwrap();
            };
            round(0, &chain);
            let recorded = application.record_on_thread(raw, chain);
            round(1, &|| application.replay(recorded, raw));
            round(2, &|| application.replay(recorded, raw));
            round(3, &chain);
            rank.on.executor().synchronize(&rank.stream).unwrap();
            application.destroy(recorded);
            communicator.barrier().unwrap();
        });
        // Twice a chain: alone, while it is recorded, and alone again.
        assert_eq!(code.calls.load(Ordering::Relaxed), WORLD * 6);
    }
}

#[test]
fn ranks_that_disagree_are_told_so_beside_graphs() {
    let test = name_of(ranks_that_disagree_are_told_so_beside_graphs);
    let Some(simulated) = on_simulator(test) else { return };
    let application = &Recorder::new(&simulated, backend());
    // Who takes code, where the others take a plan; and whether that is recorded, or comes behind what was.
    for (coder, records) in [(0, true), (1, true), (0, false), (1, false)] {
        let (registry, code) = adding();
        let differ = Arc::new(AtomicBool::new(false));
        let chosen = Arc::clone(&differ);
        registry.set_selector(move |_| {
            let is_coded = chosen.load(Ordering::Relaxed) && RANK.get() == coder;
            Some(if is_coded { "adding" } else { "allreduce_hub" }.to_owned())
        });
        let options = over(&registry).with_timeout(Some(Duration::from_secs(60)));
        let errors = on_devices(&devices(WORLD, 2), &options, |communicator| {
            RANK.set(communicator.rank());
            let (raw, stream) = application.adopt(communicator.device());
            let rank = Rank::new(&communicator, stream);
            let request = rank.request(0, DataType::U32);
            let call = || rank.call(&request, true);
            call().unwrap();
            application.finish(raw);
            communicator.barrier().unwrap();
            let same = application.record_on_thread(raw, || call().unwrap());
            communicator.barrier().unwrap();
            differ.store(true, Ordering::Relaxed);
            communicator.barrier().unwrap();
            if records {
                let other = application.record_on_thread(raw, || _ = call());
                application.destroy(other);
            } else {
                _ = call();
            }
            application.destroy(same);
            await_failure(&communicator)
        });
        let told = errors.iter().find(|error| match error {
            ExecutorError::Diverged { .. } => records,
            ExecutorError::Mismatch { .. } => !records,
            _ => false,
        });
        let told = told.unwrap_or_else(|| panic!("{coder}, {records}: {errors:?}")).to_string();
        let parts = match records {
            true => ["call 2 of those by name that are recorded", "a plan", "code `adding` 1"],
            false => ["launch 2 ", "allreduce", "code adding 1"],
        };
        for part in parts {
            assert!(told.contains(part), "{coder}, {records}: {told}");
        }
        assert_eq!(code.calls.load(Ordering::Relaxed), 0, "{coder}, {records}");
    }
}

#[test]
fn a_recorded_call_takes_no_number_whatever_serves_it() {
    let test = name_of(a_recorded_call_takes_no_number_whatever_serves_it);
    let Some(simulated) = on_simulator(test) else { return };
    let application = &Recorder::new(&simulated, backend());
    // What is called, alone and then into a graph, and the number of the call behind that. Code meets and launches a plan.
    for (dtype, next) in [(DataType::U32, 3), (DataType::I32, 2)] {
        let (registry, _) = adding();
        let errors = on_devices(&devices(WORLD, 2), &over(&registry), |communicator| {
            let (raw, stream) = application.adopt(communicator.device());
            let rank = Rank::new(&communicator, stream);
            let request = rank.request(0, dtype);
            rank.call(&request, true).unwrap();
            application.finish(raw);
            communicator.barrier().unwrap();
            let recorded = application.record_on_thread(raw, || rank.call(&request, true).unwrap());
            application.destroy(recorded);
            // Ranks that differ are told of it with the number.
            let count = u64::from(8 + rank.rank);
            rank.call(&Request { count, ..rank.request(0, DataType::U32) }, true).unwrap_err()
        });
        let number = |error: &ExecutorError| match error {
            ExecutorError::Mismatch { seq, .. } => Some(*seq),
            _ => None,
        };
        let numbers: Vec<u64> = errors.iter().filter_map(number).collect();
        assert!(!numbers.is_empty() && numbers.iter().all(|&seq| seq == next), "{errors:?}");
    }
}

#[test]
fn one_thread_drives_all_ranks_and_code_has_its_turn_among_their_calls() {
    let test = name_of(one_thread_drives_all_ranks_and_code_has_its_turn_among_their_calls);
    if on_simulator(test).is_none() {
        return;
    }
    let (registry, code) = adding();
    let ranks = Communicator::in_process_over(&devices(3, 3), &over(&registry)).unwrap();
    let ranks: Vec<_> = ranks.iter().map(|rank| Rank::new(rank, rank.stream().unwrap())).collect();
    let mut one = [0; 8];
    one[..4].copy_from_slice(&1u32.to_le_bytes());
    for (round, on_stream) in [true, false, true].into_iter().enumerate() {
        ranks.iter().for_each(|rank| rank.fill(round as u32));
        let mut group = Group::new();
        for rank in &ranks {
            let stream = on_stream.then_some(&rank.stream);
            // A sum of products with factors of 1, which code does not serve.
            let third =
                Request { factor: Some(Factor::Value(one)), ..rank.request(2, DataType::U32) };
            let requests = [rank.request(0, DataType::I32), rank.request(1, DataType::U32), third];
            // Beside them, each sends what it has to the next one.
            let (next, last) = ((rank.rank + 1) % 3, (rank.rank + 2) % 3);
            let from = rank.buffers[0].address().cast_const();
            let own = rank.on.communicator();
            let to = own.allocate(BYTES).unwrap();
            // SAFETY: the buffers are as long as said, and live until the group is complete.
            unsafe {
                for request in &requests {
                    group.call(&rank.on, request, stream).unwrap();
                }
                group.send(&rank.on, from, 1, DataType::U32, next, stream).unwrap();
                group.receive(&rank.on, to.address(), 1, DataType::U32, last, stream).unwrap();
            }
            code.kept.lock().unwrap().push(to);
        }
        group.end().unwrap();
        for rank in &ranks {
            if on_stream {
                rank.on.executor().synchronize(&rank.stream).unwrap();
            }
            rank.check(3, round as u32, &format!("stream {on_stream}"));
        }
    }
    assert_eq!(code.calls.load(Ordering::Relaxed), 9);
}

#[test]
fn a_rank_that_does_not_come_is_waited_for_until_the_limit_or_an_abort() {
    let test = name_of(a_rank_that_does_not_come_is_waited_for_until_the_limit_or_an_abort);
    if on_simulator(test).is_none() {
        return;
    }
    assert_ne!(device().backend(), Backend::Host);
    let (registry, code) = adding();
    let limit = std::time::Duration::from_secs(10);
    for aborts in [true, false] {
        let options = over(&registry).with_timeout(Some(limit));
        let errors = on_devices(&devices(WORLD, 2), &options, |communicator| {
            let rank = Rank::new(&communicator, communicator.stream().unwrap());
            if rank.rank == 0 {
                return rank.call(&rank.request(0, DataType::U32), true).err();
            }
            if aborts {
                rank.on.abort("enough");
            }
            // It stays until the other one has given up.
            until_within(COMPILING, "a failure", || rank.on.failure().is_some());
            None
        });
        let error = errors[0].as_ref().unwrap().to_string();
        let parts = if aborts {
            ["aborted by rank 1", "enough"]
        } else {
            ["code adding 1 root 0", "made no progress for 10s"]
        };
        for part in parts {
            assert!(error.contains(part), "{error}");
        }
    }
    assert_eq!(code.calls.load(Ordering::Relaxed), 0);
}
