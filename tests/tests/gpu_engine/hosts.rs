//! Port channels of kernels over wires: between nodes, and on one node where a wire is forced.

use crate::faults::{await_death, await_failure, call, kill_on};
use crate::plans::{HALF, right, run_all};
use crate::ports::{hangs, sum};
use crate::{LIMIT, device, on_simulator, on_simulator_alone, on_threads, options};
use antiphon::DataType;
use antiphon::executor::hal::{Memory, Stream};
use antiphon::executor::{Call, Communicator, Executor, ExecutorError, Options};
use antiphon::plan::builder::ProgramBuilder;
use antiphon::plan::model::{Collective, OpKind, Plan};
use antiphon_tests::harness::processes::{Ranks, role};
use antiphon_tests::harness::{Entry, on_hosts, report, run_plans, seed};
use antiphon_tests::name_of;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

/// Runs `work` as each of the ranks on these hosts.
pub fn apart<T: Send>(
    hosts: &[&str],
    options: &Options,
    work: impl Fn(Communicator) -> T + Sync,
) -> Vec<T> {
    on_hosts(hosts, &options.clone().with_device(Some(device())), work).unwrap()
}

#[test]
fn every_right_plan_with_ports_gives_the_right_result_across_nodes() {
    let test = name_of(every_right_plan_with_ports_gives_the_right_result_across_nodes);
    if on_simulator(test).is_none() {
        return;
    }
    every_right_plan_over_wire("tcp", |nodes, options, work| {
        let nodes: Vec<String> = nodes.iter().map(u32::to_string).collect();
        let hosts: Vec<&str> = nodes.iter().map(String::as_str).collect();
        apart(&hosts, options, work)
    });
}

/// What a rank does, and what went wrong with it.
type Work<'a> = &'a (dyn Fn(Communicator) -> Vec<String> + Sync);

/// Runs every right plan with ports by ranks that `on` has on the nodes that it is given, whose links are to go over this wire.
pub fn every_right_plan_over_wire(
    wire: &str,
    on: impl Fn(&[u32], &Options, Work<'_>) -> Vec<Vec<String>>,
) {
    let seed = seed();
    println!("seed {seed}");
    let options = options().with_verification(false);
    let (mut failures, mut crossed) = (Vec::new(), 0);
    for entry in right(true) {
        let nodes = entry.nodes();
        crossed += usize::from(nodes.iter().any(|node| *node != nodes[0]));
        let ranks = on(&nodes, &options, &|rank| run_all_over(wire, &rank, &entry, seed));
        failures.extend(ranks.into_iter().flatten());
    }
    report(&failures);
    assert!(crossed > 5, "only {crossed} plans cross nodes");
}

/// Runs a plan as one rank; what is wrong, and links that go over another wire.
fn run_all_over(wire: &str, rank: &Communicator, entry: &Entry, seed: u64) -> Vec<String> {
    let mut wrong = run_all(rank, entry, seed, HALF);
    let others = rank.links().into_iter().filter(|link| link.wire != wire);
    wrong.extend(others.map(|link| format!("{}: {link:?}", entry.name)));
    wrong
}

/// The hosts of so many processes: two, with half of them on each.
fn halves(world: u32) -> Vec<Option<&'static str>> {
    (0..world).map(|rank| Some(if rank < world / 2 { "a" } else { "b" })).collect()
}

/// The right plans with ports whose loads and stores stay within these hosts.
fn within(hosts: &[Option<&str>]) -> impl Iterator<Item = Entry> {
    let fits = |entry: &Entry| {
        let nodes = entry.nodes();
        let same = |rank: usize| hosts[rank] == hosts[nodes[rank] as usize];
        nodes.len() == hosts.len() && (0..nodes.len()).all(same)
    };
    right(true).filter(fits)
}

#[test]
fn plans_give_the_right_result_in_processes_of_two_nodes() {
    let test = name_of(plans_give_the_right_result_in_processes_of_two_nodes);
    if on_simulator(test).is_none() {
        return;
    }
    let seed = seed();
    println!("seed {seed}");
    for world in [2, 4] {
        let hosts = halves(world);
        assert!(within(&hosts).count() > 1);
        let ranks = Ranks::start_on(name_of(rank_of_two_nodes), &hosts, &seed.to_string());
        ranks.succeed();
    }
}

/// A process of the test above.
#[test]
fn rank_of_two_nodes() {
    let Some(role) = role() else { return };
    let seed: u64 = role.job.parse().unwrap();
    let options = options().with_verification(false).with_device(Some(device()));
    let all = role.connect(&options).unwrap();
    let hosts = halves(all.world());
    run_plans(&all, within(&hosts), |rank, entry| run_all(rank, entry, seed, HALF));
}

#[test]
fn every_right_plan_with_ports_gives_the_right_result_over_a_forced_wire() {
    let test = name_of(every_right_plan_with_ports_gives_the_right_result_over_a_forced_wire);
    if on_simulator(test).is_none() {
        return;
    }
    let seed = seed();
    println!("seed {seed}");
    let options = options().with_verification(false).with_wire(Some("tcp".to_owned()));
    let mut failures = Vec::new();
    for entry in right(true) {
        let ranks = on_threads(entry.ranks(), &options, |rank| run_all(&rank, &entry, seed, HALF));
        failures.extend(ranks.into_iter().flatten());
    }
    report(&failures);
}

#[test]
fn plans_give_the_right_result_in_processes_over_a_forced_wire() {
    let test = name_of(plans_give_the_right_result_in_processes_over_a_forced_wire);
    if on_simulator(test).is_none() {
        return;
    }
    let seed = seed();
    println!("seed {seed}");
    for world in [2, 4] {
        Ranks::start(name_of(rank_over_a_forced_wire), world, &seed.to_string()).succeed();
    }
}

/// A process of the test above. Peers' memory is mapped elsewhere than they have it themselves.
#[test]
fn rank_over_a_forced_wire() {
    let Some(role) = role() else { return };
    let seed: u64 = role.job.parse().unwrap();
    let options = options().with_verification(false).with_device(Some(device()));
    let all = role.connect(&options.with_wire(Some("tcp".to_owned()))).unwrap();
    run_plans(&all, right(true), |rank, entry| run_all_over("tcp", rank, entry, seed));
}

#[test]
fn memory_channels_between_nodes_are_refused_by_name() {
    if on_simulator(name_of(memory_channels_between_nodes_are_refused_by_name)).is_none() {
        return;
    }
    let program = ProgramBuilder::new("near", Collective::SendRecv, 2);
    let channel = program.channel(0, 1);
    program.block(0).put(program.input(0).all(), program.output(1).all());
    program.block(0).signal(&[channel]);
    program.block(1).wait(&[channel]);
    let plan = program.build().unwrap();
    let errors = apart(&["a", "b"], &options(), |rank| call(&rank, &plan, 64).unwrap_err());
    for error in errors {
        let text = error.to_string();
        assert!(matches!(error, ExecutorError::Transport(_)) && text.contains("memory"), "{text}");
    }
}

#[test]
fn a_wait_for_a_signal_from_another_node_ends_with_its_name() {
    if on_simulator(name_of(a_wait_for_a_signal_from_another_node_ends_with_its_name)).is_none() {
        return;
    }
    a_wait_ends_with_a_name(|options, work| apart(&["a", "b"], options, work));
}

/// Rank 1 of two, which `on` runs, waits in vain for a signal of rank 0, and says so.
pub fn a_wait_ends_with_a_name(
    on: impl Fn(&Options, &(dyn Fn(Communicator) -> ExecutorError + Sync)) -> Vec<ExecutorError>,
) {
    let options = options().with_timeout(Some(LIMIT)).with_verification(false);
    let errors = on(&options, &|rank| {
        let outcome = call(&rank, &hangs(), 64);
        let failure = await_failure(&rank);
        outcome.and(Err::<(), _>(failure)).unwrap_err()
    });
    let text = errors[1].to_string();
    let parts = ["rank 1 block 0 waits at op 0 (wait)", "port channel 0", "from rank 0"];
    for part in parts {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Both ranks send each other their input by port. Scratch would give other sizes contexts of their own.
fn exchange() -> Plan {
    let program = ProgramBuilder::new("exchange", Collective::Test, 2).chunk_counts(1, 1);
    let port = program.port(0, 1);
    for rank in 0..2 {
        let block = program.block(rank);
        let (from, to) = (program.input(rank).all(), program.output(1 - rank).all());
        block.put_with_signal(&port, from, to);
        block.wait(&[port]);
        block.flush(&[port]);
    }
    program.build().unwrap()
}

#[test]
fn transfers_of_several_parcels_arrive_whole_in_every_launch() {
    let test = name_of(transfers_of_several_parcels_arrive_whole_in_every_launch);
    if on_simulator(test).is_none() {
        return;
    }
    /// More than all parcels that are under way at once, and no whole number of them.
    const WORDS: usize = (5 << 20) / 8 + 3;
    const BYTES: u64 = WORDS as u64 * 8;
    let values = |rank: u32, launch: u64| -> Vec<u64> {
        (0..WORDS as u64).map(|at| at * 7 + u64::from(rank) * 1_000_003 + (launch << 40)).collect()
    };
    apart(&["a", "b"], &options(), |rank| {
        let executor = Executor::new(&rank);
        let plan = executor.load(&exchange()).unwrap();
        let stream = rank.stream().unwrap();
        let (input, output) = (rank.allocate(BYTES).unwrap(), rank.allocate(BYTES).unwrap());
        let (from, to) = ((input.address().cast_const(), BYTES), (output.address(), BYTES));
        let call = Call::new(&plan, DataType::U32, from, to);
        for launch in 0..3 {
            let sent = values(rank.rank(), launch);
            let mut came = vec![0u64; WORDS];
            // SAFETY: all are `BYTES` long and outlive the stream's work, which the rank waits for.
            unsafe {
                let _ = stream.copy(input.address(), sent.as_ptr().cast(), BYTES).unwrap();
                executor.execute(&call, &stream).unwrap();
                let _ = stream.copy(came.as_mut_ptr().cast(), output.address(), BYTES).unwrap();
            }
            executor.synchronize(&stream).unwrap();
            assert!(came == values(1 - rank.rank(), launch), "launch {launch}");
        }
        rank.barrier().unwrap();
    });
}

#[test]
fn a_launch_outlasts_its_limit_while_its_rank_moves_bytes() {
    let test = name_of(a_launch_outlasts_its_limit_while_its_rank_moves_bytes);
    if on_simulator(test).is_none() {
        return;
    }
    const BYTES: u64 = 1 << 10;
    let options = options().with_timeout(Some(LIMIT)).with_verification(false);
    let (meeting, goes_on) = (Barrier::new(2), AtomicBool::new(true));
    let outcomes = apart(&["a", "b"], &options, |rank| {
        let executor = Executor::new(&rank);
        let plan = executor.load(&exchange()).unwrap();
        let stage = || {
            let memory = [rank.allocate(BYTES).unwrap(), rank.allocate(BYTES).unwrap()];
            (rank.stream().unwrap(), memory)
        };
        let ((first, of_first), (second, of_second)) = (stage(), stage());
        let launch = |stream: &Arc<dyn Stream>, [input, output]: &[Arc<dyn Memory>; 2]| {
            let (from, to) = ((input.address().cast_const(), BYTES), (output.address(), BYTES));
            // SAFETY: both are `BYTES` long, and outlive the stream's work, which the rank waits for.
            unsafe { executor.execute(&Call::new(&plan, DataType::U32, from, to), stream) }
        };
        let exchanged = || {
            launch(&second, &of_second)?;
            executor.synchronize(&second)
        };
        // The limit is not for what the other rank makes before.
        meeting.wait();
        // What is the first stream of the one rank is that of the other.
        launch(&first, &of_first)?;
        executor.synchronize(&first)?;
        let leads = rank.rank() == 0;
        if leads {
            launch(&first, &of_first)?;
        }
        let (began, mut outcome) = (Instant::now(), Ok(()));
        loop {
            if leads {
                goes_on.store(began.elapsed() < 2 * LIMIT, Ordering::Relaxed);
            }
            meeting.wait();
            let again = goes_on.load(Ordering::Relaxed);
            meeting.wait();
            if !again {
                break;
            }
            outcome = outcome.and_then(|()| exchanged());
        }
        outcome?;
        if !leads {
            launch(&first, &of_first)?;
        }
        executor.synchronize(&first)
    });
    for outcome in outcomes {
        outcome.unwrap();
    }
}

#[test]
fn ranks_of_several_nodes_that_call_different_things_are_told_so() {
    let test = name_of(ranks_of_several_nodes_that_call_different_things_are_told_so);
    if on_simulator(test).is_none() {
        return;
    }
    let errors = apart(&["a", "b"], &options(), |rank| {
        let bytes = if rank.rank() == 0 { 4096 } else { 2048 };
        call(&rank, &exchange(), bytes).unwrap_err()
    });
    let mismatch = |error: &&ExecutorError| matches!(error, ExecutorError::Mismatch { .. });
    let text = errors.iter().find(mismatch).unwrap_or_else(|| panic!("{errors:?}")).to_string();
    for part in ["4096 bytes in", "2048 bytes in"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Every rank keeps what it has.
fn alone() -> Plan {
    let program = ProgramBuilder::new("alone", Collective::Test, 2).chunk_counts(1, 1);
    for rank in 0..2 {
        program.block(rank).copy(program.input(rank).all(), program.output(rank).all());
    }
    program.build().unwrap()
}

#[test]
fn ranks_of_other_nodes_hear_of_a_call_that_has_nothing_to_do_with_them() {
    let test = name_of(ranks_of_other_nodes_hear_of_a_call_that_has_nothing_to_do_with_them);
    if on_simulator(test).is_none() {
        return;
    }
    let errors = apart(&["a", "b"], &options(), |rank| {
        call(&rank, &exchange(), 4096).unwrap();
        if rank.rank() == 0 {
            call(&rank, &alone(), 4096).unwrap();
        }
        // Both ranks have one device: nothing is prepared beside a kernel that waits.
        rank.barrier().unwrap();
        match rank.rank() {
            0 => await_failure(&rank),
            _ => call(&rank, &exchange(), 4096).unwrap_err(),
        }
    });
    // Nothing but the record of its call tells the other rank.
    let text = errors[1].to_string();
    assert!(matches!(errors[1], ExecutorError::Mismatch { .. }), "{text}");
    assert!(text.contains("`alone`") && text.contains("`exchange`"), "{text}");
}

/// Rank 2 writes to rank 0's scratch while rank 0, of whose completion it knows, still sends rank 1 what lay there when the sizes were
/// others.
#[test]
fn what_is_sent_of_scratch_is_kept_from_ranks_that_the_sender_has_told_of_its_end() {
    let test =
        name_of(what_is_sent_of_scratch_is_kept_from_ranks_that_the_sender_has_told_of_its_end);
    // The processor reads and writes the buffers.
    if on_simulator_alone(test, &[]).is_none() {
        return;
    }
    let program = ProgramBuilder::new("sends on", Collective::SendRecv, 3);
    let (sent, come, scratch) = ([program.port(0, 1)], [program.port(2, 0)], program.scratch(0, 2));
    let (sends, writes) = (program.block(0), program.block(2));
    writes.put_over(&come[0], program.input(2).all(), scratch.chunk(1));
    writes.signal(&come);
    sends.wait(&come);
    sends.copy(program.input(0).all(), scratch.chunk(0));
    sends.put_over(&sent[0], scratch.chunk(0), program.output(1).all());
    sends.signal(&sent);
    program.block(1).wait(&sent);
    let plan = program.build().unwrap();
    // Of one class, so that their scratch may be one; and what is written in the second lies where the first is sent from last.
    let sizes: [u64; 2] = [15 << 18, 9 << 18];
    let results = apart(&["a", "b", "c"], &options().with_verification(false), |rank| {
        let executor = Executor::new(&rank);
        let plan = executor.load(&plan).unwrap();
        let stream = rank.stream().unwrap();
        let [input, output] = [(); 2].map(|()| rank.allocate(sizes[0]).unwrap());
        let [from, to] = [&input, &output].map(|memory| memory.address());
        let mut seen = Ok(());
        for round in 0..8 {
            let bytes = sizes[round % 2];
            // SAFETY: of the simulator, so the host's, as long, and in no launch.
            unsafe {
                from.write_bytes(1 + round as u8 + 16 * rank.rank() as u8, sizes[0] as usize)
            };
            let call = Call::new(&plan, DataType::F32, (from.cast_const(), bytes), (to, bytes));
            // SAFETY: the buffers outlive the launch, whose end is waited for.
            unsafe { executor.execute(&call, &stream) }.unwrap();
            executor.synchronize(&stream).unwrap();
            if round < 2 {
                // All ranks have one device: nothing is prepared beside a kernel that waits.
                rank.barrier().unwrap();
            }
            // SAFETY: of the simulator, so the host's, at least as long, and the launch is over.
            let got = unsafe { std::slice::from_raw_parts(to.cast_const(), bytes as usize) };
            let wrong = got.iter().filter(|&&byte| byte != 1 + round as u8).count();
            if rank.rank() == 1 && wrong > 0 {
                seen = seen.and(Err(format!("{wrong} of {bytes} bytes in round {round}")));
            }
        }
        seen
    });
    assert_eq!(results, [(); 3].map(Ok));
}

/// Both ranks have entered a launch, in which each waits for the other, when the sockets between them break.
#[test]
fn a_link_that_breaks_under_a_launch_ends_it() {
    if on_simulator(name_of(a_link_that_breaks_under_a_launch_ends_it)).is_none() {
        return;
    }
    let program = ProgramBuilder::new("both wait", Collective::SendRecv, 2);
    for (from, to) in [(0, 1), (1, 0)] {
        let port = program.port(from, to);
        let (source, destination) = (program.input(from).all(), program.output(to).all());
        program.block(from).put_with_signal(&port, source, destination);
        program.block(to).wait(&[port]);
    }
    let mut plan = program.build().unwrap();
    // What says that it has come is left out.
    let blocks = plan.gpus.iter_mut().flat_map(|gpu| &mut gpu.threadblocks);
    let puts = blocks.flat_map(|block| &mut block.ops);
    puts.filter(|op| op.kind == OpKind::PutWithSignal).for_each(|op| op.kind = OpKind::Put);
    let options = options().with_verification(false);
    let entered = Barrier::new(2);
    let errors = apart(&["a", "b"], &options, |rank| {
        call(&rank, &exchange(), 64).unwrap();
        let executor = Executor::new(&rank);
        let plan = executor.load(&plan).unwrap();
        let stream = rank.stream().unwrap();
        let buffers = [(); 2].map(|()| rank.allocate(64).unwrap());
        let [from, to] = buffers.each_ref().map(|memory| memory.address());
        let call = Call::new(&plan, DataType::F32, (from.cast_const(), 64), (to, 64));
        // SAFETY: the buffers outlive the launch, whose end is waited for.
        unsafe { executor.execute(&call, &stream) }.unwrap();
        entered.wait();
        if rank.rank() == 0 {
            // Time in which each hears of the other's call.
            std::thread::sleep(Duration::from_millis(500));
            assert!(break_connections() > 0);
        }
        executor.synchronize(&stream).unwrap_err()
    });
    for error in errors {
        let links =
            matches!(error.cause(), ExecutorError::Link { .. } | ExecutorError::Aborted { .. });
        assert!(links && error.to_string().contains("waits at"), "{error}");
    }
}

/// Shuts down all network connections of this process; how many there were.
fn break_connections() -> usize {
    use rustix::net::{AddressFamily, Shutdown, getpeername, shutdown};
    let mut broken = 0;
    for entry in std::fs::read_dir("/proc/self/fd").unwrap() {
        let number = entry.unwrap().file_name().to_str().unwrap().parse().unwrap();
        // SAFETY: asked what it is, and shut down if it is one of the wire's, whose links find that it is.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        let peer = getpeername(descriptor).ok().flatten().map(|peer| peer.address_family());
        if peer.is_some_and(|of| [AddressFamily::INET, AddressFamily::INET6].contains(&of)) {
            broken += usize::from(shutdown(descriptor, Shutdown::Both).is_ok());
        }
    }
    broken
}

#[test]
fn the_death_of_a_rank_of_another_node_ends_waits_for_it() {
    if on_simulator(name_of(the_death_of_a_rank_of_another_node_ends_waits_for_it)).is_none() {
        return;
    }
    kill_on(name_of(rank_whose_peer_dies), [Some("a"), Some("b")]);
}

/// A process of the test above.
#[test]
fn rank_whose_peer_dies() {
    await_death(&sum(false));
}
