//! How the forming of a job ends: with a mesh, or with an error that everyone hears.

use std::sync::Arc;
use std::time::Instant;

use super::{Meeting, Role};
use crate::error::{BootstrapError, PeerName, Result};
use crate::frame::Kind;
use crate::group::Member;
use crate::hello::Introduction;
use crate::link::{Link, Links};
use crate::local::number_nodes;
use crate::meeting::GRACE;
use crate::mesh::Mesh;
use crate::pipe::Pipe;
use crate::unix::card::Card;
use crate::{Bootstrap, PeerInfo};

impl Meeting<'_> {
    /// Whom this rank is waiting for.
    pub(super) fn missing(&self) -> Vec<PeerName> {
        let others = (0..self.job.world).filter(|&rank| rank != self.job.rank);
        let others: Vec<PeerName> = others.map(|rank| self.name(rank)).collect();
        let select = |wanted: &dyn Fn(u32) -> bool| -> Vec<PeerName> {
            others.iter().copied().filter(|peer| wanted(peer.rank)).collect()
        };
        if self.job.rank == 0 && !self.is_host() || self.job.rank != 0 && !self.has(Role::Desk) {
            return vec![self.name(0)];
        }
        if self.table.is_none() {
            return select(&|rank| !self.here.contains(&rank));
        }
        let links = select(&|rank| !self.has(Role::Done(rank)));
        match (links.is_empty(), self.is_host()) {
            (false, _) => links,
            (true, true) => select(&|rank| !self.ready.contains(&rank)),
            (true, false) => vec![self.name(0)],
        }
    }

    /// Tells those who would otherwise wait for this rank why they wait in vain.
    pub(super) fn tell_all(&mut self, error: &BootstrapError) {
        let text = error.told();
        for seat in &mut self.seats {
            if matches!(seat.role, Role::Joined(_) | Role::Desk) {
                seat.pipe.send_bytes(Kind::Reject, text.clone().into_bytes());
                seat.role = Role::Told;
            }
        }
        // With the time used up nobody else is expected.
        let late =
            matches!(error, BootstrapError::Timeout { .. } | BootstrapError::Incomplete { .. });
        if self.is_host() && !late {
            self.tell_latecomers(&text);
        }
    }

    /// Stays at the desk for a moment, for those who were on their way: they would knock until their time is up.
    fn tell_latecomers(&mut self, text: &str) {
        self.seats.retain(|seat| matches!(seat.role, Role::Told | Role::Guest(())));
        self.doubt = None;
        // Ranks that could not be let in for want of descriptors can be now.
        self.door = None;
        self.deadline = self.deadline.min(Instant::now() + GRACE);
        let mut told = self.seats.iter().filter(|seat| seat.role == Role::Told).count();
        loop {
            // Ranks that come with another world than rank 0's may be more than it knows of.
            let expected = self.largest as usize - 1;
            // Whatever goes wrong now, the error to report is the first one.
            if told >= expected || self.wait().is_err() {
                return;
            }
            self.admit();
            for seat in &mut self.seats {
                if seat.role != Role::Guest(()) {
                    continue;
                }
                match seat.pipe.next() {
                    Ok(None) => {}
                    Ok(Some(frame)) if frame.kind == Kind::Join => {
                        let world = Card::decode(&frame.payload).map_or(0, |card| card.world);
                        self.largest = self.largest.max(world);
                        seat.pipe.send_bytes(Kind::Reject, text.as_bytes().to_vec());
                        told += 1;
                        // The next one may need its descriptor.
                        let over = seat.pipe.out.is_empty();
                        seat.role = if over { Role::Dropped } else { Role::Told };
                    }
                    Ok(Some(_)) | Err(_) => seat.role = Role::Dropped,
                }
            }
            self.seats.retain(|seat| seat.role != Role::Dropped);
        }
    }

    /// Makes the mesh of the complete links.
    pub(super) fn finish(self) -> Result<Arc<dyn Bootstrap>> {
        let Some(table) = self.table else {
            return Err(BootstrapError::Protocol {
                peer: PeerName { rank: 0, pid: self.pids[0] },
                saw: "its consent before its table".to_owned(),
            });
        };
        let hosts: Vec<&str> = table.cards.iter().map(|card| card.host.as_str()).collect();
        let nodes = number_nodes(&hosts);
        let peers = table.cards.iter().zip(&self.pids).zip(nodes);
        let peers = peers.map(|((card, &pid), node)| {
            let same_process = card.process == self.card.process;
            PeerInfo { pid, same_process, node, address: None }
        });
        let peers: Vec<PeerInfo> = peers.collect();
        let mut pipes: Vec<Option<Pipe>> = peers.iter().map(|_| None).collect();
        for seat in self.seats {
            if let Role::Done(rank) = seat.role {
                pipes[rank as usize] = Some(seat.pipe);
            }
        }
        // Drawn by rank 0, and passed on over sockets of this machine that only processes of one user share.
        let secret = crate::key::spread(&table.key);
        let mut started = Vec::new();
        let mesh = Mesh::new(self.job.rank, peers, self.job.timeout, secret, |mesh| {
            let links: Result<Vec<Option<Arc<Link>>>> = (0..)
                .zip(pipes)
                .map(|(rank, pipe)| pipe.map(|pipe| Link::new(pipe, rank, mesh)).transpose())
                .collect();
            let links = links?;
            started.clone_from(&links);
            Ok(Box::new(Links { links }))
        })?;
        // From here on a failure says goodbye to those who stand already.
        let whole = Member::whole(mesh.clone());
        for (link, peer) in started.iter().zip(&mesh.peers[..]) {
            if let Some(link) = link {
                let pid = Some(peer.pid).filter(|&pid| pid != 0 && !peer.same_process);
                link.start(pid)?;
            }
        }
        Ok(whole)
    }
}
