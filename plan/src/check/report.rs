//! Faults, and the list they are collected in.

use crate::place::Place;
use std::fmt::{self, Display};

/// One thing wrong with a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where in the plan.
    pub place: Place,
    /// What is there.
    pub found: String,
    /// What could be there.
    pub allowed: String,
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: saw {}, allowed {}", self.place, self.found, self.allowed)
    }
}

/// All faults of a plan; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults(Vec<Fault>);

impl Faults {
    /// The faults: of the plan as a whole and of its switch groups, then rank by rank.
    pub fn as_slice(&self) -> &[Fault] {
        &self.0
    }

    /// The faults: of the plan as a whole and of its switch groups, then rank by rank.
    pub fn into_vec(self) -> Vec<Fault> {
        self.0
    }
}

impl Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.len();
        let plural = if count == 1 { "" } else { "s" };
        write!(f, "cannot run the plan: it has {count} fault{plural}")?;
        self.0.iter().try_for_each(|fault| write!(f, "\n  {fault}"))
    }
}

impl std::error::Error for Faults {}

/// Collects faults. Places and texts are made only once there is something to report.
#[derive(Default)]
pub(super) struct Report(Vec<Fault>);

impl Report {
    #[cold]
    pub(super) fn fault(
        &mut self,
        place: impl FnOnce() -> Place,
        found: impl Display,
        allowed: impl Display,
    ) {
        let (found, allowed) = (found.to_string(), allowed.to_string());
        self.0.push(Fault { place: place(), found, allowed });
    }

    pub(super) fn into_vec(self) -> Vec<Fault> {
        self.0
    }

    pub(super) fn finish(self) -> Result<(), Faults> {
        if self.0.is_empty() { Ok(()) } else { Err(Faults(self.0)) }
    }
}

/// A number of things, with the right grammatical number.
pub(super) fn count(n: impl Into<u64>, one: &'static str, many: &'static str) -> impl Display {
    struct Count(u64, &'static str, &'static str);
    impl Display for Count {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{} {}", self.0, if self.0 == 1 { self.1 } else { self.2 })
        }
    }
    Count(n.into(), one, many)
}
