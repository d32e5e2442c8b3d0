//! A mesh among the processes of one machine, over abstract Unix sockets.
//!
//! Rank 0 listens at the rendezvous address, the others come to it with what they are; rank 0 hands everyone the whole
//! table, and each lower rank opens a link to each higher one. On every link both sides prove that memory passes
//! between them: each reads a random token through a descriptor that the other passed, and sends back what it read.
//! [`connect`] returns when all links of all ranks stand, so that a job forms as a whole or fails as a whole, with the
//! culprit named everywhere.

pub(crate) mod card;
mod meeting;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{BootstrapError, Result};
use crate::meeting::check_shape;
use crate::sync::{hex, random};
use crate::{Bootstrap, DEFAULT_TIMEOUT};

/// Environment variable that replaces the machine's own identity: ranks with equal values count as one node. For
/// tests, which make one machine stand for several.
pub const HOST_VARIABLE: &str = "ANTIPHON_HOSTID";

/// Where and as whom to join a job.
#[derive(Clone, Debug)]
pub struct Rendezvous {
    /// What [`Rendezvous::unique`] made, the same for all ranks: the launcher passes it on, in an environment variable
    /// or an argument.
    pub address: String,
    /// This rank, in 0..`world`.
    pub rank: u32,
    /// The number of ranks.
    pub world: u32,
    /// How long to wait for the others, and the time limit of the later blocking calls.
    pub timeout: Duration,
}

impl Rendezvous {
    /// Joins as `rank` of `world` at `address`, with [`DEFAULT_TIMEOUT`].
    pub fn new(address: impl Into<String>, rank: u32, world: u32) -> Rendezvous {
        Rendezvous { address: address.into(), rank, world, timeout: DEFAULT_TIMEOUT }
    }

    /// A printable address that nobody can guess and no other job has: 128 random bits.
    ///
    /// # Errors
    /// `Os` where the kernel gives no random bits.
    pub fn unique() -> Result<String> {
        random().map(|bits| format!("antiphon-{}", hex(&bits)))
    }

    fn check(&self) -> Result<()> {
        // sockaddr_un has room for 107 bytes after the leading NUL of an abstract name.
        const LONGEST: usize = 107;
        check_shape(self.rank, self.world)?;
        let problem = match self.address.len() {
            0 => "it is empty",
            1..=LONGEST if !self.address.contains('\0') => return Ok(()),
            1..=LONGEST => "it holds a NUL",
            _ => "it is longer than 107 bytes",
        };
        Err(BootstrapError::BadAddress { address: self.address.clone(), problem })
    }
}

/// Joins a job; returns when all ranks are linked with all others. Several ranks of one process may join, from a
/// thread each. Nothing stays behind but the mesh: the address is free again when this returns.
///
/// The node of a rank is its machine's boot id, or the value of [`HOST_VARIABLE`].
///
/// # Errors
/// `BadShape`, `TooManyRanks`, `BadAddress`, `WrongWorld`, `DuplicateRank`, `WrongVersion`, `PeerLost`, `Timeout` with the missing
/// ranks, or `Incomplete` where ranks could not be let in; `Os` where this process lacks something, descriptors mostly; `Refused` where
/// another rank found one of these first.
pub fn connect(rendezvous: &Rendezvous) -> Result<Arc<dyn Bootstrap>> {
    connect_since(rendezvous, Instant::now())
}

/// Like [`connect`], but the time runs since `begun`: the time that it took to find the rendezvous counts as waiting for the
/// others, and takes nothing off the limit of later calls.
pub(crate) fn connect_since(rendezvous: &Rendezvous, begun: Instant) -> Result<Arc<dyn Bootstrap>> {
    rendezvous.check()?;
    meeting::hold(rendezvous, &host_id()?, begun)
}

/// Like [`connect`], with the node's identity given. For tests, whose ranks may share a process and its environment.
///
/// # Errors
/// As [`connect`].
pub fn connect_as(rendezvous: &Rendezvous, host: &str) -> Result<Arc<dyn Bootstrap>> {
    rendezvous.check()?;
    meeting::hold(rendezvous, host, Instant::now())
}

/// The identity of this node.
pub(crate) fn host_id() -> Result<String> {
    if let Some(host) = std::env::var_os(HOST_VARIABLE).filter(|host| !host.is_empty()) {
        return Ok(host.to_string_lossy().into_owned());
    }
    let read = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    read.map(|id| id.trim().to_owned()).map_err(|error| BootstrapError::Os {
        doing: "read the machine's boot id (set ANTIPHON_HOSTID where /proc is not mounted)",
        errno: rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO),
    })
}
