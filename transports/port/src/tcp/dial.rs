//! One connection on its way to a peer's door.

use super::protocol::hello::{HELLO, Hello, PROOF, REPLY, check};
use super::socket;
use antiphon_transport::room::is_full;
use rustix::event::epoll::EventFlags;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// How often a connection is tried again that was closed before the peer answered: its door may have been crowded.
const ATTEMPTS: u32 = 5;

/// Where a dialling link goes, and from where.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub to: SocketAddr,
    /// The local address to go from, if it was chosen by the user, or because it is near.
    pub from: Option<SocketAddr>,
    pub key: [u8; 32],
}

/// One connection that is coming up.
#[derive(Debug)]
pub(super) struct Dial {
    hello: Hello,
    said: [u8; HELLO],
    sent: usize,
    answer: [u8; REPLY],
    got: usize,
    attempts: u32,
    socket: OwnedFd,
    watched: EventFlags,
}

/// A connection that stands, and how it is watched.
pub(super) type Connected = (OwnedFd, EventFlags);

impl Dial {
    /// Begins. `hello` gets its nonce here.
    pub fn begin(way: &Way, hello: Hello, poller: &OwnedFd) -> Result<Self, String> {
        let socket = call(way, poller)?;
        let mut dial = Dial {
            said: [0; HELLO],
            hello,
            sent: 0,
            answer: [0; REPLY],
            got: 0,
            attempts: 1,
            socket,
            watched: EventFlags::OUT,
        };
        dial.greet()?;
        Ok(dial)
    }

    /// Which stripe it will be.
    pub fn stripe(&self) -> u16 {
        self.hello.stripe
    }

    fn greet(&mut self) -> Result<(), String> {
        self.hello.nonce = socket::random().map_err(|error| error.to_string())?;
        self.said = self.hello.bytes();
        (self.sent, self.got) = (0, 0);
        Ok(())
    }

    /// The connection, once it stands.
    pub fn into_connected(self) -> Connected {
        (self.socket, self.watched)
    }

    /// Goes on as far as it can without waiting; whether it stands. `moved` becomes true if it went on.
    ///
    /// # Errors
    /// Why it never will.
    pub fn step(&mut self, way: &Way, poller: &OwnedFd, moved: &mut bool) -> Result<bool, String> {
        match self.talk(way, moved) {
            Ok(false) => {}
            Ok(true) => return Ok(true),
            Err(Trouble::Refused(why)) => return Err(why),
            Err(Trouble::Closed(why)) => {
                if self.sent == 0 || self.attempts >= ATTEMPTS {
                    return Err(format!("cannot reach {}: {why}", way.to));
                }
                self.attempts += 1;
                *moved = true;
                self.socket = call(way, poller)?;
                self.watched = EventFlags::OUT;
                self.greet()?;
                return Ok(false);
            }
        }
        let wanted = if self.sent < HELLO { EventFlags::OUT } else { EventFlags::IN };
        socket::watch(poller, &self.socket, self.watched, wanted).map_err(|e| e.to_string())?;
        self.watched = wanted;
        Ok(false)
    }

    fn talk(&mut self, way: &Way, moved: &mut bool) -> Result<bool, Trouble> {
        while self.sent < HELLO {
            match socket::send_bytes(&self.socket, &self.said[self.sent..]) {
                Ok(bytes) => self.sent += bytes,
                Err(error) if socket::would_wait(&error) => return Ok(false),
                Err(error) => return Err(Trouble::Closed(text(error))),
            }
            *moved = true;
        }
        while self.got < REPLY {
            match socket::receive_bytes(&self.socket, &mut self.answer[self.got..]) {
                Ok(0) => return Err(Trouble::Closed("it closed the connection".to_owned())),
                Ok(bytes) => self.got += bytes,
                Err(error) if socket::would_wait(&error) => return Ok(false),
                Err(error) => return Err(Trouble::Closed(text(error))),
            }
            *moved = true;
        }
        let proof = check(&way.key, &self.said, &self.answer)
            .map_err(|refusal| Trouble::Refused(format!("{}: {refusal}", way.to)))?;
        match socket::send_bytes(&self.socket, &proof) {
            Ok(PROOF) => Ok(true),
            Ok(_) => Err(Trouble::Closed("a new connection takes no 32 bytes".to_owned())),
            Err(error) => Err(Trouble::Closed(text(error))),
        }
    }
}

enum Trouble {
    Closed(String),
    Refused(String),
}

fn call(way: &Way, poller: &OwnedFd) -> Result<OwnedFd, String> {
    let cannot = |error| {
        let advice =
            if is_full(error) { "; raise the limit on open files (`ulimit -n`)" } else { "" };
        format!("cannot reach {}: {error}{advice}", way.to)
    };
    let socket = socket::dial(&way.to, way.from).map_err(cannot)?;
    socket::watch(poller, &socket, EventFlags::empty(), EventFlags::OUT).map_err(cannot)?;
    Ok(socket)
}

fn text(error: io::Error) -> String {
    error.to_string()
}
