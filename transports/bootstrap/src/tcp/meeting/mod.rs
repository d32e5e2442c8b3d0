//! How a job forms over TCP: the state of one rank between its arrival and the complete mesh.
//!
//! Every rank runs one loop over its listeners and connections, and nobody blocks on one peer. Rank 0 collects the cards
//! and hands out the table; ranks whose hosts are equal prove over Unix sockets that memory passes between them and say
//! so; rank 0 numbers the nodes by these proofs and lets everyone go. The connections to rank 0 stay, as links.

mod arrival;
mod desk;
mod ending;
mod late;
mod proofs;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use antiphon_transport::room::is_full;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::Rendezvous;
use super::card::{Card, Table};
use super::contact::Contact;
use super::secret::Secret;
use crate::Bootstrap;
use crate::error::{BootstrapError, PeerName, Result};
use crate::frame::{Frame, Kind};
use crate::hello::decode_words;
use crate::late::Late;
use crate::meeting::{Lack, PAUSE, check_answer, deadline, nonsense, refused};
use crate::pipe::{Broken, Pipe};
use crate::socket;
use crate::sync::{hex, process_token, random};

/// A guest has proven to be this rank.
type Role = crate::meeting::Role<u32>;

struct Seat {
    role: Role,
    pipe: Pipe,
    /// There may be something to read, or room to write.
    due: bool,
}

impl Seat {
    fn new(role: Role, pipe: Pipe) -> Seat {
        Seat { role, pipe, due: true }
    }
}

struct Meeting<'a> {
    job: &'a Rendezvous,
    secret: &'a Secret,
    /// What handshakes are made with.
    key: [u8; 32],
    card: Card,
    deadline: Instant,
    late: Late,
    token: [u8; 16],
    /// Listener at the place of rendezvous, on rank 0, with its address.
    desk: Option<(OwnedFd, SocketAddr)>,
    /// The file with rank 0's address, for rank 0 to remove.
    note: Option<arrival::Note>,
    /// Listener for links of other nodes.
    door: Option<OwnedFd>,
    /// Listener for links of this node; its name is in the card.
    unix_door: Option<OwnedFd>,
    lack: Lack,
    /// Connections that have not proven themselves yet.
    contacts: Vec<Contact>,
    /// The way to rank 0 that is being tried.
    way: Option<Contact>,
    addresses: arrival::Addresses,
    seats: Vec<Seat>,
    pause: Duration,
    /// Since when nobody has answered at the address of the job's id.
    alone_since: Instant,
    cards: Vec<Option<Card>>,
    /// The largest world that a rank has named.
    largest: u32,
    table: Option<Table>,
    /// Higher ranks of this host still to be called.
    calls: Vec<u32>,
    /// Higher ranks that this one is proven with.
    proven: BTreeSet<u32>,
    proofs_until: Instant,
    /// What the ranks are proven with, as rank 0 hears.
    ready: BTreeMap<u32, Vec<u32>>,
    said_ready: bool,
    /// Node of every rank, once all may go.
    nodes: Option<Vec<u32>>,
    /// Whether rank 0 was told that this rank's time is up.
    asked: bool,
    /// What was turned away and what went wrong, for the error if the job does not form, and for the warnings of a long wait.
    hints: BTreeSet<String>,
}

/// Forms the job, for which the time runs since `begun`, and returns this rank's end of it.
pub(super) fn hold(job: &Rendezvous, host: &str, begun: Instant) -> Result<Arc<dyn Bootstrap>> {
    let mut meeting = Meeting::new(job, host, begun)?;
    meeting.secret.warn_if_open();
    if let Err(error) = meeting.run() {
        let error = meeting.explained(error);
        meeting.tell_all(&error);
        return Err(error);
    }
    meeting.finish()
}

/// Whether what comes from there is read, by whether the table and the nodes are here.
fn is_read(role: Role, table: bool, nodes: bool) -> bool {
    match role {
        // A lower rank may have the table, and call, before it has come here.
        Role::Caller => table,
        // Once all may go, these carry frames of the mesh.
        Role::Desk | Role::Joined(_) => !nodes,
        Role::Done(_) | Role::Told | Role::Dropped => false,
        Role::Guest(_) | Role::Link(_) | Role::Keeper => true,
    }
}

impl<'a> Meeting<'a> {
    /// One whose time runs since `begun`.
    fn new(job: &'a Rendezvous, host: &str, begun: Instant) -> Result<Self> {
        let secret = job.secret_in_force();
        let door = format!("antiphon-door-{}", hex(&random()?));
        // Without one this rank is a node of its own.
        let unix_door = match socket::listen(&door) {
            Err(errno) if is_full(errno) => {
                return Err(BootstrapError::Os { doing: "listen for links", errno });
            }
            door => door.ok(),
        };
        let (rank, world, pid) = (job.rank, job.world, std::process::id());
        let process = process_token()?;
        let address = SocketAddr::from(([0, 0, 0, 0], 0));
        Ok(Meeting {
            job,
            secret,
            key: secret.derive(b"handshake", &[]),
            card: Card { rank, world, pid, process, door, host: host.to_owned(), address },
            deadline: deadline(begun, job.timeout),
            late: Late::new(begun),
            token: random()?,
            desk: None,
            note: None,
            door: None,
            unix_door,
            lack: Lack::default(),
            contacts: Vec::new(),
            way: None,
            addresses: arrival::Addresses::default(),
            seats: Vec::new(),
            pause: PAUSE.0,
            alone_since: begun,
            cards: vec![None; world as usize],
            largest: world,
            table: None,
            calls: Vec::new(),
            proven: BTreeSet::new(),
            proofs_until: begun,
            ready: BTreeMap::new(),
            said_ready: false,
            nodes: None,
            asked: false,
            hints: BTreeSet::new(),
        })
    }
}

impl Meeting<'_> {
    fn run(&mut self) -> Result<()> {
        if self.job.rank == 0 {
            self.open_desk()?;
        }
        loop {
            self.arrive()?;
            self.admit()?;
            for at in 0..self.seats.len() {
                self.serve(at)?;
            }
            self.seats.retain(|seat| seat.role != Role::Dropped);
            self.make_table()?;
            self.call()?;
            self.conclude()?;
            if self.is_complete() {
                return Ok(());
            }
            self.wait()?;
        }
    }

    fn name(&self, rank: u32) -> PeerName {
        let card = match &self.table {
            Some(table) => table.cards.get(rank as usize),
            None => self.cards.get(rank as usize).and_then(Option::as_ref),
        };
        PeerName { rank, pid: card.map_or(0, |card| card.pid) }
    }

    fn has(&self, role: Role) -> bool {
        self.seats.iter().any(|seat| seat.role == role)
    }

    /// Handles what one connection has brought.
    fn serve(&mut self, at: usize) -> Result<()> {
        if !std::mem::take(&mut self.seats[at].due) {
            return Ok(());
        }
        self.seats[at].pipe.flush();
        while self.listens_to(self.seats[at].role) {
            match self.seats[at].pipe.next() {
                Ok(None) => break,
                Ok(Some(frame)) => self.take(at, frame)?,
                Err(broken) => self.broke(at, broken)?,
            }
        }
        Ok(())
    }

    /// Whether what comes from there is read now.
    fn listens_to(&self, role: Role) -> bool {
        is_read(role, self.table.is_some(), self.nodes.is_some())
    }

    fn broke(&mut self, at: usize, broken: Broken) -> Result<()> {
        let rank = match self.seats[at].role {
            // Whoever is at the other end, this rank is at fault: it has no room for what a rank passes either.
            Role::Caller | Role::Link(_) if matches!(broken, Broken::Truncated) => self.job.rank,
            Role::Desk => 0,
            Role::Keeper => {
                self.seats[at].role = Role::Dropped;
                self.search_again();
                return Ok(());
            }
            Role::Joined(rank) => rank,
            // Without this link the two are on different nodes; if the rank died, the connection to rank 0 tells.
            Role::Link(rank) => {
                self.unproven(rank);
                self.seats[at].role = Role::Dropped;
                return Ok(());
            }
            _ => {
                self.seats[at].role = Role::Dropped;
                return Ok(());
            }
        };
        Err(broken.of(self.name(rank)))
    }

    /// Handles one frame.
    fn take(&mut self, at: usize, mut frame: Frame) -> Result<()> {
        match (self.seats[at].role, frame.kind) {
            (Role::Guest(rank), Kind::Join) => self.join(at, rank, &frame),
            (Role::Joined(rank), Kind::Ready) => {
                self.ready.insert(rank, decode_words(&frame.payload));
                Ok(())
            }
            (Role::Joined(rank), Kind::Roster) => self.asked_by(rank, &frame),
            (Role::Joined(rank), Kind::Reject) => Err(refused(self.name(rank), &frame)),
            (Role::Desk | Role::Keeper, Kind::Reject) => Err(refused(self.name(0), &frame)),
            (Role::Desk | Role::Keeper, Kind::Way) if self.job.rank != 0 => {
                self.be_sent(at, &frame)
            }
            (Role::Desk, Kind::Table) => match Table::decode(&frame.payload) {
                Some(table) if table.cards.len() == self.job.world as usize => {
                    self.set_table(table);
                    Ok(())
                }
                _ => Err(nonsense(self.name(0), "a table of ranks that cannot be read")),
            },
            (Role::Desk, Kind::Go) => {
                let nodes = decode_words(&frame.payload);
                if nodes.len() != self.job.world as usize || self.table.is_none() {
                    return Err(nonsense(self.name(0), "nodes that do not fit the ranks"));
                }
                self.nodes = Some(nodes);
                Ok(())
            }
            (Role::Caller, Kind::Link) => self.greet(at, &mut frame),
            (Role::Link(rank), Kind::Welcome) if rank > self.job.rank => {
                self.prove(at, rank, &mut frame);
                Ok(())
            }
            (Role::Link(rank), Kind::Proof) if rank < self.job.rank => {
                check_answer(self.name(rank), &frame, self.token)?;
                self.seats[at].role = Role::Done(rank);
                Ok(())
            }
            (Role::Desk | Role::Keeper, kind) => {
                Err(nonsense(self.name(0), format!("an unexpected {kind:?} frame")))
            }
            (Role::Guest(rank) | Role::Joined(rank) | Role::Link(rank), kind) => {
                Err(nonsense(self.name(rank), format!("an unexpected {kind:?} frame")))
            }
            (Role::Caller | Role::Done(_) | Role::Told | Role::Dropped, _) => {
                self.seats[at].role = Role::Dropped;
                Ok(())
            }
        }
    }

    /// Waits for something to happen, or for the time to try again.
    fn wait(&mut self) -> Result<()> {
        let now = Instant::now();
        let left = self.deadline.saturating_duration_since(now);
        if left.is_zero() {
            return self.time_is_up();
        }
        // Strangers that have not proven themselves have little time.
        self.lack.check(now, !self.contacts.is_empty())?;
        self.check_search(now)?;
        if let Some(word) = self.word(now) {
            log::warn!("{word}");
        }
        let left = left.min(self.late.left(now));
        let rest = self.lack.rest(now);
        let left = rest.map_or(left, |rest| left.min(rest));
        let searching = self.way.is_none() && !self.has_desk();
        let refused = self.seats.iter().any(|seat| seat.pipe.refused);
        let retry = refused || searching || !self.calls.is_empty();
        let mut left = if retry { left.min(self.pause) } else { left };
        self.pause = if retry { (self.pause * 2).clamp(PAUSE.0, PAUSE.1) } else { PAUSE.0 };
        // Silent connections have a time of their own.
        let contacts = self.contacts.iter().chain(&self.way);
        let limits = contacts.map(|contact| contact.until);
        let proving = self.table.is_some() && !self.said_ready;
        for until in limits.chain(proving.then_some(self.proofs_until)) {
            left = left.min(until.saturating_duration_since(now) + PAUSE.0);
        }
        let desk = self.desk.iter().map(|(listener, _)| listener);
        let listeners: Vec<&OwnedFd> =
            desk.chain(&self.unix_door).filter(|_| rest.is_none()).collect();
        let mut interests: Vec<PollFd<'_>> = listeners
            .iter()
            .map(|listener| PollFd::new(*listener, PollFlags::IN))
            .chain(self.contacts.iter().chain(&self.way).map(Contact::interest))
            .collect();
        let open = self.seats.iter().filter(|seat| self.listens_to(seat.role));
        interests.extend(open.map(|seat| seat.pipe.interest()));
        match poll(&mut interests, Timespec::try_from(left).ok().as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => {
                return Err(BootstrapError::Os { doing: "wait for the other ranks", errno });
            }
        }
        // Only those with news are looked at: with a thousand ranks each look at all of them counts.
        let ready: Vec<bool> = interests.iter().map(|poll| !poll.revents().is_empty()).collect();
        let mut ready = ready.into_iter().skip(listeners.len());
        for contact in self.contacts.iter_mut().chain(&mut self.way) {
            contact.due |= ready.next().unwrap_or(true);
        }
        let nodes = self.nodes.is_some();
        let table = self.table.is_some();
        for seat in &mut self.seats {
            if is_read(seat.role, table, nodes) {
                seat.due |= ready.next().unwrap_or(true) || seat.pipe.refused;
            }
        }
        Ok(())
    }
}
