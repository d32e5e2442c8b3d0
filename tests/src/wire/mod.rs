//! The conformance suite of wires: what every [`Wire`](antiphon_port::Wire) must do.
//!
//! A wire instantiates all cases with [`wire_suite!`](crate::wire_suite), giving a function that opens connected ends
//! ([`Ends`]); they get the names `wire::<wire>::<case>`. The program `wire-conformance` runs the same cases where there
//! is no test harness, [`run`] from anywhere else.

pub mod bounds;
pub mod completion;
pub mod data;
pub mod drive;
pub mod ends;
pub mod example;
pub mod gpu;
pub mod life;
pub mod packets;
pub mod support;

pub use ends::{Ends, Region, Table};

use std::any::Any;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Opens the ends of so many ranks, numbered from 0.
pub type Open = dyn Fn(u32) -> Ends + Send + Sync;

/// What a case tests.
#[derive(Clone)]
pub struct Subject {
    /// The full name of the running case.
    pub test: String,
    /// Opens the ends.
    pub open: Arc<Open>,
    /// The largest write, in bytes; less than 64 MiB on slow machines.
    pub largest: u64,
    /// How long something may take before it is called missing.
    pub patience: Duration,
}

impl Subject {
    /// The ends that `open` opens, on a machine of the usual speed.
    pub fn new(
        test: impl Into<String>,
        open: impl Fn(u32) -> Ends + Send + Sync + 'static,
    ) -> Self {
        Subject {
            test: test.into(),
            open: Arc::new(open),
            largest: 64 << 20,
            patience: Duration::from_secs(30),
        }
    }

    /// Fresh ends of `ranks` ranks.
    pub fn ends(&self, ranks: u32) -> Ends {
        let mut ends = (self.open)(ranks);
        assert_eq!(ends.wires.len(), ranks as usize);
        ends.patience = self.patience;
        ends
    }

    /// Says that the case does not apply.
    pub fn skip(&self, why: &str) {
        // Written past the harness's capture, which hides what the print macros print in tests that pass.
        let _ = writeln!(std::io::stderr(), "SKIP {}: {why}", self.test);
    }
}

/// A case: a name and the function that panics where the wire does not conform.
pub type Case = (&'static str, fn(&Subject));

/// Calls the macro `$then` with its own arguments and the list of all cases: the one place that names them.
#[macro_export]
macro_rules! wire_cases {
    ($then:path $(, $argument:tt)*) => {
        $then! { [$($argument)*]
            data::writes_of_all_sizes_arrive
            data::signals_come_after_their_data_both_ways
            data::signals_land_in_order
            data::many_threads_post_at_once
            data::several_regions_are_told_apart
            data::all_ranks_reach_each_other
            data::one_pair_may_have_many_links
            packets::units_appear_whole
            gpu::memory_of_gpus_goes_by_its_buffer
            completion::completed_posts_have_landed
            completion::sources_that_are_released_may_change
            completion::a_full_queue_says_so_and_loses_nothing
            completion::what_is_posted_before_the_peer_connects_arrives
            bounds::what_makes_no_sense_is_refused
            bounds::retired_regions_are_forgotten
            drive::the_descriptor_tells_of_everything
            drive::a_lone_write_wakes_who_sleeps
            drive::sleepers_take_over_from_others
            drive::several_threads_make_progress
            life::the_loss_of_a_peer_is_told
            life::a_peer_that_never_answers_is_lost
            life::a_link_that_is_stopped_leaves_memory_alone
            life::memory_is_given_back
            life::ends_come_and_go
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! wire_case_table {
    ([] $($module:ident::$case:ident)*) => { &[$((stringify!($case), $module::$case)),*] };
}

#[doc(hidden)]
#[macro_export]
macro_rules! wire_case_tests {
    ([$wire:ident $open:tt] $($module:ident::$case:ident)*) => {
        $(
            #[test]
            fn $case() {
                let test = concat!("wire::", stringify!($wire), "::", stringify!($case));
                use $crate::wire::Subject;
                $crate::wire::$module::$case(&Subject::new(test, $open));
            }
        )*
    };
}

/// Instantiates the suite, at the root of a test crate: `wire_suite! { tcp => (crate::open_tcp) }`, where the
/// function in parentheses opens the [`Ends`] of a number of ranks. All wires (or settings of one) come in one call.
#[macro_export]
macro_rules! wire_suite {
    ($($wire:ident => $open:tt),+ $(,)?) => {
        mod wire {
            $(
                mod $wire {
                    $crate::wire_cases! { $crate::wire_case_tests, $wire, $open }
                }
            )+
        }
    };
}

/// All cases.
pub fn cases() -> &'static [Case] {
    wire_cases! { wire_case_table }
}

/// Runs all cases whose name contains `only`, one after the other; `report` gets each case's name and what it said when
/// it failed. The number of cases that failed.
pub fn run(
    subject: &Subject,
    only: &str,
    mut report: impl FnMut(&str, Result<(), String>),
) -> usize {
    let mut failed = 0;
    for (name, case) in cases().iter().filter(|(name, _)| name.contains(only)) {
        let subject = Subject { test: format!("{}::{name}", subject.test), ..subject.clone() };
        let result = catch_unwind(AssertUnwindSafe(|| case(&subject))).map_err(|why| said(&*why));
        failed += usize::from(result.is_err());
        report(name, result);
    }
    failed
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked").to_owned()
}
