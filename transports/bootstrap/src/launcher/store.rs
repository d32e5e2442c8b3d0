//! A client of the TCPStore that torchrun's agent runs at `MASTER_ADDR`, port `MASTER_PORT`, for as long as the job runs.
//!
//! All that is asked of it is to pass one text from rank 0 to all. Every step has a deadline: there may be nobody, or
//! somebody else, at the port.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::store_wire::{Dialect, Request};
use super::{LauncherError, Result};
use crate::lookup::Lookup;
use crate::meeting::deadline;

/// How long to look for a Store: the agent's is there before its ranks are.
const REACH: Duration = Duration::from_secs(5);
/// Between two attempts to reach it.
const PAUSE: Duration = Duration::from_millis(50);

/// A connection to a Store.
pub(super) struct Store {
    stream: TcpStream,
    dialect: Dialect,
    host: String,
    port: u16,
    deadline: Instant,
}

/// Why a request came to nothing.
#[derive(Debug)]
enum Failure {
    /// The connection was closed before the answer was complete.
    Closed,
    Slow,
    Other(String),
}

impl Store {
    /// Finds the Store and learns how it is spoken to. `limit` counts for this and all that is asked later.
    ///
    /// # Errors
    /// `Store`, where none answers in five seconds, or in `limit` if that is shorter.
    pub fn open(host: &str, port: u16, limit: Duration) -> Result<Store> {
        let begun = Instant::now();
        let fail = |problem: String| failed("reach the other ranks", host, port, problem);
        let reach = begun + limit.min(REACH);
        let stream = dial(host, port, reach).map_err(fail)?;
        let dialect = Dialect::Introduced;
        let mut store = Store { stream, dialect, host: host.to_owned(), port, deadline: reach };
        match store.ask(Request::Hello) {
            Ok(_) => {}
            // An old Store does not understand it.
            Err(Failure::Closed) => {
                store.dialect = Dialect::Bare;
                store.stream = dial(host, port, reach).map_err(fail)?;
                store.ask(Request::Check("antiphon")).map_err(|failure| fail(failure.into()))?;
            }
            Err(failure) => return Err(fail(failure.into())),
        }
        store.deadline = deadline(begun, limit);
        Ok(store)
    }

    /// This host's address in the network where the Store is, for `UniqueId::create`. `None` where that is known to
    /// be the wrong one: the Store's host may know itself by a loopback address under a name that others take for
    /// the host's own.
    pub fn interface(&self) -> Option<String> {
        let own = self.stream.local_addr().ok()?.ip().to_canonical();
        let meant = self.host == "localhost"
            || self.host.parse().is_ok_and(|host: IpAddr| host.to_canonical().is_loopback());
        (!own.is_loopback() || meant).then(|| own.to_string())
    }

    /// Puts a text under a key, and sees that it is there.
    ///
    /// # Errors
    /// `Store`.
    pub fn publish(&mut self, key: &str, text: &str) -> Result<()> {
        let doing = "publish where the ranks meet";
        self.ask(Request::Set(key, text)).map_err(|failure| self.failed(doing, failure))?;
        match self.ask(Request::Get(key)) {
            Ok(there) if there == text.as_bytes() => Ok(()),
            Ok(_) => Err(self.failed(doing, Failure::Other("another rank 0 did so, too".into()))),
            Err(failure) => Err(self.failed(doing, failure)),
        }
    }

    /// The text under a key, once rank 0 has put it there.
    ///
    /// # Errors
    /// `Store`, also where rank 0 did not come within the time limit.
    pub fn read(&mut self, key: &str) -> Result<String> {
        self.ask(Request::Wait(key)).map_err(|failure| match failure {
            Failure::Slow => {
                let problem = "rank 0 did not say so within the time limit (ANTIPHON_TIMEOUT)";
                self.failed("learn where the ranks meet", Failure::Other(problem.into()))
            }
            other => self.failed("wait for rank 0", other),
        })?;
        let value = self.ask(Request::Get(key));
        let value = value.map_err(|failure| self.failed("learn where the ranks meet", failure))?;
        Ok(String::from_utf8_lossy(&value).into_owned())
    }

    /// What is wrong if rank 0 does not listen where it said. It may be an earlier one, which died before it could take
    /// its word away: read again, until the time is up.
    pub fn silent(&self, rank_0: SocketAddr) -> Option<LauncherError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let error = TcpStream::connect_timeout(&rank_0, left.clamp(PAUSE, REACH)).err()?;
        std::thread::sleep(PAUSE);
        let problem = format!("rank 0 says that it listens at {rank_0}, and does not ({error})");
        Some(self.failed("meet rank 0", Failure::Other(problem)))
    }

    /// Takes a text away that has served, as well as may be: the job stands without.
    pub fn forget(mut self, key: &str) {
        self.deadline = Instant::now() + REACH;
        let _ = self.ask(Request::Delete(key));
    }

    /// The error for a value that is none of ours.
    pub fn strange(&self, error: &crate::BootstrapError) -> LauncherError {
        self.failed("learn where the ranks meet", Failure::Other(error.to_string()))
    }

    fn failed(&self, doing: &'static str, failure: Failure) -> LauncherError {
        failed(doing, &self.host, self.port, failure.into())
    }

    /// Sends a request and returns the answer's content.
    fn ask(&mut self, request: Request) -> std::result::Result<Vec<u8>, Failure> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write_all(&request.encode(self.dialect))?;
        let mut received = Vec::new();
        loop {
            if let Some(content) = request.decode(&received).map_err(Failure::Other)? {
                return Ok(content);
            }
            self.stream.set_read_timeout(Some(self.left()?))?;
            let mut bytes = [0; 1024];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(Failure::Closed),
                Ok(got) => received.extend(&bytes[..got]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Until the deadline; never zero, which would mean for ever.
    fn left(&self) -> std::result::Result<Duration, Failure> {
        match self.deadline.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(Failure::Slow),
            left => Ok(left),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Failure::Slow,
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => Failure::Closed,
            _ => Failure::Other(error.to_string()),
        }
    }
}

impl From<Failure> for String {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Closed => "the connection was closed without an answer".into(),
            Failure::Slow => "somebody listens there and does not answer".into(),
            Failure::Other(problem) => problem,
        }
    }
}

fn failed(doing: &'static str, host: &str, port: u16, problem: String) -> LauncherError {
    let address = crate::tcp::Place::Address { host: host.to_owned(), port }.to_string();
    LauncherError::Store { doing, address, problem }
}

/// Connects to the first of a host's addresses that takes the connection; again until the deadline.
fn dial(host: &str, port: u16, deadline: Instant) -> std::result::Result<TcpStream, String> {
    dial_by(host, || Lookup::begin(host, port), deadline)
}

/// As [`dial`], with a lookup of your own.
fn dial_by(
    host: &str,
    look: impl Fn() -> Lookup,
    deadline: Instant,
) -> std::result::Result<TcpStream, String> {
    let slow = || format!("the host {host:?} cannot be looked up: no answer has come in time");
    loop {
        let mut last = match look().wait(deadline).ok_or_else(slow)? {
            Err(error) => error.to_string(),
            Ok(addresses) => {
                let mut last = "the name has no address".to_owned();
                for (at, address) in addresses.iter().enumerate() {
                    let left = deadline.saturating_duration_since(Instant::now());
                    // One address that swallows everything must not use up the time of the others.
                    let share = left / (addresses.len() - at) as u32;
                    match TcpStream::connect_timeout(address, share.max(PAUSE)) {
                        Ok(stream) => {
                            // A request follows one that has no answer. Late packets are no fault.
                            let _ = stream.set_nodelay(true);
                            return Ok(stream);
                        }
                        Err(error) => last = error.to_string(),
                    }
                }
                last
            }
        };
        if Instant::now() + PAUSE >= deadline {
            last.insert_str(0, "nobody listens there: ");
            return Err(last);
        }
        std::thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_lookup_that_does_not_end_ends_with_the_time() {
        let (end, ended) = mpsc::channel();
        let ended = std::sync::Mutex::new(Some(ended));
        let look = || {
            let ended = crate::sync::lock(&ended).take().unwrap();
            Lookup::by(move || ended.recv().map_err(std::io::Error::other))
        };
        let problem = dial_by("slow.invalid", look, Instant::now() + PAUSE).unwrap_err();
        assert!(problem.contains("\"slow.invalid\"") && problem.contains("no answer"), "{problem}");
        end.send(Vec::new()).unwrap();
    }
}
