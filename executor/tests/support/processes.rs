//! Ranks in processes of their own.

use antiphon_executor::Rendezvous;
use std::process::Command;

/// Where the other process is.
const ADDRESS: &str = "ANTIPHON_TEST_ADDRESS";

/// Runs `join` as rank 0 here, and as rank 1 in a process that runs the same test, whose name is `test`. Both get an address
/// that is theirs alone.
pub fn in_two_processes(test: &str, join: impl Fn(u32, &str)) {
    if let Ok(address) = std::env::var(ADDRESS) {
        return join(1, &address);
    }
    let address = Rendezvous::unique().unwrap();
    let mut peer = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .env(ADDRESS, &address)
        .spawn()
        .unwrap();
    join(0, &address);
    assert!(peer.wait().unwrap().success());
}
