//! What is proven, what is refuted and what is neither: small plans with one fault each beside their intact siblings,
//! hostile ones, real ones, and random ones against a search of all orders.

mod assumed;
mod clipped;
mod counting;
mod faults;
mod golden;
mod hierarchical;
mod hostile;
mod one_operation;
mod orders;
mod packets;
mod ports;
mod randomness;
mod relays;
mod sums;
mod windows;

use super::{Fault, Options, Report, Verdict, verify};
use crate::model::{ChunkRef, Collective, Op, OpKind, Plan};
use crate::program::Layout;
use crate::samples::*;

/// What the verifier says of a plan that passes the checks.
fn judge(plan: &Plan) -> Report {
    crate::check(plan).unwrap_or_else(|faults| panic!("{}: {faults}", plan.name));
    let layout = Layout::new(plan).unwrap_or_else(|error| panic!("{}: {error}", plan.name));
    verify(plan, &layout, Options::default())
}

/// The verdict in one word, or two: of a refuted plan what goes wrong first.
fn word(report: &Report) -> &'static str {
    match &report.verdict {
        Verdict::Proven => "proven",
        Verdict::NotProven(_) => "not proven",
        Verdict::Refuted(found) => match found.first().map(|refutation| &refutation.fault) {
            Some(Fault::Deadlock { .. }) => "deadlock",
            Some(Fault::Race { .. }) => "race",
            Some(Fault::Wrong { .. }) => "wrong",
            None => "refuted without a reason",
        },
    }
}

/// Compares verdicts of plans with what they should be, all at once.
fn expect(cases: &[(&str, Plan, &str)]) {
    let mut wrong = Vec::new();
    for (name, plan, expected) in cases {
        let report = judge(plan);
        if word(&report) != *expected {
            wrong.push(format!("{name}: saw {}, expected {expected}\n{report}", word(&report)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

fn nop() -> Op {
    Op::new(OpKind::Nop)
}

/// A plan of two ranks without a promise of its own; rank and block by block what they do.
fn pair(chunks: [u64; 3], blocks: &[&[Vec<Op>]]) -> Plan {
    of_ranks(2, chunks, blocks)
}

fn of_ranks(ranks: usize, chunks: [u64; 3], blocks: &[&[Vec<Op>]]) -> Plan {
    let mut plan = plan(Collective::SendRecv, ranks, chunks);
    connect(&mut plan);
    for (rank, blocks) in blocks.iter().enumerate() {
        for ops in *blocks {
            block(&mut plan, rank, ops.clone());
        }
    }
    plan
}

/// The operations but for the one at this position.
fn without(mut ops: Vec<Op>, position: usize) -> Vec<Op> {
    ops.remove(position);
    ops
}
