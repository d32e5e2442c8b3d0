//! Tests that go on in other processes: each of these runs the test program once more, for one test.

use antiphon_executor::Rendezvous;
use std::process::Command;

/// Where the other process is.
const ADDRESS: &str = "ANTIPHON_TEST_ADDRESS";
/// Set in a process that has a test to itself.
const ALONE: &str = "ANTIPHON_TEST_ALONE";
/// What would make a process a rank of the job that these tests are part of.
const LAUNCHED: [&str; 8] = [
    "ANTIPHON_RANK",
    "ANTIPHON_WORLD",
    "ANTIPHON_COMM_ID",
    "RANK",
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "PMI_PORT",
    "SLURM_PROCID",
];

/// This program, which is to run one test.
pub fn program_of<T: Fn()>(_: T) -> Command {
    // A test's name is its path within the program.
    let path = std::any::type_name::<T>();
    let (_, name) = path.split_once("::").unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name]);
    command
}

/// Runs `join` as rank 0 here, and as rank 1 in a process that runs the same test. Both get an address that is theirs alone.
pub fn in_two_processes(test: impl Fn(), join: impl Fn(u32, &str)) {
    if let Ok(address) = std::env::var(ADDRESS) {
        return join(1, &address);
    }
    let address = Rendezvous::unique().unwrap();
    let mut peer = program_of(test).env(ADDRESS, &address).spawn().unwrap();
    join(0, &address);
    assert!(peer.wait().unwrap().success());
}

/// Has `check` its turn in a process that runs this test alone, with these variables and none of a launcher's.
pub fn alone(test: impl Fn(), variables: &[(&str, &str)], check: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        return check();
    }
    let mut command = program_of(test);
    LAUNCHED.iter().for_each(|name| _ = command.env_remove(name));
    let output = command.env(ALONE, "1").envs(variables.iter().copied()).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}
