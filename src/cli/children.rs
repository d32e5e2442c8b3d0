//! Ranks as processes: this program starts itself once for each rank.
//!
//! The parent sends every child the job as one line on its standard input and reads events, one a line, from its
//! standard output; standard error is shared. Nothing is left behind: a child asks the kernel to be killed with
//! its parent, and the parent kills and reaps every child before it returns.

use super::collect::Notice;
use super::job::{Event, Job};
use super::ranks::{HOST_VARIABLE, Rank};
use super::{CliError, measure, ranks, signals};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::Sender;

const ADDRESS: &str = "ANTIPHON_RENDEZVOUS";
const RANK: &str = "ANTIPHON_CHILD";
const PARENT: &str = "ANTIPHON_PARENT";

/// The running ranks. Dropping it kills and reaps those that still run.
pub struct Children {
    children: Vec<Child>,
}

impl Children {
    /// Starts every rank of a job; what they say goes to `sender`.
    ///
    /// Must be called from a thread that lives as long as the run: the kernel counts the death of that thread as
    /// the death of the parent.
    pub fn spawn(job: &Job, sender: &Sender<Notice>) -> Result<Children, CliError> {
        let failed = |what| move |source| CliError::Start { what, source };
        let address = Rank::unique_address()?;
        let line = job.to_line()?;
        let mut started = Children { children: Vec::new() };
        for rank in 0..job.settings.world {
            let mut child = Command::new("/proc/self/exe")
                .arg0("antiphon")
                .arg("rank")
                .envs(job.settings.host(rank).map(|host| (HOST_VARIABLE, host)))
                .env(ADDRESS, &address)
                .env(RANK, rank.to_string())
                .env(PARENT, std::process::id().to_string())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .map_err(failed(
                    "cannot start this program again (see `ulimit -u` and `ulimit -n`)",
                ))?;
            let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
            started.children.push(child);
            if let Some(stdout) = stdout {
                let sender = sender.clone();
                std::thread::Builder::new()
                    .name(format!("reader {rank}"))
                    .spawn(move || forward(rank, BufReader::new(stdout), &sender))
                    .map_err(CliError::no_thread)?;
            }
            if let Some(mut stdin) = stdin {
                // A child that is gone already is reported by its reader.
                let _ = stdin.write_all(line.as_bytes()).and_then(|()| stdin.write_all(b"\n"));
            }
        }
        Ok(started)
    }

    /// The process id of each rank.
    pub fn pids(&self) -> Vec<u32> {
        self.children.iter().map(Child::id).collect()
    }

    /// Waits for a rank whose output has ended, and says how it ended.
    pub fn how_ended(&mut self, rank: u32) -> String {
        match self.children.get_mut(rank as usize).map(Child::wait) {
            Some(Ok(status)) => describe(status),
            Some(Err(error)) => format!("ended, and its status cannot be had: {error}"),
            None => "ended".to_owned(),
        }
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.children {
            // Fails only if the child has been reaped already.
            let _ = child.kill();
        }
        for child in &mut self.children {
            let _ = child.wait();
        }
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("was killed by signal {signal}"),
        (None, Some(code)) => format!("ended with status {code} before it had finished"),
        (None, None) => format!("ended before it had finished ({status})"),
    }
}

/// Passes on the events of one rank until its output ends.
fn forward(rank: u32, output: impl BufRead, sender: &Sender<Notice>) {
    for line in output.lines() {
        let Ok(line) = line else { break };
        let event = serde_json::from_str(&line).unwrap_or_else(|_| Event::Failed {
            message: format!("said what is no event of a rank: {line}"),
        });
        if sender.send(Notice::Event { rank, event }).is_err() {
            return;
        }
    }
    // A run that has ended no longer listens.
    let _ = sender.send(Notice::Ended { rank });
}

/// The whole life of a rank's process.
pub fn rank_main() -> Result<ExitCode, CliError> {
    let variable = |name: &str| {
        std::env::var(name).map_err(|_| {
            CliError::Usage(format!(
                "cannot be a rank: {name} is not set; ranks are started by `antiphon run`"
            ))
        })
    };
    let number = |name: &str| -> Result<u32, CliError> {
        let text = variable(name)?;
        text.parse().map_err(|_| {
            CliError::Usage(format!("cannot be a rank: {name} is `{text}`, which is no number"))
        })
    };
    let (address, rank, parent) = (variable(ADDRESS)?, number(RANK)?, number(PARENT)?);
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| CliError::Start {
        what: "cannot bind this rank's life to its parent's",
        source: error.into(),
    })?;
    // The parent may have died before the line above.
    if getppid().is_none_or(|pid| pid.as_raw_nonzero().get() != parent as i32) {
        return Ok(ExitCode::FAILURE);
    }
    signals::unblock_termination();
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|source| CliError::Start { what: "cannot read the run's description", source })?;
    let mut failed = false;
    let mut report = |event: Event| {
        failed |= matches!(event, Event::Failed { .. });
        let mut output = std::io::stdout().lock();
        let written = serde_json::to_writer(&mut output, &event).map_err(std::io::Error::from);
        if written.and_then(|()| writeln!(output)).and_then(|()| output.flush()).is_err() {
            // Nobody listens any more.
            std::process::exit(1);
        }
    };
    let connected = Job::from_line(&line).and_then(|job| {
        let settings = &job.settings;
        let options = ranks::options(settings, rank)?;
        let rank = Rank::connect(address, rank, settings.world, &options)?;
        Ok((rank, job))
    });
    match connected {
        Ok((rank, job)) => measure::run(&rank, &job, &mut report),
        Err(error) => report(Event::Failed { message: error.to_string() }),
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn events_are_passed_on_and_noise_is_a_failure() {
        let (sender, receiver) = channel();
        forward(3, &b"{\"event\":\"ready\"}\nhello\n"[..], &sender);
        drop(sender);
        let notices: Vec<_> = receiver.iter().collect();
        let [first, second, third] = &notices[..] else { panic!("{notices:?}") };
        assert!(matches!(first, Notice::Event { rank: 3, event: Event::Ready }));
        assert!(
            matches!(second, Notice::Event { event: Event::Failed { message }, .. } if message.contains("hello"))
        );
        assert!(matches!(third, Notice::Ended { rank: 3 }));
    }

    #[test]
    fn ends_are_described() {
        assert_eq!(describe(ExitStatus::from_raw(9)), "was killed by signal 9");
        let status = describe(ExitStatus::from_raw(3 << 8));
        assert_eq!(status, "ended with status 3 before it had finished");
    }
}
