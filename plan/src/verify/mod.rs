//! Proofs about plans: no deadlock, no race, the right result, fit to run again, for every valid size and schedule; or a
//! counterexample that a controlled engine can play.
//!
//! A plan has no control flow that depends on data, and its blocks wait for counters and flags only. So one run, in any
//! order, tells what every order has in common: what happens before what (`clock`, `sync`), who touches which memory
//! when (`shadow`), and what every output holds (`values`, `promise`). The run (`walk`, `moves`) goes over several
//! launches, since the next one may begin while other ranks are still in the last. `cases` says which sizes stand for
//! all; `explore` walks all orders where blocks contend for a counter; `witness` and `stuck` tell what was found, `order` in
//! which order sums add.
//!
//! docs/verification.md has the argument why that is enough.

mod cases;
mod clock;
mod contention;
mod counters;
mod explore;
mod lineage;
mod moves;
mod order;
mod portable;
mod promise;
mod prove;
mod report;
mod shadow;
mod space;
mod state;
mod stuck;
mod sync;
#[cfg(test)]
mod tests;
mod values;
mod walk;
mod witness;

pub use order::SumOrder;
pub use prove::{Options, verify};
pub use report::{About, Fault, Note, Refutation, Report, Verdict, Waiter};
