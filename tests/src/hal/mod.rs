//! The conformance suite of the device layer: what every backend must do, for each capability it advertises.
//!
//! Memory is looked at by the CPU only where the device says that it may be ([`support::Access`]).
//!
//! A backend instantiates all cases with [`hal_suite!`](crate::hal_suite); they get the names
//! `hal::<backend>::<case>`. A case whose capability a device lacks prints a line that starts with `SKIP` (even where
//! the test harness swallows output) and passes; that the operations then answer "unsupported" is a case of its own.

pub mod kernel;
pub mod memory;
pub mod process;
pub mod stream;
pub mod support;

use antiphon_hal::Device;
use std::io::Write;
use std::sync::Arc;

/// What a case tests.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The device.
    pub device: Arc<dyn Device>,
    /// The full name of the running case, by which it can run itself in a process of its own.
    pub test: &'static str,
}

impl Subject {
    /// Whether the case may go on: `capability` is there. Says so where it is not.
    pub fn has(&self, capability: bool, what: &str) -> bool {
        if !capability {
            // Written past the harness's capture, which hides what the print macros print in tests that pass.
            let _ = writeln!(std::io::stderr(), "SKIP {}: the device has no {what}", self.test);
        }
        capability
    }
}

/// Calls the macro `$then` with its own arguments and the list of all cases: the one place that names them.
#[macro_export]
macro_rules! hal_cases {
    ($then:path $(, $argument:tt)*) => {
        $then! { [$($argument)*]
            memory::allocations_are_zeroed_and_aligned
            memory::empty_and_absurd_allocations_are_refused
            memory::memory_is_shared_between_mappings
            memory::parts_make_up_the_memory
            memory::pinned_memory_is_the_cpus_as_well
            memory::memory_of_the_host_that_is_pinned_is_passed_on_as_the_hosts
            memory::handles_that_could_fault_are_refused
            memory::find_tells_the_memory_and_the_offset
            memory::the_epoch_changes_with_the_memory
            memory::identities_are_never_reused
            memory::found_memory_survives_concurrent_drops
            memory::what_is_not_wired_answers_unsupported
            stream::a_task_that_can_finish_does_so_inline
            stream::tasks_run_in_order
            stream::a_task_keeps_its_place_while_it_is_first_polled
            stream::progress_needs_no_caller
            stream::many_callers_may_drive_one_stream
            stream::errors_are_reported_once
            stream::a_panic_is_the_failure_of_its_task
            stream::events_order_streams
            stream::an_event_stands_for_its_latest_record
            stream::a_later_record_releases_nobody
            stream::synchronize_does_not_wait_for_later_work
            stream::a_dropped_stream_goes_on
            stream::copies_keep_their_place
            stream::copies_follow_each_other
            stream::events_order_copies
            stream::random_work_keeps_every_order
            stream::a_threads_own_default_stream_is_no_other_threads
            kernel::a_kernel_does_what_its_source_says
            kernel::launches_keep_their_place
            kernel::what_is_known_of_a_kernel_is_plausible
            kernel::launches_that_cannot_be_are_refused
            kernel::blocks_of_a_cooperative_launch_meet
            kernel::a_source_with_a_fault_is_an_error_with_the_log
            process::another_process_maps_the_same_bytes
            process::another_process_is_reached_by_address
            process::dropped_objects_leave_nothing_behind
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! hal_case_tests {
    ([$backend:ident $open:tt] $($module:ident::$case:ident)*) => {
        $(
            #[test]
            fn $case() {
                let test = concat!("hal::", stringify!($backend), "::", stringify!($case));
                let device = $open();
                $crate::hal::$module::$case(&$crate::hal::Subject { device, test });
            }
        )*
    };
}

/// Instantiates the suite, at the root of a test crate: `hal_suite! { host => (crate::open_host) }`, where the
/// function in parentheses opens the device. All backends (or settings of one) come in one call.
#[macro_export]
macro_rules! hal_suite {
    ($($backend:ident => $open:tt),+ $(,)?) => {
        mod hal {
            $(
                mod $backend {
                    $crate::hal_cases! { $crate::hal_case_tests, $backend, $open }
                }
            )+
        }
    };
}
