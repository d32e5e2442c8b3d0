//! Calls served by what is registered, over threads: plans, code, selectors, and ranks that disagree.

use crate::support::requests::sum;
use crate::support::threads;
use antiphon_executor::plan::algorithms::{Shape, allreduce};
use antiphon_executor::plan::builder::ProgramBuilder;
use antiphon_executor::plan::model::{Collective, Plan};
use antiphon_executor::selection::{Question, SelectionError};
use antiphon_executor::{
    Call, Code, CodeCall, Collectives, Communicator, DataType, ExecutorError, Extent, Group,
    Options, ReduceOp, Registry, Request, Terms,
};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

type Result<T = ()> = std::result::Result<T, ExecutorError>;

thread_local! {
    /// The rank that a thread of a test is, for selectors that choose by it.
    static RANK: Cell<u32> = const { Cell::new(0) };
    /// Its collectives, for code that transfers.
    static ON: RefCell<Option<Collectives>> = const { RefCell::new(None) };
}

/// A plan under the name of allreduce in which every rank keeps what it has, so that results tell who served a call. Ranks
/// meet in it `meetings` times.
fn keep(name: &str, meetings: usize) -> Plan {
    let program = ProgramBuilder::new(name, Collective::AllReduce, 2);
    let channel = [program.channel(0, 1)];
    for rank in [0, 1] {
        let block = program.block(rank);
        block.copy(program.input(rank).all(), program.output(rank).all());
        for _ in 0..meetings {
            block.signal(&channel);
            block.wait(&channel);
        }
    }
    program.build().unwrap()
}

fn options(registry: &Registry) -> Options {
    // The plans here compute something else than they say.
    let options = Options::default().with_timeout(Some(Duration::from_secs(20)));
    options.with_verification(false).with_registry(registry.clone())
}

/// Runs `work` as each of two ranks, on a thread of its own.
fn on_threads<T: Send>(options: &Options, work: impl Fn(u32, &Collectives) -> T + Sync) -> Vec<T> {
    let ends = Communicator::in_process(2, options).unwrap();
    let ends: Vec<_> = ends.iter().map(|end| Collectives::new(end).unwrap()).collect();
    threads::on_threads(&ends, |on| {
        let rank = on.communicator().rank();
        RANK.set(rank);
        ON.set(Some(on.clone()));
        work(rank, on)
    })
}

/// The sum over all ranks of 1 on rank 0 and 2 on rank 1, as whoever serves the call sees it.
fn all_reduce(on: &Collectives, len: usize) -> Result<u32> {
    let input = vec![on.communicator().rank() + 1; len];
    let mut output = vec![0; len];
    // SAFETY: both are as long as said, and outlive the call.
    unsafe { on.call(&sum(&input, &mut output), None)? };
    assert!(output.iter().all(|&element| element == output[0]), "{output:?}");
    Ok(output[0])
}

fn explained(on: &Collectives, bytes: u64) -> String {
    let question = on.question(&Collective::AllReduce, bytes, DataType::U32);
    on.explain(&question).unwrap().candidate.name().to_owned()
}

#[test]
fn a_registered_plan_serves_the_calls_it_fits_from_when_it_is_registered_until_it_is_not() {
    let registry = Registry::new();
    on_threads(&options(&registry), |rank, on| {
        let mine = rank + 1;
        let both = |change: &dyn Fn()| {
            on.communicator().barrier().unwrap();
            if rank == 0 {
                change();
            }
            on.communicator().barrier().unwrap();
        };
        assert_eq!(all_reduce(on, 8).unwrap(), 3);
        let terms = Terms { min_bytes: 16, max_bytes: 64, ..Terms::default() };
        both(&|| drop(registry.register(keep("keep", 0), terms.clone()).unwrap()));
        for _ in 0..2 {
            let served: Vec<_> =
                [1, 4, 16, 17].map(|len| all_reduce(on, len).unwrap()).into_iter().collect();
            assert_eq!(served, [3, mine, mine, 3]);
        }
        assert_eq!(explained(on, 16), "keep");
        assert_ne!(explained(on, 8), "keep");
        both(&|| assert!(registry.unregister("keep")));
        assert_eq!(all_reduce(on, 8).unwrap(), 3);
    });
}

/// A plan under the name of allgatherv that moves nothing.
fn still(in_place: bool) -> Plan {
    let program = ProgramBuilder::new("still", Collective::AllGatherV, 2).runtime_blocks(1, 2);
    let channel = [program.channel(0, 1)];
    for rank in [0, 1] {
        let block = program.block(rank);
        block.signal(&channel);
        block.wait(&channel);
    }
    program.in_place(in_place).build().unwrap()
}

#[test]
fn a_plan_for_allgatherv_serves_calls_that_are_in_place_as_it_is_and_no_others() {
    for plan_in_place in [false, true] {
        let registry = Registry::new();
        registry.register(still(plan_in_place), Terms::default()).unwrap();
        on_threads(&options(&registry), |rank, on| {
            // A rank that gives nothing is in place if it points into its output.
            let all: [[u64; 2]; 3] = [[3, 2], [0, 2], [1, 0]];
            for (lengths, in_place) in all.into_iter().flat_map(|l| [(l, false), (l, true)]) {
                let extents = Extent::packed(&lengths);
                let own = extents[rank as usize];
                let range = own.offset as usize..(own.offset + own.count) as usize;
                let whole = lengths.iter().sum::<u64>() as usize;
                let (input, mut output) = (vec![rank; range.len()], vec![7; whole]);
                let mut from = input.as_ptr();
                if in_place {
                    output[range.clone()].fill(rank);
                    from = output[range.start..].as_ptr();
                }
                let before = output.clone();
                let at = (from.cast(), output.as_mut_ptr().cast());
                let sizes = (own.count, whole as u64);
                // SAFETY: the vectors are as long as said, and live past the call.
                unsafe { on.all_gather_v(at, sizes, &extents, DataType::U32, None) }.unwrap();
                let gathered: Vec<u32> =
                    (0..2).flat_map(|from| vec![from; lengths[from as usize] as usize]).collect();
                let served = in_place == plan_in_place;
                let expected = if served { before } else { gathered };
                assert_eq!(output, expected, "{plan_in_place} {in_place} {lengths:?}");
                let question = on.question(&Collective::AllGatherV, 0, DataType::U32);
                let choice = on.explain(&Question { in_place, ..question }).unwrap();
                assert_eq!(choice.candidate.name() == "still", served, "{choice}");
            }
        });
    }
}

#[test]
fn a_selector_picks_or_leaves_it_and_a_wrong_answer_is_an_error_of_the_call_alone() {
    let registry = Registry::new();
    registry.register(keep("keep", 1), Terms { max_bytes: 64, ..Terms::default() }).unwrap();
    registry.set_selector(|offer| match offer.question.bytes {
        4 => Some("allreduce_hub".to_owned()),
        8 => None,
        12 => Some("nobody".to_owned()),
        _ => {
            assert!(offer.input != 0 && offer.output != 0);
            Some("keep".to_owned())
        }
    });
    on_threads(&options(&registry), |rank, on| {
        assert_eq!(all_reduce(on, 1).unwrap(), 3);
        assert_eq!(all_reduce(on, 2).unwrap(), rank + 1);
        let error = all_reduce(on, 3).unwrap_err();
        assert!(matches!(error, ExecutorError::Selection(_)), "{error}");
        assert!(error.to_string().contains("there is no `nobody`"), "{error}");
        assert_eq!(all_reduce(on, 4).unwrap(), rank + 1);
        let error = all_reduce(on, 17).unwrap_err().to_string();
        assert!(error.contains("`keep` is for messages of 0 to 64 bytes"), "{error}");
        assert_eq!(all_reduce(on, 1).unwrap(), 3);
    });
}

#[test]
fn a_plan_that_computes_something_else_is_refused_where_plans_are_verified() {
    let registry = Registry::new();
    registry.register(keep("keep", 0), Terms::default()).unwrap();
    on_threads(&options(&registry).with_verification(true), |_, on| {
        let error = all_reduce(on, 4).unwrap_err();
        assert!(matches!(error, ExecutorError::Refuted { .. }), "{error}");
        assert!(error.to_string().contains("`keep`"), "{error}");
    });
}

#[test]
fn tags_of_the_communicator_keep_others_out() {
    let registry = Registry::new();
    let tagged = Terms { tags: ["mine".to_owned()].into(), ..Terms::default() };
    registry.register(keep("tagged", 0), tagged).unwrap();
    registry.register(keep("plain", 1), Terms::default()).unwrap();
    let asks = options(&registry).with_tags(vec!["mine".to_owned()]);
    on_threads(&asks, |_, on| assert_eq!(explained(on, 64), "tagged"));
    on_threads(&options(&registry), |_, on| assert_eq!(explained(on, 64), "plain"));
}

/// Sums over all ranks by a plan of its own, and adds `extra`.
struct Adding {
    extra: u32,
    calls: AtomicU32,
}

impl Code for Adding {
    fn collective(&self) -> Collective {
        Collective::AllReduce
    }

    unsafe fn run(&self, call: &CodeCall<'_>) -> Result {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let shape = Shape { in_place: call.in_place, ..Shape::new(2) };
        let plan = allreduce::hub(shape).map_err(SelectionError::Build)?;
        let plan = call.executor.load(&plan)?;
        let buffers = ((call.input, call.input_bytes), (call.output, call.output_bytes));
        let launch = Call::new(&plan, call.dtype, buffers.0, buffers.1);
        if let Some(stream) = call.stream {
            // SAFETY: the call's buffers are its own until it is complete.
            unsafe { call.executor.execute(&launch, stream)? };
            call.executor.synchronize(stream)?;
        } else {
            // SAFETY: as above.
            unsafe { call.executor.run(&launch)? };
        }
        let elements = call.output_bytes as usize / size_of::<u32>();
        // SAFETY: the receive buffer is as long, and nobody else touches it now.
        let output = unsafe { std::slice::from_raw_parts_mut(call.output.cast::<u32>(), elements) };
        output.iter_mut().for_each(|element| *element += self.extra);
        Ok(())
    }
}

fn adding(extra: u32) -> Arc<Adding> {
    Arc::new(Adding { extra, calls: AtomicU32::new(0) })
}

#[test]
fn registered_code_serves_with_and_without_a_stream_until_it_is_unregistered() {
    let registry = Registry::new();
    let code = adding(10);
    registry.register_code("adding", 1, Arc::clone(&code) as _, Terms::default()).unwrap();
    on_threads(&options(&registry), |rank, on| {
        for _ in 0..3 {
            assert_eq!(all_reduce(on, 5).unwrap(), 13);
        }
        let stream = on.communicator().stream().unwrap();
        let (input, mut output) = ([rank + 1; 4], [0; 4]);
        // SAFETY: both are as long as said, and outlive the synchronisation.
        unsafe { on.call(&sum(&input, &mut output), Some(&stream)).unwrap() };
        on.executor().synchronize(&stream).unwrap();
        assert_eq!(output, [13; 4]);
        assert_eq!(explained(on, 4), "adding");
        on.communicator().barrier().unwrap();
        registry.unregister("adding");
        on.communicator().barrier().unwrap();
        assert_eq!(all_reduce(on, 5).unwrap(), 3);
    });
    assert_eq!(code.calls.load(Ordering::Relaxed), 8);
}

#[test]
fn code_serves_every_reduction_and_ranks_that_ask_for_different_ones_are_told() {
    let registry = Registry::new();
    registry.register_code("adding", 1, adding(10), Terms::default()).unwrap();
    on_threads(&options(&registry), |rank, on| {
        let call = |op| {
            let (input, mut output) = ([rank + 1; 4], [0; 4]);
            let request = Request { op, ..sum(&input, &mut output) };
            // SAFETY: both are as long as said, and outlive the call.
            unsafe { on.call(&request, None) }.map(|()| output)
        };
        for op in ReduceOp::ALL {
            assert_eq!(call(op).unwrap(), [13; 4], "{op}");
        }
        let error = call([ReduceOp::Avg, ReduceOp::Sum][rank as usize]).unwrap_err().to_string();
        assert!(error.contains("u32 avg") && error.contains("u32 sum"), "{error}");
    });
}

/// A sum by code, its sum as signed numbers by what is built in, and that one's by code again, in a rank's memory.
#[derive(Default)]
struct Chain([[u32; 4]; 4]);

impl Chain {
    const EXPECTED: [[u32; 4]; 3] = [[13; 4], [26; 4], [62; 4]];

    /// The calls, of which each reads what the one before has written.
    fn requests(&mut self, rank: u32) -> [Request; 3] {
        self.0 = [[rank + 1; 4], [0; 4], [0; 4], [0; 4]];
        let [own, first, second, third] = &mut self.0;
        let one = sum(own, first);
        let two = Request { dtype: DataType::I32, ..sum(first, second) };
        [one, two, sum(second, third)]
    }
}

/// A registry with code for unsigned numbers.
fn adding_unsigned() -> (Registry, Arc<Adding>) {
    let (registry, code) = (Registry::new(), adding(10));
    let terms = Terms { dtypes: vec![DataType::U32], ..Terms::default() };
    registry.register_code("adding", 1, Arc::clone(&code) as _, terms).unwrap();
    (registry, code)
}

#[test]
fn code_has_its_turn_in_a_group_whatever_others_group() {
    let (registry, code) = adding_unsigned();
    // Rank 1 makes its calls one by one, and receives before or after all of them.
    for receives_first in [true, false] {
        on_threads(&options(&registry), |rank, on| {
            let (mut chain, mut passed) = (Chain::default(), [rank; 3]);
            let requests = chain.requests(rank);
            let at = passed.as_mut_ptr().cast::<u8>();
            // SAFETY: all buffers are as long as said, and outlive the calls.
            unsafe {
                if rank == 0 {
                    let mut group = Group::new();
                    group.send(on, at, 3, DataType::U32, 1, None).unwrap();
                    requests.iter().for_each(|one| group.call(on, one, None).unwrap());
                    group.end().unwrap();
                } else {
                    let receive = || on.receive(at, 3, DataType::U32, 0, None).unwrap();
                    if receives_first {
                        receive();
                    }
                    requests.iter().for_each(|one| on.call(one, None).unwrap());
                    if !receives_first {
                        receive();
                    }
                }
            }
            assert_eq!((&chain.0[1..], passed), (&Chain::EXPECTED[..], [0; 3]));
        });
    }
    assert_eq!(code.calls.load(Ordering::Relaxed), 2 * 2 * 2);
}

#[test]
fn one_thread_drives_ranks_whose_calls_code_serves() {
    let (registry, code) = adding_unsigned();
    let ends = Communicator::in_process(2, &options(&registry)).unwrap();
    let ends: Vec<_> = ends.iter().map(|end| Collectives::new(end).unwrap()).collect();
    for on_streams in [false, true] {
        let streams: Vec<_> =
            ends.iter().map(|on| on_streams.then(|| on.communicator().stream().unwrap())).collect();
        let mut chains = [Chain::default(), Chain::default()];
        let mut group = Group::new();
        for (rank, (on, chain)) in (0..).zip(ends.iter().zip(&mut chains)) {
            for request in chain.requests(rank) {
                // SAFETY: the chains are as long as said, and outlive the synchronisation.
                unsafe { group.call(on, &request, streams[rank as usize].as_ref()) }.unwrap();
            }
        }
        group.end().unwrap();
        for (on, stream) in ends.iter().zip(&streams) {
            stream.iter().for_each(|stream| on.executor().synchronize(stream).unwrap());
        }
        assert!(chains.iter().all(|chain| chain.0[1..] == Chain::EXPECTED), "{on_streams}");
    }
    assert_eq!(code.calls.load(Ordering::Relaxed), 2 * 2 * 2);
    // What is given up was never there.
    let mut chain = Chain::default();
    let requests = chain.requests(0);
    let mut group = Group::new();
    // SAFETY: as above; none of them begins.
    requests.iter().for_each(|one| unsafe { group.call(&ends[0], one, None) }.unwrap());
    drop(group);
    assert_eq!((chain.0[1], code.calls.load(Ordering::Relaxed)), ([0; 4], 8));
}

#[test]
fn a_group_refuses_what_code_cannot_be_given_before_anything_of_it_runs() {
    let (registry, code) = adding_unsigned();
    on_threads(&options(&registry), |rank, on| {
        let mut chain = Chain::default();
        let requests = chain.requests(rank);
        let mut group = Group::new();
        for request in &requests {
            let odd = Request { input: request.input.wrapping_add(1), ..*request };
            // SAFETY: the chain is as long as said, and none of what is gathered runs.
            unsafe {
                group.call(on, request, None).unwrap();
                let error = group.call(on, &odd, None).unwrap_err();
                assert!(matches!(error, ExecutorError::Argument { .. }), "{error}");
            }
        }
        drop(group);
        assert_eq!(chain.0[1..], [[0; 4]; 3]);
        // No rank has waited for another, and the next call works.
        assert_eq!(all_reduce(on, 4).unwrap(), 13);
    });
    assert_eq!(code.calls.load(Ordering::Relaxed), 2);
}

#[test]
fn code_that_fails_in_a_group_ends_it_on_all_ranks() {
    for panics in [true, false] {
        let registry = Registry::new();
        let code = Arc::new(Failing { panics, receives: false });
        registry.register_code("failing", 1, code, Terms::default()).unwrap();
        let ends = Communicator::in_process(2, &options(&registry)).unwrap();
        let ends: Vec<_> = ends.iter().map(|end| Collectives::new(end).unwrap()).collect();
        let mut chains = [Chain::default(), Chain::default()];
        let mut group = Group::new();
        for (rank, (on, chain)) in (0..).zip(ends.iter().zip(&mut chains)) {
            for request in chain.requests(rank) {
                // SAFETY: the chains are as long as said, and outlive the group.
                unsafe { group.call(on, &request, None) }.unwrap();
            }
        }
        let error = group.end().unwrap_err().to_string();
        assert!(error.contains("code `failing` failed on rank 0"), "{error}");
        for on in &ends {
            assert!(all_reduce(on, 4).is_err(), "the communicator is broken");
        }
    }
}

/// Fails on rank 0, by an error or a panic; rank 1 waits for it, in a barrier or for what rank 0 would send.
struct Failing {
    panics: bool,
    receives: bool,
}

impl Code for Failing {
    fn collective(&self) -> Collective {
        Collective::AllReduce
    }

    unsafe fn run(&self, call: &CodeCall<'_>) -> Result {
        let communicator = call.executor.communicator();
        match (communicator.rank(), self.panics) {
            (0, true) => panic!("no more"),
            (0, false) => Err(ExecutorError::Argument {
                what: "go on",
                saw: "enough".to_owned(),
                allowed: "less",
            }),
            _ if self.receives => ON.with_borrow(|on| {
                let mut byte = 0u8;
                // SAFETY: there is room for a byte past the call.
                unsafe { on.as_ref().unwrap().receive(&mut byte, 1, DataType::U8, 0, None) }
            }),
            _ => communicator.barrier(),
        }
    }
}

#[test]
fn communicators_do_not_keep_code_and_selectors_that_are_gone() {
    let registry = Registry::new();
    let ends = Communicator::in_process(2, &options(&registry)).unwrap();
    let ends: Vec<_> = ends.iter().map(|end| Collectives::new(end).unwrap()).collect();
    let calls = || threads::on_threads(&ends, |on| all_reduce(on, 4).unwrap());
    let code = adding(10);
    let kept = Arc::downgrade(&code);
    registry.register_code("adding", 1, code, Terms::default()).unwrap();
    assert_eq!(calls(), [13, 13]);
    assert_eq!(calls(), [13, 13]);
    registry.unregister("adding");
    assert_eq!(kept.strong_count(), 0);
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    registry.set_selector(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        None
    });
    assert_eq!(calls(), [3, 3]);
    registry.clear_selector();
    assert_eq!((asked.load(Ordering::Relaxed), Arc::strong_count(&asked)), (2, 1));
}

#[test]
fn code_that_fails_or_panics_on_one_rank_ends_the_call_on_all() {
    let ways = [(true, "it panicked: no more"), (false, "cannot go on")];
    for ((panics, part), receives) in ways.into_iter().flat_map(|way| [(way, false), (way, true)]) {
        let registry = Registry::new();
        let code = Arc::new(Failing { panics, receives });
        registry.register_code("failing", 1, code, Terms::default()).unwrap();
        let errors = on_threads(&options(&registry), |_, on| all_reduce(on, 4).unwrap_err());
        assert!(matches!(errors[0], ExecutorError::Code { .. }), "{}", errors[0]);
        for error in errors {
            let error = error.to_string();
            assert!(error.contains("code `failing` failed on rank 0"), "{error}");
            assert!(error.contains(part), "{error}");
        }
    }
}

#[test]
fn ranks_that_choose_differently_are_told_so_with_both_names() {
    let choices = [
        ["keep once", "keep twice"],
        ["keep once", "allreduce_hub"],
        ["adding", "allreduce_hub"],
        ["keep once", "adding"],
        ["adding", "another"],
    ];
    for names in choices {
        let registry = Registry::new();
        registry.register(keep("keep once", 1), Terms::default()).unwrap();
        registry.register(keep("keep twice", 2), Terms::default()).unwrap();
        registry.register_code("adding", 1, adding(1), Terms::default()).unwrap();
        registry.register_code("another", 1, adding(1), Terms::default()).unwrap();
        registry.set_selector(move |_| Some(names[RANK.get() as usize].to_owned()));
        let results = on_threads(&options(&registry), |_, on| all_reduce(on, 4));
        let errors: Vec<_> = results.into_iter().filter_map(Result::err).collect();
        let told = errors.iter().find(|error| matches!(error, ExecutorError::Mismatch { .. }));
        let told = told.unwrap_or_else(|| panic!("{names:?}: {errors:?}")).to_string();
        for name in names {
            assert!(told.contains(name.trim_start_matches("allreduce_")), "{name}: {told}");
        }
    }
}
