//! How a job forms: the state of one rank between its arrival and the complete mesh.
//!
//! Every rank runs one loop over its listeners and connections. Nobody blocks on one peer, so that a silent stranger
//! or a dying rank never keeps the others from going on, or from being told.

mod doubt;
mod ending;
mod late;

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::Rendezvous;
use super::card::{Card, Table};
use crate::Bootstrap;
use crate::error::{BootstrapError, PeerName, Result};
use crate::frame::{Frame, FrameError, Kind, VERSION};
use crate::hello::{
    Introduction, decode_link, decode_words, encode_link, encode_words, passed_token, passing,
};
use crate::late::Late;
use crate::meeting::{
    FORMING, Lack, PAUSE, STRANGERS, check_answer, check_newcomer, deadline, keep_newest, nonsense,
    refused,
};
use crate::pipe::{Broken, Pipe};
use crate::socket::{connect, listen};
use crate::sync::{hex, process_token, random};

/// Nothing is known of a guest but its connection.
type Role = crate::meeting::Role<()>;

struct Seat {
    role: Role,
    pipe: Pipe,
}

struct Meeting<'a> {
    job: &'a Rendezvous,
    card: Card,
    deadline: Instant,
    late: Late,
    token: [u8; 16],
    /// Listener at the rendezvous address, on rank 0.
    desk: Option<OwnedFd>,
    /// Listener for links from lower ranks.
    door: Option<OwnedFd>,
    lack: Lack,
    seats: Vec<Seat>,
    /// Pause before the next attempt to reach rank 0.
    pause: Duration,
    /// By rank: cards (on rank 0) and process ids, as they become known.
    cards: Vec<Option<Card>>,
    /// The largest world that a rank has named.
    largest: u32,
    pids: Vec<u32>,
    /// Ranks that have joined, as far as this rank has heard.
    here: HashSet<u32>,
    table: Option<Table>,
    /// Higher ranks still to be called.
    calls: Vec<u32>,
    /// Ranks whose links are complete, as rank 0 hears.
    ready: HashSet<u32>,
    said_ready: bool,
    go: bool,
    /// What a link that ended would say, if rank 0 does not say why it did.
    doubt: Option<doubt::Doubt>,
}

/// Forms the job, for which the time runs since `begun`, and returns this rank's end of it.
pub(super) fn hold(job: &Rendezvous, host: &str, begun: Instant) -> Result<Arc<dyn Bootstrap>> {
    let mut meeting = Meeting::new(job, host, begun)?;
    if let Err(error) = meeting.run() {
        meeting.tell_all(&error);
        return Err(error);
    }
    meeting.finish()
}

impl<'a> Meeting<'a> {
    /// One whose time runs since `begun`.
    fn new(job: &'a Rendezvous, host: &str, begun: Instant) -> Result<Self> {
        let door_name = format!("antiphon-door-{}", hex(&random()?));
        let door = listen(&door_name).map_err(BootstrapError::os("listen for links"))?;
        let (rank, world, process) = (job.rank, job.world, process_token()?);
        let card = Card { rank, world, process, door: door_name, host: host.to_owned() };
        Ok(Meeting {
            job,
            card,
            deadline: deadline(begun, job.timeout),
            late: Late::new(begun),
            token: random()?,
            desk: None,
            door: Some(door),
            lack: Lack::default(),
            seats: Vec::new(),
            pause: PAUSE.0,
            cards: vec![None; world as usize],
            largest: world,
            pids: vec![0; world as usize],
            here: HashSet::from([rank]),
            table: None,
            calls: Vec::new(),
            ready: HashSet::new(),
            said_ready: false,
            go: false,
            doubt: None,
        })
    }
}

impl Meeting<'_> {
    fn run(&mut self) -> Result<()> {
        let me = self.job.rank as usize;
        self.pids[me] = std::process::id();
        self.cards[me] = Some(self.card.clone());
        loop {
            self.arrive()?;
            self.admit();
            for at in 0..self.seats.len() {
                self.serve(at)?;
            }
            self.seats.retain(|seat| seat.role != Role::Dropped);
            self.make_table()?;
            self.call()?;
            self.conclude();
            if self.go {
                return Ok(());
            }
            self.wait()?;
        }
    }

    fn is_host(&self) -> bool {
        self.desk.is_some()
    }

    fn name(&self, rank: u32) -> PeerName {
        PeerName { rank, pid: self.pids.get(rank as usize).copied().unwrap_or(0) }
    }

    /// Opens the rendezvous address, or goes there; tries once.
    fn arrive(&mut self) -> Result<()> {
        if self.is_host() || self.table.is_some() || self.has(Role::Desk) {
            return Ok(());
        }
        if self.job.rank == 0 {
            match listen(&self.job.address) {
                Ok(desk) => {
                    self.desk = Some(desk);
                    return Ok(());
                }
                // Somebody is rank 0 already. It will say so, to both.
                Err(Errno::ADDRINUSE) => {}
                Err(errno) => {
                    return Err(BootstrapError::Os { doing: "listen at the rendezvous", errno });
                }
            }
        }
        let Some(reached) = self.lack.reached(connect(&self.job.address)) else { return Ok(()) };
        match reached {
            Ok(socket) => {
                // At this address another user's process is nobody we wait for.
                if let Some(mut pipe) = Pipe::new(socket) {
                    pipe.send_bytes(Kind::Join, self.card.encode());
                    if self.job.rank != 0 {
                        self.pids[0] = pipe.pid;
                    }
                    self.seats.push(Seat { role: Role::Desk, pipe });
                }
                Ok(())
            }
            Err(Errno::CONNREFUSED | Errno::AGAIN) => Ok(()),
            Err(errno) => Err(BootstrapError::Os { doing: "reach the rendezvous", errno }),
        }
    }

    fn has(&self, role: Role) -> bool {
        self.seats.iter().any(|seat| seat.role == role)
    }

    /// Accepts what waits at the listeners.
    fn admit(&mut self) {
        let listeners = [(&self.desk, Role::Guest(())), (&self.door, Role::Caller)];
        for (listener, role) in listeners {
            let Some(listener) = listener else { continue };
            for _ in 0..STRANGERS {
                let Some(socket) = self.lack.accept(listener) else { break };
                if let Some(pipe) = Pipe::new(socket) {
                    self.seats.push(Seat { role, pipe });
                }
            }
        }
        let unknown = |seat: &Seat| matches!(seat.role, Role::Guest(()) | Role::Caller);
        let most = self.job.world as usize + STRANGERS;
        keep_newest(&mut self.seats, most, unknown);
    }

    /// Handles what one connection has brought.
    fn serve(&mut self, at: usize) -> Result<()> {
        self.seats[at].pipe.flush();
        // After its consent rank 0 closes the connection, and that is no loss.
        while !self.go && self.listens_to(self.seats[at].role) {
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
        match role {
            // A lower rank may have the table, and call, before it has come here.
            Role::Caller => self.table.is_some(),
            Role::Keeper | Role::Done(_) | Role::Told | Role::Dropped => false,
            Role::Guest(()) | Role::Desk | Role::Joined(_) | Role::Link(_) => true,
        }
    }

    fn broke(&mut self, at: usize, broken: Broken) -> Result<()> {
        let Seat { role, pipe } = &mut self.seats[at];
        let pid = pipe.pid;
        let rank = match *role {
            // Whoever is at the other end, this rank is at fault: it has no room for what a rank passes either.
            Role::Caller if matches!(broken, Broken::Truncated) => self.job.rank,
            Role::Desk => 0,
            Role::Joined(rank) | Role::Link(rank) => rank,
            Role::Guest(())
            | Role::Keeper
            | Role::Caller
            | Role::Done(_)
            | Role::Told
            | Role::Dropped => {
                // Of strangers only one is worth a word: a rank of another build.
                if let (Role::Guest(()), Broken::Garbled(FrameError::Version(saw))) =
                    (*role, &broken)
                {
                    let error = BootstrapError::WrongVersion { pid, saw: *saw, expected: VERSION };
                    pipe.send_bytes(Kind::Reject, error.to_string().into_bytes());
                    return Err(error);
                }
                *role = Role::Dropped;
                return Ok(());
            }
        };
        let ends_link = matches!((*role, &broken), (Role::Link(_), Broken::Closed));
        let peer = PeerName { rank, pid };
        let error = broken.of(peer);
        if ends_link {
            self.seats[at].role = Role::Dropped;
            self.doubt(error);
            return Ok(());
        }
        Err(error)
    }

    /// Handles one frame.
    fn take(&mut self, at: usize, mut frame: Frame) -> Result<()> {
        let role = self.seats[at].role;
        match (role, frame.kind) {
            (Role::Guest(()), Kind::Join) => self.join(at, &frame),
            (Role::Joined(rank), Kind::Ready) => {
                self.ready.insert(rank);
                Ok(())
            }
            (Role::Joined(rank), Kind::Reject) => Err(refused(self.name(rank), &frame)),
            (Role::Desk, Kind::Reject) => Err(refused(self.name(0), &frame)),
            (Role::Desk, Kind::Roster) => {
                for pair in decode_words(&frame.payload).chunks_exact(2) {
                    if let Some(pid) = self.pids.get_mut(pair[0] as usize) {
                        *pid = pair[1];
                        self.here.insert(pair[0]);
                    }
                }
                Ok(())
            }
            (Role::Desk, Kind::Table) => match Table::decode(&frame.payload) {
                Some(table) if table.cards.len() == self.job.world as usize => {
                    self.set_table(table);
                    Ok(())
                }
                _ => Err(nonsense(self.name(0), "a table of ranks that cannot be read")),
            },
            (Role::Desk, Kind::Go) => {
                self.go = true;
                Ok(())
            }
            (Role::Caller, Kind::Link) => self.greet(at, &mut frame),
            (Role::Link(rank), Kind::Welcome) if rank > self.job.rank => {
                check_answer(self.name(rank), &frame, self.token)?;
                let answer = self.read_passed(rank, &mut frame)?;
                self.seats[at].pipe.send_bytes(Kind::Proof, answer.to_vec());
                self.seats[at].role = Role::Done(rank);
                Ok(())
            }
            (Role::Link(rank), Kind::Proof) if rank < self.job.rank => {
                check_answer(self.name(rank), &frame, self.token)?;
                self.seats[at].role = Role::Done(rank);
                Ok(())
            }
            (Role::Guest(()) | Role::Caller, _) => {
                self.seats[at].role = Role::Dropped;
                Ok(())
            }
            (Role::Desk, kind) => {
                Err(nonsense(self.name(0), format!("an unexpected {kind:?} frame")))
            }
            (Role::Joined(rank) | Role::Link(rank), kind) => {
                Err(nonsense(self.name(rank), format!("an unexpected {kind:?} frame")))
            }
            (Role::Keeper | Role::Done(_) | Role::Told | Role::Dropped, _) => Ok(()),
        }
    }

    /// Rank 0: a rank presents itself.
    fn join(&mut self, at: usize, frame: &Frame) -> Result<()> {
        let pid = self.seats[at].pipe.pid;
        let Some(card) = Card::decode(&frame.payload) else {
            self.seats[at].role = Role::Dropped;
            return Ok(());
        };
        let rank = card.rank;
        // It becomes one of those that are told, whether it fits or not.
        self.seats[at].role = Role::Joined(rank);
        self.largest = self.largest.max(card.world);
        let is_here = self.cards.get(rank as usize).is_some_and(Option::is_some);
        let first = is_here.then(|| self.pids[rank as usize]);
        check_newcomer(PeerName { rank, pid }, card.world, self.job.world, first)?;
        self.cards[rank as usize] = Some(card);
        self.pids[rank as usize] = pid;
        self.here.insert(rank);
        // So that each rank can say by itself who is missing.
        let here = self.cards.iter().flatten().map(|card| card.rank);
        let pairs = here.flat_map(|rank| [rank, self.pids[rank as usize]]);
        self.tell_joined(Kind::Roster, &encode_words(pairs));
        Ok(())
    }

    fn tell_joined(&mut self, kind: Kind, payload: &[u8]) {
        for seat in &mut self.seats {
            if matches!(seat.role, Role::Joined(_)) {
                seat.pipe.send_bytes(kind, payload.to_vec());
            }
        }
    }

    /// Rank 0: once all are here, tells everyone about everyone.
    fn make_table(&mut self) -> Result<()> {
        let alone = self.job.world == 1;
        if self.table.is_some() || !(self.is_host() || alone) {
            return Ok(());
        }
        if let Some(table) = Table::of_all(&self.cards)? {
            self.tell_joined(Kind::Table, &table.encode());
            self.set_table(table);
        }
        Ok(())
    }

    fn set_table(&mut self, table: Table) {
        self.calls = (self.job.rank + 1..self.job.world).collect();
        self.table = Some(table);
    }

    /// Opens links to higher ranks.
    fn call(&mut self) -> Result<()> {
        let Some(table) = self.table.as_ref() else { return Ok(()) };
        let (mut later, mut ended) = (Vec::new(), Vec::new());
        for rank in std::mem::take(&mut self.calls) {
            let attempt = connect(&table.cards[rank as usize].door);
            let Some(reached) = self.lack.reached(attempt) else {
                later.push(rank);
                continue;
            };
            let reason = match reached {
                Ok(socket) => match Pipe::new(socket) {
                    Some(mut pipe) => {
                        let link = encode_link(&table.key, self.job.rank);
                        pipe.send(passing(&self.token, Kind::Link, link)?);
                        self.pids[rank as usize] = pipe.pid;
                        self.seats.push(Seat { role: Role::Link(rank), pipe });
                        continue;
                    }
                    None => "its address is held by another user".to_owned(),
                },
                Err(Errno::AGAIN) => {
                    later.push(rank);
                    continue;
                }
                Err(Errno::CONNREFUSED) => {
                    ended.push(rank);
                    continue;
                }
                Err(errno) => format!("its address does not answer ({errno})"),
            };
            let peer = self.name(rank);
            return Err(BootstrapError::PeerLost { doing: FORMING, peer, reason });
        }
        self.calls = later;
        for rank in ended {
            let (peer, reason) = (self.name(rank), "nobody listens at its address".to_owned());
            self.doubt(BootstrapError::PeerLost { doing: FORMING, peer, reason });
        }
        Ok(())
    }

    /// A lower rank opens its link.
    fn greet(&mut self, at: usize, frame: &mut Frame) -> Result<()> {
        let key = self.table.as_ref().map(|table| table.key);
        let valid = decode_link(&frame.payload)
            .filter(|&(saw, rank)| Some(saw) == key && rank < self.job.rank)
            .map(|(_, rank)| rank)
            .filter(|&rank| !self.has(Role::Link(rank)) && !self.has(Role::Done(rank)));
        let Some(rank) = valid else {
            self.seats[at].role = Role::Dropped;
            return Ok(());
        };
        self.pids[rank as usize] = self.seats[at].pipe.pid;
        let answer = self.read_passed(rank, frame)?;
        let welcome = passing(&self.token, Kind::Welcome, answer.to_vec())?;
        self.seats[at].pipe.send(welcome);
        self.seats[at].role = Role::Link(rank);
        Ok(())
    }

    /// The token in the memory that a peer passed.
    fn read_passed(&self, rank: u32, frame: &mut Frame) -> Result<[u8; 16]> {
        passed_token(frame).map_err(|saw| nonsense(self.name(rank), saw))
    }

    /// Says when this rank's links are complete and, on rank 0, when everyone's are.
    fn conclude(&mut self) {
        let done = self.seats.iter().filter(|seat| matches!(seat.role, Role::Done(_))).count();
        if self.table.is_none() || done + 1 < self.job.world as usize {
            return;
        }
        if self.job.rank != 0 {
            if !std::mem::replace(&mut self.said_ready, true) {
                for seat in self.seats.iter_mut().filter(|seat| seat.role == Role::Desk) {
                    seat.pipe.send_bytes(Kind::Ready, Vec::new());
                }
            }
        } else if self.ready.len() + 1 == self.job.world as usize {
            self.tell_joined(Kind::Go, &[]);
            self.go = true;
        }
    }

    /// Waits for something to happen, or for the time to try again.
    fn wait(&mut self) -> Result<()> {
        let now = Instant::now();
        self.lack.check(now, false)?;
        let doubted = self.doubted(now)?;
        let left = self.deadline.saturating_duration_since(now);
        if left.is_zero() {
            let missing = self.missing();
            let limit = self.job.timeout;
            return Err(match self.lack.hint(now) {
                Some(hints) => BootstrapError::Incomplete { limit, missing, hints },
                None => BootstrapError::Timeout { doing: FORMING, limit, missing },
            });
        }
        if let Some(word) = self.word(now) {
            log::warn!("{word}");
        }
        let left = left.min(self.late.left(now)).min(doubted);
        let refused = self.seats.iter().any(|seat| seat.pipe.refused);
        let retry = refused || !self.calls.is_empty() || !(self.is_host() || self.has(Role::Desk));
        let rest = self.lack.rest(now);
        let left = rest.map_or(left, |rest| left.min(rest));
        let left = if retry { left.min(self.pause) } else { left };
        self.pause = if retry { (self.pause * 2).min(PAUSE.1) } else { PAUSE.0 };
        let listeners = self.desk.iter().chain(&self.door).filter(|_| rest.is_none());
        let mut interests: Vec<PollFd<'_>> =
            listeners.map(|listener| PollFd::new(listener, PollFlags::IN)).collect();
        let open = self.seats.iter().filter(|seat| self.listens_to(seat.role));
        interests.extend(open.map(|seat| seat.pipe.interest()));
        match poll(&mut interests, Timespec::try_from(left).ok().as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(BootstrapError::Os { doing: "wait for the other ranks", errno }),
        }
    }
}
