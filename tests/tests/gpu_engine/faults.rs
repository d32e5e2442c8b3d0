//! Launches that cannot finish end, and the error says who waits for whom.

use crate::devices::devices;
use crate::{
    COMPILING, LIMIT, backend, device, on_devices, on_simulator, on_simulator_of, on_threads,
    options,
};
use antiphon::executor::hal::{Backend, Device};
use antiphon::executor::{Call, Collectives, Communicator, Executor, ExecutorError, Request, What};
use antiphon::plan::algorithms::{Algorithm, Shape};
use antiphon::plan::builder::ProgramBuilder;
use antiphon::plan::model::{Collective, OpKind, Plan};
use antiphon::{DataType, ReduceOp};
use antiphon_tests::harness::processes::{Ranks, role};
use antiphon_tests::{name_of, until_within};
use std::io::{BufRead, BufReader};
use std::sync::{Arc, Barrier};
use std::time::Duration;

/// Calls a plan with buffers of `bytes` bytes.
pub fn call(rank: &Communicator, plan: &Plan, bytes: u64) -> Result<(), ExecutorError> {
    let executor = Executor::new(rank);
    let plan = executor.load(plan)?;
    let (input, output) = (rank.allocate(bytes)?, rank.allocate(bytes)?);
    let (from, to) = ((input.address().cast_const(), bytes), (output.address(), bytes));
    // SAFETY: both memories are `bytes` long and outlive the call, which is blocking.
    unsafe { executor.run(&Call::new(&plan, DataType::F32, from, to)) }
}

/// Rank 1 waits for a signal that rank 0 never sends.
fn hangs() -> Plan {
    let program = ProgramBuilder::new("hangs", Collective::SendRecv, 2);
    let channel = program.channel(0, 1);
    program.block(0).copy(program.input(0).all(), program.output(0).all());
    let block = program.block(1);
    block.copy(program.input(1).all(), program.output(1).all());
    block.wait(&[channel]);
    program.block(0).signal(&[channel]);
    let mut plan = program.build().unwrap();
    for block in &mut plan.gpus[0].threadblocks {
        block.ops.retain(|op| op.kind != OpKind::Signal);
    }
    plan
}

#[test]
fn a_wait_without_a_signal_ends_with_the_operation_and_the_channel() {
    let test = name_of(a_wait_without_a_signal_ends_with_the_operation_and_the_channel);
    if on_simulator(test).is_none() {
        return;
    }
    assert_stalls(
        &hangs(),
        ["rank 1 block 0 waits at op 1 (wait)", "memory channel 0", "from rank 0"],
    );
}

/// Rank 1 of two waits in a plan for what never comes: its error has all of `parts`, and rank 0 is told.
pub fn assert_stalls(plan: &Plan, parts: [&str; 3]) {
    let options = options().with_timeout(Some(LIMIT)).with_verification(false);
    let errors = on_threads(2, &options, |rank| {
        let outcome = call(&rank, plan, 64);
        assert!(rank.rank() == 0 || outcome.is_err(), "a launch that was ended is not complete");
        // Until the other has seen the end, too.
        let failure = await_failure(&rank);
        outcome.and(Err::<(), _>(failure)).unwrap_err()
    });
    let text = errors[1].to_string();
    assert!(matches!(errors[1], ExecutorError::Stalled { rank: 1, .. }), "{text}");
    for part in parts.into_iter().chain([&*format!("plan `{}`", plan.name)]) {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(matches!(errors[0], ExecutorError::Aborted { by: 1, .. }), "{}", errors[0]);
}

/// What broke the communicator, once it is broken.
pub fn await_failure(rank: &Communicator) -> ExecutorError {
    until_within(COMPILING, "a failure", || rank.failure().is_some());
    rank.failure().expect("a broken communicator stays so")
}

#[test]
fn a_rank_that_does_not_come_is_named() {
    if on_simulator(name_of(a_rank_that_does_not_come_is_named)).is_none() {
        return;
    }
    let options = options().with_timeout(Some(LIMIT));
    let plan = Algorithm::AllReduceZeroCopy.plan(Shape::new(2)).unwrap();
    let errors = on_threads(2, &options, |rank| {
        if rank.rank() == 0 {
            return Some(call(&rank, &plan, 4096).unwrap_err().to_string());
        }
        await_failure(&rank);
        None
    });
    let text = errors[0].as_ref().unwrap();
    assert!(text.contains("waits at no op for rank 1 to enter the launch"), "{text}");
    assert!(text.contains("rank 1 block 0 waits at no op (it has called nothing)"), "{text}");
}

#[test]
fn a_rank_that_leaves_without_the_call_is_named_though_there_is_no_limit() {
    let test = name_of(a_rank_that_leaves_without_the_call_is_named_though_there_is_no_limit);
    if on_simulator_of(test, 2).is_none() {
        return;
    }
    let options = options().with_timeout(None);
    // The first waits to hear of buffers, the second for packets.
    let plans = [Algorithm::AllReduceZeroCopy, Algorithm::AllReduceTwoShotPackets];
    // Memory that it lets go of may have to wait for the kernel of the other, on whose device it is.
    for (plan, count) in plans.into_iter().flat_map(|plan| [(plan, 1), (plan, 2)]) {
        let plan = plan.plan(Shape::new(2)).unwrap();
        let is_launched = Barrier::new(2);
        on_devices(&devices(2, count), &options, |rank| {
            call(&rank, &plan, 4096).unwrap();
            if rank.rank() == 1 {
                is_launched.wait();
                return;
            }
            let (executor, stream) = (Executor::new(&rank), rank.stream().unwrap());
            let plan = executor.load(&plan).unwrap();
            let [input, output] = [(); 2].map(|()| rank.allocate(4096).unwrap());
            let (from, to) = ((input.address().cast_const(), 4096), (output.address(), 4096));
            let call = Call::new(&plan, DataType::F32, from, to);
            // SAFETY: both memories are as long as the call says, and outlive the stream's work.
            unsafe { executor.execute(&call, &stream) }.unwrap();
            is_launched.wait();
            let text = executor.synchronize(&stream).unwrap_err().to_string();
            for part in ["rank 1", "left the communicator without making this call"] {
                assert!(text.contains(part), "{part}: {text}");
            }
        });
    }
}

/// Rank 0 waits for each of two others, by a block for each.
pub fn of_two() -> Plan {
    let program = ProgramBuilder::new("of two", Collective::SendRecv, 3);
    for from in [1, 2] {
        let channel = program.channel(0, from);
        program.block(from).signal(&[channel]);
        program.block(0).wait(&[channel]);
    }
    program.build().unwrap()
}

/// A block of rank 0 has waited for rank 1, and is through; another still waits for rank 2.
#[test]
fn a_rank_that_leaves_after_its_part_of_the_call_breaks_nothing() {
    let test = name_of(a_rank_that_leaves_after_its_part_of_the_call_breaks_nothing);
    if on_simulator_of(test, 3).is_none() {
        return;
    }
    let plan = of_two();
    let options = options().with_timeout(None).with_verification(false);
    let is_launched = Barrier::new(3);
    on_devices(&devices(3, 3), &options, |rank| {
        let (executor, stream) = (Executor::new(&rank), rank.stream().unwrap());
        let loaded = executor.load(&plan).unwrap();
        let [input, output] = [(); 2].map(|()| rank.allocate(4096).unwrap());
        let (from, to) = ((input.address().cast_const(), 4096), (output.address(), 4096));
        let call = Call::new(&loaded, DataType::F32, from, to);
        // SAFETY: both memories are as long as the call says, and outlive the stream's work.
        let execute = || unsafe { executor.execute(&call, &stream) }.unwrap();
        // A first call waits until all ranks have made it.
        execute();
        executor.synchronize(&stream).unwrap();
        if rank.rank() == 0 {
            execute();
        }
        is_launched.wait();
        // Time in which a wait is noted, and in which it would be found that rank 1 has left.
        std::thread::sleep(Duration::from_millis([0, 100, 400][rank.rank() as usize]));
        if rank.rank() > 0 {
            execute();
        }
        executor.synchronize(&stream).unwrap();
    });
}

/// Blocks that wait for one that never begins would do so for ever.
#[test]
fn a_plan_that_does_not_fit_the_device_is_refused() {
    let test = name_of(a_plan_that_does_not_fit_the_device_is_refused);
    if on_simulator(test).is_none() {
        return;
    }
    // No multiprocessor has more than four such blocks; a card's has as many as its registers allow. Of AMD's one is left to the
    // driver's own kernels.
    let cores = device().caps().cores;
    let least = if backend() == Backend::Rocm { cores - 1 } else { cores };
    let program = ProgramBuilder::new("wide", Collective::Test, 2);
    for rank in 0..2 {
        for _ in 0..=cores * 4 / 2 {
            program.block(rank).copy(program.input(rank).all(), program.output(rank).all());
        }
    }
    let plan = program.build().unwrap();
    let options = options().with_verification(false).with_block_threads(Some(512));
    let errors = on_threads(2, &options, |rank| call(&rank, &plan, 64).unwrap_err().to_string());
    // Who is told first leaves, and the other may hear of that before it is told itself.
    let each = if device().name().contains("simulated") { 4..=4 } else { 1..=4 };
    let mut told = each.map(|blocks| format!("where it runs {} at once", least * blocks));
    assert!(told.any(|told| errors.iter().any(|one| one.contains(&told))), "{errors:#?}");
}

#[test]
fn an_abort_ends_a_kernel_that_waits() {
    if on_simulator(name_of(an_abort_ends_a_kernel_that_waits)).is_none() {
        return;
    }
    assert_aborted(&Algorithm::AllReduceZeroCopy.plan(Shape::new(2)).unwrap());
}

/// Rank 1 of two aborts instead of calling a plan, which ends the launch of rank 0.
pub fn assert_aborted(plan: &Plan) {
    let errors = on_threads(2, &options(), |rank| {
        if rank.rank() == 0 {
            return Some(call(&rank, plan, 4096).unwrap_err().to_string());
        }
        rank.abort("enough");
        None
    });
    let text = errors[0].as_ref().unwrap();
    assert!(text.contains("aborted by rank 1: enough"), "{text}");
}

#[test]
fn ranks_that_call_different_things_are_told_so() {
    if on_simulator(name_of(ranks_that_call_different_things_are_told_so)).is_none() {
        return;
    }
    let plan = Algorithm::AllReduceZeroCopy.plan(Shape::new(2)).unwrap();
    let errors = on_threads(2, &options(), |rank| {
        let bytes = if rank.rank() == 0 { 4096 } else { 2048 };
        call(&rank, &plan, bytes).unwrap_err()
    });
    let mismatch = |error: &&ExecutorError| matches!(error, ExecutorError::Mismatch { .. });
    let text = errors.iter().find(mismatch).unwrap_or_else(|| panic!("{errors:?}")).to_string();
    for part in ["4096 bytes in", "2048 bytes in"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Ranks look for no buffers of each other's here: all goes through scratch, which is cut by size, or is another one.
#[test]
fn ranks_that_call_sizes_of_a_plan_with_scratch_that_differ_are_told_so_at_once() {
    let test =
        name_of(ranks_that_call_sizes_of_a_plan_with_scratch_that_differ_are_told_so_at_once);
    if on_simulator(test).is_none() {
        return;
    }
    let plan = Algorithm::AllReduceTwoShotPackets.plan(Shape::new(2)).unwrap();
    // The second pair needs scratch of another class; so does the third, after launches that agree.
    for (sizes, agree) in [([1024, 2048], 0), ([1024, 1 << 20], 0), ([1 << 20, 4096], 3)] {
        let errors = on_threads(2, &options(), |rank| {
            let executor = Executor::new(&rank);
            let loaded = executor.load(&plan).unwrap();
            let most = 1 << 20;
            let (input, output) = (rank.allocate(most).unwrap(), rank.allocate(most).unwrap());
            let run = |bytes: u64| {
                let (from, to) = ((input.address().cast_const(), bytes), (output.address(), bytes));
                // SAFETY: both memories are at least so long and outlive the call, which is blocking.
                unsafe { executor.run(&Call::new(&loaded, DataType::F32, from, to)) }
            };
            for bytes in [1024, most].into_iter().cycle().take(agree) {
                run(bytes).unwrap();
            }
            let outcome = run(sizes[rank.rank() as usize]);
            // One of less may be through with what the other waits for.
            let failure = await_failure(&rank);
            outcome.and(Err::<(), _>(failure)).unwrap_err()
        });
        let mismatch = |error: &&ExecutorError| matches!(error, ExecutorError::Mismatch { .. });
        let text = errors.iter().find(mismatch).unwrap_or_else(|| panic!("{errors:?}"));
        for bytes in sizes {
            let part = format!("{bytes} bytes in");
            assert!(text.to_string().contains(&part), "{part}: {text}");
        }
    }
}

/// The ranks' launches are of two plans, and never meet.
#[test]
fn ranks_whose_sizes_choose_different_algorithms_are_told_so_at_once() {
    let test = name_of(ranks_whose_sizes_choose_different_algorithms_are_told_so_at_once);
    if on_simulator(test).is_none() {
        return;
    }
    let counts = [16u64, 1 << 20];
    let errors = on_threads(2, &options(), |rank| {
        let on = Collectives::new(&rank).unwrap();
        let bytes = counts[1] * 4;
        let (input, output) = (rank.allocate(bytes).unwrap(), rank.allocate(bytes).unwrap());
        let call = |count: u64| {
            let request = Request {
                what: What::AllReduce,
                input: input.address(),
                output: output.address(),
                count,
                dtype: DataType::F32,
                op: ReduceOp::Sum,
                factor: None,
            };
            // SAFETY: both memories are at least so long and outlive the call, which is blocking.
            unsafe { on.call(&request, None) }
        };
        // The first turn is the same on both, as is that of each of these.
        counts.into_iter().for_each(|count| call(count).unwrap());
        let outcome = call(counts[rank.rank() as usize]);
        let failure = await_failure(&rank);
        outcome.and(Err::<(), _>(failure)).unwrap_err()
    });
    let mismatch = |error: &&ExecutorError| matches!(error, ExecutorError::Mismatch { .. });
    let text = errors.iter().find(mismatch).unwrap_or_else(|| panic!("{errors:?}")).to_string();
    let called: Vec<_> = text.split("called plan `").skip(1).collect();
    let plan = |text: &&str| text.split('`').next().unwrap().to_owned();
    assert!(called.len() == 2 && plan(&called[0]) != plan(&called[1]), "{text}");
    for count in counts {
        let part = format!("{} bytes in", count * 4);
        assert!(text.contains(&part), "{part}: {text}");
    }
}

#[test]
fn the_death_of_a_rank_ends_the_kernels_of_the_others() {
    let test = name_of(the_death_of_a_rank_ends_the_kernels_of_the_others);
    if on_simulator(test).is_none() {
        return;
    }
    kill_in_second_launch(name_of(rank_whose_peer_dies));
}

/// A process of the test above.
#[test]
fn rank_whose_peer_dies() {
    await_death(&Algorithm::AllReduceTwoShotPackets.plan(Shape::new(2)).unwrap());
}

/// Starts two processes that run the test `role`, which [awaits a death](await_death), and kills rank 1's.
pub fn kill_in_second_launch(role: &str) {
    kill_on(role, [None; 2]);
}

/// The same, on these hosts.
pub fn kill_on(role: &str, hosts: [Option<&str>; 2]) {
    let mut ranks = Ranks::start_on(role, &hosts, "");
    // Both: rank 0 may still be in its first launch when that of rank 1 is over.
    let said: Vec<_> = (0..2)
        .map(|rank| {
            let mut said = BufReader::new(ranks.output_of(rank).unwrap());
            let mut line = String::new();
            while !line.contains("ready") {
                line.clear();
                assert!(said.read_line(&mut line).unwrap() > 0, "rank {rank} ended");
            }
            said
        })
        .collect();
    ranks.kill(1);
    let outputs = ranks.wait();
    drop(said);
    assert!(outputs[0].status.success(), "{}", String::from_utf8_lossy(&outputs[0].stderr));
}

/// Rank 1 launches once and is killed; rank 0 waits for its second launch.
pub fn await_death(plan: &Plan) {
    await_death_on(plan, |_| device());
}

/// The same, on these devices by rank.
pub fn await_death_on(plan: &Plan, device: impl Fn(u32) -> Arc<dyn Device>) {
    let Some(role) = role() else { return };
    let device = device(role.rendezvous.rank);
    let rank = role.connect(&options().with_device(Some(device))).unwrap();
    call(&rank, plan, 4096).unwrap();
    println!("ready");
    if rank.rank() == 1 {
        loop {
            std::thread::park();
        }
    }
    let error = call(&rank, plan, 4096).unwrap_err().to_string();
    assert!(error.contains("rank 1"), "{error}");
}
