//! A connection until both ends have proven themselves: bounded in bytes (no more than one record is read ahead of its
//! check) and in time.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::handshake::{Caller, Failure, Listener, Purpose, RECORD, Step, Verdict};
use super::secret::nonce;
use super::stand;
use crate::error::Result;
use crate::frame::VERSION;

/// Most hints that are kept: strangers must not fill the memory.
pub(super) const HINTS: usize = 16;
/// How long a connection may take to prove itself.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(5);

/// Why a connection came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    Failed(Failure),
    /// Closed by the other end.
    Closed,
    /// [`HANDSHAKE`] has passed.
    Slow,
    Os(Errno),
}

pub(super) enum Progress {
    Waiting,
    /// The other end has proven to be this rank. A listener gives its [`Contact::verdict`] now.
    Proven {
        purpose: Purpose,
        rank: u32,
    },
    Over(Why),
}

enum End {
    Caller(Caller),
    Listener(Listener),
}

/// A connection that is being proven.
pub(super) struct Contact {
    pub socket: OwnedFd,
    /// The other end's address.
    pub address: SocketAddr,
    pub until: Instant,
    /// Something may have happened since the last [`advance`](Self::advance), which then looks for it.
    pub due: bool,
    end: End,
    /// To be sent when the connection stands.
    hello: Option<[u8; RECORD]>,
}

impl Contact {
    /// Begins a connection to the rank that listens at an address.
    pub fn call(
        address: SocketAddr,
        key: [u8; 32],
        purpose: Purpose,
        rank: u32,
        listener: u32,
    ) -> Result<std::result::Result<Contact, Errno>> {
        let (caller, hello) = Caller::new(key, purpose, rank, listener, nonce()?);
        let contact = |socket| Contact {
            socket,
            address,
            until: Instant::now() + HANDSHAKE,
            due: true,
            end: End::Caller(caller),
            hello: Some(hello),
        };
        Ok(stand::call(address).map(contact))
    }

    /// Takes in a connection that came to `rank`'s listener.
    pub fn answer(socket: OwnedFd, key: [u8; 32], rank: u32) -> Result<Option<Contact>> {
        let Ok(address) = stand::remote(&socket) else { return Ok(None) };
        let end = End::Listener(Listener::new(key, rank, nonce()?));
        let until = Instant::now() + HANDSHAKE;
        Ok(Some(Contact { socket, address, until, due: true, end, hello: None }))
    }

    /// Whether it waits for the connection to stand.
    pub fn is_connecting(&self) -> bool {
        self.hello.is_some()
    }

    /// What to wait for.
    pub fn interest(&self) -> PollFd<'_> {
        let flags = if self.is_connecting() { PollFlags::OUT } else { PollFlags::IN };
        PollFd::new(&self.socket, flags)
    }

    /// Goes as far as it can without waiting.
    pub fn advance(&mut self) -> Progress {
        if !std::mem::take(&mut self.due) {
            return self.wait();
        }
        if let Some(hello) = self.hello {
            match stand::outcome(&self.socket) {
                Ok(()) => self.hello = None,
                Err(Errno::NOTCONN) => return self.wait(),
                Err(errno) => return Progress::Over(Why::Os(errno)),
            }
            if let Err(why) = self.send(&hello) {
                return Progress::Over(why);
            }
        }
        loop {
            let mut buffer = [0; RECORD];
            let wants = match &self.end {
                End::Caller(caller) => caller.wants(),
                End::Listener(listener) => listener.wants(),
            };
            let got = rustix::io::retry_on_intr(|| {
                rustix::net::recv(&self.socket, &mut buffer[..wants], RecvFlags::DONTWAIT)
            });
            let got = match got {
                Ok((_, 0)) | Err(Errno::CONNRESET) => return Progress::Over(Why::Closed),
                Ok((_, got)) => got,
                Err(Errno::AGAIN) => return self.wait(),
                Err(errno) => return Progress::Over(Why::Os(errno)),
            };
            let step = match &mut self.end {
                End::Caller(caller) => caller.feed(&buffer[..got]),
                End::Listener(listener) => listener.feed(&buffer[..got]),
            };
            match step {
                Step::Send(None) => {}
                Step::Send(Some(record)) => {
                    if let Err(why) = self.send(&record) {
                        return Progress::Over(why);
                    }
                }
                Step::Proven { purpose, rank } => return Progress::Proven { purpose, rank },
                Step::Fail(failure, last) => {
                    if let Some(record) = last {
                        // It is turned away either way.
                        let _ = self.send(&record);
                    }
                    return Progress::Over(Why::Failed(failure));
                }
            }
        }
    }

    fn wait(&self) -> Progress {
        match self.until.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Progress::Over(Why::Slow),
            _ => Progress::Waiting,
        }
    }

    /// A listener's last word; false if it did not leave.
    pub fn verdict(&self, verdict: Verdict) -> bool {
        match &self.end {
            End::Listener(listener) => self.send(&listener.verdict(verdict)).is_ok(),
            End::Caller(_) => false,
        }
    }

    /// What is to be said of a rank that a listener has turned away.
    pub fn hint(&self, why: Why) -> Option<String> {
        let ip = self.address.ip().to_canonical();
        match why {
            Why::Failed(Failure::Secret(rank)) => {
                Some(format!("rank {rank} at {ip} has another secret: give all ranks the same one"))
            }
            Why::Failed(Failure::Version(saw)) => Some(format!(
                "the process at {ip} speaks bootstrap protocol version {saw}, this one {VERSION}: use the same build of Antiphon everywhere"
            )),
            // Strangers: scanners, health checks.
            _ => None,
        }
    }

    fn send(&self, record: &[u8; RECORD]) -> std::result::Result<(), Why> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match rustix::io::retry_on_intr(|| rustix::net::send(&self.socket, record, flags)) {
            Ok(RECORD) => Ok(()),
            // The socket is fresh: it has room for the few records of a handshake unless something is wrong.
            Ok(_) => Err(Why::Slow),
            Err(errno) => Err(Why::Os(errno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn knocked() -> (Contact, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let outside = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let inside = listener.accept().unwrap().0;
        inside.set_nonblocking(true).unwrap();
        (Contact::answer(inside.into(), [1; 32], 0).unwrap().unwrap(), outside)
    }

    #[test]
    fn a_silent_connection_has_its_time_and_no_more() {
        let (mut contact, mut outside) = knocked();
        outside.write_all(b"ANTI").unwrap();
        contact.due = true;
        assert!(matches!(contact.advance(), Progress::Waiting));
        contact.until = Instant::now();
        assert!(matches!(contact.advance(), Progress::Over(Why::Slow)));
        contact.due = true;
        assert!(matches!(contact.advance(), Progress::Over(Why::Slow)));
    }

    #[test]
    fn nothing_is_read_ahead_of_what_is_checked() {
        let (mut contact, mut outside) = knocked();
        let (_, hello) = Caller::new([1; 32], Purpose::Join, 1, 0, [2; 32]);
        outside.write_all(&hello).unwrap();
        outside.write_all(&[b'x'; 1000]).unwrap();
        let until = Instant::now() + HANDSHAKE;
        loop {
            contact.due = true;
            match contact.advance() {
                Progress::Waiting => assert!(Instant::now() < until),
                Progress::Over(why) => {
                    assert_eq!(why, Why::Failed(Failure::Stranger));
                    break;
                }
                Progress::Proven { .. } => panic!("proven by garbage"),
            }
        }
        // The challenge was all that it said.
        drop(contact);
        let mut said = Vec::new();
        let _ = outside.read_to_end(&mut said);
        assert!(said.len() <= RECORD);
    }
}
