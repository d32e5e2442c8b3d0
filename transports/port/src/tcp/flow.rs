//! A link that stands: its connections, and the protocol between them and memory.

use super::dial::Connected;
use super::link::Outbox;
use super::protocol::frame::Frame;
use super::protocol::{Part, Receiver, Regions, Sender};
use super::socket::{self, MOST_PARTS};
use rustix::event::epoll::EventFlags;
use std::os::fd::OwnedFd;

/// How often one call sends or reads on before it returns to its caller, who may have other links.
const ROUNDS: usize = 32;

/// One connection.
#[derive(Debug)]
struct Connection {
    socket: OwnedFd,
    watched: EventFlags,
    /// The kernel's buffer is full.
    blocked: bool,
    /// How many passes go by before it is tried again.
    pause: u32,
}

/// After the kernel's buffer was full, so many passes go by: a peer that spins would otherwise spend its time, and the
/// socket's lock, on asking.
const PAUSE: u32 = 8;

impl Connection {
    fn block(&mut self, blocked: bool) {
        self.blocked = blocked;
        self.pause = if blocked { PAUSE } else { 0 };
    }
}

/// A link that stands.
#[derive(Debug)]
pub(super) struct Flow {
    connections: Vec<Connection>,
    sender: Sender,
    receiver: Receiver,
    /// The position that the peer was told last, and the one it was asked about.
    told: u64,
    asked: u64,
    /// Why nothing can be sent any more. What the peer sent is still read.
    broken: Option<String>,
    /// Why nothing comes any more on the first connection.
    ended: Option<String>,
}

/// What a pass over the connections did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    /// Something was sent.
    pub moved: bool,
    /// There may be more to do at once.
    pub more: bool,
}

impl Flow {
    /// A link over connections that have proven themselves, in the order of their stripes.
    pub fn new(connections: Vec<Connected>) -> Self {
        let stripes = connections.len();
        let connections = connections
            .into_iter()
            .map(|(socket, watched)| Connection { socket, watched, blocked: false, pause: 0 })
            .collect();
        Flow {
            connections,
            sender: Sender::new(stripes),
            receiver: Receiver::new(stripes),
            told: 0,
            asked: 0,
            broken: None,
            ended: None,
        }
    }

    /// Sends what was posted and what the peer wants to know, as far as the kernel takes it.
    pub fn send(&mut self, outbox: &Outbox) -> Sent {
        let mut moved = false;
        if self.broken.is_some() {
            return Sent { moved, more: true };
        }
        for connection in &mut self.connections {
            connection.pause = connection.pause.saturating_sub(1);
            connection.blocked = connection.pause > 0;
        }
        for _ in 0..ROUNDS {
            outbox.take(&mut self.sender);
            self.talk(outbox);
            let mut some = false;
            for stripe in 0..self.connections.len() {
                some |= self.send_on(stripe);
            }
            if !some {
                // That the link is broken is for the receiving half to tell.
                return Sent { moved, more: self.broken.is_some() };
            }
            moved = true;
        }
        Sent { moved, more: true }
    }

    /// Puts questions and answers before what will be sent.
    fn talk(&mut self, outbox: &Outbox) {
        let begun = self.sender.begun();
        let wanted = outbox.wanted();
        // One question at a time, unless a new one asks for everything.
        let answered = self.receiver.acknowledged() >= self.asked;
        if wanted > self.asked && begun > self.asked && (begun >= wanted || answered) {
            self.asked = begun;
            self.sender.control(&Frame::Ask { position: begun });
        }
        let answer = self.receiver.answer();
        let along = || (self.sender.waiting(0) > 0).then(|| self.receiver.landed());
        if let Some(position) = answer.or_else(along)
            && position > self.told
        {
            self.told = position;
            self.sender.acknowledge(position);
        }
    }

    fn send_on(&mut self, stripe: usize) -> bool {
        let Some(connection) = self.connections.get_mut(stripe) else { return false };
        let mut some = false;
        while self.broken.is_none() && !connection.blocked && self.sender.waiting(stripe) > 0 {
            let mut parts = [Part::NONE; MOST_PARTS];
            let count = self.sender.gather(stripe, &mut parts);
            let parts = &parts[..count];
            let bytes: usize = parts.iter().map(|part| part.bytes).sum();
            // SAFETY: the sender holds the memories that the parts lie in, and its own buffer, and is not touched
            // before the call returns.
            match unsafe { socket::send(&connection.socket, parts) } {
                Ok(sent) => {
                    self.sender.sent(stripe, sent);
                    connection.block(sent < bytes);
                    some = true;
                }
                Err(error) if socket::would_wait(&error) => connection.block(true),
                Err(error) => self.broken = Some(format!("a connection broke: {error}")),
            }
        }
        some
    }

    /// Reads what has come, as far as there is a place for it; whether anything did.
    ///
    /// # Errors
    /// Why the link is lost.
    pub fn receive(&mut self, regions: &dyn Regions) -> Result<bool, String> {
        let mut moved = false;
        for stripe in 0..self.connections.len() {
            let ended = stripe == 0 && self.ended.is_some();
            if !ended && (stripe == 0 || self.receiver.expects(stripe)) {
                moved |= self.receive_on(stripe, regions)?;
            }
        }
        if let Some(reason) = &self.ended
            && !self.receiver.expects_any()
        {
            return Err(self.broken.clone().unwrap_or_else(|| reason.clone()));
        }
        // What came before it broke was read.
        if let Some(reason) = self.broken.as_ref().filter(|_| !moved) {
            return Err(reason.clone());
        }
        let (acknowledged, begun) = (self.receiver.acknowledged(), self.sender.begun());
        if acknowledged > begun {
            return Err(format!(
                "the peer broke the protocol: it acknowledged {acknowledged} posts of {begun}"
            ));
        }
        Ok(moved)
    }

    fn receive_on(&mut self, stripe: usize, regions: &dyn Regions) -> Result<bool, String> {
        let mut moved = false;
        let Some(connection) = self.connections.get(stripe) else { return Ok(false) };
        for _ in 0..ROUNDS {
            let room = self.receiver.room(stripe);
            let wanted: usize = room.iter().map(|part| part.bytes).sum();
            if wanted == 0 {
                break;
            }
            // SAFETY: the parts lie in the receiver's own buffer, or in memories that it holds, inside of regions that
            // the peer may write to; nothing refers to these bytes until the receiver is told.
            let ended = match unsafe { socket::receive(&connection.socket, room) } {
                Ok(0) => "the peer closed the connection".to_owned(),
                Ok(bytes) => {
                    moved = true;
                    let read = self.receiver.filled(stripe, bytes, regions);
                    read.map_err(|fault| fault.to_string())?;
                    if bytes < wanted {
                        break;
                    }
                    continue;
                }
                Err(error) if socket::would_wait(&error) => break,
                Err(error) => error.to_string(),
            };
            if stripe > 0 {
                return Err(ended);
            }
            self.ended = Some(ended);
            break;
        }
        Ok(moved)
    }

    /// How many of this rank's posts have landed, as far as the peer told.
    pub fn acknowledged(&self) -> u64 {
        self.receiver.acknowledged()
    }

    /// Bytes of writes that were sent, but for those of small ones, or have come.
    pub fn carried(&self) -> u64 {
        self.sender.carried() + self.receiver.carried()
    }

    /// How many of this rank's posts the kernel has taken whole, if nothing else waits to be sent; otherwise 0.
    pub fn all_sent(&self) -> u64 {
        if self.sender.is_idle() { self.sender.begun() } else { 0 }
    }

    /// Whether the peer waits for an answer that can be given.
    pub fn owes(&mut self, outbox: &Outbox) -> bool {
        self.talk(outbox);
        self.sender.waiting(0) > 0 && self.broken.is_none()
    }

    /// Makes the descriptor tell of what this link waits for now.
    pub fn watch(&mut self, poller: &OwnedFd) -> Result<(), String> {
        for (stripe, connection) in self.connections.iter_mut().enumerate() {
            let reads = match stripe {
                0 => self.ended.is_none() && !self.receiver.is_paused(),
                _ => self.receiver.expects(stripe),
            };
            let writes = self.broken.is_none() && self.sender.waiting(stripe) > 0;
            let mut wanted = EventFlags::empty();
            wanted.set(EventFlags::IN, reads);
            wanted.set(EventFlags::OUT, writes);
            let watched = connection.watched;
            socket::watch(poller, &connection.socket, watched, wanted)
                .map_err(|error| format!("cannot watch a connection: {error}"))?;
            connection.watched = wanted;
            // Whoever is woken by it tries at once.
            connection.pause = 0;
        }
        Ok(())
    }
}
