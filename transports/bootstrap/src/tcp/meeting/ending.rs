//! How the forming of a job ends: with a mesh, or with an error that everyone hears.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::wire::{TcpLinks, Terms};
use super::{FORMING, Meeting, Role};
use crate::error::{BootstrapError, PeerName, Result};
use crate::frame::Kind;
use crate::group::Member;
use crate::key::keyed;
use crate::mesh::Mesh;
use crate::pipe::Pipe;
use crate::{Bootstrap, PeerInfo};

/// How long rank 0 of a job that cannot form tells so to ranks that come later, and how long the others wait for its word
/// on who is missing.
const GRACE: Duration = Duration::from_secs(1);

impl Meeting<'_> {
    /// The error when the time is up; before it a rank asks rank 0 who is missing.
    pub(super) fn time_is_up(&mut self) -> Result<()> {
        if self.here.is_empty() && !self.asked && self.has(Role::Desk) {
            self.asked = true;
            self.deadline = Instant::now() + GRACE;
            for seat in self.seats.iter_mut().filter(|seat| seat.role == Role::Desk) {
                seat.pipe.send_bytes(Kind::Roster, Vec::new());
            }
            return Ok(());
        }
        let (limit, missing) = (self.job.timeout, self.missing());
        if self.hints.is_empty() {
            return Err(BootstrapError::Timeout { doing: FORMING, limit, missing });
        }
        let hints: Vec<String> = self.hints.iter().cloned().collect();
        Err(BootstrapError::Incomplete { limit, missing, hints: hints.join("; ") })
    }

    /// Whom this rank is waiting for.
    fn missing(&self) -> Vec<PeerName> {
        let all = 0..self.job.world;
        let missing: Vec<u32> = if self.job.rank == 0 {
            let here = |rank: &u32| match self.table {
                Some(_) => self.ready.contains_key(rank),
                None => *rank == 0 || self.cards[*rank as usize].is_some(),
            };
            all.filter(|rank| !here(rank)).collect()
        } else if self.here.is_empty() {
            vec![0]
        } else {
            all.filter(|rank| !self.here.contains(rank)).collect()
        };
        missing.into_iter().map(|rank| self.name(rank)).collect()
    }

    /// Tells those who would otherwise wait for this rank why they wait in vain.
    pub(super) fn tell_all(&mut self, error: &BootstrapError) {
        let text = match error {
            // The first cause, not the way it took.
            BootstrapError::Refused { text, .. } => text.clone(),
            error => error.to_string(),
        };
        self.note = None;
        let tell = |seat: &mut super::Seat| {
            if matches!(seat.role, Role::Joined(_) | Role::Desk) {
                seat.pipe.send_bytes(Kind::Reject, text.clone().into_bytes());
                seat.role = Role::Told;
            }
        };
        self.seats.iter_mut().for_each(tell);
        // With the time used up nobody else is expected.
        let late =
            matches!(error, BootstrapError::Timeout { .. } | BootstrapError::Incomplete { .. });
        if self.desk.is_none() || late {
            return;
        }
        let expected = self.job.world as usize - 1;
        self.deadline = self.deadline.min(Instant::now() + GRACE);
        // Whatever goes wrong now, the error to report is the first one.
        loop {
            let told = self.seats.iter().filter(|seat| matches!(seat.role, Role::Told)).count();
            let waited = Instant::now() < self.deadline && self.wait().is_ok();
            if told >= expected || !waited || self.admit().is_err() {
                return;
            }
            for seat in &mut self.seats {
                if let Role::Guest(_) = seat.role {
                    match seat.pipe.next() {
                        Ok(None) => {}
                        Ok(Some(_)) => {
                            seat.pipe.send_bytes(Kind::Reject, text.as_bytes().to_vec());
                            seat.role = Role::Told;
                        }
                        Err(_) => seat.role = Role::Dropped,
                    }
                } else if let Role::Told = seat.role {
                    seat.pipe.flush();
                }
            }
            self.seats.retain(|seat| matches!(seat.role, Role::Told | Role::Guest(_)));
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
