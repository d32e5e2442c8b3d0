//! Launches that are queued when the communicator ends, by a failure or because it is dropped.

use crate::caller::Caller;
use crate::faults::await_failure;
use crate::heard::{heard, listen};
use crate::{
    COMPILING, LIMIT, PATIENCE, backend, cuda_only, cuda_only_with, on_simulator, on_threads,
    options, simulated_alone,
};
use antiphon::DataType;
use antiphon::executor::hal::{KernelCode, KernelSource, Stream};
use antiphon::executor::{Call, Communicator, Executor, ExecutorError, Options, say_after};
use antiphon::plan::builder::ProgramBuilder;
use antiphon::plan::model::{Collective, Plan};
use antiphon_tests::application::Application;
use antiphon_tests::recorder::Recorder;
use antiphon_tests::{name_of, until, until_within};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

const BYTES: u64 = 64;

/// Rank 0 copies its input to rank 1's output, and hears nothing of it.
fn pushes() -> Plan {
    let program = ProgramBuilder::new("pushes", Collective::SendRecv, 2);
    let channel = program.channel(0, 1);
    let block = program.block(0);
    block.put(program.input(0).all(), program.output(1).all());
    block.signal(&[channel]);
    program.block(1).wait(&[channel]);
    program.build().unwrap()
}

/// Rank 1 fetches rank 0's input, which rank 0 does not touch itself.
fn pulls() -> Plan {
    pulls_and(true)
}

/// The same, of which rank 0 hears or does not.
fn pulls_and(tells: bool) -> Plan {
    let program = ProgramBuilder::new("pulls", Collective::SendRecv, 2);
    let (ready, done) = ([program.channel(0, 1)], [program.channel(1, 0)]);
    let (first, second) = (program.block(0), program.block(1));
    first.signal(&ready);
    second.wait(&ready);
    second.get(program.input(0).all(), program.output(1).all());
    if tells {
        second.signal(&done);
        first.wait(&done);
    }
    program.build().unwrap()
}

/// Rank 0 sends packets to rank 1, and hears nothing of it: neither need it know where rank 1's buffers are.
fn sends_packets() -> Plan {
    let program = ProgramBuilder::new("sends packets", Collective::SendRecv, 2);
    program.channel(0, 1);
    let scratch = program.scratch(1, 1);
    program.block(0).put_packets(program.input(0).all(), scratch.all());
    program.block(1).unpack_packets(scratch.all(), program.output(1).all());
    program.build().unwrap()
}

#[test]
fn launches_that_begin_after_an_abort_are_over_at_once() {
    let test = name_of(launches_that_begin_after_an_abort_are_over_at_once);
    if on_simulator(test).is_none() {
        return;
    }
    let aborted = Barrier::new(2);
    on_threads(2, &options(), |rank| {
        let caller = Caller::new(&rank, &pushes(), BYTES);
        if rank.rank() == 1 {
            // The first launch waits for rank 0, which never comes, and the others for the first.
            (0..3).for_each(|_| caller.execute().unwrap());
            rank.abort("enough");
            assert!(caller.synchronize().is_err(), "a launch that was ended is not complete");
        }
        aborted.wait();
        let began = Instant::now();
        drop((caller, rank));
        let took = began.elapsed();
        assert!(took < PATIENCE, "the communicator ended after {took:?}");
    });
}

#[test]
fn a_launch_that_is_not_proven_ends_behind_whoever_reads_its_buffers() {
    let test = name_of(a_launch_that_is_not_proven_ends_behind_whoever_reads_its_buffers);
    if on_simulator(test).is_none() {
        return;
    }
    const LONG: u64 = 128 << 20;
    on_threads(2, &options().with_verification(false), |rank| {
        let caller = Caller::new(&rank, &pulls_and(false), BYTES);
        let copied = |to: *mut u8, from: *const u8, bytes: u64| {
            // SAFETY: both are as long, and live until the stream is idle.
            let copied = unsafe { caller.stream.copy(to, from, bytes) };
            let _ = copied.unwrap();
        };
        let values = |value: u32| vec![value; BYTES as usize / 4];
        let fill = |value: u32| {
            let values = values(value);
            copied(caller.input.address(), values.as_ptr().cast(), BYTES);
            caller.synchronize().unwrap();
        };
        fill(7);
        let long = [(); 2].map(|()| rank.allocate(LONG).unwrap());
        rank.barrier().unwrap();
        if rank.rank() == 0 {
            caller.execute().unwrap();
            caller.synchronize().unwrap();
            // The call is over: its buffers are the caller's.
            fill(9);
        } else {
            copied(long[0].address(), long[1].address().cast_const(), LONG);
            caller.execute().unwrap();
            let mut read = values(0);
            copied(read.as_mut_ptr().cast(), caller.output.address().cast_const(), BYTES);
            caller.synchronize().unwrap();
            assert_eq!(read, values(7));
        }
        rank.barrier().unwrap();
    });
}

/// Rank 1 fills rank 0's output, and tells nobody.
fn pours() -> Plan {
    let program = ProgramBuilder::new("pours", Collective::SendRecv, 2);
    program.channel(0, 1);
    program.block(1).put(program.input(1).all(), program.output(0).all());
    program.build().unwrap()
}

/// Two ranks, of which rank 1 writes into rank 0's output when `aborts` aborts. Rank 0 has its output back once `await_end` returns.
fn has_output_back(aborts: u32, await_end: impl Fn(&Executor, &Arc<dyn Stream>) + Sync) {
    const LONG: usize = 64 << 20;
    let (pours_now, over) = (Barrier::new(2), Barrier::new(2));
    on_threads(2, &options().with_verification(false), |rank| {
        let executor = Executor::new(&rank);
        let plan = executor.load(&pours()).unwrap();
        let [input, output] = [(); 2].map(|()| rank.allocate(LONG as u64).unwrap());
        let (stream, beside) = (rank.stream().unwrap(), rank.stream().unwrap());
        let copy = |to: *mut u8, from: *const u8, bytes: usize| {
            // SAFETY: both are as long, and live until the stream is idle.
            let _ = unsafe { beside.copy(to, from, bytes as u64) }.unwrap();
            beside.synchronize().unwrap();
        };
        let found = |bytes: usize| {
            let mut found = vec![0; bytes];
            copy(found.as_mut_ptr(), output.address().cast_const(), bytes);
            found
        };
        copy(input.address(), vec![1u8; LONG].as_ptr(), LONG);
        copy(output.address(), vec![0u8; LONG].as_ptr(), LONG);
        rank.barrier().unwrap();
        let (from, to) = (input.address().cast_const(), output.address());
        let call = Call::new(&plan, DataType::U32, (from, LONG as u64), (to, LONG as u64));
        // SAFETY: both memories hold the call's bytes, and outlive the launch.
        unsafe { executor.execute(&call, &stream) }.unwrap();
        if rank.rank() == 0 {
            until_within(COMPILING, "the first byte to arrive", || found(1) != [0]);
        }
        pours_now.wait();
        if rank.rank() == aborts {
            rank.abort("enough");
        }
        if rank.rank() == 0 {
            await_end(&executor, &stream);
            let then = found(LONG);
            if !then.contains(&0) {
                println!("nothing is shown: rank 1 was through before the abort");
            }
            over.wait();
            assert!(found(LONG) == then, "rank 1 wrote on");
        } else {
            assert!(executor.synchronize(&stream).is_err());
            over.wait();
        }
    });
}

#[test]
fn an_abort_is_over_once_no_peer_writes_any_more() {
    let test = name_of(an_abort_is_over_once_no_peer_writes_any_more);
    if on_simulator(test).is_none() {
        return;
    }
    has_output_back(0, |_, _| {});
}

#[test]
fn failed_calls_are_complete_once_no_peer_writes_any_more() {
    let test = name_of(failed_calls_are_complete_once_no_peer_writes_any_more);
    if on_simulator(test).is_none() {
        return;
    }
    let wait_until = |is_over: &dyn Fn() -> bool| {
        while !is_over() {
            std::thread::yield_now();
        }
    };
    has_output_back(1, |executor, stream| wait_until(&|| executor.query(stream).unwrap()));
    has_output_back(1, |executor, _| wait_until(&|| executor.communicator().is_complete()));
}

#[test]
fn a_launch_that_is_being_made_at_an_abort_is_not_put_into_its_stream() {
    let test = name_of(a_launch_that_is_being_made_at_an_abort_is_not_put_into_its_stream);
    if on_simulator(test).is_none() {
        return;
    }
    listen();
    on_threads(2, &options().with_verification(false), |rank| {
        if rank.rank() == 0 {
            await_failure(&rank);
        } else {
            let [waits, comes_late] =
                [pushes(), sends_packets()].map(|plan| Caller::new(&rank, &plan, BYTES));
            waits.execute().unwrap();
            let said = "code is loaded once no launch is under way";
            let launched = std::thread::scope(|scope| {
                let launched = scope.spawn(|| comes_late.execute());
                until_within(COMPILING, said, || heard(said) > 0);
                rank.abort("enough");
                launched.join().unwrap()
            });
            assert!(matches!(launched, Err(ExecutorError::Aborted { .. })), "{launched:?}");
            assert!(waits.synchronize().is_err(), "a launch that was ended is not complete");
        }
    });
}

#[test]
fn a_device_that_fails_ends_its_communicators_with_the_drivers_error() {
    let test = name_of(a_device_that_fails_ends_its_communicators_with_the_drivers_error);
    let Some(simulated) = cuda_only(test) else { return };
    let Some(application) = simulated_alone(test, &simulated) else { return };
    // Nothing else ends what waits.
    let failures = on_threads(2, &options().with_timeout(None), |rank| {
        let callers = [(); 4].map(|()| Caller::new(&rank, &pushes(), BYTES));
        rank.barrier().unwrap();
        if rank.rank() == 1 {
            // On four streams, each waits for rank 0, which never comes.
            callers.iter().for_each(|caller| caller.execute().unwrap());
            application.fault(0);
        }
        let failure = await_failure(&rank).to_string();
        let began = Instant::now();
        drop((callers, rank));
        let took = began.elapsed();
        assert!(took < PATIENCE, "the communicator ended after {took:?}");
        failure
    });
    assert!(failures[1].contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{}", failures[1]);
    assert!(failures[0].contains("rank 1"), "{}", failures[0]);
}

#[test]
fn waits_without_a_limit_say_whom_they_are_for() {
    if on_simulator(name_of(waits_without_a_limit_say_whom_they_are_for)).is_none() {
        return;
    }
    listen();
    say_after(Duration::from_millis(1100));
    let launch = "s: rank 1 block 0 waits at no op for rank 0 to enter the launch";
    let barrier = "s in the barrier and goes on waiting for rank 1 ";
    on_threads(2, &options().with_timeout(None), |rank| {
        let caller = Caller::new(&rank, &pulls(), BYTES);
        let wait_for = |words: &str| until_within(COMPILING, words, || heard(words) > 0);
        if rank.rank() == 1 {
            caller.execute().unwrap();
            wait_for(barrier);
            rank.barrier().unwrap();
        } else {
            rank.barrier().unwrap();
            wait_for(launch);
            caller.execute().unwrap();
        }
        caller.synchronize().unwrap();
    });
}

/// Two ranks of which rank 0 frees its input, which rank 1 then waits for in vain; `meanwhile` is what rank 1 does then. What came of it.
fn frees_too_early(
    (plan, options): (&Plan, &Options),
    meanwhile: impl Fn(&Communicator) + Sync,
) -> Vec<Result<(), ExecutorError>> {
    // Not the communicator's barrier: the time limit is not for what rank 0 compiles before.
    let (made, freed_by_now) = (Barrier::new(2), Barrier::new(2));
    on_threads(2, options, |rank| {
        let mut caller = Caller::new(&rank, plan, BYTES);
        // Beside kernels, HIP's driver makes no memory.
        let (other, mut freeing) = (rank.allocate(BYTES).unwrap(), None);
        made.wait();
        if rank.rank() == 0 {
            caller.execute().unwrap();
            let (freed, epoch) = (Arc::downgrade(&caller.input), rank.device().epoch());
            let before = std::mem::replace(&mut caller.input, other);
            // Drivers may let who frees memory wait for kernels.
            freeing = Some(std::thread::spawn(move || drop(before)));
            let began = Instant::now();
            // Its last owner is gone a moment before the device knows.
            while freed.strong_count() > 0 || rank.device().epoch() == epoch {
                assert!(began.elapsed() < PATIENCE, "the memory is kept");
                std::thread::yield_now();
            }
            // Before it tells of other memory it tells what is gone.
            assert!(rank.register(caller.input.address(), BYTES).unwrap());
        }
        freed_by_now.wait();
        if rank.rank() == 1 {
            caller.execute().unwrap();
            meanwhile(&rank);
        }
        let outcome = caller.synchronize();
        if let Some(freeing) = freeing {
            freeing.join().unwrap();
        }
        outcome
    })
}

#[test]
fn who_frees_a_buffer_before_a_peer_has_mapped_it_is_named() {
    let test = name_of(who_frees_a_buffer_before_a_peer_has_mapped_it_is_named);
    if on_simulator(test).is_none() {
        return;
    }
    // Now and then rank 1 maps the memory in the moment before it is freed, and then reads it.
    let mut rounds = (0..20).map(|_| frees_too_early((&pulls(), &options()), |_| {}));
    let failed = rounds.find(|outcomes| outcomes.iter().any(Result::is_err));
    let errors: Vec<_> = failed.unwrap().into_iter().map(Result::unwrap_err).collect();
    let freed = matches!(errors[1], ExecutorError::Freed { rank: 1, seq: 1, peer: 0, .. });
    assert!(freed, "{}", errors[1]);
    assert!(matches!(errors[0], ExecutorError::Aborted { by: 1, .. }), "{}", errors[0]);
    let text = errors[0].to_string();
    for part in ["plan `pulls` on rank 1", "rank 0 freed", "keep the buffers of a call"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Ends the process if the test that it is of goes on for a minute: nothing else would.
fn ends_within_a_minute() -> impl Drop {
    struct Over(Arc<AtomicBool>);
    impl Drop for Over {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }
    let over = Arc::new(AtomicBool::new(false));
    let watched = Arc::clone(&over);
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(60));
        if !watched.load(Ordering::Acquire) {
            eprintln!("the launch does not end");
            std::process::exit(1);
        }
    });
    Over(over)
}

/// Loads code in another thread, which waits for the kernels that run.
fn load_aside(application: &Application, rank: &Communicator, code: &Arc<Vec<u8>>) {
    let (device, code) = (Arc::clone(rank.device()), Arc::clone(code));
    std::thread::spawn(move || {
        let code = KernelCode::Binary(&code);
        device.load(KernelSource { entry: "nothing", code, options: &[] }).map(drop).unwrap();
    });
    until("the load to wait for the kernels", || application.waiting() > 0);
}

/// Nor does who would ask what the kernel waits for: all wait for a thread that loads code, and that one for the kernel.
#[test]
fn a_launch_reaches_the_time_limit_where_the_driver_answers_nobody() {
    let test = name_of(a_launch_reaches_the_time_limit_where_the_driver_answers_nobody);
    let busy = [("ANTIPHON_GPUSIM_WAITS", "load")];
    let Some(simulated) = cuda_only_with(test, &busy) else { return };
    let application = Application::new(&simulated);
    let source = "extern \"C\" __global__ void nothing() {}";
    let code = Arc::new(crate::device().compile(source, &[]).unwrap());
    let _over = ends_within_a_minute();
    // Rank 0 waits until rank 1 has its input: whoever comes to the limit first ends both.
    let options = options().with_timeout(Some(LIMIT)).with_verification(false);
    let plan = pulls_and(false);
    let outcomes = frees_too_early((&plan, &options), |rank| load_aside(&application, rank, &code));
    let errors: Vec<_> = outcomes.into_iter().map(Result::unwrap_err).collect();
    let stalled = |error: &ExecutorError| matches!(error, ExecutorError::Stalled { .. });
    assert!(errors.iter().any(stalled), "{errors:?}");
}

#[test]
fn a_launch_that_waits_for_an_earlier_one_of_a_peer_reaches_the_time_limit() {
    let test = name_of(a_launch_that_waits_for_an_earlier_one_of_a_peer_reaches_the_time_limit);
    if on_simulator(test).is_none() {
        return;
    }
    let options = options().with_timeout(Some(LIMIT)).with_verification(false);
    on_threads(2, &options, |rank| {
        let caller = Caller::new(&rank, &sends_packets(), BYTES);
        caller.execute().unwrap();
        caller.synchronize().unwrap();
        rank.barrier().unwrap();
        if rank.rank() == 1 {
            // Calls no more, and is told.
            await_failure(&rank);
            return;
        }
        (0..3).for_each(|_| caller.execute().unwrap());
        let error = caller.synchronize().unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, ExecutorError::Stalled { rank: 0, .. }), "{text}");
        assert!(text.contains("for rank 1 to complete an earlier launch"), "{text}");
        let theirs =
            "rank 1 block 0 waits at no op (its last call is launch 1, plan `sends packets`";
        assert!(text.contains(theirs), "{text}");
    });
}

#[test]
fn a_communicator_that_goes_hears_its_peers_until_its_launches_are_over() {
    let test = name_of(a_communicator_that_goes_hears_its_peers_until_its_launches_are_over);
    if on_simulator(test).is_none() {
        return;
    }
    let launched = Barrier::new(2);
    on_threads(2, &options(), |rank| {
        let caller = Caller::new(&rank, &pushes(), BYTES);
        if rank.rank() == 1 {
            // Where the arena of this rank is, rank 0 hears only once it has begun to go.
            launched.wait();
            caller.execute().unwrap();
            return caller.synchronize().unwrap();
        }
        caller.execute().unwrap();
        let Caller { executor, input: _input, output: _output, .. } = caller;
        launched.wait();
        let began = Instant::now();
        drop((executor, rank));
        let took = began.elapsed();
        assert!(took < PATIENCE, "the communicator ended after {took:?}");
    });
}

/// So many that the end of a communicator comes between two of them.
const REPLAYS: usize = 100;
/// Longer than memory takes to go on a busy machine.
const FREED: Duration = Duration::from_secs(10);

#[test]
fn a_communicator_that_goes_between_replays_keeps_no_memory() {
    let test = name_of(a_communicator_that_goes_between_replays_keeps_no_memory);
    let Some(simulated) = cuda_only(test) else { return };
    let Some(application) = simulated_alone(test, &simulated) else { return };
    let recorder = &Recorder::new(&simulated, backend());
    let replay = |count: usize| {
        on_threads(2, &options(), |rank| {
            let (raw, stream) = recorder.adopt(rank.device());
            let caller = Caller::new(&rank, &pulls(), BYTES).on(stream);
            caller.execute().unwrap();
            caller.synchronize().unwrap();
            let graph = recorder.record_on_thread(raw, || caller.execute().unwrap());
            rank.barrier().unwrap();
            (0..count).for_each(|_| recorder.replay(graph, raw));
            recorder.destroy(graph);
            let Caller { executor, input: _input, output: _output, .. } = caller;
            drop((executor, rank));
            recorder.finish(raw);
        });
    };
    // What a process keeps of its first communicator is there by then.
    replay(0);
    let before = application.used();
    (0..5).for_each(|_| replay(REPLAYS));
    until_within(FREED, "the memory to be given back", || application.used() <= before);
}

#[test]
fn launches_of_a_communicator_that_goes_reach_the_time_limit() {
    let test = name_of(launches_of_a_communicator_that_goes_reach_the_time_limit);
    if on_simulator(test).is_none() {
        return;
    }
    let options = options().with_timeout(Some(LIMIT));
    on_threads(2, &options, |rank| {
        if rank.rank() == 1 {
            // Calls nothing, and is told.
            let text = await_failure(&rank).to_string();
            assert!(text.contains("for rank 1 to enter the launch"), "{text}");
            return;
        }
        let caller = Caller::new(&rank, &pushes(), BYTES);
        caller.execute().unwrap();
        let Caller { executor, input: _input, output: _output, .. } = caller;
        let began = Instant::now();
        drop((executor, rank));
        let took = began.elapsed();
        assert!(took < LIMIT + PATIENCE, "the communicator ended after {took:?}");
    });
}

#[test]
fn a_driver_whose_queue_is_full_does_not_keep_launches_from_the_time_limit() {
    let test = name_of(a_driver_whose_queue_is_full_does_not_keep_launches_from_the_time_limit);
    if on_simulator(test).is_none() {
        return;
    }
    let options = options().with_timeout(Some(LIMIT));
    on_threads(2, &options, |rank| {
        if rank.rank() == 1 {
            // Calls nothing, and is told.
            await_failure(&rank);
            return;
        }
        let caller = Caller::new(&rank, &pushes(), BYTES);
        // More than a stream holds: a call of the driver waits for the first launch, which waits for rank 1.
        let refused = (0..2000).find_map(|_| caller.execute().err());
        let error = refused.or_else(|| caller.synchronize().err()).unwrap();
        assert!(matches!(error, ExecutorError::Stalled { rank: 0, .. }), "{error}");
    });
}
