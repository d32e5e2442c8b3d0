//! Ranks with a cache of their own each are to the table what processes are. What the verifier says is injected.

use super::*;
use crate::sync::logger;
use crate::{Call, Communicator, Executor, ExecutorError, LoadedPlan, Options, Rendezvous};
use antiphon_plan::algorithms::{Algorithm, Shape};
use antiphon_plan::builder::ProgramBuilder;
use antiphon_plan::model::Collective;
use antiphon_plan::program::CallSizes;
use antiphon_plan::schedule::{Case, Schedule};
use antiphon_plan::verify::Fault;
use antiphon_types::{DataType, ReduceOp};
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};

/// Something to load, for each `number` another plan.
fn plan(number: usize) -> Plan {
    let program = ProgramBuilder::new(format!("plan {number}"), Collective::SendRecv, 2);
    program.scratch(1, 1 + number);
    program.block(1).copy(program.input(1).all(), program.output(1).all());
    program.build().unwrap()
}

impl Door {
    /// A door of a process of its own.
    fn with(verifier: impl Fn(&Plan, &Layout) -> Judgement + Send + Sync + 'static) -> Door {
        Door { cache: Arc::default(), verifier: Arc::new(verifier) }
    }
}

fn options() -> Options {
    Options::default().with_timeout(Some(Duration::from_secs(20)))
}

fn pair(options: &Options) -> [Communicator; 2] {
    Communicator::in_process(2, options).unwrap().try_into().unwrap()
}

fn refused(loaded: Result<Arc<LoadedPlan>, ExecutorError>) -> String {
    match loaded {
        Err(error @ ExecutorError::Refuted { .. }) => {
            assert!(!error.breaks_communicator());
            error.to_string()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_of_many_ranks_verifies_and_all_take_its_word() {
    const WORLD: u32 = 4;
    for own_processes in [false, true] {
        let judgements = [
            Judgement::Proven(Scope::default()),
            Judgement::NotProven("too long to tell".into(), Scope::default()),
            Judgement::Refuted("deadlock: for ever".into()),
        ];
        for judgement in judgements {
            let ranks = Communicator::in_process(WORLD, &options()).unwrap();
            let asked = Arc::new(AtomicU32::new(0));
            let door = || {
                let (asked, judgement) = (Arc::clone(&asked), judgement.clone());
                Door::with(move |_, _| {
                    asked.fetch_add(1, Ordering::Relaxed);
                    judgement.clone()
                })
            };
            let program = ProgramBuilder::new("shared", Collective::SendRecv, WORLD as usize);
            let plan = program.build().unwrap();
            let one = door();
            let together = Barrier::new(WORLD as usize);
            std::thread::scope(|scope| {
                for communicator in &ranks {
                    let door = if own_processes { door() } else { one.clone() };
                    let (together, plan, judgement) = (&together, &plan, &judgement);
                    scope.spawn(move || {
                        let executor = Executor::behind(communicator, door);
                        together.wait();
                        let loaded = executor.load(plan);
                        match judgement {
                            Judgement::Proven(_) => {
                                assert_eq!(*loaded.unwrap().verdict(), Verdict::Proven);
                            }
                            Judgement::NotProven(why, _) => {
                                let expected = Verdict::NotProven(why.clone());
                                assert_eq!(*loaded.unwrap().verdict(), expected);
                            }
                            Judgement::Refuted(_) => {
                                let text = refused(loaded);
                                for word in ["`shared`", "deadlock: for ever", "plan verify", "off"]
                                {
                                    assert!(text.contains(word), "no `{word}` in: {text}");
                                }
                            }
                        }
                    });
                }
            });
            assert_eq!(asked.load(Ordering::Relaxed), 1, "{judgement:?}, {own_processes}");
            assert!(ranks.iter().all(|rank| rank.failure().is_none()));
        }
    }
}

#[test]
fn ranks_may_load_different_plans_in_different_orders() {
    let ranks = pair(&options());
    let asked = Arc::new(AtomicU32::new(0));
    let together = Barrier::new(2);
    std::thread::scope(|scope| {
        for (rank, communicator) in ranks.iter().enumerate() {
            let (asked, together) = (Arc::clone(&asked), &together);
            scope.spawn(move || {
                let door = Door::with(move |plan, _| {
                    asked.fetch_add(1, Ordering::Relaxed);
                    Judgement::NotProven(plan.name.as_str().into(), Scope::default())
                });
                let executor = Executor::behind(communicator, door);
                // More plans than verdicts are shared: some are verified twice, none waits for ever.
                let all = (0..40).map(|at| if rank == 0 { at } else { 39 - at });
                together.wait();
                for number in all {
                    let plan = plan(number);
                    let expected = Verdict::NotProven(plan.name.as_str().into());
                    assert_eq!(*executor.load(&plan).unwrap().verdict(), expected);
                }
            });
        }
    });
    let asked = asked.load(Ordering::Relaxed);
    assert!((40..=48).contains(&asked), "{asked}: 32 plans are verified once");
}

#[test]
fn without_verification_nobody_is_asked() {
    let ranks = pair(&options().with_verification(false));
    let door = Door::with(|_, _| panic!("asked"));
    let loaded = Executor::behind(&ranks[0], door).load(&plan(0)).unwrap();
    assert_eq!(*loaded.verdict(), Verdict::NotVerified);
}

#[test]
fn a_plan_that_cannot_be_run_anyway_is_not_verified() {
    let ranks = Communicator::in_process(3, &options()).unwrap();
    let door = Door::with(|_, _| panic!("asked"));
    let error = Executor::behind(&ranks[0], door).load(&plan(0)).unwrap_err();
    assert!(matches!(error, ExecutorError::World { .. }), "{error}");
}

/// Rank 1 loads a plan, in a process of its own, while rank 0 has claimed it and says nothing.
fn while_the_other_verifies(options: &Options, disturb: impl Fn(&[Communicator; 2])) {
    let ranks = pair(options);
    let key = Key::of(LoadedPlan::new(&plan(0)).unwrap().layout());
    let Look::Claimed(claim) = ranks[0].shared.verdicts().look(key) else { panic!("claimed") };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let door = Door::with(|_, _| Judgement::NotProven("my own".into(), Scope::default()));
            Executor::behind(&ranks[1], door).load(&plan(0)).unwrap()
        });
        disturb(&ranks);
        let loaded = other.join().unwrap();
        assert_eq!(*loaded.verdict(), Verdict::NotProven("my own".into()));
    });
    claim.publish(&Judgement::Proven(Scope::default()));
}

#[test]
fn a_process_warns_once_of_a_plan_that_is_not_proven() {
    let (told, said) = std::sync::mpsc::channel();
    logger::hears(told);
    let load = |options: &Options, name: &str, judgement: Judgement| {
        let mut plan = plan(0);
        plan.name = name.to_owned();
        let door = Door::with(move |_, _| judgement.clone());
        for rank in &pair(options) {
            let executor = Executor::behind(rank, door.clone());
            (0..2).for_each(|_| drop(executor.load(&plan).unwrap()));
        }
    };
    let doubt = || Judgement::NotProven("too many orders; ".repeat(100).into(), Scope::default());
    load(&options(), "doubtful", doubt());
    load(&options().with_verification(false), "unseen", doubt());
    load(&options(), "right", Judgement::Proven(Scope::default()));
    let said: Vec<String> = said.try_iter().collect();
    let of = |name: &str| {
        let name = format!("plan `{name}`");
        said.iter().filter(move |text| text.contains(&name)).cloned().collect::<Vec<_>>()
    };
    let [warning] = &of("doubtful")[..] else { panic!("{said:?}") };
    for part in ["not proven", "too many orders; too many orders", " …", "antiphon plan verify"] {
        assert!(warning.contains(part), "no {part:?} in: {warning}");
    }
    assert!(warning.len() < 600, "{} bytes: {warning}", warning.len());
    assert!(of("unseen").is_empty() && of("right").is_empty(), "{said:?}");
}

#[test]
fn nobody_waits_for_a_verdict_beyond_the_time_limit() {
    let short = options().with_timeout(Some(Duration::from_millis(50)));
    while_the_other_verifies(&short, |_| ());
}

#[test]
fn an_abort_ends_the_wait_for_a_verdict() {
    let endless = options().with_timeout(None);
    while_the_other_verifies(&endless, |ranks| ranks[0].abort("enough"));
}

#[test]
fn when_the_one_that_verifies_panics_the_next_one_does() {
    let ranks = pair(&options());
    let failing = Executor::behind(&ranks[0], Door::with(|_, _| panic!("a fault of the verifier")));
    let load = std::panic::AssertUnwindSafe(|| failing.load(&plan(0)));
    assert!(std::panic::catch_unwind(load).is_err());
    let next = Executor::behind(&ranks[1], Door::with(|_, _| Judgement::Proven(Scope::default())));
    assert_eq!(*next.load(&plan(0)).unwrap().verdict(), Verdict::Proven);
}

#[test]
fn equal_plans_of_two_names_share_a_verdict() {
    let ranks = pair(&options());
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    let door = Door::with(move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
        Judgement::Refuted("a race".into())
    });
    let executor = Executor::behind(&ranks[0], door);
    let renamed = Plan { name: "another name".into(), ..plan(0) };
    for plan in [plan(0), renamed] {
        let text = refused(executor.load(&plan));
        assert!(text.contains(&plan.name), "{text}");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

const ADDRESS: &str = "ANTIPHON_TEST_ADDRESS";

/// Runs `work` as rank 0 here, and as rank 1 in a process that runs the same test; its exit.
fn in_two_processes(test: &str, work: impl Fn(&Communicator)) -> Option<std::process::ExitStatus> {
    let join = |rank, address: &str| {
        let rendezvous = Rendezvous::new(address, rank, 2);
        work(&Communicator::connect(&rendezvous, &options()).unwrap());
    };
    if let Ok(address) = std::env::var(ADDRESS) {
        join(1, &address);
        return None;
    }
    let address = Rendezvous::unique().unwrap();
    let mut peer = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("verification::tests::{test}")])
        .env(ADDRESS, &address)
        .spawn()
        .unwrap();
    join(0, &address);
    Some(peer.wait().unwrap())
}

#[test]
fn of_two_processes_one_verifies() {
    let status = in_two_processes("of_two_processes_one_verifies", |communicator| {
        let asked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&asked);
        let door = Door::with(move |_, _| {
            count.fetch_add(1, Ordering::Relaxed);
            Judgement::NotProven(format!("says {}", std::process::id()).into(), Scope::default())
        });
        let executor = Executor::behind(communicator, door);
        communicator.barrier().unwrap();
        let loaded = executor.load(&plan(0)).unwrap();
        let Verdict::NotProven(text) = loaded.verdict() else { panic!("{:?}", loaded.verdict()) };
        let texts = communicator.exchange(text.as_bytes()).unwrap();
        assert_eq!(texts[0], texts[1]);
        let asked = asked.load(Ordering::Relaxed).to_le_bytes();
        let both = communicator.exchange(&asked).unwrap();
        assert!([[1u8, 0], [0, 1]].contains(&[both[0][0], both[1][0]]), "{both:?}");
    });
    assert!(status.is_none_or(|status| status.success()));
}

#[test]
fn the_death_of_the_process_that_verifies_ends_the_wait() {
    let test = "the_death_of_the_process_that_verifies_ends_the_wait";
    let status = in_two_processes(test, |communicator| {
        let verifier: fn(&Plan, &Layout) -> Judgement = match communicator.rank() {
            1 => |_, _| std::process::exit(7),
            _ => |_, _| Judgement::Proven(Scope::default()),
        };
        let executor = Executor::behind(communicator, Door::with(verifier));
        // Both are connected. The other may be dead before this one has seen it come.
        let _ = communicator.barrier();
        let key = Key::of(LoadedPlan::new(&plan(0)).unwrap().layout());
        let unclaimed = || matches!(communicator.shared.verdicts().look(key), Look::Claimed(_));
        while communicator.rank() == 0 && unclaimed() {
            std::thread::yield_now();
        }
        let loaded = executor.load(&plan(0)).unwrap();
        assert_eq!(*loaded.verdict(), Verdict::Proven);
    });
    assert!(status.is_none_or(|status| status.code() == Some(7)), "{status:?}");
}

#[test]
fn the_text_of_a_refutation_is_its_first_fault_and_fits() {
    let refutation = |expected: &str| Refutation {
        fault: Fault::Wrong {
            rank: 3,
            launch: 1,
            bytes: 0..8,
            expected: expected.to_owned(),
            found: "zeros".into(),
        },
        case: Case {
            sizes: CallSizes { input: 64, output: 128, element: 4, strict: false },
            in_place: true,
            launches: 2,
        },
        schedule: Schedule::Random(1),
        steps: vec!["a step".into()],
    };
    let judge = |verdict| {
        Judgement::of(&Report {
            verdict,
            same_bits: None,
            order: None,
            repeats: false,
            elsewhere: None,
            root: None,
            notes: Vec::new(),
            cases: Vec::new(),
        })
    };
    let both = vec![refutation("ones"), refutation("twos")];
    let Judgement::Refuted(text) = judge(verify::Verdict::Refuted(both)) else { panic!() };
    for word in ["rank 3", "ones", "64 bytes in, 128 out, in place", "and 1 fault more"] {
        assert!(text.contains(word), "no `{word}` in: {text}");
    }
    assert!(!text.contains("twos"), "{text}");
    // Cut between characters.
    for extra in 0..4 {
        let long = "x".repeat(extra) + &"ä€".repeat(TEXT);
        let Judgement::NotProven(text, _) = judge(verify::Verdict::NotProven(vec![long])) else {
            panic!()
        };
        assert!((TEXT - 8..=TEXT).contains(&text.len()) && text.ends_with(" …"), "{}", text.len());
    }
    let reasons = vec!["one".to_owned(), "two".to_owned()];
    let scope = Scope::default();
    let both = Judgement::NotProven("one; two".into(), scope);
    assert_eq!(judge(verify::Verdict::NotProven(reasons)), both);
    assert_eq!(judge(verify::Verdict::Proven), Judgement::Proven(scope));
}

/// An allreduce of two ranks that is right out of place only; with `twice`, one that takes an input twice.
fn narrow(twice: bool) -> Plan {
    let p = ProgramBuilder::new("narrow", Collective::AllReduce, 2).reduce_op(ReduceOp::Max);
    let channel = [p.channel(0, 1)];
    for rank in 0..2 {
        let (tb, output) = (p.block(rank), p.output(rank).all());
        let mut all = vec![p.input(0).all(), p.input(1).all()];
        if twice {
            all.push(p.input(0).all());
        }
        tb.signal_relaxed(&channel);
        tb.wait_relaxed(&channel);
        tb.reduce(&all, output);
        tb.signal(&channel);
        tb.wait(&channel);
    }
    p.build().unwrap()
}

/// What comes of a call of every rank: the first error, or the outputs.
fn outcome(
    options: &Options,
    plan: &Plan,
    op: Option<ReduceOp>,
    in_place: bool,
) -> Result<Vec<[u32; 4]>, ExecutorError> {
    outcome_of(options, plan, op, [in_place; 2])
}

/// The same of ranks that may be in place and not.
fn outcome_of(
    options: &Options,
    plan: &Plan,
    op: Option<ReduceOp>,
    in_place: [bool; 2],
) -> Result<Vec<[u32; 4]>, ExecutorError> {
    let ranks = pair(options);
    std::thread::scope(|scope| {
        let run = |(rank, communicator): (usize, &Communicator)| {
            let executor = Executor::new(communicator);
            let loaded = executor.load(plan)?;
            let (mut input, mut output) = ([rank as u32 + 1; 4], [0; 4]);
            let from = input.as_mut_ptr().cast::<u8>();
            let in_place = in_place[rank];
            let to = if in_place { from } else { output.as_mut_ptr().cast() };
            let call = Call::new(&loaded, DataType::U32, (from, 16), (to, 16));
            // SAFETY: both buffers hold 16 bytes and outlive the call.
            unsafe { executor.run(&Call { op, ..call }) }?;
            Ok(if in_place { input } else { output })
        };
        let both = ranks.iter().enumerate().map(|rank| scope.spawn(move || run(rank)));
        let both: Vec<_> = both.collect();
        both.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

#[test]
fn a_call_for_which_a_plan_is_not_right_is_refused_and_runs_if_nobody_looks() {
    use ReduceOp::{Max, Min, Sum};
    for (op, expected) in [(None, 2), (Some(Max), 2), (Some(Min), 1)] {
        assert_eq!(outcome(&options(), &narrow(true), op, false).unwrap(), [[expected; 4]; 2]);
    }
    assert_eq!(outcome(&options(), &narrow(false), Some(Sum), false).unwrap(), [[3; 4]; 2]);
    for (twice, op, in_place, words) in [
        (true, Some(Sum), false, ["cannot replace a plan's operator", "min and max"]),
        (false, None, true, ["which is not right in place", "written for it"]),
    ] {
        let error = outcome(&options(), &narrow(twice), op, in_place).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
        assert!(error.contains("`narrow`") && error.contains("verification off"), "{error}");
        outcome(&options().with_verification(false), &narrow(twice), op, in_place).unwrap();
    }
}

/// Each rank's output is written by the other before that has read its input: right if both ranks are in place, or neither is, as the
/// verifier has found.
#[test]
fn ranks_are_in_place_alike_where_a_plan_tells() {
    let plan = Algorithm::AllReduceTwoShotPackets.plan(Shape::new(2)).unwrap();
    for in_place in [false, true] {
        assert_eq!(outcome(&options(), &plan, None, in_place).unwrap(), [[3; 4]; 2]);
    }
    for in_place in [[false, true], [true, false]] {
        let error = outcome_of(&options(), &plan, None, in_place).unwrap_err();
        assert!(error.cause().to_string().contains("in place or not"), "{error}");
    }
}

/// Of collectives with a root each rank may do as it likes.
#[test]
fn no_built_in_algorithm_with_a_root_tells_who_is_in_place() {
    let mut seen = 0;
    for algorithm in Algorithm::ALL {
        let shapes = [2, 3, 4, 8].into_iter().flat_map(|ranks| {
            [(1, false), (1, true), (2, false), (2, true)].map(|(nodes, in_place)| Shape {
                nodes,
                in_place,
                ..Shape::new(ranks)
            })
        });
        for shape in shapes {
            let Ok(plan) = algorithm.plan(shape) else { continue };
            let loaded = LoadedPlan::new(&plan).unwrap();
            if loaded.collective().has_root() {
                assert!(!loaded.is_sensitive(), "{} of {shape:?}", algorithm.name());
                seen += 1;
            }
        }
    }
    assert!(seen > 8, "{seen}");
}

#[test]
fn buffers_that_share_bytes_do_so_as_calls_in_place_or_are_refused() {
    let mut memory = [0u32; 32];
    let base = memory.as_mut_ptr().cast::<u8>();
    for verification in [true, false] {
        let ranks = pair(&options().with_verification(verification));
        let executor = Executor::new(&ranks[1]);
        // Of as many chunks of input and output, where the collective ties the sizes of neither.
        let copy = |inputs, outputs| {
            let program = ProgramBuilder::new("copy", Collective::SendRecv, 2);
            let program = program.chunk_counts(inputs, outputs);
            program.block(1).copy(program.input(1).chunk(0), program.output(1).chunk(0));
            executor.load(&program.build().unwrap()).unwrap()
        };
        let [equal, gathers, scatters, halves] = [copy(1, 1), copy(1, 2), copy(2, 1), copy(2, 4)];
        for (loaded, (input, sent), (output, received), fine) in [
            (&equal, (0, 16), (16, 16), true),
            (&equal, (16, 16), (0, 16), true),
            (&equal, (0, 16), (0, 16), true),
            // Rank 1 has the second block.
            (&gathers, (16, 16), (0, 32), true),
            (&scatters, (0, 32), (16, 16), true),
            (&halves, (16, 16), (0, 32), true),
            // An element and a half a chunk: the second chunks are shorter, and chunks of the output begin elsewhere.
            (&halves, (12, 12), (0, 24), false),
            (&equal, (0, 16), (4, 16), false),
            (&equal, (4, 16), (0, 16), false),
            // At all sizes in place that are proven, the first chunks lie on each other.
            (&equal, (16, 16), (0, 32), false),
            (&equal, (0, 32), (16, 16), false),
            (&equal, (0, 16), (0, 32), false),
            (&equal, (0, 32), (0, 16), false),
            (&gathers, (0, 16), (0, 32), false),
            (&gathers, (0, 16), (0, 16), false),
            (&gathers, (20, 16), (0, 32), false),
            (&equal, (0, 0), (0, 16), true),
        ] {
            let from = (base.wrapping_add(input).cast_const(), sent);
            let to = (base.wrapping_add(output), received);
            let checked = executor.check(&Call::new(loaded, DataType::U32, from, to));
            let what = format!("{sent} bytes at {input}, {received} at {output}: {checked:?}");
            assert_eq!(checked.is_ok(), fine || !verification, "{what}");
            let error = checked.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(
                error.is_empty() || error.contains("which share some, for plan `copy`"),
                "{error}"
            );
        }
    }
}

/// A plan for calls in place leaves the rank's own block as it is.
#[test]
fn runtime_blocks_lie_in_place_where_the_plan_is_right_there_alone() {
    use antiphon_plan::counts::{Counts, Extent};
    let p = ProgramBuilder::new("sends", Collective::AllGatherV, 2).in_place(true);
    let p = p.runtime_blocks(1, 2);
    let channel = [p.channel(0, 1)];
    for rank in 0..2 {
        let block = p.block(rank);
        block.put(p.input(rank).all(), p.output(1 - rank).chunk(rank));
        block.signal(&channel);
        block.wait(&channel);
    }
    let plan = p.build().unwrap();
    let mut memory = [0u32; 16];
    let base = memory.as_mut_ptr().cast::<u8>();
    let receive = [Extent::new(0, 2), Extent::new(2, 2)];
    for verification in [true, false] {
        let ranks = pair(&options().with_verification(verification));
        let executor = Executor::new(&ranks[1]);
        let loaded = executor.load(&plan).unwrap();
        for (at, count, expected) in [
            (8, 2, None),
            (0, 2, Some("send block 0 and receive block 0 share memory")),
            (32, 2, verification.then_some("which is not right out of place")),
            (32, 0, None),
        ] {
            let send = [Extent::new(0, count)];
            let from = (base.wrapping_add(at).cast_const(), 8);
            let call = Call::new(&loaded, DataType::U32, from, (base, 16));
            let checked =
                executor.check(&call.with_counts(Counts { send: &send, receive: &receive }));
            let error = checked.err().map(|error| error.to_string());
            let right = match (&error, expected) {
                (Some(error), Some(part)) => error.contains(part),
                (None, None) => true,
                _ => false,
            };
            assert!(right, "{count} elements at {at}, {verification}: {error:?}");
        }
    }
}

/// What a rank that is not the root passes for a buffer in which it has no part lies where it likes.
#[test]
fn only_the_root_of_a_plan_in_place_needs_one_memory_for_both_buffers() {
    let shape = Shape { in_place: true, ..Shape::new(2) };
    let plan = Algorithm::BroadcastZeroCopy.plan(shape).unwrap();
    let mut memory = [0u32; 8];
    let at = memory.as_mut_ptr().cast::<u8>();
    for rank in pair(&options()) {
        let executor = Executor::new(&rank);
        let loaded = executor.load(&plan).unwrap();
        for (apart, fine) in [(0, true), (16, rank.rank() != 0)] {
            let to = (at.wrapping_add(apart), 16);
            let checked =
                executor.check(&Call::new(&loaded, DataType::U32, (at.cast_const(), 16), to));
            assert_eq!(checked.is_ok(), fine, "rank {}, {apart} apart: {checked:?}", rank.rank());
        }
    }
}
