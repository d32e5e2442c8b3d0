//! Programs of this stage, checked by their own replay and by interpreting the plans they become.

mod examples;
mod instances;
mod methods;
mod programs;
mod refusals;

use super::*;
use crate::interpret::{Interpreter, Memory, Turns};
use crate::model::ChannelType::{self, Memory as MEMORY, Port as PORT, Switch as SWITCH};
use crate::model::{OpKind, Plan};
use crate::program::{CallSizes, Layout};

/// An empty program with this stage's defaults.
fn program(kind: Kind, ranks: u64, factor: u64, in_place: bool) -> Program {
    let collective = Collective::new(kind, ranks, factor, in_place);
    Program::new(Settings::new("test", collective)).unwrap()
}

/// A reference to chunks that must exist.
fn at(p: &mut Program, rank: u64, buffer: Buffer, index: u64, size: u64) -> Ref {
    p.chunk(rank as i64, buffer, index as i64, size).unwrap().unwrap()
}

/// Element `at` of rank `rank`'s input: different for every rank and position, and sums stay telling.
fn seed(rank: u64, at: u64) -> i128 {
    (i128::from(at) + 1) * 1_000_003_i128.pow(rank as u32 % 5) + i128::from(rank) * 7
}

/// A rank's memory before the call, of `count` elements to a rank's part, or in all.
fn memory(collective: &Collective, rank: u64, count: u64) -> Memory<i128> {
    let whole = count * collective.ranks;
    let (input, output) = match collective.kind {
        Kind::AllGather => (count, whole),
        Kind::ReduceScatter => (whole, count),
        Kind::AllToAll => (whole, whole),
        _ => (count, count),
    };
    let seeds = (0..input).map(|at| seed(rank, at));
    if !collective.in_place {
        return Memory::separate(seeds.collect(), vec![-1; output as usize]);
    }
    let start = |size| if size < input.max(output) { (rank * count) as usize } else { 0 };
    let mut values = vec![-1; input.max(output) as usize];
    let range = |size: u64| start(size)..start(size) + size as usize;
    values.splice(range(input), seeds);
    Memory::in_place(values, range(input), range(output)).unwrap()
}

/// What element `at` of a rank's output must be.
fn promised(collective: &Collective, count: u64, rank: u64, at: u64) -> i128 {
    let sum = |at| (0..collective.ranks).map(|rank| seed(rank, at)).sum();
    match collective.kind {
        Kind::AllReduce => sum(at),
        Kind::ReduceScatter => sum(rank * count + at),
        Kind::AllGather => seed(at / count, at % count),
        Kind::AllToAll => seed(at / count, rank * count + at % count),
        Kind::SendRecv => seed(1 - rank, at),
        Kind::Broadcast { root } => seed(root, at),
    }
}

/// Runs a plan several times, with blocks taking turns in every way, and compares with what the collective promises.
fn runs(plan: &Plan, collective: &Collective) {
    let layout = Layout::new(plan).unwrap();
    for turns in [Turns::Alternate, Turns::FirstFirst, Turns::LastFirst] {
        let mut machine = Interpreter::new(&layout).with_turns(turns);
        for count in [37, 240, 1] {
            let ranks = 0..collective.ranks;
            let mut memories: Vec<_> = ranks.map(|rank| memory(collective, rank, count)).collect();
            let bytes = |values: &[i128]| values.len() as u64 * 4;
            let sizes = CallSizes {
                input: bytes(memories[0].input()),
                output: bytes(memories[0].output()),
                element: 4,
                strict: false,
            };
            machine.launch(sizes, &mut memories).unwrap_or_else(|e| panic!("{}: {e}", plan.name));
            for (rank, memory) in (0..).zip(&memories) {
                for (at, &saw) in (0..).zip(memory.output()) {
                    let wanted = promised(collective, count, rank, at);
                    assert_eq!(saw, wanted, "{collective:?} {turns:?} rank {rank} element {at}");
                }
            }
        }
    }
}

/// Checks a program and runs its plan, which is the result.
fn right(p: &Program) -> Plan {
    let found: Vec<String> = p.check().iter().map(ToString::to_string).collect();
    assert!(found.is_empty(), "{found:#?}");
    let plan = p.finish().unwrap_or_else(|e| panic!("{e}")).plan;
    runs(&plan, &p.settings.collective);
    let faults: Vec<String> = crate::pairing(&plan).iter().map(ToString::to_string).collect();
    assert!(faults.is_empty(), "{faults:#?}");
    // The plan survives its file.
    let mut text = Vec::new();
    crate::write(&plan, crate::Style::Compact, &mut text).unwrap();
    assert_eq!(crate::read(&text).unwrap().plan, plan);
    plan
}

/// The kinds of a block's operations, without those that only make its threads meet.
fn kinds(plan: &Plan, rank: usize, block: usize) -> Vec<OpKind> {
    let ops = plan.gpus[rank].threadblocks[block].ops.iter();
    ops.map(|op| op.kind).filter(|&kind| kind != OpKind::Nop).collect()
}
