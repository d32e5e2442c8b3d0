//! Starts the processes of a group, reads their result lines as they come, and ends them when their time is up.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::control::Control;
use crate::repo;

/// How a group ended, and the last words of its stderr where it did not end well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Every process said it was done.
    Done,
    /// It was still running at its limit and was ended.
    OutOfTime(Duration),
    /// It could not start or failed.
    Failed(String),
}

enum Said {
    Out(String),
    Err(String),
}

/// Runs a group to its end, at most for `limit`; `each` gets the lines that its processes print.
pub fn run(
    commands: Vec<Command>,
    control: &Control,
    limit: Duration,
    each: &mut dyn FnMut(&str),
) -> Ending {
    let (sender, receiver) = mpsc::channel();
    let mut children = Children(Vec::new());
    for mut command in commands {
        // A group of its own, so that a launcher can be ended with all it started.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        match command.spawn() {
            Ok(child) => children.0.push(listen(child, &sender)),
            Err(error) => {
                control.fail();
                return Ending::Failed(format!("cannot start {}: {error}", repo::line(&command)));
            }
        }
    }
    drop(sender);
    let mut words = Vec::new();
    if !listen_until(&receiver, Instant::now() + limit, &mut words, each) {
        control.fail();
        return Ending::OutOfTime(limit);
    }
    children.join(&words)
}

/// Forwards lines until all processes closed their outputs; false when time ran out before.
fn listen_until(
    receiver: &Receiver<Said>,
    end: Instant,
    words: &mut Vec<String>,
    each: &mut dyn FnMut(&str),
) -> bool {
    loop {
        match receiver.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(Said::Out(line)) => each(&line),
            Ok(Said::Err(line)) => words.push(line),
            Err(RecvTimeoutError::Disconnected) => return true,
            Err(RecvTimeoutError::Timeout) => return false,
        }
    }
}

fn listen(mut child: Child, sender: &Sender<Said>) -> Child {
    if let Some(out) = child.stdout.take() {
        forward(out, sender.clone(), Said::Out);
    }
    if let Some(err) = child.stderr.take() {
        forward(err, sender.clone(), Said::Err);
    }
    child
}

fn forward(from: impl Read + Send + 'static, to: Sender<Said>, wrap: fn(String) -> Said) {
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if to.send(wrap(line)).is_err() {
                return;
            }
        }
    });
}

/// Ends every process that is still there when dropped.
struct Children(Vec<Child>);

impl Children {
    fn join(&mut self, words: &[String]) -> Ending {
        let mut failure = None;
        for child in &mut self.0 {
            match child.wait() {
                Ok(status) if status.success() => {}
                Ok(status) => failure = failure.or(Some(status.to_string())),
                Err(error) => failure = failure.or(Some(error.to_string())),
            }
        }
        self.0.clear();
        let Some(failure) = failure else { return Ending::Done };
        // The first words name the cause; what follows is mostly a launcher's banner.
        let said: Vec<&str> = words
            .iter()
            .map(|w| w.trim())
            .filter(|w| w.contains(char::is_alphabetic))
            .take(3)
            .collect();
        Ending::Failed(format!("{failure}: {}", said.join(" | ")))
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        let signal = |child: &Child, signal| {
            if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                // The group may be gone already, which is what is wanted.
                let _ = kill_process_group(pid, signal);
            }
        };
        for child in &self.0 {
            signal(child, Signal::TERM);
        }
        // Launchers clean up their ranks on TERM; they get a moment for it.
        let end = Instant::now() + Duration::from_secs(3);
        while Instant::now() < end && self.0.iter_mut().any(|c| matches!(c.try_wait(), Ok(None))) {
            thread::sleep(Duration::from_millis(20));
        }
        for child in &mut self.0 {
            signal(child, Signal::KILL);
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, limit: Duration) -> (Ending, Vec<String>) {
        let control = Control::create(1, 1).expect("memfd");
        let mut lines = Vec::new();
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let ending = run(vec![command], &control, limit, &mut |line| lines.push(line.to_owned()));
        (ending, lines)
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn lines_arrive_and_success_is_done() {
        assert_eq!(sh("echo a; echo b", LONG), (Ending::Done, vec!["a".into(), "b".into()]));
    }

    #[test]
    fn a_failure_carries_the_last_words() {
        let (ending, _) = sh("echo ---- >&2; echo no such fabric >&2; exit 3", LONG);
        assert_eq!(ending, Ending::Failed("exit status: 3: no such fabric".into()));
    }

    #[test]
    fn a_group_that_takes_too_long_is_ended_with_its_children() {
        // The shell comes to its first word in that on a busy machine, too.
        let limit = Duration::from_secs(5);
        let started = Instant::now();
        let (ending, lines) = sh("echo here; sleep 600 & sleep 600", limit);
        assert_eq!((ending, lines), (Ending::OutOfTime(limit), vec!["here".into()]));
        assert!(started.elapsed() < LONG);
    }

    #[test]
    fn a_program_that_is_not_there_fails() {
        let control = Control::create(1, 1).expect("memfd");
        let command = Command::new("no-such-launcher");
        let ending = run(vec![command], &control, LONG, &mut |_| ());
        assert!(matches!(ending, Ending::Failed(text) if text.starts_with("cannot start no-such")));
    }
}
