//! Every plan there is gives the right result, as threads and as processes: the examples, and where they are the
//! plans of another implementation with the verdicts of their table. Defective plans end with errors that say why.

use antiphon::executor::{Call, Communicator, Executor, ExecutorError, Options};
use antiphon::{DataType, ReduceOp};
use antiphon_tests::harness::plans::{buffers, sizes};
use antiphon_tests::harness::processes::{Ranks, role};
use antiphon_tests::harness::{
    Area, Case, Entry, Source, Verdict, assert_verdict, entries, on_hosts, on_threads, options,
    report, right, run_case, run_cases, run_plans, seed,
};
use antiphon_tests::name_of;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Launches of each case, back to back.
const LAUNCHES: u32 = 20;
const DTYPES: [DataType; 2] = [DataType::F32, DataType::Bf16];

/// Whether the table of verdicts calls a plan right in which touches of memory race: the table was sampled. Some race
/// only with a user who rewrites a buffer while a transfer still reads it.
fn races(entry: &Entry) -> bool {
    let names = ["unit_tests.put.put_fuse_test.json", "multi_node.reducescatter-ge2.json"];
    names.contains(&&*entry.name) || entry.name.starts_with("multi_node.send_recv-")
}

/// All cases of a plan.
fn cases(entry: &Entry, seed: u64) -> Vec<(&'static str, Case<'_>)> {
    let mut cases = Vec::new();
    for (number, dtype) in DTYPES.into_iter().enumerate() {
        let all = sizes(&entry.plan, dtype.size() as u64);
        for (position, (what, elements)) in all.into_iter().enumerate() {
            let shape = buffers(&entry.plan, elements, dtype.size() as u64);
            let odd = (position + number) % 2 == 1;
            let case = Case {
                dtype,
                launches: LAUNCHES,
                mover: Some((position as u32 + 1) % entry.ranks()),
                source: if odd { Source::Plain } else { Source::Own },
                mixed: true,
                reuse: entry.settled && !odd,
                seed: seed + position as u64,
                ..Case::new(&entry.name, &entry.plan, shape)
            };
            cases.push((what, case));
        }
    }
    cases
}

/// Runs all cases of a plan as one rank; what is wrong.
fn run_all(communicator: &Communicator, entry: &Entry, seed: u64) -> Vec<String> {
    run_cases(communicator.rank(), cases(entry, seed), |case| run_case(communicator, case))
}

#[test]
fn every_right_plan_gives_the_right_result_on_threads() {
    let seed = seed();
    println!("seed {seed}");
    let mut failures = Vec::new();
    for entry in right() {
        let start = Instant::now();
        // What races is refused, and runs all the same if nobody looks.
        let options = options().with_verification(!races(&entry));
        let ranks = on_threads(entry.ranks(), &options, |communicator| {
            run_all(&communicator, &entry, seed)
        });
        failures.extend(ranks.unwrap().into_iter().flatten());
        println!("{:>8.1?} {}", start.elapsed(), entry.name);
    }
    report(&failures);
}

#[test]
fn every_right_plan_gives_the_right_result_in_processes() {
    let seed = seed();
    println!("seed {seed}");
    let worlds: BTreeSet<u32> = right().map(|entry| entry.ranks()).collect();
    for world in worlds {
        let start = Instant::now();
        Ranks::start(name_of(rank_of_every_right_plan), world, &seed.to_string()).succeed();
        println!("{:>8.1?} all plans of {world} ranks", start.elapsed());
    }
}

/// One process of the test above.
#[test]
fn rank_of_every_right_plan() {
    let Some(role) = role() else { return };
    let seed: u64 = role.job.parse().unwrap();
    let world = role.rendezvous.world;
    let all = role.connect(&options()).unwrap();
    let pids = all.exchange(&std::process::id().to_le_bytes()).unwrap();
    let distinct: BTreeSet<&Vec<u8>> = pids.iter().collect();
    assert_eq!(distinct.len(), world as usize, "each rank is a process of its own");
    let plans = right().filter(|entry| !races(entry));
    run_plans(&all, plans, |rank, entry| run_all(rank, entry, seed));
}

/// What defective plans run with: little patience, and nobody who refuses them.
fn unverified(limit: Duration) -> Options {
    Options::default().with_timeout(Some(limit)).with_verification(false)
}

/// Runs a plan once on threads with little patience: each rank's error or mismatch.
fn run_once(entry: &Entry, limit: Duration) -> Vec<Result<Option<String>, ExecutorError>> {
    let elements = sizes(&entry.plan, 4)[0].1;
    let case = Case::new(&entry.name, &entry.plan, buffers(&entry.plan, elements, 4));
    let case = Case { launches: 2, ..case };
    let options = unverified(limit);
    on_threads(entry.ranks(), &options, |communicator| {
        run_case(&communicator, &case).map(|outcome| outcome.wrong)
    })
    .unwrap()
}

/// Launches a plan twice on threads with little patience, with no barrier of ranks that are through.
fn launch_twice(entry: &Entry, limit: Duration) -> Vec<Result<(), ExecutorError>> {
    let bytes = buffers(&entry.plan, sizes(&entry.plan, 4)[0].1, 4);
    let options = unverified(limit);
    let ranks = on_threads(entry.ranks(), &options, |communicator| {
        let executor = Executor::new(&communicator);
        let loaded = executor.load(&entry.plan)?;
        let areas = [bytes.input, bytes.output]
            .map(|bytes| Area::new(&communicator, Source::Own, bytes).expect("memory"));
        let call = Call {
            plan: &loaded,
            input: areas[0].address(),
            output: areas[1].address(),
            input_bytes: bytes.input,
            output_bytes: bytes.output,
            dtype: DataType::F32,
            op: None,
            counts: None,
        };
        let launch = || {
            // SAFETY: the areas have the call's lengths, and outlive it.
            unsafe { executor.run(&call) }
        };
        let outcome = launch().and_then(|()| launch());
        // What peers map stays until nobody can be using it.
        Ok((communicator, areas, outcome))
    });
    let ranks = ranks.expect("communicators");
    ranks.into_iter().map(|rank: Result<_, ExecutorError>| rank.and_then(|(.., it)| it)).collect()
}

#[test]
fn a_deadlocking_plan_ends_with_who_waits_for_whom() {
    let deadlocks = entries().into_iter().filter(|entry| entry.verdict == Verdict::Deadlock);
    for entry in deadlocks {
        let name = &entry.name;
        let start = Instant::now();
        let ranks = launch_twice(&entry, Duration::from_millis(300));
        let took = start.elapsed();
        assert!(took < Duration::from_secs(10), "{name}: took {took:?} for a limit of 300 ms");
        let mut texts = Vec::new();
        let mut through = Vec::new();
        let mut stalled = 0;
        for (rank, result) in ranks.into_iter().enumerate() {
            match result {
                Ok(()) => through.push(rank),
                Err(error @ ExecutorError::Stalled { .. }) => {
                    stalled += 1;
                    texts.push(error.to_string());
                }
                Err(error @ ExecutorError::Aborted { .. }) => texts.push(error.to_string()),
                Err(other) => panic!("{name}: rank {rank}: {other}"),
            }
        }
        assert!(stalled > 0, "{name}: {texts:?}");
        for text in &texts {
            for word in ["rank ", "block ", "waits at op "] {
                assert!(text.contains(word), "{name}: `{word}` is missing in: {text}");
            }
            let peer = ["from rank", "for rank", "own rank", "no rank writes"];
            assert!(peer.iter().any(|peer| text.contains(peer)), "{name}: no peer in: {text}");
            // Only a rank that waits for nobody is through.
            for rank in &through {
                assert!(!text.contains(&format!("rank {rank} block")), "{name}: {text}");
            }
        }
        println!("{name}: {}", texts[0]);
    }
}

#[test]
fn a_wrong_plan_is_found_to_be_wrong() {
    for entry in entries() {
        if entry.verdict != Verdict::Wrong {
            continue;
        }
        let ranks = run_once(&entry, Duration::from_secs(5));
        let found = ranks.iter().flatten().flatten().next();
        let text = found.unwrap_or_else(|| panic!("{}: no mismatch in {ranks:?}", entry.name));
        assert!(text.contains("expected"), "{text}");
        println!("{text}");
    }
}

#[test]
fn a_plan_is_loaded_or_refused_as_the_verifier_says() {
    for entry in entries() {
        let ranks = on_threads(entry.ranks(), &options(), |communicator| {
            let loaded = Executor::new(&communicator).load(&entry.plan);
            (loaded.map(|loaded| loaded.verdict().clone()), communicator.failure())
        });
        for (loaded, failure) in ranks.unwrap() {
            let defective = matches!(entry.verdict, Verdict::Deadlock | Verdict::Wrong);
            let refused = matches!(loaded, Err(ExecutorError::Refuted { .. }));
            assert_eq!(refused, defective || races(&entry), "{}", entry.name);
            assert_verdict(&entry.plan, loaded);
            assert!(failure.is_none(), "{}: a refusal breaks nothing", entry.name);
        }
    }
}

#[test]
fn every_right_plan_with_ports_gives_the_right_result_across_hosts() {
    let seed = seed();
    println!("seed {seed}");
    let mut failures = Vec::new();
    for entry in right().filter(Entry::uses_ports) {
        let start = Instant::now();
        let nodes: Vec<String> = entry.nodes().iter().map(u32::to_string).collect();
        let hosts: Vec<&str> = nodes.iter().map(String::as_str).collect();
        let options = options().with_verification(!races(&entry));
        let ranks = on_hosts(&hosts, &options, |communicator| {
            let failures = run_all(&communicator, &entry, seed);
            (failures, communicator.links())
        });
        let distinct: BTreeSet<&str> = hosts.iter().copied().collect();
        for (rank, (wrong, links)) in ranks.unwrap().into_iter().enumerate() {
            failures.extend(wrong);
            for link in links {
                let near = hosts[rank] == hosts[link.peer as usize];
                assert_eq!(link.wire == "local", near, "{rank}: {link:?}");
            }
        }
        println!("{:>8.1?} {} on {} hosts", start.elapsed(), entry.name, distinct.len());
    }
    report(&failures);
}

#[test]
fn a_plan_can_be_reduced_with_the_callers_operator() {
    let others = |op| ReduceOp::ALL.into_iter().filter(move |&other| other != op);
    let Some(entry) = right().find(|entry| entry.name == "allreduce_zero_copy_4.json") else {
        panic!("the example is gone")
    };
    for op in others(ReduceOp::Sum) {
        let case = Case { op: Some(op), ..cases(&entry, seed())[2].1 };
        let ranks = on_threads(4, &options(), |communicator| run_case(&communicator, &case));
        for outcome in ranks.unwrap() {
            assert_eq!(outcome.unwrap().wrong, None);
        }
    }
}
