//! Child processes that never outlive the test.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A child process, its output collected meanwhile. Dropping it kills and reaps it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    output: Option<(JoinHandle<String>, JoinHandle<String>)>,
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
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let printed = collect(child.stdout.take().expect("its standard output"));
        let said = collect(child.stderr.take().expect("its standard error"));
        Process { child, output: Some((printed, said)), started: Instant::now() }
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
    pub fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for its end; after `limit` from now it is killed.
    pub fn finish(mut self, limit: Duration) -> Finished {
        let deadline = Instant::now() + limit;
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                _ => break None,
            }
        };
        let took = self.started.elapsed();
        if status.is_none() {
            self.kill();
            let _ = self.child.wait();
        }
        let (printed, said) = self.output.take().expect("not yet taken");
        let text = |thread: JoinHandle<String>| thread.join().expect("the reader");
        Finished { status, printed: text(printed), said: text(said), took }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn collect(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read before an error is kept.
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
