//! Ranks whose hosts are equal prove that memory passes between them: each reads a random token through a descriptor that
//! the other passed over a Unix socket. Where that cannot be (other network namespaces, other users), they are on
//! different nodes, whatever their hosts are called.

use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::super::card::Table;
use super::{Meeting, Role, Seat};
use crate::error::Result;
use crate::frame::{Frame, Kind};
use crate::hello::{decode_link, encode_link, passed_token, passing};
use crate::meeting::{STRANGERS, check_answer, keep_newest};
use crate::pipe::Pipe;
use crate::socket::connect;

/// How long a proof may take between processes that can connect. Generous, for a rank that is only slow must not become a
/// node of its own; ranks that cannot connect know it at once.
const PROOFS: Duration = Duration::from_secs(10);

impl Meeting<'_> {
    pub(super) fn set_table(&mut self, table: Table) {
        let me = &table.cards[self.job.rank as usize];
        let higher = table.cards.iter().filter(|card| card.rank > me.rank && card.host == me.host);
        self.calls = higher.map(|card| card.rank).collect();
        self.table = Some(table);
        self.proofs_until = Instant::now() + PROOFS;
    }

    /// Takes in who comes to the Unix door.
    pub(super) fn admit_neighbours(&mut self) {
        let Some(door) = &self.unix_door else { return };
        for _ in 0..STRANGERS {
            let Some(socket) = self.lack.accept(door) else { break };
            // Another user's process is dropped here.
            if let Some(pipe) = Pipe::new(socket) {
                self.seats.push(Seat::new(Role::Caller, pipe));
            }
        }
        let most = self.job.world as usize + STRANGERS;
        keep_newest(&mut self.seats, most, |seat| seat.role == Role::Caller);
    }

    /// Opens links to higher ranks of this host.
    pub(super) fn call(&mut self) -> Result<()> {
        let Some(table) = self.table.as_ref() else { return Ok(()) };
        let mut later = Vec::new();
        for rank in std::mem::take(&mut self.calls) {
            let attempt = connect(&table.cards[rank as usize].door);
            let Some(reached) = self.lack.reached(attempt) else {
                later.push(rank);
                continue;
            };
            match reached {
                Ok(socket) => {
                    let Some(mut pipe) = Pipe::new(socket) else { continue };
                    let link = encode_link(&table.key, self.job.rank);
                    pipe.send(passing(&self.token, Kind::Link, link)?);
                    self.seats.push(Seat::new(Role::Link(rank), pipe));
                }
                // Its listener is busy.
                Err(Errno::AGAIN) => later.push(rank),
                // It is in another network namespace.
                Err(_) => {}
            }
        }
        self.calls = later;
        Ok(())
    }

    /// A lower rank opens its link.
    pub(super) fn greet(&mut self, at: usize, frame: &mut Frame) -> Result<()> {
        let valid = decode_link(&frame.payload).filter(|&(key, rank)| {
            let table = self.table.as_ref();
            table.is_some_and(|table| table.key == key) && rank < self.job.rank
        });
        let free = |&(_, rank): &([u8; 16], u32)| {
            !self.has(Role::Link(rank)) && !self.has(Role::Done(rank))
        };
        let (Some((_, rank)), Ok(answer)) = (valid.filter(free), passed_token(frame)) else {
            self.seats[at].role = Role::Dropped;
            return Ok(());
        };
        let welcome = passing(&self.token, Kind::Welcome, answer.to_vec())?;
        self.seats[at].pipe.send(welcome);
        self.seats[at].role = Role::Link(rank);
        Ok(())
    }

    /// A higher rank has read our token; we read its, and say so.
    pub(super) fn prove(&mut self, at: usize, rank: u32, welcome: &mut Frame) {
        let read_ours = check_answer(self.name(rank), welcome, self.token).is_ok();
        match passed_token(welcome) {
            Ok(answer) if read_ours && !self.said_ready => {
                self.seats[at].pipe.send_bytes(Kind::Proof, answer.to_vec());
                self.seats[at].role = Role::Done(rank);
                self.proven.insert(rank);
            }
            _ => self.seats[at].role = Role::Dropped,
        }
    }

    /// The link to a rank broke before its proof.
    pub(super) fn unproven(&mut self, rank: u32) {
        self.proven.remove(&rank);
    }

    /// Whether this rank's calls have come to their ends, one way or the other.
    pub(super) fn proofs_are_over(&self) -> bool {
        let open = |seat: &Seat| matches!(seat.role, Role::Link(rank) if rank > self.job.rank);
        let pending = !self.calls.is_empty() || self.seats.iter().any(open);
        !pending || Instant::now() >= self.proofs_until
    }

    /// Whether all may go and the links of this node stand.
    pub(super) fn is_complete(&self) -> bool {
        let Some(nodes) = &self.nodes else { return false };
        let mine = nodes[self.job.rank as usize];
        (0..).zip(nodes).all(|(rank, &node)| {
            node != mine || rank == self.job.rank || self.has(Role::Done(rank))
        })
    }
}
