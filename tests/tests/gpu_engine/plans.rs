//! Every right plan gives the right result as kernels: with ranks as threads that share a device, and as processes.

use crate::{device, on_simulator, on_threads, options};
use antiphon::DataType;
use antiphon::executor::{Communicator, KernelForm};
use antiphon::plan::algorithms::{Algorithm, Rooted, Shape};
use antiphon::plan::builder::BuildError;
use antiphon::plan::model::{ChannelType, Plan};
use antiphon_tests::harness::plans::{buffers, sizes};
use antiphon_tests::harness::processes::{Ranks, role};
use antiphon_tests::harness::{
    self, Case, Entry, Verdict, report, run_case, run_cases, run_plans, seed,
};
use antiphon_tests::name_of;
use std::collections::BTreeSet;

/// Launches of each case, back to back.
const LAUNCHES: u32 = 4;

/// Which sizes of which type are run: by the type's number and the size's position.
pub type Chosen = fn(usize, usize) -> bool;
/// Every second size of each type: half as long, and every size is there.
pub const HALF: Chosen = |number, position| position % 2 == number;
/// One size, of one type.
pub const ONE: Chosen = |number, position| (number, position) == (0, 2);

/// The right plans, those with port channels or the others.
pub fn right(ports: bool) -> impl Iterator<Item = Entry> {
    harness::right().chain(over_nodes()).filter(move |entry| has_ports(entry) == ports)
}

/// The built-in algorithms over two nodes of one and of two ranks, which have port channels between them. Of the latter two
/// thread blocks share the work.
fn over_nodes() -> impl Iterator<Item = Entry> {
    let shape = |ranks| Shape { nodes: 2, blocks: ranks, ..Shape::new(2 * ranks) };
    [1, 2].map(shape).into_iter().flat_map(|shape| {
        let entry = move |name: &str, plan: Result<Plan, BuildError>| Entry {
            name: format!("{name} over 2 nodes of {} ranks", shape.ranks / 2),
            plan: plan.unwrap(),
            verdict: Verdict::Ok,
            settled: true,
        };
        let algorithms = Algorithm::ALL.into_iter().filter(|one| one.is_hierarchical());
        let rooted = Rooted::ALL.into_iter().filter(|one| one.is_hierarchical());
        let algorithms = algorithms.map(move |one| entry(one.name(), one.plan(shape)));
        algorithms.chain(rooted.map(move |one| entry(one.name(), one.plan(shape))))
    })
}

fn has_ports(entry: &Entry) -> bool {
    let blocks = entry.plan.gpus.iter().flat_map(|gpu| &gpu.threadblocks);
    let mut channels = blocks.flat_map(|block| &block.channels);
    channels.any(|(kind, _)| *kind == ChannelType::Port)
}

/// Runs a plan as one rank, at several sizes and in two types; what is wrong.
pub fn run_all(
    communicator: &Communicator,
    entry: &Entry,
    seed: u64,
    chosen: Chosen,
) -> Vec<String> {
    let mut cases = Vec::new();
    for (number, dtype) in [DataType::F32, DataType::Bf16].into_iter().enumerate() {
        let element = dtype.size() as u64;
        for (position, (what, elements)) in sizes(&entry.plan, element).into_iter().enumerate() {
            if !chosen(number, position) {
                continue;
            }
            let case = Case {
                dtype,
                launches: LAUNCHES,
                mover: Some((position as u32 + 1) % entry.ranks()),
                reuse: entry.settled && position >= 2,
                seed: seed + position as u64,
                ..Case::new(&entry.name, &entry.plan, buffers(&entry.plan, elements, element))
            };
            cases.push((what, case));
        }
    }
    run_cases(communicator.rank(), cases, |case| run_case(communicator, case))
}

fn on_threads_all(ports: bool, form: KernelForm) {
    let seed = seed();
    println!("seed {seed}");
    let (mut failures, mut plans) = (Vec::new(), 0);
    for entry in right(ports) {
        // What is proven elsewhere is not proven again.
        let options = options().with_verification(false).with_kernels(form);
        let ranks = on_threads(entry.ranks(), &options, |rank| run_all(&rank, &entry, seed, HALF));
        failures.extend(ranks.into_iter().flatten());
        plans += 1;
    }
    report(&failures);
    assert!(plans > 5, "only {plans} plans were found");
}

fn in_processes_all(ports: bool, test: &str) {
    let seed = seed();
    println!("seed {seed}");
    let worlds: BTreeSet<u32> = right(ports).map(|entry| entry.ranks()).collect();
    for world in worlds {
        Ranks::start(test, world, &seed.to_string()).succeed();
    }
}

/// One process of the tests below.
fn rank_of_all(ports: bool) {
    let Some(role) = role() else { return };
    let seed: u64 = role.job.parse().unwrap();
    let options = options().with_verification(false).with_device(Some(device()));
    let all = role.connect(&options).unwrap();
    run_plans(&all, right(ports), |rank, entry| run_all(rank, entry, seed, HALF));
}

#[test]
fn every_right_plan_gives_the_right_result_on_threads() {
    if on_simulator(name_of(every_right_plan_gives_the_right_result_on_threads)).is_some() {
        on_threads_all(false, KernelForm::Generated);
    }
}

#[test]
fn every_right_plan_with_ports_gives_the_right_result_on_threads() {
    let test = name_of(every_right_plan_with_ports_gives_the_right_result_on_threads);
    if on_simulator(test).is_some() {
        on_threads_all(true, KernelForm::Generated);
    }
}

#[test]
fn every_right_plan_gives_the_right_result_when_it_is_interpreted() {
    let test = name_of(every_right_plan_gives_the_right_result_when_it_is_interpreted);
    if on_simulator(test).is_some() {
        on_threads_all(false, KernelForm::Interpreted);
        on_threads_all(true, KernelForm::Interpreted);
    }
}

#[test]
fn every_right_plan_gives_the_right_result_in_processes() {
    if on_simulator(name_of(every_right_plan_gives_the_right_result_in_processes)).is_some() {
        in_processes_all(false, name_of(rank_of_every_right_plan));
    }
}

#[test]
fn every_right_plan_with_ports_gives_the_right_result_in_processes() {
    let test = name_of(every_right_plan_with_ports_gives_the_right_result_in_processes);
    if on_simulator(test).is_some() {
        in_processes_all(true, name_of(rank_of_every_right_plan_with_ports));
    }
}

#[test]
fn rank_of_every_right_plan() {
    rank_of_all(false);
}

#[test]
fn rank_of_every_right_plan_with_ports() {
    rank_of_all(true);
}
