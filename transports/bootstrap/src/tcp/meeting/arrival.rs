//! How a rank finds rank 0.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use antiphon_transport::interface::{interfaces, list};
use rustix::io::Errno;

use super::super::contact::{Contact, Progress, Why};
use super::super::handshake::{Failure, Purpose};
use super::super::place::Place;
use super::super::{interface, stand};
use super::{Meeting, Role, Seat};
use crate::error::{BootstrapError, Result};
use crate::frame::{Frame, Kind, VERSION};
use crate::hello::Introduction;
use crate::lookup::Lookup;
use crate::meeting::{PAUSE, nonsense};
use crate::pipe::Pipe;
use crate::sync::{hex, random};

/// How long what a name stands for is believed.
const FRESH: Duration = Duration::from_millis(500);

/// Addresses at which rank 0 may be.
#[derive(Default)]
pub(super) struct Addresses {
    known: Vec<SocketAddr>,
    /// Which of them is next.
    next: usize,
    looked: Option<Instant>,
    /// Where the process that made the id says that rank 0 is.
    sent: Option<SocketAddr>,
    /// The host's name, while it is looked up.
    lookup: Option<Lookup>,
}

/// A file with rank 0's address, which goes when this does.
pub(super) struct Note {
    path: PathBuf,
    text: String,
}

impl Note {
    /// Puts it there whole and at once, readable for this user alone.
    pub fn write(path: &Path, text: String) -> Result<Note> {
        let failed = |error: std::io::Error| BootstrapError::Network {
            doing: "write rank 0's address to the file",
            address: path.display().to_string(),
            errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
        };
        let mut draft = path.as_os_str().to_owned();
        draft.push(format!(".{}", hex(&random()?)));
        let draft = PathBuf::from(draft);
        let put = || {
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
            file.write_all(text.as_bytes())?;
            std::fs::rename(&draft, path)
        };
        put().map_err(|error| {
            let _ = std::fs::remove_file(&draft);
            failed(error)
        })?;
        Ok(Note { path: path.to_owned(), text })
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        // Unless a later job has put its own there.
        if std::fs::read_to_string(&self.path).is_ok_and(|text| text == self.text) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Longest file that is looked at.
const LONGEST: u64 = 4096;

impl Meeting<'_> {
    pub(super) fn has_desk(&self) -> bool {
        let reached = self.has(Role::Desk) || self.has(Role::Keeper);
        self.desk.is_some() || self.table.is_some() || reached
    }

    /// The text of the file of rendezvous. The tag tells whether the writer has this job's secret.
    pub(super) fn note_text(&self, address: SocketAddr) -> String {
        let tag = self.secret.derive(b"file", address.to_string().as_bytes());
        format!("antiphon rendezvous {VERSION}\n{address}\n{}\n", hex(&tag))
    }

    fn read_note(&mut self, path: &Path) -> Option<SocketAddr> {
        use std::io::Read;
        let mut text = String::new();
        let file = OpenOptions::new().read(true).open(path).ok()?;
        file.take(LONGEST).read_to_string(&mut text).ok()?;
        let address: Option<SocketAddr> = text.lines().nth(1).and_then(|line| line.parse().ok());
        let valid = address.filter(|&address| self.note_text(address) == text);
        if valid.is_none() {
            self.hints.insert(format!(
                "{} was not written with this secret and version (remove it if it is of an earlier job; give all ranks the same secret)",
                path.display()
            ));
        }
        valid
    }

    /// Looks up where rank 0 may be.
    fn look(&mut self) {
        let fresh = self.addresses.looked.is_some_and(|when| when.elapsed() < FRESH);
        let job = self.job;
        match &job.place {
            Place::Id(id) => self.addresses.known = vec![id.address],
            Place::File(path) => self.addresses.known = self.read_note(path).into_iter().collect(),
            Place::Address { .. } if fresh => return,
            Place::Address { host, port } => {
                let begin = || Lookup::begin(host, *port);
                let found = self.addresses.lookup.get_or_insert_with(begin).wait(Instant::now());
                let of_it = |hint: &String| hint.starts_with(&unknown(host));
                let Some(found) = found else {
                    if self.addresses.known.is_empty() && !self.hints.iter().any(of_it) {
                        self.hints.insert(format!("{} (no answer has come yet)", unknown(host)));
                    }
                    return;
                };
                self.addresses.lookup = None;
                // That is over.
                self.hints.retain(|hint| !of_it(hint));
                match found {
                    Ok(found) => self.addresses.known = found,
                    Err(error) => {
                        self.hints.insert(format!("{} ({error})", unknown(host)));
                    }
                }
            }
        }
        self.addresses.looked = Some(Instant::now());
    }

    fn next_address(&mut self) -> Option<SocketAddr> {
        if let Some(sent) = self.addresses.sent.take() {
            return Some(sent);
        }
        self.look();
        let known = &self.addresses.known;
        let address = *known.get(self.addresses.next % known.len().max(1))?;
        self.addresses.next += 1;
        Some(address)
    }

    /// Goes on with the way to rank 0, or begins one.
    pub(super) fn arrive(&mut self) -> Result<()> {
        if self.has_desk() {
            return Ok(());
        }
        if self.way.is_none() {
            let Some(address) = self.next_address() else { return Ok(()) };
            let attempt = Contact::call(address, self.key, Purpose::Join, self.job.rank, 0)?;
            let Some(reached) = self.lack.reached(attempt) else { return Ok(()) };
            match reached {
                Ok(contact) => self.way = Some(contact),
                Err(errno) => self.no_way(address, Why::Os(errno))?,
            }
        }
        let Some(way) = self.way.as_mut() else { return Ok(()) };
        match way.advance() {
            Progress::Waiting => {}
            Progress::Over(why) => {
                let address = way.address;
                self.way = None;
                self.no_way(address, why)?;
            }
            Progress::Proven { .. } => {
                if let Some(contact) = self.way.take() {
                    self.present(contact)?;
                }
            }
        }
        Ok(())
    }

    /// Gives this rank's card to rank 0, or to the process that made the id: from rank 0 that one wants to know where it listens.
    fn present(&mut self, contact: Contact) -> Result<()> {
        let here =
            stand::local(&contact.socket).map_err(BootstrapError::os("read a local address"))?;
        self.open_door(here.ip())?;
        stand::keep_alive(&contact.socket, self.job.silence)
            .map_err(BootstrapError::os("keep a connection alive"))?;
        let mut pipe = Pipe::known(contact.socket, 0);
        let mut card = self.card.clone();
        let mut role = Role::Desk;
        if self.job.rank == 0 {
            let (desk, address) = stand::listen(SocketAddr::new(card.address.ip(), 0))?;
            self.desk = Some((desk, address));
            card.address = address;
            role = Role::Keeper;
        }
        pipe.send_bytes(Kind::Join, card.encode());
        self.seats.push(Seat::new(role, pipe));
        // What went wrong on the way no longer matters.
        self.hints.clear();
        Ok(())
    }

    /// The process that made the id says where rank 0 is, or that it has not come.
    pub(super) fn be_sent(&mut self, at: usize, frame: &Frame) -> Result<()> {
        let text = String::from_utf8_lossy(&frame.payload);
        if text.is_empty() {
            self.seats[at].role = Role::Keeper;
            self.hints.insert(format!(
                "the process that made the id answers at {}, and rank 0 has not come there",
                self.job.place
            ));
            return Ok(());
        }
        let Ok(address) = text.parse() else {
            return Err(nonsense(self.name(0), "an address of rank 0 that cannot be read"));
        };
        self.seats[at].role = Role::Dropped;
        self.search_again();
        self.addresses.sent = Some(address);
        Ok(())
    }

    /// The process that made the id answers this rank no more: it has ended, its own rank 0 has joined, or it knows where another is.
    pub(super) fn search_again(&mut self) {
        let all_here = self.cards.iter().skip(1).all(Option::is_some);
        if self.job.rank == 0 && all_here {
            return;
        }
        // Those who are still to come would not find rank 0 there.
        self.desk = None;
        if self.job.rank != 0 {
            self.hints.clear();
        }
        self.alone_since = Instant::now();
        self.pause = Duration::ZERO;
    }

    /// On rank 0, which listens whatever the host's name stands for: begins to look that up, for others go there.
    pub(super) fn look_up_own(&mut self, host: &str, port: u16) {
        self.addresses.lookup = Some(Lookup::begin(host, port));
    }

    /// On rank 0: says so where the name at which the others look for it leads to none of this host's addresses.
    pub(super) fn check_own_name(&mut self) {
        let Some(lookup) = self.addresses.lookup.take().filter(|_| self.job.rank == 0) else {
            return;
        };
        let found = match lookup.wait(Instant::now()) {
            Some(Ok(found)) => found,
            Some(Err(_)) => return,
            None => return self.addresses.lookup = Some(lookup),
        };
        let Ok(known) = interfaces() else { return };
        let is_own = |at: &SocketAddr| {
            let ip = at.ip().to_canonical();
            // Those of a link alone are not listed.
            let linked = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
            linked || ip.is_loopback() || known.iter().any(|own| own.address == ip)
        };
        if found.is_empty() || found.iter().any(is_own) {
            return;
        }
        let mut led: Vec<String> = found.iter().map(|at| at.ip().to_string()).collect();
        led.dedup();
        self.hints.insert(format!(
            "the host of {} is {} as seen from here, which is none of this host's addresses ({}): run rank 0 there, or name a host that leads here",
            self.job.place,
            led.join(", "),
            list(&known)
        ));
    }

    /// Whether nobody has answered at the address of the id for too long.
    pub(super) fn check_search(&self, now: Instant) -> Result<()> {
        match &self.job.place {
            Place::Id(id)
                if !self.has_desk()
                    && now.saturating_duration_since(self.alone_since) >= self.job.search =>
            {
                Err(self.unmet(id.address, self.job.search))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn unmet(&self, address: SocketAddr, waited: Duration) -> BootstrapError {
        let mut hints = self.all_hints().join("; ");
        if hints.is_empty() {
            hints = "see whether the process that made the id runs".to_owned();
        }
        BootstrapError::Unmet { address: address.to_string(), waited, hints }
    }

    /// Whether other hosts cannot reach an address of this host that leads to rank 0, or to where a rank came from: if ranks
    /// meet at a name, it may be the loopback address on the host that has the name.
    pub(super) fn is_hidden(&self, here: IpAddr) -> bool {
        match here.to_canonical() {
            IpAddr::V6(ip) if ip.is_unicast_link_local() => true,
            ip => ip.is_loopback() && !self.job.place.is_loopback(),
        }
    }

    /// Opens the listener for links of other nodes: at the address `here`, unless an interface is named, or others do not reach that.
    pub(super) fn open_door(&mut self, here: IpAddr) -> Result<()> {
        if self.door.is_some() {
            return Ok(());
        }
        let ip = match &self.job.interface {
            Some(interface) => interface::address_of(interface)?,
            None if self.is_hidden(here) => interface::default_address()?,
            None => here.to_canonical(),
        };
        let (door, address) = stand::listen(SocketAddr::new(ip, 0))?;
        self.door = Some(door);
        self.card.address = address;
        Ok(())
    }

    /// An attempt to reach rank 0 failed: whether that is final.
    fn no_way(&mut self, address: SocketAddr, why: Why) -> Result<()> {
        let stale = matches!(self.job.place, Place::File(_));
        let id = match &self.job.place {
            Place::Id(id) => Some(id.address),
            _ => None,
        };
        if id.is_some_and(|id| id != address) {
            // The keeper that sent this rank there will know better in a moment.
            self.pause = PAUSE.1;
        }
        let hint = match why {
            Why::Failed(Failure::Version(saw)) if !stale => {
                let address = address.to_string();
                return Err(BootstrapError::OtherVersion { address, saw, expected: VERSION });
            }
            Why::Failed(Failure::Secret(other)) if !stale => {
                let (rank, address) = (self.job.rank, address.to_string());
                return Err(BootstrapError::WrongSecret { rank, other, address });
            }
            Why::Failed(Failure::Version(saw)) => {
                format!("{address} speaks protocol version {saw}, this process {VERSION}")
            }
            Why::Failed(Failure::Secret(_)) => format!("{address} has another secret"),
            Why::Failed(_) => format!("what listens at {address} is no rank 0 of Antiphon"),
            Why::Slow => format!("{address} does not answer (is a firewall in the way?)"),
            Why::Closed => format!("{address} closes the connection"),
            Why::Os(Errno::CONNREFUSED) if id == Some(address) => {
                self.hints.insert(format!(
                    "nobody listens at {address}: keep the process that made the id running until all ranks have joined"
                ));
                return if self.job.rank == 0 { self.replace_keeper(address) } else { Ok(()) };
            }
            // Nobody listens there yet.
            Why::Os(Errno::CONNREFUSED) => {
                let led = match &self.job.place {
                    Place::Address { host, .. } if host.parse::<IpAddr>().is_err() => {
                        format!(", where {host:?} leads from here")
                    }
                    Place::File(path) => format!(", which {} names", path.display()),
                    _ => String::new(),
                };
                format!("{}{led}: see whether rank 0 runs there", silent(address))
            }
            Why::Os(errno) => format!("{address} cannot be reached ({errno})"),
        };
        // What an earlier attempt came to is over.
        self.hints.retain(|hint| !hint.starts_with(&silent(address)));
        self.hints.insert(hint);
        Ok(())
    }
}

/// The beginning of what is said of an address that refuses connections.
fn silent(address: SocketAddr) -> String {
    format!("nobody listens at {address}")
}

/// The beginning of what is said of a host's name that leads nowhere.
fn unknown(host: &str) -> String {
    format!("the host {host:?} cannot be looked up")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::tcp::{Rendezvous, Secret};

    #[test]
    fn a_lookup_that_does_not_end_keeps_no_rank_beyond_its_time() {
        let place = Place::Address { host: "slow.invalid".to_owned(), port: 9 };
        let job = Rendezvous::new(place, 1, 2, Secret::new([7; 32]));
        let job = Rendezvous { timeout: Duration::from_millis(300), ..job };
        let mut meeting = Meeting::new(&job, "here", Instant::now()).unwrap();
        let (end, ended) = mpsc::channel();
        meeting.addresses.lookup =
            Some(Lookup::by(move || ended.recv().map_err(std::io::Error::other)));
        let error = meeting.run().unwrap_err();
        let text = meeting.explained(error).to_string();
        for part in ["within 300ms", "\"slow.invalid\" cannot be looked up (no answer"] {
            assert!(text.contains(part), "no {part:?} in: {text}");
        }
        end.send(Vec::new()).unwrap();
    }

    #[test]
    fn a_rank_that_came_by_its_hosts_own_loopback_shows_others_an_address_that_they_reach() {
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let chosen = interface::default_address().unwrap();
        let linked = "fe80::7".parse().unwrap();
        for (host, here, expected) in [
            ("node1", loopback, chosen),
            ("node1", linked, chosen),
            ("192.0.2.77", loopback, chosen),
            ("localhost", loopback, loopback),
            ("127.0.1.1", loopback, loopback),
        ] {
            let place = Place::Address { host: host.to_owned(), port: 9 };
            let job = Rendezvous::new(place, 1, 3, Secret::new([7; 32]));
            let mut meeting = Meeting::new(&job, "here", Instant::now()).unwrap();
            meeting.open_door(here).unwrap();
            assert_eq!(meeting.card.address.ip(), expected, "{here} of {host}");
        }
    }

    #[test]
    fn rank_0_says_that_its_name_leads_to_another_host() {
        let place = Place::Address { host: "node2".to_owned(), port: 9 };
        let elsewhere = SocketAddr::from(([192, 0, 2, 77], 9));
        let own = SocketAddr::from(([127, 0, 1, 1], 9));
        for (found, said) in
            [(vec![elsewhere, own], false), (vec![], false), (vec![elsewhere], true)]
        {
            let job = Rendezvous::new(place.clone(), 0, 2, Secret::new([7; 32]));
            let mut meeting = Meeting::new(&job, "here", Instant::now()).unwrap();
            meeting.addresses.lookup = Some(Lookup::by(move || Ok(found)));
            let began = Instant::now();
            while meeting.addresses.lookup.is_some() {
                assert!(began.elapsed() < Duration::from_secs(20), "no answer");
                meeting.check_own_name();
            }
            let hints = meeting.all_hints();
            let text = "the host of node2:9 is 192.0.2.77 as seen from here, which is none of";
            assert_eq!(hints.iter().any(|hint| hint.starts_with(text)), said, "{hints:?}");
            assert_eq!(hints.is_empty(), !said, "{hints:?}");
        }
    }

    #[test]
    fn what_an_address_came_to_last_is_said_of_it() {
        let place = Place::Address { host: "node2".to_owned(), port: 9 };
        let job = Rendezvous::new(place, 1, 2, Secret::new([7; 32]));
        let mut meeting = Meeting::new(&job, "here", Instant::now()).unwrap();
        let [one, other] = [1, 2].map(|last| SocketAddr::from(([192, 0, 2, last], 9)));
        for address in [one, other, one] {
            meeting.no_way(address, Why::Os(Errno::CONNREFUSED)).unwrap();
        }
        meeting.no_way(other, Why::Closed).unwrap();
        let led = "where \"node2\" leads from here: see whether rank 0 runs there";
        let expected = [
            "192.0.2.2:9 closes the connection".to_owned(),
            format!("nobody listens at {one}, {led}"),
        ];
        assert_eq!(meeting.all_hints(), expected);
    }
}
