//! Child processes that never outlive the test.

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// What launchers get to end what they started, and what outputs get to be closed once their process has ended.
const GRACE: Duration = Duration::from_secs(3);

/// A child process with a process group of its own, its output collected meanwhile. Dropping it ends the group.
#[derive(Debug)]
pub struct Process {
    /// Not reaped before its group is ended, so that the group's number is nobody else's.
    child: Child,
    ended: bool,
    printed: Receiver<Vec<u8>>,
    said: Receiver<Vec<u8>>,
    started: Instant,
}

/// How a process ended.
#[derive(Debug)]
pub struct Finished {
    /// Its status; `None` where it had to be killed at the limit.
    pub status: Option<ExitStatus>,
    /// Its standard output.
    pub printed: String,
    /// Its standard error.
    pub said: String,
    /// How long it ran.
    pub took: Duration,
}

impl Finished {
    /// Whether it exited with status 0.
    pub fn succeeded(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }
}

impl Process {
    /// Starts a command.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(command: &mut Command) -> Process {
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child =
            command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let printed = collect(child.stdout.take().expect("its standard output"));
        let said = collect(child.stderr.take().expect("its standard error"));
        Process { child, ended: false, printed, said, started: Instant::now() }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills it, as the kernel does to a process that takes too much memory.
    pub fn kill(&mut self) {
        // Fails only where it has ended.
        let _ = self.child.kill();
    }

    /// Whether it still runs.
    pub fn runs(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let waited = self.pid().map(|pid| waitid(WaitId::Pid(pid), options));
        !self.ended && matches!(waited, Some(Ok(None)))
    }

    /// Waits for its end; after `limit` from now it is ended, with what it started.
    pub fn finish(mut self, limit: Duration) -> Finished {
        let in_time = self.wait(limit);
        let took = self.started.elapsed();
        if !in_time {
            // Launchers end their ranks, which have groups of their own, when they are asked to end.
            self.signal(Signal::TERM);
            self.wait(GRACE);
        }
        let status = self.end().filter(|_| in_time);
        // Whoever else holds an output may do so for long.
        let deadline = Instant::now() + GRACE;
        let text = |output: &Receiver<Vec<u8>>| {
            let mut bytes = Vec::new();
            let left = || deadline.saturating_duration_since(Instant::now());
            while let Ok(more) = output.recv_timeout(left()) {
                bytes.extend(more);
            }
            String::from_utf8_lossy(&bytes).into_owned()
        };
        Finished { status, printed: text(&self.printed), said: text(&self.said), took }
    }

    /// Whether it ends within `limit`.
    fn wait(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while self.runs() {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }

    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.pid() {
            // Fails only where all of it has ended.
            let _ = kill_process_group(group, signal);
        }
    }

    /// Ends the group, what the process left behind included; its status.
    fn end(&mut self) -> Option<ExitStatus> {
        if !std::mem::replace(&mut self.ended, true) {
            self.signal(Signal::KILL);
        }
        self.child.wait().ok()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// Reads on a thread of its own, which ends with the output.
fn collect(mut from: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(read @ 1..) = from.read(&mut bytes) {
            if sender.send(bytes[..read].to_vec()).is_err() {
                return;
            }
        }
    });
    receiver
}
