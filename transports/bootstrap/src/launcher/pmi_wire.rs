//! The simple wire protocol of PMI 1: lines of `key=value`, one answer to each request, over a socket that the launcher
//! left open. Hydra and Slurm's `pmi2` plugin speak it.
//!
//! All that is asked of it is to pass one text from rank 0 to all. The connection is closed in good order
//! afterwards; a launcher takes anything else for the death of a rank.

use std::collections::HashMap;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketType, recv, send, sockopt::socket_type};

use super::{LauncherError, Result};
use crate::meeting::deadline;

/// No answer is longer: names and values have limits of some hundred bytes.
const LONGEST_LINE: usize = 16 << 10;
const KEY: &str = "antiphon-meeting";

/// A connection to the process manager.
struct Client {
    /// As the environment has it, for errors.
    number: i32,
    socket: OwnedFd,
    deadline: Instant,
    received: Vec<u8>,
    doing: &'static str,
}

/// Passes rank 0's text to every rank; all ranks call it, and rank 0 alone has a text. Returns the text.
///
/// # Errors
/// `Pmi`, where the process manager is not there, answers other than the protocol allows, refuses, or does not answer
/// within the time limit.
pub(super) fn share(descriptor: i32, text: Option<&str>, limit: Duration) -> Result<String> {
    let mut client = Client::new(descriptor, limit)?;
    client.doing = "open the connection";
    client.ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init")?;
    client.doing = "learn the limits";
    let limits = client.ask("cmd=get_maxes", "maxes")?;
    let longest = limits.get("vallen_max").and_then(|value| value.parse::<usize>().ok());
    client.doing = "learn the job's name";
    let answer = client.ask("cmd=get_my_kvsname", "my_kvsname")?;
    let Some(space) = answer.get("kvsname").cloned() else {
        return Err(client.failed("the answer names no key-value space".into()));
    };
    if let Some(text) = text {
        client.doing = "publish where the ranks meet";
        if longest.is_some_and(|longest| text.len() >= longest) {
            let problem = format!("{} bytes, allowed below {longest:?}", text.len());
            return Err(client.failed(problem));
        }
        client.ask(&format!("cmd=put kvsname={space} key={KEY} value={text}"), "put_result")?;
    }
    client.doing = "wait for the other ranks";
    client.ask("cmd=barrier_in", "barrier_out")?;
    client.doing = "learn where the ranks meet";
    let mut answer = client.ask(&format!("cmd=get kvsname={space} key={KEY}"), "get_result")?;
    let Some(text) = answer.remove("value") else {
        return Err(client.failed("the answer holds no value".into()));
    };
    client.doing = "close the connection";
    client.ask("cmd=finalize", "finalize_ack")?;
    Ok(text)
}

impl Client {
    fn new(number: i32, limit: Duration) -> Result<Client> {
        let doing = "reach the launcher";
        let fail = |problem: String| LauncherError::Pmi { doing, descriptor: number, problem };
        // SAFETY: duplicating reads no memory of this process; a number that is not open is answered with an error.
        let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
        if copy < 0 {
            return Err(fail(std::io::Error::last_os_error().to_string()));
        }
        // SAFETY: `fcntl` has just made this descriptor, and nobody else knows it.
        let socket = unsafe { OwnedFd::from_raw_fd(copy) };
        // Anything else that happens to have the number must not be written to.
        if socket_type(&socket) != Ok(SocketType::STREAM) {
            return Err(fail("the descriptor is no stream socket".into()));
        }
        let deadline = deadline(Instant::now(), limit);
        Ok(Client { number, socket, deadline, received: Vec::new(), doing })
    }

    fn failed(&self, problem: String) -> LauncherError {
        LauncherError::Pmi { doing: self.doing, descriptor: self.number, problem }
    }

    /// Sends a request and returns the answer's values.
    fn ask(&mut self, request: &str, expected: &str) -> Result<HashMap<String, String>> {
        let line = format!("{request}\n");
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            self.wait(PollFlags::OUT)?;
            match send(&self.socket, rest, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(sent) => rest = &rest[sent..],
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(errno) => return Err(self.failed(errno.to_string())),
            }
        }
        let line = self.line()?;
        let values = parse(&line);
        let shown: String = line.chars().take(120).collect();
        if values.get("cmd").map(String::as_str) != Some(expected) {
            return Err(self.failed(format!("saw the answer {shown:?}, allowed cmd={expected}")));
        }
        if values.get("rc").is_some_and(|code| code != "0") {
            return Err(self.failed(format!("refused with {shown:?}")));
        }
        Ok(values)
    }

    fn line(&mut self) -> Result<String> {
        loop {
            if let Some(end) = self.received.iter().position(|&byte| byte == b'\n') {
                let rest = self.received.split_off(end + 1);
                let line = std::mem::replace(&mut self.received, rest);
                return Ok(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            if self.received.len() > LONGEST_LINE {
                return Err(self.failed(format!("an answer of more than {LONGEST_LINE} bytes")));
            }
            self.wait(PollFlags::IN)?;
            let mut bytes = [0; 1024];
            match recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(self.failed("the launcher closed the connection".into())),
                Ok((got, _)) => self.received.extend(&bytes[..got]),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(errno) => return Err(self.failed(errno.to_string())),
            }
        }
    }

    /// Waits until the socket can be read or written, or is broken.
    fn wait(&self, events: PollFlags) -> Result<()> {
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec {
                tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            match poll(&mut [PollFd::new(&self.socket, events)], Some(&timeout)) {
                Ok(0) => {
                    return Err(
                        self.failed("no answer within the time limit (ANTIPHON_TIMEOUT)".into())
                    );
                }
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.failed(errno.to_string())),
            }
        }
    }
}

/// The `key=value` words of a line. Of words that come twice the first counts.
pub(super) fn parse(line: &str) -> HashMap<String, String> {
    let mut values = HashMap::new();
    for word in line.split_ascii_whitespace() {
        if let Some((key, value)) = word.split_once('=') {
            values.entry(key.to_owned()).or_insert_with(|| value.to_owned());
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;
    use std::thread;

    const LIMIT: Duration = Duration::from_secs(20);

    /// Plays a process manager that answers each request in turn, then closes; returns the requests.
    fn manage(end: UnixStream, answers: Vec<Vec<u8>>) -> thread::JoinHandle<Vec<String>> {
        thread::spawn(move || {
            let mut requests = Vec::new();
            let mut reader = BufReader::new(end.try_clone().unwrap());
            for answer in answers {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap_or(0) == 0 {
                    break;
                }
                requests.push(line.trim_end().to_owned());
                if (&end).write_all(&answer).is_err() {
                    break;
                }
            }
            requests
        })
    }

    fn answers(value: &str) -> Vec<Vec<u8>> {
        [
            "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n",
            "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n",
            "cmd=my_kvsname kvsname=kvs_7_0\n",
            "cmd=put_result rc=0 msg=success\n",
            "cmd=barrier_out\n",
            &format!("cmd=get_result rc=0 msg=success value={value}\n"),
            "cmd=finalize_ack\n",
        ]
        .iter()
        .map(|line| line.as_bytes().to_vec())
        .collect()
    }

    fn run(answers: Vec<Vec<u8>>, text: Option<&str>) -> (Result<String>, Vec<String>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let manager = manage(theirs, answers);
        let result = share(ours.as_raw_fd(), text, LIMIT);
        drop(ours);
        (result, manager.join().unwrap())
    }

    #[test]
    fn rank_0_publishes_and_the_others_only_ask() {
        let (text, requests) = run(answers("here"), Some("here"));
        assert_eq!(text.unwrap(), "here");
        let expected = [
            "cmd=init pmi_version=1 pmi_subversion=1",
            "cmd=get_maxes",
            "cmd=get_my_kvsname",
            "cmd=put kvsname=kvs_7_0 key=antiphon-meeting value=here",
            "cmd=barrier_in",
            "cmd=get kvsname=kvs_7_0 key=antiphon-meeting",
            "cmd=finalize",
        ];
        assert_eq!(requests, expected);
        let mut others = answers("there");
        others.remove(3);
        let (text, requests) = run(others, None);
        assert_eq!(text.unwrap(), "there");
        assert!(!requests.iter().any(|request| request.contains("cmd=put")), "{requests:?}");
    }

    #[test]
    fn whatever_a_process_manager_says_the_call_ends_with_the_cause() {
        let cases: [(usize, &[u8], &str); 9] = [
            (0, b"cmd=response_to_init rc=-1\n", "refused"),
            (0, b"nonsense\n", "allowed cmd=response_to_init"),
            (0, b"\xff\xfe=\x00\n", "allowed cmd=response_to_init"),
            (1, b"cmd=maxes vallen_max=3\n", "allowed below"),
            (2, b"cmd=my_kvsname\n", "names no key-value space"),
            (3, b"cmd=put_result rc=1 msg=full\n", "refused"),
            (4, b"cmd=abort exitcode=1\n", "allowed cmd=barrier_out"),
            (5, b"cmd=get_result rc=0\n", "holds no value"),
            (5, &[b'x'; 40_000], "more than 16384 bytes"),
        ];
        for (at, answer, expected) in cases {
            let mut answers = answers("here");
            answers[at] = answer.to_vec();
            let error = run(answers, Some("here")).0.unwrap_err().to_string();
            assert!(error.contains(expected), "{expected}: {error}");
            assert!(error.contains("ANTIPHON_COMM_ID"), "{error}");
        }
        let error = run(Vec::new(), Some("here")).0.unwrap_err().to_string();
        assert!(error.contains("closed the connection") || error.contains("reset"), "{error}");
    }

    #[test]
    fn a_limit_may_be_of_any_length() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let manager = manage(theirs, answers("here"));
        assert_eq!(share(ours.as_raw_fd(), Some("here"), Duration::MAX).unwrap(), "here");
        drop(ours);
        manager.join().unwrap();
    }

    #[test]
    fn silence_and_descriptors_that_are_no_socket_are_errors() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let error = share(ours.as_raw_fd(), None, Duration::from_millis(20)).unwrap_err();
        assert!(error.to_string().contains("ANTIPHON_TIMEOUT"), "{error}");
        let file = std::fs::File::open("/dev/null").unwrap();
        let error = share(file.as_raw_fd(), None, LIMIT).unwrap_err().to_string();
        assert!(error.contains("no stream socket"), "{error}");
        let error = share(i32::MAX, None, LIMIT).unwrap_err().to_string();
        assert!(error.contains("PMI_FD=2147483647"), "{error}");
    }
}
