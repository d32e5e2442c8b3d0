//! Multicast groups of switch channels: used once they are there, right before and after, and gone with their memory.

use crate::copies::{read, write};
use crate::devices::devices;
use crate::plans::right;
use crate::{cuda_only, on_devices, options, simulated_alone, there_are};
use antiphon::DataType;
use antiphon::executor::hal::{Memory, Stream};
use antiphon::executor::{Call, Communicator, Executor, ExecutorError};
use antiphon::plan::algorithms::{Shape, allreduce};
use antiphon::plan::model::Collective;
use antiphon::plan::program::{Area, Instruction, Layout};
use antiphon_tests::application::Application;
use antiphon_tests::harness::plans::{Buffers, buffers, sizes};
use antiphon_tests::harness::processes::{Ranks, role};
use antiphon_tests::harness::{Entry, report, run_plans};
use antiphon_tests::{name_of, until_within};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Launches before the first look at whether groups are used; before each other one twice as many.
const LAUNCHES: u32 = 30;
/// Looks until it is a failure that none is.
const LOOKS: u32 = 8;
/// How long a group may take to go.
const PATIENCE: Duration = Duration::from_secs(60);

/// The right plans for allreduce and allgather that move raw bytes over switch channels.
fn with_switches() -> impl Iterator<Item = Entry> {
    right(false).filter(|entry| {
        let layout = Layout::new(&entry.plan).unwrap();
        let moves = layout.ranks.iter().any(|rank| {
            rank.instructions.iter().any(|instruction| match *instruction {
                Instruction::Move { sources, destinations, multicast: Some(_), .. } => {
                    let mut sides = sources.range().chain(destinations.range());
                    sides.all(|side| rank.accesses[side].area != Area::Packets)
                }
                _ => false,
            })
        });
        moves && matches!(entry.plan.collective, Collective::AllReduce | Collective::AllGather)
    })
}

/// How many devices it takes to run them all with a device for each rank.
fn most_ranks() -> usize {
    with_switches().map(|entry| entry.ranks() as usize).max().unwrap()
}

/// Runs a plan on the same buffers until some rank has gone through a group; what is wrong. Real drivers do not tell: there it is
/// run until groups were long there.
fn run(rank: &Communicator, entry: &Entry, application: &Application) -> Vec<String> {
    let simulated = application.is_simulated();
    let looks = || -> Result<bool, ExecutorError> {
        let (executor, stream) = (Executor::new(rank), rank.stream()?);
        let plan = executor.load(&entry.plan)?;
        let (_, elements) = sizes(&entry.plan, 4)[2];
        let Buffers { input, output } = buffers(&entry.plan, elements, 4);
        let memories = [rank.allocate(input.max(output))?, rank.allocate(output)?];
        let own = u64::from(rank.rank()) * input;
        let gathers = entry.plan.collective == Collective::AllGather;
        let (from, to) = match (entry.plan.in_place, gathers) {
            (true, true) => (memories[0].address().wrapping_add(own as usize), &memories[0]),
            (true, false) => (memories[0].address(), &memories[0]),
            (false, _) => (memories[0].address(), &memories[1]),
        };
        let value = |rank: u64, at: u64| (at % 1000 * (rank + 1)) as u32;
        let inputs = 0..u64::from(entry.ranks());
        let each = 0..input / 4;
        let expected: Vec<u32> = if gathers {
            inputs.flat_map(|rank| each.clone().map(move |at| value(rank, at))).collect()
        } else {
            each.clone().map(|at| inputs.clone().map(|rank| value(rank, at)).sum()).collect()
        };
        let values: Vec<u32> = each.map(|at| value(rank.rank().into(), at)).collect();
        let before = simulated.then(|| application.multicasts());
        for look in 0..LOOKS {
            for _ in 0..LAUNCHES << look {
                write(&stream, from, &values);
                rank.barrier()?;
                let call = Call::new(
                    &plan,
                    DataType::U32,
                    (from.cast_const(), input),
                    (to.address(), output),
                );
                // SAFETY: the memories hold the call's bytes, and live until it is over.
                unsafe { executor.execute(&call, &stream) }?;
                executor.synchronize(&stream)?;
                rank.barrier()?;
                let found = read(&stream, to.address(), (output / 4) as usize);
                assert!(found == expected, "rank {}, look {look}", rank.rank());
            }
            let Some(before) = before else { continue };
            // All ranks must agree whether to go on.
            let uses = application.multicasts() - before;
            if rank.exchange(&uses.to_le_bytes())?.iter().any(|uses| uses != &[0; 8]) {
                return Ok(true);
            }
        }
        Ok(!simulated)
    };
    let name = format!("rank {} of {}", rank.rank(), entry.name);
    match looks() {
        Ok(true) => Vec::new(),
        Ok(false) => vec![format!("{name}: no rank goes through a group")],
        Err(error) => vec![format!("{name}: {error}")],
    }
}

#[test]
fn switch_channels_go_through_groups_on_threads() {
    let test = name_of(switch_channels_go_through_groups_on_threads);
    let Some(simulated) = cuda_only(test).filter(|_| there_are(test, most_ranks())) else {
        return;
    };
    let application = &Application::new(&simulated);
    let options = options().with_verification(false);
    let mut failures = Vec::new();
    for entry in with_switches() {
        let devices = devices(entry.ranks(), entry.ranks());
        let run = |rank: Communicator| run(&rank, &entry, application);
        failures.extend(on_devices(&devices, &options, run).into_iter().flatten());
    }
    report(&failures);
}

#[test]
fn switch_channels_go_through_groups_in_processes() {
    let test = name_of(switch_channels_go_through_groups_in_processes);
    if cuda_only(test).filter(|_| there_are(test, most_ranks())).is_none() {
        return;
    }
    let worlds: BTreeSet<u32> = with_switches().map(|entry| entry.ranks()).collect();
    for world in worlds {
        Ranks::start(name_of(rank_with_groups), world, "").succeed();
    }
}

/// One process of the test above.
#[test]
fn rank_with_groups() {
    let Some(role) = role() else { return };
    let simulated = cuda_only(name_of(rank_with_groups)).expect("started on the simulator");
    let application = Application::new(&simulated);
    let world = role.rendezvous.world;
    let device = devices(world, world).swap_remove(role.rendezvous.rank as usize);
    let options = options().with_verification(false).with_device(Some(device));
    let all = role.connect(&options).unwrap();
    run_plans(&all, with_switches(), |rank, entry| run(rank, entry, &application));
}

const WORLD: u32 = 4;
const WORDS: usize = 256;

/// One launch of the sum of all ranks' words, in place.
fn add_up(rank: &Communicator, executor: &Executor, stream: &Arc<dyn Stream>, memory: &dyn Memory) {
    let plan = executor
        .load(&allreduce::switch(Shape { in_place: true, ..Shape::new(WORLD as usize) }).unwrap())
        .unwrap();
    let values: Vec<u32> = (0..WORDS as u32).map(|at| at * (rank.rank() + 1)).collect();
    let (address, bytes) = (memory.address(), WORDS as u64 * 4);
    write(stream, address, &values);
    let call = Call::new(&plan, DataType::U32, (address.cast_const(), bytes), (address, bytes));
    // SAFETY: the memory holds the call's bytes, and lives until it is over.
    unsafe { executor.execute(&call, stream) }.unwrap();
    executor.synchronize(stream).unwrap();
    let sums = read(stream, address, WORDS);
    let factor = WORLD * (WORLD + 1) / 2;
    assert!(sums.iter().zip(0..).all(|(sum, at)| *sum == at * factor), "{sums:?}");
}

/// Adds up until every rank's process has seen groups used; how many launches of each rank that took.
fn until_used(
    rank: &Communicator,
    (executor, stream): (&Executor, &Arc<dyn Stream>),
    memory: &dyn Memory,
    application: &Application,
) -> u32 {
    rank.barrier().unwrap();
    let before = application.multicasts();
    rank.barrier().unwrap();
    let mut launches = 0;
    for look in 0..LOOKS {
        (0..LAUNCHES << look).for_each(|_| add_up(rank, executor, stream, memory));
        launches += LAUNCHES << look;
        let uses = application.multicasts() - before;
        if rank.exchange(&uses.to_le_bytes()).unwrap().iter().all(|one| one != &[0; 8]) {
            return launches;
        }
    }
    panic!("no group is used after {launches} launches");
}

#[test]
fn groups_go_with_their_memory() {
    let test = name_of(groups_go_with_their_memory);
    let simulated = cuda_only(test).filter(|_| there_are(test, WORLD as usize));
    let Some(application) = simulated.and_then(|simulated| simulated_alone(test, &simulated))
    else {
        return;
    };
    let application = &application;
    let options = options().with_verification(false);
    on_devices(&devices(WORLD, WORLD), &options, |rank| {
        let (executor, stream) = (Executor::new(&rank), rank.stream().unwrap());
        for round in 0..3 {
            let memory = rank.allocate(WORDS as u64 * 4).unwrap();
            until_used(&rank, (&executor, &stream), &*memory, application);
            let gone = Arc::downgrade(&memory);
            drop(memory);
            let what = format!("memory to be given back in round {round}");
            until_within(PATIENCE, &what, || gone.strong_count() == 0);
            rank.barrier().unwrap();
        }
    });
}

#[test]
fn no_group_is_made_where_none_is_wanted_or_can_be() {
    let test = name_of(no_group_is_made_where_none_is_wanted_or_can_be);
    let simulated = cuda_only(test).filter(|_| there_are(test, WORLD as usize));
    let Some(application) = simulated.and_then(|simulated| simulated_alone(test, &simulated))
    else {
        return;
    };
    let application = &application;
    let options = options().with_verification(false);
    // What it takes until one is used, where one is wanted and can be.
    let taken = on_devices(&devices(WORLD, WORLD), &options, |rank| {
        let (executor, stream) = (Executor::new(&rank), rank.stream().unwrap());
        let memory = rank.allocate(WORDS as u64 * 4).unwrap();
        let began = Instant::now();
        let launches = until_used(&rank, (&executor, &stream), &*memory, application);
        (launches, began.elapsed())
    });
    let launches = 2 * taken.iter().map(|one| one.0).max().unwrap();
    let time = 2 * taken.iter().map(|one| one.1).max().unwrap();
    let used = application.multicasts();
    assert!(used > 0);
    // Switched off, and two members on one device: twice as many launches, over twice the time, and none is used.
    for (options, count) in [(options.clone().with_multicast(false), WORLD), (options, WORLD - 1)] {
        on_devices(&devices(WORLD, count), &options, |rank| {
            let (executor, stream) = (Executor::new(&rank), rank.stream().unwrap());
            let memory = rank.allocate(WORDS as u64 * 4).unwrap();
            let (began, mut done) = (Instant::now(), 0);
            loop {
                (0..LAUNCHES).for_each(|_| add_up(&rank, &executor, &stream, &*memory));
                done += LAUNCHES;
                let enough = done >= launches && began.elapsed() >= time;
                // All ranks must agree whether to go on.
                let all = rank.exchange(&[u8::from(enough)]).unwrap();
                if all.iter().all(|one| *one == [1]) {
                    break;
                }
            }
        });
        assert_eq!(application.multicasts(), used, "{count} devices");
    }
}
