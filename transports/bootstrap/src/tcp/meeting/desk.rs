//! What rank 0 does: it listens, takes the cards in, and hands out the table and the numbers of the nodes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::super::card::{Card, Table, nodes};
use super::super::contact::{Contact, HINTS, Progress};
use super::super::handshake::{Purpose, Verdict};
use super::super::place::Place;
use super::super::{interface, keeper, stand};
use super::arrival::Note;
use super::{Meeting, Role, Seat};
use crate::error::{BootstrapError, PeerName, Result};
use crate::frame::{Frame, Kind};
use crate::hello::{Introduction, encode_words};
use crate::meeting::{STRANGERS, check_newcomer, keep_newest, nonsense};
use crate::pipe::Pipe;

/// How long rank 0 tries to get its port: a job that ended a moment ago may hold it.
const TAKEN: Duration = Duration::from_secs(3);

impl Meeting<'_> {
    /// Begins to listen, and to be found. Where another process keeps this one's place, [`arrive`](Self::arrive) does it.
    pub(super) fn open_desk(&mut self) -> Result<()> {
        let job = self.job;
        let chosen = || match &job.interface {
            Some(interface) => interface::address_of(interface),
            None => interface::default_address(),
        };
        let (listener, address) = match &job.place {
            Place::Id(id) => match keeper::take(id.address)? {
                Some((listener, hints)) => {
                    self.hints = hints;
                    (listener, id.address)
                }
                None => return Ok(()),
            },
            Place::File(_) => stand::listen(SocketAddr::new(chosen()?, 0))?,
            Place::Address { host, port } => match (host.parse::<IpAddr>(), &job.interface) {
                (Ok(ip), _) => self.listen(SocketAddr::new(ip, *port))?,
                (_, Some(interface)) if !job.listen_everywhere => {
                    self.listen(SocketAddr::new(interface::address_of(interface)?, *port))?
                }
                // What a name stands for differs from host to host, and is often the loopback on its own.
                _ => {
                    self.look_up_own(host, *port);
                    self.listen_everywhere(*port)?
                }
            },
        };
        if let Place::File(path) = &job.place {
            self.note = Some(Note::write(path, self.note_text(address))?);
        }
        // One that there is not is told of now, and not when the first rank comes.
        if !address.ip().is_unspecified() || job.world == 1 || job.interface.is_some() {
            self.open_door(address.ip())?;
        }
        self.desk = Some((listener, address));
        if job.world == 1 {
            self.cards[0] = Some(self.card.clone());
        }
        Ok(())
    }

    /// Begins to listen at the address of an id that nobody keeps any more, if it is this host's.
    pub(super) fn replace_keeper(&mut self, address: SocketAddr) -> Result<()> {
        match stand::listen(address) {
            Ok(desk) => {
                self.desk = Some(desk);
                self.hints.clear();
                self.open_door(address.ip())
            }
            Err(BootstrapError::Network {
                errno: Errno::ADDRINUSE | Errno::ADDRNOTAVAIL, ..
            }) if self.alone_since.elapsed() < TAKEN => Ok(()),
            // The process that made the id ran on another host.
            Err(BootstrapError::Network { errno: Errno::ADDRNOTAVAIL, .. }) => {
                Err(self.unmet(address, TAKEN))
            }
            Err(error) => Err(error),
        }
    }

    fn listen_everywhere(&self, port: u16) -> Result<(std::os::fd::OwnedFd, SocketAddr)> {
        let six = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port);
        match self.listen(six) {
            Err(BootstrapError::Network {
                errno: Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL,
                ..
            }) => self.listen(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)),
            listener => listener,
        }
    }

    fn listen(&self, address: SocketAddr) -> Result<(std::os::fd::OwnedFd, SocketAddr)> {
        let until = self.deadline.min(Instant::now() + TAKEN);
        loop {
            match stand::listen(address) {
                Err(BootstrapError::Network { errno: Errno::ADDRINUSE, .. })
                    if Instant::now() < until =>
                {
                    std::thread::sleep(Duration::from_millis(20));
                }
                // The error of an address that is not this host's lists those that are.
                Err(BootstrapError::Network { errno: Errno::ADDRNOTAVAIL, .. }) => {
                    interface::address_of(&address.ip().to_string())?;
                    return stand::listen(address);
                }
                listener => return listener,
            }
        }
    }

    /// Accepts what waits at the listeners, and goes on with what has not proven itself.
    pub(super) fn admit(&mut self) -> Result<()> {
        if let Some((desk, _)) = &self.desk {
            for _ in 0..STRANGERS {
                let Some(socket) = self.lack.accept(desk) else { break };
                self.contacts.extend(Contact::answer(socket, self.key, self.job.rank)?);
            }
        }
        self.admit_neighbours();
        keep_newest(&mut self.contacts, self.job.world as usize + STRANGERS, |_| true);
        let mut at = 0;
        while at < self.contacts.len() {
            match self.contacts[at].advance() {
                Progress::Waiting => at += 1,
                Progress::Over(why) => {
                    let hint = self.contacts.remove(at).hint(why);
                    self.hints.extend(hint.filter(|_| self.hints.len() < HINTS));
                }
                Progress::Proven { purpose, rank } => {
                    let contact = self.contacts.remove(at);
                    self.welcome(contact, purpose, rank);
                }
            }
        }
        Ok(())
    }

    fn welcome(&mut self, contact: Contact, purpose: Purpose, rank: u32) {
        let verdict = match purpose {
            Purpose::Join => Verdict::Welcome,
            Purpose::Link => Verdict::Unexpected,
        };
        let kept = stand::keep_alive(&contact.socket, self.job.silence).is_ok();
        if contact.verdict(verdict) && kept && purpose == Purpose::Join {
            self.seats.push(Seat::new(Role::Guest(rank), Pipe::known(contact.socket, 0)));
        }
    }

    /// A rank presents itself.
    pub(super) fn join(&mut self, at: usize, proven: u32, frame: &Frame) -> Result<()> {
        let Some(card) = Card::decode(&frame.payload).filter(|card| card.rank == proven) else {
            return Err(nonsense(self.name(proven), "a card that cannot be read"));
        };
        let rank = card.rank;
        // It becomes one of those that are told, whether it fits or not.
        self.seats[at].role = Role::Joined(rank);
        self.largest = self.largest.max(card.world);
        let first = match rank {
            0 => Some(&self.card),
            _ => self.cards.get(rank as usize).and_then(Option::as_ref),
        };
        let newcomer = PeerName { rank, pid: card.pid };
        check_newcomer(newcomer, card.world, self.job.world, first.map(|card| card.pid))?;
        self.cards[rank as usize] = Some(card);
        if self.door.is_none() {
            let here = stand::local(&self.seats[at].pipe.socket)
                .map_err(BootstrapError::os("read a local address"))?;
            // A rank of this host may come by the loopback; how those of others come is known from one of them.
            let is_last = self.cards.iter().skip(1).all(Option::is_some);
            if is_last || !self.is_hidden(here.ip()) {
                self.open_door(here.ip())?;
            }
        }
        Ok(())
    }

    pub(super) fn tell_joined(&mut self, kind: Kind, payload: &[u8]) {
        for seat in &mut self.seats {
            if matches!(seat.role, Role::Joined(_)) {
                seat.pipe.send_bytes(kind, payload.to_vec());
            }
        }
    }

    /// Once all are here, tells everyone about everyone.
    pub(super) fn make_table(&mut self) -> Result<()> {
        if self.table.is_some() || self.job.rank != 0 || self.door.is_none() {
            return Ok(());
        }
        self.cards[0] = Some(self.card.clone());
        if let Some(table) = Table::of_all(&self.cards)? {
            self.tell_joined(Kind::Table, &table.encode());
            self.set_table(table);
        }
        Ok(())
    }

    /// Says which ranks this one is proven with and, on rank 0, numbers the nodes once all have said so.
    pub(super) fn conclude(&mut self) -> Result<()> {
        if self.table.is_none() || !self.proofs_are_over() {
            return Ok(());
        }
        if !std::mem::replace(&mut self.said_ready, true) {
            let proven: Vec<u32> = self.proven.iter().copied().collect();
            if self.job.rank == 0 {
                self.ready.insert(0, proven);
            } else {
                for seat in self.seats.iter_mut().filter(|seat| seat.role == Role::Desk) {
                    seat.pipe.send_bytes(Kind::Ready, encode_words(proven.iter().copied()));
                }
            }
        }
        if self.job.rank == 0
            && self.nodes.is_none()
            && self.ready.len() == self.job.world as usize
            && let Some(table) = &self.table
        {
            let edges: Vec<Vec<u32>> = self.ready.values().cloned().collect();
            let nodes = nodes(&table.cards, &edges);
            self.tell_joined(Kind::Go, &encode_words(nodes.iter().copied()));
            self.nodes = Some(nodes);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::tcp::{Rendezvous, Secret};

    #[test]
    fn at_a_name_rank_0_listens_by_an_interface_that_was_named_for_it() {
        let interface = Some("lo".to_owned());
        for (interface, listen_everywhere, everywhere) in
            [(interface.clone(), false, false), (interface, true, true), (None, false, true)]
        {
            // The kernel picks the port: no place that others could know, but one to listen at.
            let place = Place::Address { host: "localhost".to_owned(), port: 0 };
            let job = Rendezvous::new(place, 0, 2, Secret::new([7; 32]));
            let job = Rendezvous { interface, listen_everywhere, ..job };
            let mut meeting = Meeting::new(&job, "here", Instant::now()).unwrap();
            meeting.open_desk().unwrap();
            let (_, address) = meeting.desk.as_ref().unwrap();
            assert_eq!(address.ip().is_unspecified(), everywhere, "{address}");
        }
    }

    #[test]
    fn rank_0_listens_for_an_id_that_nobody_keeps_only_at_addresses_of_its_host() {
        let place = Place::Id(crate::tcp::UniqueId::create(Some("lo")).unwrap());
        let Place::Id(id) = &place else { return };
        id.retire();
        let job = Rendezvous::new(place.clone(), 0, 2, Secret::open());
        let mut meeting = Meeting::new(&job, "here", Instant::now()).unwrap();
        meeting.replace_keeper(id.address).unwrap();
        assert_eq!(meeting.desk.as_ref().map(|(_, address)| *address), Some(id.address));

        let far: SocketAddr = "192.0.2.77:4000".parse().unwrap();
        let mut meeting = Meeting::new(&job, "here", Instant::now()).unwrap();
        meeting.replace_keeper(far).unwrap();
        assert!(meeting.desk.is_none(), "it may come back");
        meeting.alone_since = Instant::now().checked_sub(TAKEN).unwrap();
        let text = meeting.replace_keeper(far).unwrap_err().to_string();
        assert!(text.starts_with("cannot meet at 192.0.2.77:4000: saw nobody"), "{text}");
    }

    #[test]
    fn ranks_that_cannot_be_accepted_are_missing_in_the_end_and_not_before() {
        let place = Place::Address { host: "localhost".to_owned(), port: 0 };
        let job = Rendezvous::new(place, 0, 2, Secret::new([7; 32]));
        let job = Rendezvous { timeout: Duration::from_millis(300), ..job };
        let mut meeting = Meeting::new(&job, "here", Instant::now()).unwrap();
        meeting.open_desk().unwrap();
        let deaf = || UnixStream::pair().unwrap().0.into();
        meeting.desk.as_mut().unwrap().0 = deaf();
        meeting.unix_door = Some(deaf());
        let error = loop {
            meeting.admit().unwrap();
            if let Err(error) = meeting.wait() {
                break error;
            }
        };
        // What failed long ago is no longer said.
        meeting.admit().unwrap();
        let text = meeting.explained(error).to_string();
        for part in ["within 300ms from rank 1", "cannot accept ranks that come to this one"] {
            assert!(text.contains(part), "no {part:?} in: {text}");
        }
    }
}
