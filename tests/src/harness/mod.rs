//! Running plans over many ranks and checking what they leave: what the integration tests share.
//!
//! A [`Case`] says what to run; [`run_case`] runs it as one rank, on a communicator that the test made, and compares
//! every launch with the oracle. Ranks are [threads](on_threads) or [processes]; every random choice follows from
//! [`seed`], which is part of every failure's text.

pub mod buffers;
pub mod case;
pub mod plans;
pub mod processes;
pub mod random;
pub mod runs;
pub mod verdicts;

pub use buffers::{Area, Source};
pub use case::{Case, Outcome, run_case, run_case_by};
pub use plans::{Entry, Verdict, entries};
pub use random::{Random, seed};
pub use runs::{report, right, run_cases, run_plans};
pub use verdicts::assert_verdict;

use antiphon::executor::{Communicator, ExecutorError, Options};
use std::time::Duration;

/// Options whose limit is far above what any right launch takes, and far below a test's patience.
pub fn options() -> Options {
    Options::default().with_timeout(Some(Duration::from_secs(30)))
}

/// What a program said.
pub fn text(said: &[u8]) -> String {
    String::from_utf8_lossy(said).into_owned()
}

/// Runs `work` as every rank of a new communicator, each on a thread of its own; the results in rank order.
///
/// # Errors
/// What making the communicator reports.
///
/// # Panics
/// If a rank panics.
pub fn on_threads<T: Send>(
    world: u32,
    options: &Options,
    work: impl Fn(Communicator) -> T + Sync,
) -> Result<Vec<T>, ExecutorError> {
    on_hosts(&vec!["this"; world as usize], options, work)
}

/// As [`on_threads`], with a rank for each name of a host: ranks of different hosts have port channels alone.
///
/// # Errors
/// What making the communicator reports.
///
/// # Panics
/// If a rank panics.
pub fn on_hosts<T: Send>(
    hosts: &[&str],
    options: &Options,
    work: impl Fn(Communicator) -> T + Sync,
) -> Result<Vec<T>, ExecutorError> {
    let communicators = Communicator::in_process_on(hosts, options)?;
    let work = &work;
    Ok(std::thread::scope(|scope| {
        let ranks: Vec<_> = communicators
            .into_iter()
            .map(|communicator| scope.spawn(move || work(communicator)))
            .collect();
        ranks
            .into_iter()
            .map(|rank| rank.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    }))
}
