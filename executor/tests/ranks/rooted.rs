//! Gathers and scatters by each of the plans that may serve them, which a tuning table chooses, and by registered ones: on plain
//! memory, with ranks as threads and as processes, of which all but the root have one buffer alone.

use crate::support::processes::in_two_processes;
use crate::support::threads::on_threads;
use antiphon_executor::selection::table::{Kind, Machine, Setting, Table, Times};
use antiphon_executor::selection::{Question, Rule, Tuning};
use antiphon_executor::{
    Collectives, Communicator, DataType, Group, Options, ReduceOp, Registry, Rendezvous, Request,
    Terms, What,
};
use antiphon_plan::builder::ProgramBuilder;
use antiphon_plan::model::{Collective, Plan};
use std::ptr;
use std::time::Duration;

/// What may serve a gather, and a scatter.
const CANDIDATES: [[&str; 2]; 3] = [
    ["alltoallv_zero_copy", "alltoallv_zero_copy"],
    ["gather_packets", "scatter_packets"],
    ["gather_zero_copy", "scatter_zero_copy"],
];

/// Elements of a block.
const COUNTS: [usize; 4] = [0, 1, 33, 20_011];

/// A table in which these are the fastest, whatever the size.
fn options(world: usize, fastest: [&str; 2]) -> Options {
    let mut table = Table::new(Machine::here());
    let (ranks, nodes, kind, in_place) = (world as u32, 1, Kind::Processes, false);
    for (side, collective) in [Collective::Gather, Collective::Scatter].into_iter().enumerate() {
        let setting = Setting { collective, ranks, nodes, kind, in_place };
        let time = |names: [&str; 2]| if names == fastest { 1 } else { 9 };
        let times = CANDIDATES.map(|names| (names[side].to_owned(), time(names)));
        for count in COUNTS {
            table.record(&setting, (4 * world * count) as u64, Times::new(times.clone()));
        }
    }
    let options = Options::default().with_tuning(Tuning::new(table));
    options.with_timeout(Some(Duration::from_secs(30)))
}

fn block(rank: u32, root: u32, count: usize) -> impl Iterator<Item = u32> {
    (0..count as u32).map(move |at| (rank + 1) * 10_000_000 + root * 1_000_000 + at)
}

/// One call, by itself or as a group.
fn call(on: &Collectives, what: What, buffers: (*const u32, *mut u32), count: usize, group: bool) {
    let request = Request {
        what,
        input: buffers.0.cast(),
        output: buffers.1.cast(),
        count: count as u64,
        dtype: DataType::U32,
        op: ReduceOp::Sum,
        factor: None,
    };
    // SAFETY: where the rank has a part in them, both are as long as the call says, and live past it; in place one is the
    // rank's block of the other, and else they are apart.
    let done = unsafe {
        if group {
            let mut group = Group::new();
            group.call(on, &request, None).and_then(|()| group.end())
        } else {
            on.call(&request, None)
        }
    };
    done.unwrap_or_else(|error| panic!("{what:?} of {count}: {error}"));
}

/// What no call may touch, before and behind the buffers.
const GUARD: u32 = 7;

/// Gathers to every root and scatters back, twice each, so that the second call finds what the first one took.
fn exercise(communicator: &Communicator, names: [&str; 2], rule: Rule) {
    let on = Collectives::new(communicator).unwrap();
    let (rank, world) = (communicator.rank(), communicator.world());
    for (root, count) in (0..world).flat_map(|root| COUNTS.map(|count| (root, count))) {
        for (collective, name) in [Collective::Gather, Collective::Scatter].iter().zip(names) {
            let bytes = (4 * world as usize * count) as u64;
            let question = Question { root, ..on.question(collective, bytes, DataType::U32) };
            let choice = on.explain(&question).unwrap();
            let decided = (choice.candidate.name(), choice.rule);
            let name = if rule == Rule::Plan { &format!("{name} {root}") } else { name };
            assert_eq!(decided, (name, rule), "{choice}");
        }
        let at_root = rank == root;
        let all: Vec<u32> = (0..world).flat_map(|rank| block(rank, root, count)).collect();
        let (own, whole) = (rank as usize * count, world as usize * count);
        for (in_place, group) in [(false, false), (true, false), (false, true)] {
            // A rank's block, and at the root all of them; guards lie before and behind both.
            let mut memory = vec![GUARD; 3 + count + whole];
            let single = if in_place && at_root { 2 + count + own } else { 1 };
            for turn in 0..2 {
                memory.fill(GUARD);
                let block_of = |rank| block(rank, root, count);
                memory[single..single + count].copy_from_slice(&Vec::from_iter(block_of(rank)));
                let base = memory.as_mut_ptr();
                let (one, many) = (base.wrapping_add(single), base.wrapping_add(2 + count));
                let to = if at_root { many } else { ptr::null_mut() };
                call(&on, What::Gather { root }, (one.cast_const(), to), count, group);
                let case = format!("{names:?} rank {rank} root {root} count {count} turn {turn}");
                let found = &memory[2 + count..2 + count + whole];
                assert!(found == all || !at_root && found.iter().all(|&x| x == GUARD), "{case}");
                // Back, but for a block that is where it belongs.
                if !(in_place && at_root) {
                    memory[single..single + count].fill(0);
                }
                let base = memory.as_mut_ptr();
                let (one, many) = (base.wrapping_add(single), base.wrapping_add(2 + count));
                let from = if at_root { many.cast_const() } else { ptr::null() };
                call(&on, What::Scatter { root }, (from, one), count, group);
                assert!(
                    memory[single..single + count].iter().copied().eq(block_of(rank)),
                    "{case}"
                );
                let guards = [0, 1 + count, 2 + count + whole];
                assert!(guards.iter().all(|&at| memory[at] == GUARD), "{case}");
            }
        }
    }
}

#[test]
fn threads_gather_and_scatter_by_what_the_table_says() {
    for world in [1, 2, 3, 5] {
        for names in CANDIDATES {
            let ranks = Communicator::in_process(world, &options(world as usize, names)).unwrap();
            on_threads(&ranks, |communicator| exercise(communicator, names, Rule::Table));
        }
    }
}

#[test]
fn processes_gather_and_scatter_by_what_the_table_says() {
    let test = processes_gather_and_scatter_by_what_the_table_says;
    in_two_processes(test, |rank, address| {
        // Each candidate, staged and reached through the kernel where that is the faster way.
        for (number, names) in CANDIDATES.into_iter().enumerate() {
            for access in [false, true] {
                let address = format!("{address}-{number}-{access}");
                let options = options(2, names).with_process_access(access);
                let rendezvous = Rendezvous::new(&address, rank, 2);
                let communicator = Communicator::connect(&rendezvous, &options).unwrap();
                exercise(&communicator, names, Rule::Table);
                communicator.barrier().unwrap();
            }
        }
    });
}

/// A plan in which who receives fetches: the root of a gather from all, and the others of a scatter from the root.
fn fetched(collective: Collective, root: usize, world: usize) -> Plan {
    let gathers = collective == Collective::Gather;
    let program = ProgramBuilder::new("fetched", collective, world);
    let fetch = |to: usize, from: usize, link: &[_]| {
        let (source, destination) = match gathers {
            true => (program.input(from).all(), program.output(to).chunk(from)),
            false => (program.input(from).chunk(to), program.output(to).all()),
        };
        let [owner, block] = [from, to].map(|rank| program.block(rank));
        owner.signal(link);
        block.wait(link);
        block.get(source, destination);
        block.signal(link);
        owner.wait(link);
    };
    for other in (0..world).filter(|&other| other != root) {
        let link = [program.channel(root, other)];
        let (to, from) = if gathers { (root, other) } else { (other, root) };
        fetch(to, from, &link);
    }
    let (own, kept) = match gathers {
        true => (program.input(root).all(), program.output(root).chunk(root)),
        false => (program.input(root).chunk(root), program.output(root).all()),
    };
    program.block(root).copy(own, kept);
    program.build().unwrap()
}

/// A registry with plans of gather and scatter for each root.
fn registered(world: u32) -> Registry {
    let registry = Registry::new();
    for (collective, name) in [(Collective::Gather, "gather"), (Collective::Scatter, "scatter")] {
        for root in 0..world {
            let plan = fetched(collective.clone(), root as usize, world as usize);
            let name = Some(format!("{name} {root}"));
            registry.register(plan, Terms { name, root: Some(root), ..Terms::default() }).unwrap();
        }
    }
    registry
}

#[test]
fn ranks_gather_and_scatter_by_registered_plans() {
    for world in [2, 3, 5] {
        let options = Options::default().with_registry(registered(world));
        let options = options.with_timeout(Some(Duration::from_secs(30)));
        let ranks = Communicator::in_process(world, &options).unwrap();
        on_threads(&ranks, |communicator| {
            exercise(communicator, ["gather", "scatter"], Rule::Plan)
        });
    }
}
