//! Ranks as processes: a test starts its own binary again, once for each rank.
//!
//! The test binary has a test that does nothing unless the environment makes it a rank; the parent starts that test
//! alone. A rank that fails panics, which its parent sees as the status and the text of a failed test.

use antiphon::executor::{Communicator, ExecutorError, HOST_VARIABLE, Options, Rendezvous};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::process::{Child, Command, Output, Stdio};

const ADDRESS: &str = "ANTIPHON_TEST_ADDRESS";
const RANK: &str = "ANTIPHON_TEST_RANK";
const WORLD: &str = "ANTIPHON_TEST_WORLD";
const JOB: &str = "ANTIPHON_TEST_JOB";

/// What this process is to do as a rank.
#[derive(Clone, Debug)]
pub struct Role {
    /// Where to meet.
    pub rendezvous: Rendezvous,
    /// What the parent said.
    pub job: String,
}

/// The role of this process, if it was started as a rank.
///
/// # Panics
/// If the environment is half set.
pub fn role() -> Option<Role> {
    let job = std::env::var(JOB).ok()?;
    let variable = |name| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    let number = |name| variable(name).parse().expect("a number");
    let rendezvous = Rendezvous::new(variable(ADDRESS), number(RANK), number(WORLD));
    // The death of the thread that started this process counts; it waits for this process.
    set_parent_process_death_signal(Some(Signal::KILL)).expect("to die with the parent");
    Some(Role { rendezvous, job })
}

impl Role {
    /// Joins the others.
    ///
    /// # Errors
    /// What the bootstrap reports.
    pub fn connect(&self, options: &Options) -> Result<Communicator, ExecutorError> {
        Communicator::connect(&self.rendezvous, options)
    }
}

/// The processes of one job. Dropping it kills and reaps those that still run.
#[derive(Debug)]
pub struct Ranks {
    children: Vec<Child>,
}

impl Ranks {
    /// Starts `world` processes that each run the test `test` of this binary with a [`Role`].
    ///
    /// # Panics
    /// If a process cannot be started.
    pub fn start(test: &str, world: u32, job: &str) -> Ranks {
        Ranks::start_on(test, &vec![None; world as usize], job)
    }

    /// As [`start`](Self::start), a process for each of `hosts`: those with names are on nodes of their own.
    ///
    /// # Panics
    /// As there.
    pub fn start_on(test: &str, hosts: &[Option<&str>], job: &str) -> Ranks {
        let named = hosts.iter().map(|host| host.map(|host| (HOST_VARIABLE, host)));
        let environments: Vec<Vec<_>> = named.map(|one| one.into_iter().collect()).collect();
        let environments: Vec<_> = environments.iter().map(Vec::as_slice).collect();
        Ranks::start_in(test, &environments, job)
    }

    /// As [`start`](Self::start), a process for each of `environments`, which are set in addition.
    ///
    /// # Panics
    /// As there.
    pub fn start_in(test: &str, environments: &[&[(&str, &str)]], job: &str) -> Ranks {
        let address = Rendezvous::unique().expect("random bits");
        let program = std::env::current_exe().expect("the path of this program");
        let mut ranks = Ranks { children: Vec::new() };
        for (rank, environment) in environments.iter().enumerate() {
            let child = Command::new(&program)
                .args([test, "--exact", "--nocapture", "--test-threads=1"])
                .env(ADDRESS, &address)
                .env(RANK, rank.to_string())
                .env(WORLD, environments.len().to_string())
                .envs(environment.iter().copied())
                .env(JOB, job)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn();
            ranks.children.push(child.expect("the test binary starts again"));
        }
        ranks
    }

    /// The process of each rank.
    pub fn pids(&self) -> Vec<u32> {
        self.children.iter().map(Child::id).collect()
    }

    /// Ends a rank with SIGKILL.
    ///
    /// # Panics
    /// If there is no such rank, or it has been reaped.
    pub fn kill(&mut self, rank: u32) {
        self.children[rank as usize].kill().expect("the rank to be killed");
    }

    /// One rank's standard output, to read while it runs; then its end's output lacks it.
    pub fn output_of(&mut self, rank: u32) -> Option<std::process::ChildStdout> {
        self.children[rank as usize].stdout.take()
    }

    /// Waits for every rank; what each wrote and how it ended, in rank order.
    ///
    /// # Panics
    /// If the system cannot say.
    pub fn wait(mut self) -> Vec<Output> {
        let children = std::mem::take(&mut self.children);
        std::thread::scope(|scope| {
            let waits: Vec<_> = children
                .into_iter()
                .map(|child| scope.spawn(move || child.wait_with_output().expect("its output")))
                .collect();
            waits.into_iter().map(|wait| wait.join().expect("a waiting thread")).collect()
        })
    }

    /// Waits for every rank.
    ///
    /// # Panics
    /// If one failed, with what all that failed wrote.
    pub fn succeed(self) {
        self.end(None);
    }

    /// The same, where one rank is killed.
    ///
    /// # Panics
    /// As [`succeed`](Ranks::succeed), and if that rank ended well.
    pub fn succeed_but_for(self, killed: usize) {
        self.end(Some(killed));
    }

    fn end(self, killed: Option<usize>) {
        let mut failures = String::new();
        for (rank, output) in self.wait().into_iter().enumerate() {
            if output.status.success() == (Some(rank) == killed) {
                let text = String::from_utf8_lossy(&output.stderr);
                let said = String::from_utf8_lossy(&output.stdout);
                failures += &format!("rank {rank}: {}\n{text}\n{said}\n", output.status);
            }
        }
        assert!(failures.is_empty(), "{failures}");
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for child in &mut self.children {
            // Fails only where the child has been reaped already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
