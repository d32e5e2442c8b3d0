//! The seam to the executor: which of its set-ups are measured. This is the one file of the benchmark that calls it.
//!
//! A set-up is an [`Entry`] of [`ENTRIES`] and an implementation of [`Subject`] that `open` makes. The variants
//! the tables are meant for: own memory and plain malloc'ed memory with a process for each rank, and all ranks
//! submitted from one thread where ranks outnumber cores.

use super::antiphon::{Seat, Subject};

/// How the ranks of a set-up are spread over processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A process for each rank.
    Processes,
    /// One process whose one thread submits for all ranks; only measured where ranks outnumber cores.
    OneThread,
}

/// Joins a group.
pub type Open = fn(&Seat) -> Result<Box<dyn Subject>, String>;

/// A set-up of Antiphon that is measured as a subject of its own.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The subject's name in tables and on the command line; begins with `antiphon`.
    pub name: &'static str,
    /// How its ranks run.
    pub shape: Shape,
    /// Joins the group; called once in each process.
    pub open: Open,
}

/// The set-ups, in the order of the tables.
pub const ENTRIES: &[Entry] = &[];

/// The set-up called `name`.
pub fn entry(name: &str) -> Option<&'static Entry> {
    ENTRIES.iter().find(|e| e.name == name)
}
