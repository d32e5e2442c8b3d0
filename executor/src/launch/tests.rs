//! What one launch does by itself, step by step.

use super::*;
use crate::communicator::{Communicator, Options};
use crate::executor::{Call, Executor};
use crate::plan_cache::LoadedPlan;
use antiphon_plan::builder::ProgramBuilder;
use antiphon_plan::model::{Collective, Plan};

mod failures;

/// Two ranks of this process, which step each other's blocks; and what the first runs, which it has loaded.
fn two(program: ProgramBuilder, limit: Duration) -> (Vec<Communicator>, Executor, Arc<LoadedPlan>) {
    let options = Options::default().with_timeout(Some(limit));
    let ranks = Communicator::in_process(2, &options).unwrap();
    let executor = Executor::new(&ranks[0]);
    let plan = executor.load(&program.build().unwrap()).unwrap();
    (ranks, executor, plan)
}

fn call<'p>(plan: &'p Arc<LoadedPlan>, input: &[u32; 4], output: &mut [u32; 4]) -> Call<'p> {
    let (from, to) = ((input.as_ptr().cast(), 16), (output.as_mut_ptr().cast(), 16));
    Call::new(plan, DataType::U32, from, to)
}

/// Rank 0 waits for a signal of rank 1.
fn signal(name: &str) -> ProgramBuilder {
    let program = ProgramBuilder::new(name, Collective::SendRecv, 2);
    let link = [program.channel(0, 1)];
    program.block(0).wait(&link);
    program.block(1).signal(&link);
    program
}

/// Works on a launch for a moment, as if it had waited so long before; what it has to say.
fn work_after(
    launch: &QueuedLaunch,
    waited: Option<Duration>,
) -> Result<Option<String>, ExecutorError> {
    let mut state = launch.context.state();
    let stalled = state.active.as_mut().and_then(|active| active.stalled.as_mut());
    let since = waited.and_then(|waited| Instant::now().checked_sub(waited));
    if let (Some(stalled), Some(since)) = (stalled, since) {
        (stalled.late, stalled.still) = (Late::new(since), since);
    }
    launch.borrowed().work(&mut state, Effort::Wait)?;
    Ok(state.word.take())
}

/// Works on a launch until it is found to wait.
fn work_until_it_waits(launch: &QueuedLaunch) {
    while launch.context.state().active.as_ref().is_none_or(|active| active.stalled.is_none()) {
        assert_eq!(work_after(launch, None).unwrap(), None);
    }
}

#[test]
fn a_launch_does_not_begin_while_another_rank_is_at_a_block_of_the_last_one() {
    let program = ProgramBuilder::new("copy", Collective::Other("copy".into()), 2);
    for rank in 0..2 {
        program.block(rank).copy(program.input(rank).all(), program.output(rank).all());
    }
    let (_ranks, executor, plan) = two(program, Duration::from_millis(100));
    let (input, mut output) = ([7; 4], [0; 4]);
    let call = call(&plan, &input, &mut output);
    let [first, second, third] = [(); 3].map(|()| executor.queued(&call, Some(1)).unwrap());
    assert!(first.advance(Effort::Try).unwrap());
    let arena = own_arena(&first.context.state(), 0);
    assert!(arena.cursor(0).try_lock());
    assert!(!second.advance(Effort::Try).unwrap());
    arena.cursor(0).unlock();
    assert!(second.advance(Effort::Try).unwrap());
    assert_eq!(output, input);
    assert!(arena.cursor(0).try_lock());
    let error = loop {
        match third.advance(Effort::Wait) {
            Ok(over) => assert!(!over),
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains("another rank is at a block"), "{error}");
}

#[test]
fn a_launch_that_waits_for_minutes_says_for_whom_and_goes_on() {
    let plan = signal("overdue").build().unwrap();
    let options = Options::default().with_timeout(None);
    let ranks = Communicator::in_process(2, &options).unwrap();
    let executors: Vec<Executor> = ranks.iter().map(Executor::new).collect();
    let plans: Vec<_> = executors.iter().map(|own| own.load(&plan).unwrap()).collect();
    let (input, mut output) = ([7; 4], [0; 4]);
    let launch = executors[0].queued(&call(&plans[0], &input, &mut output), Some(1)).unwrap();
    work_until_it_waits(&launch);
    let said = work_after(&launch, Some(Duration::from_secs(121))).unwrap().unwrap();
    for part in
        ["launch 1 of plan", "u32) on rank 0 made no progress for 1", "rank 1", "goes on waiting"]
    {
        assert!(said.contains(part), "no {part:?} in: {said}");
    }
    assert_eq!(work_after(&launch, None).unwrap(), None, "once in a while");
    // What it did not come to say is no other launch's.
    launch.context.state().word = Some("it waits".to_owned());
    let other = executors[1].queued(&call(&plans[1], &input, &mut output), Some(1)).unwrap();
    while !other.advance(Effort::Wait).unwrap() {}
    while !launch.advance(Effort::Wait).unwrap() {}
    assert_eq!(launch.context.state().word, None);
}

/// One rank puts its input over a port into the other's output.
pub(super) fn put_over_a_port([from, to]: [usize; 2]) -> Plan {
    let program = ProgramBuilder::new("put", Collective::SendRecv, 2);
    let port = program.port(0, 1);
    program.block(from).put_with_signal(&port, program.input(from).all(), program.output(to).all());
    program.block(to).wait(&[port]);
    program.build().unwrap()
}

/// Two ranks whose ports go over a wire.
pub(super) fn on_two_hosts() -> Vec<Communicator> {
    let limit = Some(Duration::from_secs(60));
    let options = Options::default().with_timeout(limit).with_verification(false);
    Communicator::in_process_on(&["this", "that"], &options).unwrap()
}

/// Rank 0's launch, which has begun and waits for what rank 1 puts over a wire; and rank 1's.
fn over_a_wire(input: &[u32; 4], output: &mut [u32; 4]) -> (Vec<Communicator>, [QueuedLaunch; 2]) {
    let plan = put_over_a_port([1, 0]);
    let ranks = on_two_hosts();
    let launches = [0, 1].map(|rank: usize| {
        let executor = Executor::new(&ranks[rank]);
        let plan = executor.load(&plan).unwrap();
        executor.queued(&call(&plan, input, output), Some(1)).unwrap()
    });
    while launches[0].context.state().active.is_none() {
        assert!(!launches[1].advance(Effort::Try).unwrap());
        assert!(!launches[0].advance(Effort::Try).unwrap());
    }
    (ranks, launches)
}

/// Nobody drives rank 0's link meanwhile.
#[test]
fn what_the_proxy_moves_is_progress_of_a_launch() {
    let (input, mut output) = ([7; 4], [0; 4]);
    let (_ranks, [launch, peer]) = over_a_wire(&input, &mut output);
    let before = launch.position();
    let mut over = false;
    while launch.position() == before {
        over = over || peer.advance(Effort::Try).unwrap();
        std::thread::yield_now();
    }
}

/// Each is on a host of its own. The second rank's block waits for the end of one transfer, and the third's for the second's block.
#[test]
fn a_rank_of_another_node_hears_that_one_long_transfer_moves() {
    const BYTES: u64 = 64 << 20;
    let program = ProgramBuilder::new("behind", Collective::Other("behind".into()), 3);
    let (data, end) = (program.port(0, 1), program.port(1, 2));
    program.block(0).put_with_signal(&data, program.input(0).all(), program.output(1).all());
    let between = program.block(1);
    between.wait(&[data]);
    between.signal(&[end]);
    program.block(2).wait(&[end]);
    let plan = program.build().unwrap();
    let options = Options::default().with_verification(false);
    let ranks = Communicator::in_process_on(&["a", "b", "c"], &options).unwrap();
    let (input, output) = (vec![7u8; BYTES as usize], vec![0u8; BYTES as usize]);
    let [sends, receives, behind] = [0, 1, 2].map(|rank: usize| {
        let executor = Executor::new(&ranks[rank]);
        let plan = executor.load(&plan).unwrap();
        let from = (input.as_ptr(), BYTES);
        let call = Call::new(&plan, DataType::U8, from, (output.as_ptr().cast_mut(), BYTES));
        executor.queued(&call, Some(1)).unwrap()
    });
    let link = || ranks[0].shared.ports.link(1).unwrap();
    let has_begun = |launch: &QueuedLaunch| launch.context.state().active.is_some();
    while !(has_begun(&receives) && has_begun(&behind)) {
        assert!(!receives.advance(Effort::Try).unwrap() && !behind.advance(Effort::Try).unwrap());
    }
    // From now on only this thread moves bytes on either side of the first link.
    let driven = [link().unwrap().drive(), ranks[1].shared.ports.link(0).unwrap().unwrap().drive()];
    while !ranks[2].shared.control(1).entered(1) || link().unwrap().link().posted() < 5 {
        assert!(!sends.advance(Effort::Try).unwrap() && !receives.advance(Effort::Try).unwrap());
    }
    let around = || behind.borrowed().around(Blocked::Signal(0));
    let (before, mut last) = (around(), Instant::now());
    while around() == before {
        assert!(!receives.advance(Effort::Try).unwrap(), "the transfer is over");
        // What moves is told once a second.
        if last.elapsed() > Duration::from_millis(250) {
            last = Instant::now();
            driven[0].progress().unwrap();
        }
        std::thread::yield_now();
    }
}

/// As where a process is stopped for that long, while another rank is at its block.
#[test]
fn a_launch_that_may_begin_has_not_waited_for_the_whole_limit() {
    let (_ranks, executor, plan) = two(signal("begins"), Duration::from_secs(60));
    let (input, mut output) = ([7; 4], [0; 4]);
    let launch = executor.queued(&call(&plan, &input, &mut output), Some(1)).unwrap();
    let borrowed = launch.borrowed();
    let mut state = launch.context.state();
    let links = posting::Links::new(&borrowed);
    let stalled = borrowed.stalled(&state, Duration::ZERO, Blocked::Held);
    assert!(own_arena(&state, 0).cursor(0).try_lock());
    assert!(borrowed.unless_it_came(&mut state, &links, stalled.clone()).is_err());
    own_arena(&state, 0).cursor(0).unlock();
    let came = borrowed.unless_it_came(&mut state, &links, stalled);
    assert!(matches!(came, Ok(Polled::Pending)) && state.active.is_some());
}

#[test]
fn a_launch_waits_as_long_as_what_its_peer_is_to_pass_on_moves() {
    let limit = Duration::from_secs(60);
    let (ranks, executor, plan) = two(signal("passing"), limit);
    let (input, mut output) = ([7; 4], [0; 4]);
    let launch = executor.queued(&call(&plan, &input, &mut output), Some(1)).unwrap();
    work_until_it_waits(&launch);
    for position in 1..5 {
        ranks[1].passes_on(position);
        assert_eq!(work_after(&launch, Some(limit)).unwrap(), None, "{position}");
    }
    let error = work_after(&launch, Some(limit)).unwrap_err();
    assert!(matches!(error, ExecutorError::Stalled { .. }), "{error}");
}

/// As a root that puts to others first.
#[test]
fn a_launch_waits_as_long_as_a_peer_that_is_in_it_moves() {
    let limit = Duration::from_secs(60);
    let (ranks, executor, plan) = two(signal("rooted"), limit);
    let (input, mut output) = ([7; 4], [0; 4]);
    let launch = executor.queued(&call(&plan, &input, &mut output), Some(1)).unwrap();
    work_until_it_waits(&launch);
    let around = |blocked| launch.borrowed().around(blocked);
    let before = around(Blocked::Entry(1));
    ranks[1].shared.note_moved();
    assert_eq!(around(Blocked::Entry(1)), before, "that is another launch");
    let own = ranks[0].shared.control(0);
    ranks[0].shared.control(1).publish(&own.record(1).unwrap());
    for _ in 0..4 {
        ranks[1].shared.note_moved();
        assert_eq!(work_after(&launch, Some(limit)).unwrap(), None);
    }
    let behind = around(Blocked::Behind(1));
    ranks[0].shared.note_moved();
    assert_ne!(around(Blocked::Behind(1)), behind, "the peer may wait for that");
    let error = work_after(&launch, Some(limit)).unwrap_err();
    assert!(matches!(error, ExecutorError::Stalled { .. }), "{error}");
}

/// More launches may be under way, on other streams, than descriptors are kept of.
#[test]
fn a_launch_waits_for_one_of_another_stream_as_long_as_that_one_moves() {
    let limit = Duration::from_secs(60);
    let (ranks, executor, plan) = two(signal("long"), limit);
    let peer = Executor::new(&ranks[1]);
    let (input, mut output) = ([7; 4], [0; 4]);
    let call = call(&plan, &input, &mut output);
    let both = |stream| [&executor, &peer].map(|rank| rank.queued(&call, Some(stream)).unwrap());
    let [_first, _not_begun] = both(1);
    for _ in 2..=RING {
        let mut over = [false; 2];
        let launches = both(2);
        while over != [true; 2] {
            over = [0, 1]
                .map(|rank: usize| over[rank] || launches[rank].advance(Effort::Try).unwrap());
        }
    }
    let behind = executor.queued(&call, Some(2)).unwrap();
    let wait = |waited: Duration| {
        let since = Instant::now().checked_sub(waited).unwrap();
        if let Some(stalled) = &mut *crate::sync::lock(&behind.waiting) {
            (stalled.late, stalled.still) = (Late::new(since), since);
        }
        behind.borrowed().work(&mut behind.context.state(), Effort::Wait)
    };
    assert!(matches!(wait(Duration::ZERO), Ok(Polled::Pending)));
    for _ in 0..3 {
        ranks[0].shared.note_moved();
        assert!(matches!(wait(limit), Ok(Polled::Pending)));
    }
    assert!(matches!(wait(limit), Err(ExecutorError::Stalled { .. })));
}

/// Its caller may free them then. Rank 0 is not told of what rank 1 does with its buffers, which no proven plan has.
#[test]
fn a_launch_of_a_plan_that_is_not_proven_ends_when_nobody_touches_its_buffers() {
    for reads in [false, true] {
        let program = ProgramBuilder::new("untold", Collective::SendRecv, 2);
        let block = program.block(1);
        if reads {
            block.get(program.input(0).all(), program.output(1).all());
        } else {
            block.put(program.input(1).all(), program.output(0).all());
        }
        let plan = program.build().unwrap();
        let options = Options::default().with_verification(false);
        let ranks = Communicator::in_process(2, &options).unwrap();
        let [own, peer] = [0, 1].map(|rank: usize| Executor::new(&ranks[rank]));
        let plan = own.load(&plan).unwrap();
        let (input, mut output) = ([7; 4], [0; 4]);
        let call = call(&plan, &input, &mut output);
        let launch = own.queued(&call, Some(1)).unwrap();
        assert!(!launch.advance(Effort::Try).unwrap(), "reads: {reads}");
        let there = peer.queued(&call, Some(1)).unwrap();
        while !there.advance(Effort::Try).unwrap() {}
        while !launch.advance(Effort::Try).unwrap() {}
        assert_eq!(output, input);
    }
}

#[test]
fn a_rank_that_left_before_it_could_touch_the_buffers_is_missed() {
    let program = ProgramBuilder::new("untold", Collective::SendRecv, 2);
    program.block(1).get(program.input(0).all(), program.output(1).all());
    let plan = program.build().unwrap();
    let limit = Some(Duration::from_secs(60));
    let options = Options::default().with_timeout(limit).with_verification(false);
    let mut ranks = Communicator::in_process(2, &options).unwrap();
    let executor = Executor::new(&ranks[0]);
    let plan = executor.load(&plan).unwrap();
    drop(ranks.pop());
    let (input, mut output) = ([7; 4], [0; 4]);
    let launch = executor.queued(&call(&plan, &input, &mut output), Some(1)).unwrap();
    let error = loop {
        match launch.advance(Effort::Wait) {
            Ok(over) => assert!(!over),
            Err(error) => break error,
        }
    };
    assert!(!matches!(error, ExecutorError::Stalled { .. }), "{error}");
    assert!(error.to_string().contains("rank 1"), "{error}");
}

/// A program's logger may panic.
#[test]
fn a_launch_in_which_something_panics_is_given_up() {
    let (ranks, executor, plan) = two(signal("panics"), Duration::from_secs(60));
    let (input, mut output) = ([7; 4], [0; 4]);
    let launch = executor.queued(&call(&plan, &input, &mut output), Some(1)).unwrap();
    assert!(!launch.advance(Effort::Try).unwrap());
    let borrowed = launch.borrowed();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _guard = GivesUp(&borrowed);
        let _worked_on = launch.context.state();
        panic!("oh no");
    }));
    assert!(panicked.is_err() && launch.context.state().active.is_none());
    for rank in &ranks {
        let failure = rank.failure().unwrap().to_string();
        assert!(failure.contains("a panic while a launch was worked on"), "{failure}");
    }
}

/// As the moves of gigabytes, and their posts over the local wire: links are looked at meanwhile, and whether the launch goes on at
/// all.
#[test]
fn a_long_move_is_made_in_parts_until_a_peer_gives_up() {
    const BYTES: usize = 36 << 20;
    for (posts, gives_up) in [(false, false), (false, true), (true, false), (true, true)] {
        let program = ProgramBuilder::new("long", Collective::SendRecv, 2).chunk_counts(2, 2);
        let (link, port) = ([program.channel(0, 1)], program.port(0, 1));
        let block = program.block(0);
        // What several moves move counts together.
        for half in 0..2 {
            let (from, to) = (program.input(0).chunk(half), program.output(1).chunk(half));
            if posts {
                block.put_over(&port, from, to);
            } else {
                block.put(from, to);
            }
        }
        if posts {
            block.flush(&[port]);
        }
        block.signal(&link);
        program.block(1).wait(&link);
        let (ranks, executor, plan) = two(program, Duration::from_secs(60));
        let peer = Executor::new(&ranks[1]);
        let [input, output] = [0, 1].map(|rank: usize| ranks[rank].allocate(BYTES as u64).unwrap());
        // SAFETY: as long, and nobody else's yet.
        unsafe { input.address().write_bytes(7, BYTES) };
        let from = (input.address().cast_const(), BYTES as u64);
        let call = Call::new(&plan, DataType::U8, from, (output.address(), BYTES as u64));
        let there = peer.queued(&call, Some(1)).unwrap();
        let launch = executor.queued(&call, Some(1)).unwrap();
        for entering in [&there, &launch] {
            // The links of ports come up by themselves.
            while entering.borrowed().begin(&mut entering.context.state()).unwrap().is_some() {
                std::thread::yield_now();
            }
        }
        let own = launch.borrowed();
        let mut state = launch.context.state();
        let moved = || {
            // SAFETY: as long, and only this thread's launch writes to it.
            let bytes = unsafe { std::slice::from_raw_parts(output.address(), BYTES) };
            bytes.iter().filter(|&&byte| byte == 7).count()
        };
        let mut parts = Vec::new();
        loop {
            let driven = own.drive_rank(&mut state, 0, false).unwrap();
            match driven {
                Driven::Progress
                    if own_arena(&state, 0).cursor(0).done.load(Ordering::Relaxed) == 1 =>
                {
                    break;
                }
                Driven::Progress => parts.push(moved()),
                // The peer's arena and buffers are to be found.
                Driven::Blocked(blocked @ (Blocked::Entry(1) | Blocked::Mapping(1))) => {
                    own.admit(&mut state, blocked).unwrap();
                    continue;
                }
                Driven::Blocked(blocked) => {
                    assert_eq!(blocked, Blocked::GivenUp(1));
                    break;
                }
                Driven::Complete => unreachable!("a rank's blocks do not say so"),
            }
            if gives_up {
                ranks[0].shared.control(1).quiet.0.store(1, Ordering::Release);
            }
        }
        if gives_up {
            assert_eq!((parts, moved()), (vec![16 << 20], 16 << 20), "posts: {posts}");
        } else {
            assert!(parts.starts_with(&[16 << 20, 32 << 20]), "posts: {posts}: {parts:?}");
            assert_eq!(moved(), BYTES);
        }
    }
}

/// Nothing that such launches wait for would show it.
#[test]
fn ranks_that_never_wait_for_each_other_hear_in_time_that_their_calls_differ() {
    let program = ProgramBuilder::new("own", Collective::Other("own".into()), 2);
    for rank in 0..2 {
        program.block(rank).copy(program.input(rank).all(), program.output(rank).all());
    }
    let (ranks, executor, plan) = two(program, Duration::from_secs(60));
    let (input, mut output) = ([7; 4], [0; 4]);
    let call = call(&plan, &input, &mut output);
    let shorter = Call { input_bytes: 8, output_bytes: 8, ..call };
    let peer = Executor::new(&ranks[1]);
    for _ in 0..HISTORY_CHECK {
        assert!(peer.queued(&shorter, Some(1)).unwrap().advance(Effort::Try).unwrap());
    }
    let mut launches = (1..=HISTORY_CHECK).map(|_| executor.queued(&call, Some(1)).unwrap());
    let outcome = launches.find_map(|launch| launch.advance(Effort::Try).err());
    assert!(matches!(outcome, Some(ExecutorError::Mismatch { peer: 1, .. })), "{outcome:?}");
}

/// The signal comes from another block than what was written, so that each rank asks whether the other may still write.
#[test]
fn ranks_that_write_to_each_other_over_a_wire_do_not_wait_for_each_others_end() {
    let program = ProgramBuilder::new("both", Collective::SendRecv, 2);
    let (data, end) = (program.port(0, 1), program.port(0, 1));
    for (rank, peer) in [(0, 1), (1, 0)] {
        let (writes, signals) = (program.block(rank), program.block(rank));
        let done = program.semaphore(rank, 0);
        writes.put_over(&data, program.input(rank).all(), program.output(peer).all());
        writes.flush(&[data]);
        writes.release(&[done]);
        signals.acquire(&[done]);
        signals.signal(&[end]);
        signals.wait(&[end]);
    }
    let limit = Some(Duration::from_secs(20));
    let options = Options::default().with_timeout(limit).with_verification(false);
    let ranks = Communicator::in_process_on(&["this", "that"], &options).unwrap();
    let plan = program.build().unwrap();
    std::thread::scope(|scope| {
        for rank in &ranks {
            let plan = &plan;
            scope.spawn(move || {
                let executor = Executor::new(rank);
                let plan = executor.load(plan).unwrap();
                assert_eq!(plan.uses(rank.rank()).late_writers, [1 - rank.rank()]);
                let (input, mut output) = ([7 + rank.rank(); 4], [0; 4]);
                // SAFETY: both arrays are as long as the call says, and live past it.
                unsafe { executor.run(&call(&plan, &input, &mut output)) }.unwrap();
                assert_eq!(output, [8 - rank.rank(); 4]);
            });
        }
    });
}
