//! A mesh among ranks that live in one process.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use crate::error::Result;
use crate::frame::{Frame, Kind};
use crate::group::Member;
use crate::meeting::check_shape;
use crate::mesh::{Carrier, Mesh};
use crate::sync::random;
use crate::{Bootstrap, DEFAULT_TIMEOUT, PeerInfo};

/// The ends of a mesh among `world` ranks of this process, by rank, with [`DEFAULT_TIMEOUT`]. All are on one node.
///
/// # Errors
/// `BadShape` for a world of 0, `TooManyRanks`; `Os` where the control thread cannot start.
pub fn in_process(world: u32) -> Result<Vec<Arc<dyn Bootstrap>>> {
    check_shape(0, world)?;
    in_process_with(&vec![""; world as usize], DEFAULT_TIMEOUT)
}

/// The same with a time limit of your own, and one host name a rank: ranks with equal names are on one node. So a
/// single process can stand for a job on several nodes.
///
/// # Errors
/// As [`in_process`].
pub fn in_process_with(hosts: &[&str], limit: Duration) -> Result<Vec<Arc<dyn Bootstrap>>> {
    check_shape(0, u32::try_from(hosts.len()).unwrap_or(u32::MAX))?;
    let pid = std::process::id();
    let nodes = number_nodes(hosts);
    let peers: Arc<[PeerInfo]> = nodes
        .into_iter()
        .map(|node| PeerInfo { pid, same_process: true, node, address: None })
        .collect();
    let secret = [random()?, random()?].concat();
    let secret: [u8; 32] = std::array::from_fn(|byte| secret[byte]);
    let hub = Arc::new(Hub::default());
    let meshes: Result<Vec<Arc<Mesh>>> = (0..hosts.len() as u32)
        .map(|rank| {
            let wire = LocalLinks { rank, hub: hub.clone() };
            Mesh::new(rank, peers.clone(), limit, secret, |_| Ok(Box::new(wire)))
        })
        .collect();
    let meshes = meshes?;
    hub.meshes.get_or_init(|| meshes.iter().map(Arc::downgrade).collect());
    Ok(meshes.into_iter().map(Member::whole).collect())
}

/// Numbers hosts from 0 in the order of their first rank.
pub(crate) fn number_nodes<S: AsRef<str>>(hosts: &[S]) -> Vec<u32> {
    let mut numbers = HashMap::new();
    let mut number = |host| {
        let next = numbers.len() as u32;
        *numbers.entry(host).or_insert(next)
    };
    hosts.iter().map(|host| number(host.as_ref())).collect()
}

#[derive(Default)]
struct Hub {
    meshes: OnceLock<Vec<Weak<Mesh>>>,
}

/// Hands frames over directly; the receiver's control thread runs its handlers.
struct LocalLinks {
    rank: u32,
    hub: Arc<Hub>,
}

impl Carrier for LocalLinks {
    fn send(&self, to: u32, frame: Frame) {
        let peer = self.hub.meshes.get().and_then(|meshes| meshes.get(to as usize));
        if let Some(peer) = peer.and_then(Weak::upgrade) {
            // What this crate sends after the job has formed is in the protocol.
            let _ = peer.receive(self.rank, frame);
        }
    }

    fn close(&self, last: &[Frame]) {
        let world = self.hub.meshes.get().map_or(0, Vec::len) as u32;
        for to in (0..world).filter(|&to| to != self.rank) {
            let due = last.iter().filter(|frame| frame.is_for(to));
            due.for_each(|frame| self.send(to, frame.share()));
            self.send(to, Frame::plain(Kind::Bye, Vec::new()));
        }
    }
}
