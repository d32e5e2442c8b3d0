//! Ranks as processes: what happens when one dies, what is left behind, and memory that comes and goes.

use antiphon::executor::{Call, Collectives, Communicator, Executor, ExecutorError};
use antiphon::plan::algorithms::{Algorithm, Shape};
use antiphon::plan::model::Plan;
use antiphon::{DataType, ReduceOp};
use antiphon_tests::harness::plans::buffers;
use antiphon_tests::harness::processes::{Ranks, Role, role};
use antiphon_tests::harness::{Area, Case, Random, Source, options, run_case, seed};
use antiphon_tests::{name_of, until};
use rustix::process::{Signal, getpid, kill_process};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::{Duration, Instant};

fn plan(algorithm: Algorithm, ranks: u32) -> Plan {
    algorithm.plan(Shape::new(ranks as usize)).unwrap()
}

/// What a rank says on its standard output when its peers may start to count on it.
const RUNNING: &str = "@running";

/// Names of the files in /dev/shm.
fn shared_memory_files() -> BTreeSet<String> {
    let Ok(folder) = std::fs::read_dir("/dev/shm") else { return BTreeSet::new() };
    folder.flatten().map(|file| file.file_name().to_string_lossy().into_owned()).collect()
}

/// The processes with this one as their parent.
fn children() -> BTreeSet<u32> {
    let mut children = BTreeSet::new();
    for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let list = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        children.extend(list.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    children
}

/// Open descriptors and threads of this process.
fn descriptors_and_threads() -> (usize, usize) {
    let count = |folder: &str| std::fs::read_dir(folder).expect("/proc").count();
    (count("/proc/self/fd"), count("/proc/self/task"))
}

/// A rank that heard of the death by its time limit alone would say that its launch made no progress.
#[test]
fn the_others_hear_of_a_killed_rank_and_not_by_the_time_limit() {
    let before = shared_memory_files();
    for victim in [0, 2] {
        let mut ranks = Ranks::start(name_of(rank_of_a_job_that_is_killed), 4, &victim.to_string());
        let pids = ranks.pids();
        let mut lines = BufReader::new(ranks.output_of(victim).expect("its output")).lines();
        // The victim is inside its launches from here on.
        let running = lines.by_ref().flatten().any(|line| line.contains(RUNNING));
        assert!(running, "the victim ran");
        ranks.kill(victim);
        let outputs = ranks.wait();
        for (rank, output) in outputs.iter().enumerate() {
            if rank == victim as usize {
                continue;
            }
            let text = String::from_utf8_lossy(&output.stdout);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "victim {victim}, rank {rank}: {text}\n{said}");
            let named = format!("rank {victim} (pid {})", pids[victim as usize]);
            assert!(text.contains(&named), "victim {victim}, rank {rank}: {text}");
        }
        let left: Vec<u32> = pids.into_iter().filter(|pid| children().contains(pid)).collect();
        assert!(left.is_empty(), "victim {victim}: {left:?} still run");
    }
    let ours: Vec<String> = shared_memory_files().difference(&before).cloned().collect();
    let ours: Vec<_> = ours.iter().filter(|name| name.contains("antiphon")).collect();
    assert!(ours.is_empty(), "left in /dev/shm: {ours:?}");
}

/// One process of the test above: launches until a peer dies.
#[test]
fn rank_of_a_job_that_is_killed() {
    let Some(role) = role() else { return };
    let communicator = role.connect(&options()).unwrap();
    let plan = plan(Algorithm::AllReduceRing, communicator.world());
    let executor = Executor::new(&communicator);
    let loaded = executor.load(&plan).unwrap();
    let bytes = 256 << 10;
    let areas =
        [Source::Own, Source::Own].map(|source| Area::new(&communicator, source, bytes).unwrap());
    let call = Call {
        plan: &loaded,
        input: areas[0].address(),
        output: areas[1].address(),
        input_bytes: bytes,
        output_bytes: bytes,
        dtype: DataType::F32,
        op: Some(ReduceOp::Max),
        counts: None,
    };
    for launch in 0u64.. {
        // SAFETY: the areas have the call's lengths and outlive it.
        if let Err(error) = unsafe { executor.run(&call) } {
            let victim: u32 = role.job.parse().unwrap();
            println!("{error}");
            assert!(error.breaks_communicator());
            // Whoever hears of it first tells the others, in their place or before them.
            match error {
                ExecutorError::PeerLost { peer, .. } => assert_eq!(peer, victim),
                ExecutorError::Aborted { .. } => {}
                other => panic!("launch {launch}: {other}"),
            }
            return;
        }
        if launch == 20 {
            println!("{RUNNING}");
        }
    }
}

/// Starts processes that each run one of the jobs below, and demands that all succeed.
fn job(world: u32, name: &str) {
    Ranks::start(name_of(rank_of_a_job), world, name).succeed();
}

#[test]
fn buffers_may_be_freed_and_allocated_again_between_launches() {
    job(3, "fresh buffers");
}

#[test]
fn plain_memory_works_with_and_without_access_through_the_kernel() {
    for name in ["plain memory", "plain memory without access"] {
        job(2, name);
        job(4, name);
    }
}

#[test]
fn communicators_leave_no_descriptor_and_no_thread() {
    let before = shared_memory_files();
    job(2, "communicators come and go");
    let after = shared_memory_files();
    let left: Vec<_> = after.difference(&before).filter(|name| name.contains("antiphon")).collect();
    assert!(left.is_empty(), "left in /dev/shm: {left:?}");
}

#[test]
fn processes_that_call_different_things_are_told_so() {
    job(3, "differing calls");
}

/// One process of the tests above.
#[test]
fn rank_of_a_job() {
    let Some(role) = role() else { return };
    match role.job.as_str() {
        "fresh buffers" => fresh_buffers(&role),
        "plain memory" => plain_memory(&role, true),
        "plain memory without access" => plain_memory(&role, false),
        "communicators come and go" => come_and_go(&role),
        "differing calls" => differing_calls(&role),
        other => panic!("no job `{other}`"),
    }
}

fn case<'a>(plan: &'a Plan, elements: u64) -> Case<'a> {
    let case = Case::new(&plan.name, plan, buffers(plan, elements, 4));
    Case { launches: 1, reuse: true, ..case }
}

fn run(communicator: &Communicator, case: &Case<'_>) {
    let outcome = run_case(communicator, case).unwrap_or_else(|error| panic!("{error}; {case}"));
    assert_eq!(outcome.wrong, None);
}

/// Each launch has memory of its own, which is gone before the next one's is allocated: addresses come again as other
/// memory, of either kind.
fn fresh_buffers(role: &Role) {
    let communicator = role.connect(&options()).unwrap();
    let plans = [
        plan(Algorithm::AllReduceZeroCopy, 3),
        plan(Algorithm::AllGatherZeroCopy, 3),
        plan(Algorithm::AllToAllPackets, 3),
    ];
    let rank = communicator.rank();
    let mut own = Random::new(seed(), rank.into());
    let mut common = Random::new(seed(), 77);
    for _ in 0..60 {
        let plan = &plans[common.below(3) as usize];
        let elements = common.one_of(&[1, 100, 5_000, 70_000]);
        // Ranks differ in what they pass.
        let source = own.one_of(&[Source::Own, Source::Plain]);
        let mover = own.one_of(&[None, Some(rank)]);
        run(&communicator, &Case { source, mover, ..case(plan, elements) });
    }
}

fn plain_memory(role: &Role, access: bool) {
    let communicator = role.connect(&options().with_process_access(access)).unwrap();
    let world = communicator.world();
    for algorithm in [
        Algorithm::AllReduceZeroCopy,
        Algorithm::AllReduceRing,
        Algorithm::AllGatherZeroCopy,
        Algorithm::ReduceScatterZeroCopy,
        Algorithm::AllToAllZeroCopy,
    ] {
        let plan = plan(algorithm, world);
        // The second is large enough for the way through the kernel.
        for elements in [25, (3 << 20) / u64::from(world) + 1] {
            let source = Source::Plain;
            let launches = if elements == 25 { 20 } else { 2 };
            run(&communicator, &Case { source, launches, ..case(&plan, elements) });
            let in_place = algorithm.plan(Shape { in_place: true, ..Shape::new(world as usize) });
            let in_place = in_place.unwrap();
            run(&communicator, &Case { source, ..case(&in_place, elements) });
        }
    }
}

fn come_and_go(role: &Role) {
    let all = role.connect(&options()).unwrap();
    let plan = plan(Algorithm::AllReduceTwoShotPackets, 2);
    let mut first = None;
    for _ in 0..12 {
        let group = all.split(Some(0), all.rank()).unwrap().expect("a group");
        run(&group, &Case { launches: 3, mover: Some(0), mixed: true, ..case(&plan, 1000) });
        drop(group);
        all.barrier().unwrap();
        // What the first round sets up once for the process may stay.
        first = first.or(Some(settled()));
    }
    let (first, began) = (first.expect("a round"), Instant::now());
    loop {
        let last = descriptors_and_threads();
        if last.0 <= first.0 + 2 && last.1 <= first.1 {
            break;
        }
        // What the last round had may be on its way out.
        let waited = began.elapsed() > Duration::from_secs(20);
        assert!(!waited, "descriptors, threads: {first:?}, then {last:?}");
        std::thread::yield_now();
    }
}

/// Descriptors and threads once no thread is on its way out any more, or after a second.
fn settled() -> (usize, usize) {
    let began = Instant::now();
    let mut before = descriptors_and_threads();
    let mut same = 0;
    while same < 20 && began.elapsed() < Duration::from_secs(1) {
        std::thread::yield_now();
        let now = descriptors_and_threads();
        same = if now == before { same + 1 } else { 0 };
        before = now;
    }
    before
}

fn differing_calls(role: &Role) {
    let communicator = role.connect(&options()).unwrap();
    let plan = plan(Algorithm::AllReduceZeroCopy, 3);
    let elements = if communicator.rank() == 1 { 64 } else { 100 };
    let error = run_case(&communicator, &case(&plan, elements)).expect_err("ranks differ");
    // Not that it made no progress.
    let kind = matches!(error, ExecutorError::Mismatch { .. } | ExecutorError::Aborted { .. });
    let text = error.to_string();
    assert!(kind && text.contains("400 bytes in") && text.contains("256 bytes in"), "{text}");
}

/// Programs end without a word after their last call: those that get all that they need of it are not hurt, however late they come to
/// it, and the next call says who is missing.
#[test]
fn a_rank_that_ends_after_its_last_call_ends_no_other_in_it() {
    Ranks::start(name_of(rank_beside_one_that_ends), 3, "exit").succeed();
    Ranks::start(name_of(rank_beside_one_that_ends), 3, "kill").succeed_but_for(1);
}

/// One process of the test above.
#[test]
fn rank_beside_one_that_ends() {
    let Some(role) = role() else { return };
    let communicator = role.connect(&options()).unwrap();
    let rank = communicator.rank();
    let executor = Executor::new(&communicator);
    let plan = executor.load(&plan(Algorithm::BroadcastPackets, 3)).unwrap();
    let (input, mut output) = ([rank as f32 + 1.0; 100], [0f32; 100]);
    let (from, to) = ((input.as_ptr().cast(), 400), (output.as_mut_ptr().cast(), 400));
    let call = Call::new(&plan, DataType::F32, from, to);
    if rank == 2 {
        await_end_of(communicator.pid_of(1).unwrap());
    }
    // SAFETY: the buffers have the call's lengths and outlive it.
    unsafe { executor.run(&call) }.unwrap();
    if rank == 1 {
        match role.job.as_str() {
            "exit" => std::process::exit(0),
            _ => kill_process(getpid(), Signal::KILL).unwrap(),
        }
    }
    assert_eq!(output, [1.0; 100]);
    // The root need not hear from the one that ended, until its end is known.
    let error = loop {
        // SAFETY: as above.
        if let Err(error) = unsafe { executor.run(&call) } {
            break error;
        }
    };
    match error {
        ExecutorError::PeerLost { peer, .. } => assert_eq!(peer, 1, "{error}"),
        // By whoever found out first.
        ExecutorError::Aborted { ref reason, .. } => assert!(reason.contains("rank 1"), "{error}"),
        error => panic!("{error}"),
    }
}

/// Also to ranks of other hosts, which see nothing of it.
#[test]
fn a_process_that_ends_says_goodbye() {
    for hosts in [["one", "one"], ["one", "other"]] {
        Ranks::start_on(name_of(rank_that_is_left), &hosts.map(Some), "").succeed();
    }
}

/// One process of the test above.
#[test]
fn rank_that_is_left() {
    let Some(role) = role() else { return };
    let communicator = role.connect(&options()).unwrap();
    communicator.exchange(b"").unwrap();
    if communicator.rank() == 1 {
        std::process::exit(0);
    }
    let error = communicator.exchange(b"").unwrap_err().to_string();
    assert!(error.contains("rank 1") && error.contains("has left"), "{error}");
    assert_eq!(communicator.failure().map(|error| error.to_string()), None);
}

/// Between ranks of different hosts, which have no link before they need one.
#[test]
fn a_rank_of_another_host_that_has_let_go_of_a_communicator_is_not_waited_for() {
    let hosts = ["one", "two", "three"].map(Some);
    Ranks::start_on(name_of(rank_beside_one_that_lets_go), &hosts, "").succeed();
}

/// One process of the test above.
#[test]
fn rank_beside_one_that_lets_go() {
    let Some(role) = role() else { return };
    let whole = role.connect(&options()).unwrap();
    let part = whole.split(Some(0), whole.rank()).unwrap().unwrap();
    let part = Some(part).filter(|part| part.rank() != 2);
    whole.barrier().unwrap();
    if let Some(part) = part.filter(|part| part.rank() == 1) {
        let on = Collectives::new(&part).unwrap();
        let mut byte = 7u8;
        // SAFETY: the byte outlives the calls.
        let sent = unsafe { on.send(&7u8, 1, DataType::U8, 2, None) };
        // SAFETY: as above.
        let received = unsafe { on.receive(&mut byte, 1, DataType::U8, 2, None) };
        for error in [sent.unwrap_err(), received.unwrap_err()] {
            let text = error.to_string();
            assert!(text.contains("rank 2") && text.contains("has left"), "{text}");
        }
    }
    whole.barrier().unwrap();
}

/// Waits until a process runs no more: nobody may have asked yet how it ended.
fn await_end_of(pid: u32) {
    let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat"));
    until("the process to end", || !stat().is_ok_and(|stat| !stat.contains(") Z ")));
}

/// The harness's own promise: without access to /proc the checks above would check nothing.
#[test]
fn what_is_left_behind_can_be_seen() {
    assert!(Path::new("/proc/self/fd").is_dir());
    let ranks = Ranks::start("rank_of_nothing", 1, "");
    let pid = ranks.pids()[0];
    assert!(children().contains(&pid));
    drop(ranks);
    assert!(!children().contains(&pid));
}
