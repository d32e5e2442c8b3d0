//! How the forming of a job ends: with a mesh, or with an error that everyone hears.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::card::Card;
use super::super::links::{TcpLinks, Terms};
use super::{Meeting, Role};
use crate::error::{BootstrapError, PeerName, Result};
use crate::frame::{Frame, Kind};
use crate::group::Member;
use crate::hello::{Introduction, decode_words, encode_words};
use crate::key::keyed;
use crate::meeting::{FORMING, GRACE, nonsense};
use crate::mesh::Mesh;
use crate::pipe::Pipe;
use crate::{Bootstrap, PeerInfo};

/// How long a rank whose time is up waits for rank 0's word, which comes at once unless its host is overloaded.
const ANSWER: Duration = Duration::from_secs(5);

impl Meeting<'_> {
    /// The error when the time is up. A rank that has come to rank 0 asks it first: that one knows who is missing, and who
    /// was turned away and why, so it is the one to end the forming, with one word for all.
    pub(super) fn time_is_up(&mut self) -> Result<()> {
        if !self.asked && self.has(Role::Desk) {
            self.asked = true;
            self.deadline = Instant::now() + ANSWER;
            let limit = self.job.timeout;
            let seconds = limit.as_secs().try_into().unwrap_or(u32::MAX);
            let limit = encode_words([seconds, limit.subsec_nanos()]);
            for seat in self.seats.iter_mut().filter(|seat| seat.role == Role::Desk) {
                seat.pipe.send_bytes(Kind::Roster, limit.clone());
            }
            return Ok(());
        }
        self.check_own_name();
        Err(self.unanswered(self.job.timeout))
    }

    /// On rank 0: the time of another rank is up.
    pub(super) fn asked_by(&self, rank: u32, frame: &Frame) -> Result<()> {
        let [seconds, nanos] = decode_words(&frame.payload)[..] else {
            return Err(nonsense(self.name(rank), "a time limit that cannot be read"));
        };
        let limit = Duration::from_secs(seconds.into()) + Duration::from_nanos(nanos.into());
        if self.missing().is_empty() {
            // The last one has come just now, and the asking one has the time to go on with it.
            return Ok(());
        }
        let text = self.unanswered(limit).to_string();
        Err(BootstrapError::Refused { by: self.name(rank), text })
    }

    fn unanswered(&self, limit: Duration) -> BootstrapError {
        BootstrapError::Timeout { doing: FORMING, limit, missing: self.missing() }
    }

    /// The error with all that may explain it.
    pub(super) fn explained(&self, error: BootstrapError) -> BootstrapError {
        let hints = self.all_hints().join("; ");
        match error {
            error if hints.is_empty() => error,
            BootstrapError::Timeout { limit, missing, .. } => {
                BootstrapError::Incomplete { limit, missing, hints }
            }
            // Where this rank looked for rank 0 says nothing about other errors.
            error if self.desk.is_none() => error,
            error => BootstrapError::TurnedAway { cause: Box::new(error), hints },
        }
    }

    /// What was turned away, and what went wrong or does.
    pub(super) fn all_hints(&self) -> Vec<String> {
        self.hints.iter().cloned().chain(self.lack.hint(Instant::now())).collect()
    }

    /// Whom this rank is waiting for: the others know of rank 0 alone.
    pub(super) fn missing(&self) -> Vec<PeerName> {
        if self.job.rank != 0 {
            return vec![self.name(0)];
        }
        let here = |rank: &u32| match self.table {
            Some(_) => self.ready.contains_key(rank),
            None => *rank == 0 || self.cards[*rank as usize].is_some(),
        };
        (0..self.job.world).filter(|rank| !here(rank)).map(|rank| self.name(rank)).collect()
    }

    /// Tells those who would otherwise wait for this rank why they wait in vain.
    pub(super) fn tell_all(&mut self, error: &BootstrapError) {
        let text = error.told();
        self.note = None;
        let tell = |seat: &mut super::Seat| {
            if matches!(seat.role, Role::Joined(_) | Role::Desk) {
                seat.pipe.send_bytes(Kind::Reject, text.clone().into_bytes());
                seat.role = Role::Told;
            }
        };
        self.seats.iter_mut().for_each(tell);
        // With the time used up nobody else is expected.
        let now = Instant::now();
        if self.desk.is_none() || now >= self.deadline {
            return;
        }
        self.deadline = self.deadline.min(now + GRACE);
        // Ranks that could not be let in for want of descriptors can be now.
        (self.door, self.unix_door) = (None, None);
        let stays = |role| matches!(role, Role::Told | Role::Guest(_) | Role::Keeper);
        self.seats.retain(|seat| stays(seat.role));
        let mut told = self.seats.iter().filter(|seat| seat.role == Role::Told).count();
        // Whatever goes wrong now, the error to report is the first one.
        loop {
            // Ranks that come with another world than rank 0's may be more than it knows of.
            let expected = self.largest as usize - 1;
            let over = told >= expected || Instant::now() >= self.deadline;
            if over || self.wait().is_err() || self.admit().is_err() {
                return;
            }
            for seat in &mut self.seats {
                match seat.role {
                    Role::Guest(_) => match seat.pipe.next() {
                        Ok(None) => {}
                        Ok(Some(frame)) => {
                            let world = Card::decode(&frame.payload).map_or(0, |card| card.world);
                            self.largest = self.largest.max(world);
                            seat.pipe.send_bytes(Kind::Reject, text.as_bytes().to_vec());
                            told += 1;
                            // The next one may need its descriptor.
                            let over = seat.pipe.out.is_empty();
                            seat.role = if over { Role::Dropped } else { Role::Told };
                        }
                        Err(_) => seat.role = Role::Dropped,
                    },
                    // As long as this one is there, the others are sent here.
                    Role::Keeper if seat.pipe.next().is_err() => seat.role = Role::Dropped,
                    Role::Told => seat.pipe.flush(),
                    _ => {}
                }
            }
            self.seats.retain(|seat| stays(seat.role));
        }
    }

    /// Makes the mesh of the connections.
    pub(super) fn finish(self) -> Result<Arc<dyn Bootstrap>> {
        let me = self.job.rank;
        let (Some(table), Some(nodes), Some(door)) = (self.table, self.nodes, self.door) else {
            return Err(BootstrapError::Protocol {
                peer: PeerName { rank: 0, pid: 0 },
                saw: "its consent before its table".to_owned(),
            });
        };
        let mut pipes: Vec<Option<Pipe>> = table.cards.iter().map(|_| None).collect();
        let mine = nodes[me as usize];
        let near = |rank: u32| nodes[rank as usize] == mine;
        let mut pids: Vec<u32> = table.cards.iter().map(|card| card.pid).collect();
        for seat in self.seats {
            let rank = match seat.role {
                Role::Done(rank) if near(rank) => {
                    // As this process's namespace sees it.
                    pids[rank as usize] = seat.pipe.pid;
                    rank
                }
                Role::Joined(rank) if !near(rank) => rank,
                Role::Desk if !near(0) => 0,
                _ => continue,
            };
            pipes[rank as usize] = Some(seat.pipe);
        }
        let addresses: Vec<SocketAddr> = table.cards.iter().map(|card| card.address).collect();
        let peers = table.cards.iter().zip(pids).zip(&nodes).map(|((card, pid), &node)| {
            let same_process = card.process == self.card.process;
            PeerInfo { pid, same_process, node, address: Some(card.address.ip()) }
        });
        let peers: Vec<PeerInfo> = peers.collect();
        let job = keyed(&self.secret.derive(b"job", &[]), &[&table.key]);
        let silence = self.job.silence;
        let terms = Terms {
            rank: me,
            nodes: nodes.clone(),
            addresses,
            silence,
            key: keyed(&job, &[b"links"]),
        };
        let mut made = None;
        let mesh = Mesh::new(me, peers, self.job.timeout, job, |mesh| {
            let wire = TcpLinks::new(terms, door, mesh)?;
            made = Some(wire.clone());
            Ok(Box::new(wire))
        })?;
        // From here on a failure says goodbye to those who stand already.
        let whole = Member::whole(mesh.clone());
        if let Some(wire) = made {
            wire.start(&mesh, pipes)?;
        }
        Ok(whole)
    }
}
