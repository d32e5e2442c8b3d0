//! Ranks that are all in processes of their own, so that the environment of each is the test's to choose.

use super::processes::program_of;
use antiphon_executor::Rendezvous;
use std::ffi::OsStr;
use std::process::ExitStatus;

/// Where the ranks meet, and this process's rank.
const ADDRESS: &str = "ANTIPHON_TEST_ADDRESS";
const RANK: &str = "ANTIPHON_TEST_RANK";

/// Where this process meets its peers, if it is one of those that [`run`] started.
pub fn here(world: u32) -> Option<Rendezvous> {
    let said = |name| std::env::var(name).ok();
    let (address, rank) = (said(ADDRESS)?, said(RANK)?);
    Some(Rendezvous::new(address, rank.parse().unwrap(), world))
}

/// Runs a test in `world` processes, each as a rank, with variables for each; how the ranks ended.
pub fn run<'v>(
    test: impl Fn() + Copy,
    world: u32,
    variables: impl Fn(u32) -> &'v [(&'v str, &'v OsStr)],
) -> Vec<ExitStatus> {
    let address = Rendezvous::unique().unwrap();
    let start = |rank: u32| {
        let mut command = program_of(test);
        command.envs(variables(rank).iter().copied());
        command.env(ADDRESS, &address).env(RANK, rank.to_string()).spawn().unwrap()
    };
    let ranks: Vec<_> = (0..world).map(start).collect();
    // All, so that none is left running behind one that has failed.
    ranks.into_iter().map(|mut rank| rank.wait().unwrap()).collect()
}
