//! Links over wires: to ranks of other nodes, and where a wire is forced.
//!
//! ```text
//! device memory --copy--> parcel, pinned --wire--> the peer's parcel, pinned --copy--> the peer's device memory
//!       this rank's proxy                               the peer's proxy
//! ```
//!
//! Wires read and write the memory of hosts. Both copies are a [`Copies`] link of the device's, so bytes land before the signal
//! that follows them: the sender writes parcels in their order, and the receiver has a signal copied once all before it has
//! landed. What has landed at the peer's, the peer counts; with the count its parcels are free, and flushes are done.
//!
//! Where the wire takes device memory at both ends, bytes go from one to the other without parcels and copies ([`direct`]).
//! Signals stay parcels: the wire tells of a parcel once all that was written before it has landed, and the receiving device
//! has it then, or its memory is not lent. Packets stay in parcels, too.

mod direct;
mod parcels;
mod path;

#[cfg(test)]
mod tests;

use super::copies::{Copies, Everything};
use crate::sync::lock;
use antiphon_codegen::abi::FOREIGN;
use antiphon_hal::{Backend, Device, HalError, Memory, MemoryHandle};
use antiphon_port::{Link, Posted, Unit, WireError, Write};
use direct::Direct;
pub use direct::Range;
pub use parcels::BYTES;
use parcels::{
    ARRIVED, HEADER, Header, LANDED, Load, Outbox, Parcel, Place, Post, incoming, outgoing,
};
pub use path::{OverPorts, Path};
use path::{Peering, Reached};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

const NAME: &str = "staged";

/// Page-locked memory, which wires know as what it is to them: the host's.
#[derive(Debug)]
struct Pinned(Arc<dyn Memory>);

// SAFETY: the memory inside keeps the contract.
unsafe impl Memory for Pinned {
    fn backend(&self) -> Backend {
        Backend::Host
    }

    fn address(&self) -> *mut u8 {
        self.0.address()
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn id(&self) -> u64 {
        self.0.id()
    }

    fn export(&self) -> Result<MemoryHandle, HalError> {
        self.0.export()
    }
}

/// A link to a rank over a wire.
#[derive(Debug)]
pub struct Staged {
    peer: u32,
    path: Box<dyn Path>,
    everything: Arc<dyn Memory>,
    /// What the wire reads, and the peer's wire writes.
    memory: Arc<dyn Memory>,
    /// Copies to parcels, and from parcels.
    out: Copies,
    into: Copies,
    /// Wires of peers may write to this rank's device memory.
    open: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    outbox: Outbox,
    /// Parcels that are being filled: each with the position of its copy.
    filling: VecDeque<(Header, u64)>,
    /// Parcels that the wire has, and of how many the peer was told.
    written: u64,
    told: u64,
    /// What needs no parcels.
    direct: Direct,
    /// The peer's parcels whose copies have begun, and of how many that have landed it was told.
    begun: u64,
    acknowledged: u64,
    /// Why nothing goes on.
    lost: Option<String>,
    /// Why nothing more is posted, though all that was has landed: the peer has left.
    gone: Option<String>,
    /// The reason is a fault, rather than the end of the wire's link or of this one.
    faulty: bool,
}

impl State {
    /// Whether nothing goes on, or nothing more.
    fn is_over(&self) -> bool {
        self.lost.is_some() || self.gone.is_some()
    }
}

impl Staged {
    /// The link to `peer` by a path, with [`BYTES`] bytes of pinned memory. The peer makes one, too.
    ///
    /// # Errors
    /// What the device or the wire reports.
    pub fn new(
        device: &Arc<dyn Device>,
        peer: u32,
        pinned: Arc<dyn Memory>,
        path: impl FnOnce(&Arc<dyn Memory>) -> Result<Box<dyn Path>, String>,
    ) -> Result<Self, WireError> {
        let lost = |reason: String| WireError::Lost { wire: NAME.to_owned(), peer, reason };
        let system = |error: HalError| lost(error.to_string());
        let memory: Arc<dyn Memory> = Arc::new(Pinned(pinned));
        Ok(Staged {
            peer,
            everything: Arc::new(Everything(device.backend())),
            out: Copies::new(device, peer).map_err(system)?,
            into: Copies::new(device, peer).map_err(system)?,
            open: device.caps().ordered_network_writes,
            path: path(&memory).map_err(lost)?,
            memory,
            state: Mutex::default(),
        })
    }

    /// Lets the wire read a memory of this rank's device, and the peer's wire write it, if they can. The peer hears of it before
    /// it hears of launches that are submitted from now on, and of what these name.
    pub fn lend(&self, range: Range) {
        let mut state = self.enter();
        let State { direct, outbox, .. } = &mut *state;
        let mut news = direct.withdraw(|region| self.path.keeps(region));
        news.extend(direct.lend(range));
        news.into_iter().for_each(|(to, load)| outbox.tell(to, load));
    }

    /// Has wires neither read nor write the memory that lay at these addresses: other memory is there now.
    pub fn take_back(&self, start: u64, bytes: u64) {
        let mut state = self.enter();
        let State { direct, outbox, .. } = &mut *state;
        let news = direct.take_back(start, bytes);
        news.into_iter().for_each(|(to, load)| outbox.tell(to, load));
    }

    /// Whether all that the peer has sent has landed, and the peer knows.
    pub fn is_calm(&self) -> bool {
        let state = self.enter();
        state.is_over() || self.word(ARRIVED).load(Ordering::Acquire) == state.acknowledged
    }

    /// Whether nothing goes on, for whatever reason.
    pub fn is_lost(&self) -> bool {
        self.enter().is_over()
    }

    /// What is wrong with what the peer has sent, or with the device.
    pub fn fault(&self) -> Option<String> {
        let state = self.enter();
        state.lost.clone().filter(|_| state.faulty)
    }

    fn enter(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn error(&self, reason: String) -> WireError {
        WireError::Lost { wire: NAME.to_owned(), peer: self.peer, reason }
    }

    fn alive(&self) -> Result<MutexGuard<'_, State>, WireError> {
        let state = self.enter();
        match &state.lost {
            Some(reason) => Err(self.error(reason.clone())),
            None => Ok(state),
        }
    }

    /// A count that the peer's wire sets.
    fn word(&self, at: u64) -> &AtomicU64 {
        // SAFETY: inside of `BYTES` bytes that are mapped as long as `self`, aligned, and touched by atomic accesses alone.
        unsafe { &*self.memory.address().add(at as usize).cast::<AtomicU64>() }
    }

    fn at(&self, offset: u64) -> u64 {
        self.memory.address().expose_provenance() as u64 + offset
    }

    fn post(&self, post: Post) -> Result<Posted, WireError> {
        let mut state = self.alive()?;
        if let Some(reason) = &state.gone {
            return Err(self.error(reason.clone()));
        }
        Ok(if state.outbox.post(post) { Posted::Queued } else { Posted::Full })
    }

    /// Hands bytes that need no parcels to the wire, as long as such bytes come next; returns whether parcels may follow. A wire
    /// that is full is waited for.
    fn send(
        &self,
        state: &mut State,
        reached: &Reached,
        moved: &mut bool,
    ) -> Result<bool, WireError> {
        while let Some((from, to, bytes)) = state.outbox.next_bytes() {
            let (source, target) =
                (state.direct.source(from, bytes), state.direct.target(to, bytes));
            if !state.outbox.is_apart(to, bytes) {
                break;
            }
            let (Some((own, from)), Some((region, to))) = (source, target) else { break };
            let Some(source) = self.path.lends(own).filter(|_| self.path.knows(region)) else {
                break;
            };
            let link = reached.attended.link();
            let write = Write { source: &source, from, region, to, bytes, unit: Unit::Bytes };
            if link.write(&write)? == Posted::Full {
                return Ok(false);
            }
            state.outbox.sent(link.posted());
            self.path.count(bytes);
            *moved = true;
        }
        Ok(true)
    }

    /// Begins to fill parcels whose slots are free, and sends what needs none between them.
    fn fill(&self, state: &mut State, reached: Option<&Reached>) -> Result<bool, WireError> {
        let mut moved = false;
        loop {
            if let Some(reached) = reached
                && !self.send(state, reached, &mut moved)?
            {
                break;
            }
            let Some(Parcel { header, from }) = state.outbox.cut() else { break };
            let slot = outgoing(header.number);
            // SAFETY: a slot inside of the memory, which the wire has read: the parcel before in it has landed.
            unsafe {
                self.memory.address().add(slot as usize).cast::<[u64; 8]>().write(header.words())
            };
            if let Load::Bytes(bytes) = header.load {
                let (source, unit) = (&self.everything, Unit::Bytes);
                let to = self.at(slot + HEADER);
                let write = Write { source, from, region: FOREIGN, to, bytes, unit };
                // There are fewer slots than such a link takes posts.
                if self.out.write(&write)? == Posted::Full {
                    return Err(self.error("more copies than parcels".to_owned()));
                }
            }
            state.filling.push_back((header, self.out.posted()));
            moved = true;
        }
        Ok(moved)
    }

    /// Hands parcels that are full to the wire, and tells the peer of them.
    fn ship(&self, state: &mut State, reached: &Reached) -> Result<bool, WireError> {
        let link = reached.attended.link();
        let mut moved = self.out.progress()?;
        let filled = self.out.completed()?;
        while let Some((header, copied)) = state.filling.front() {
            let (number, bytes) = (header.number, header.bytes());
            let write = Write {
                source: &reached.source,
                from: outgoing(number),
                region: reached.region,
                to: incoming(number),
                bytes,
                unit: Unit::Bytes,
            };
            if *copied > filled || link.write(&write)? == Posted::Full {
                break;
            }
            state.filling.pop_front();
            state.written += 1;
            moved = true;
        }
        if state.told < state.written
            && link.signal(reached.region, ARRIVED, state.written)? == Posted::Queued
        {
            state.told = state.written;
            moved = true;
        }
        Ok(moved)
    }

    /// Begins the copies of parcels that have come.
    fn unpack(&self, state: &mut State) -> Result<bool, WireError> {
        let arrived = self.word(ARRIVED).load(Ordering::Acquire);
        if arrived < state.begun || arrived > state.acknowledged + parcels::SLOTS {
            let (begun, known) = (state.begun, state.acknowledged);
            let saw = format!("{arrived} parcels came, of {begun} before and {known} landed");
            return Err(self.error(saw));
        }
        let mut moved = false;
        while state.begun < arrived {
            let slot = incoming(state.begun);
            // SAFETY: a slot inside of the memory. The peer writes it again once it was told that the parcel has landed; what
            // a peer writes that does not keep to that are still words.
            let words = unsafe {
                self.memory.address().add(slot as usize).cast::<[u64; 8]>().read_volatile()
            };
            let header = Header::parse(words, state.begun).map_err(|saw| self.error(saw))?;
            let bytes = match header.load {
                Load::Bytes(bytes) => bytes,
                Load::Value(_) => 8,
                Load::Learn { .. } | Load::Forget => {
                    if !self.heed(state, &header)? {
                        break;
                    }
                    state.begun += 1;
                    moved = true;
                    continue;
                }
            };
            let Some(to) = self.path.find(header.to.region, header.to.offset, bytes) else {
                let Place { region, offset } = header.to;
                let saw = format!("{bytes} bytes to region {region:#x}, offset {offset:#x}");
                return Err(self.error(format!("saw {saw}, allowed this rank's device memory")));
            };
            let (source, unit) = (&self.everything, Unit::Bytes);
            let from = self.at(slot + HEADER);
            let posted = match header.load {
                Load::Value(value) => self.into.signal(FOREIGN, to, value)?,
                _ => {
                    let region = FOREIGN;
                    self.into.write(&Write { source, from, region, to, bytes, unit })?
                }
            };
            if posted == Posted::Full {
                break;
            }
            state.begun += 1;
            moved = true;
        }
        Ok(moved)
    }

    /// Takes news of the peer's memory in, unless so much is being copied that it must wait.
    fn heed(&self, state: &mut State, header: &Header) -> Result<bool, WireError> {
        let here = self.at(incoming(header.number));
        let (source, unit, region) = (&self.everything, Unit::Bytes, FOREIGN);
        // Of no bytes: parcels count as landed in their order.
        let nothing = Write { source, from: here, region, to: here, bytes: 0, unit };
        if self.into.write(&nothing)? == Posted::Full {
            return Ok(false);
        }
        let Place { region, offset: start } = header.to;
        let Load::Learn { bytes, number } = header.load else {
            state.direct.forget(region);
            return Ok(true);
        };
        log::debug!(
            "{bytes} bytes at {start:#x} of rank {} may be written without parcels",
            self.peer
        );
        let learnt = state.direct.learn(Range { region, number, start, bytes, open: true });
        learnt.map(|()| true).map_err(|saw| self.error(saw))
    }

    /// Tells the peer what has landed.
    fn acknowledge(&self, state: &mut State, reached: &Reached) -> Result<bool, WireError> {
        let mut moved = self.into.progress()?;
        let landed = self.into.completed()?;
        if landed > state.acknowledged
            && reached.attended.link().signal(reached.region, LANDED, landed)? == Posted::Queued
        {
            state.acknowledged = landed;
            moved = true;
        }
        Ok(moved)
    }

    /// Takes in what has come: how many of this rank's parcels have landed and, by the wire's link, of its other bytes; and the
    /// peer's parcels.
    fn receive(&self, state: &mut State, reached: Option<&Reached>) -> Result<bool, WireError> {
        let landed = self.word(LANDED).load(Ordering::Acquire);
        let asked = reached.filter(|_| state.outbox.awaited() > 0);
        // A link that is lost says so when it is driven.
        let completed = asked.map_or(0, |known| known.attended.link().completed().unwrap_or(0));
        let news = state.outbox.land(landed, state.written, completed);
        Ok(news.map_err(|saw| self.error(saw))? | self.unpack(state)?)
    }

    fn advance(&self, state: &mut State) -> Result<bool, WireError> {
        let reached = match self.path.reach() {
            Peering::Reached(reached) => reached,
            Peering::Soon => return self.fill(state, None),
            Peering::Lost(reason) => {
                let moved = self.receive(state, None)? | self.into.progress()?;
                // A peer leaves once it has told of all that has landed there: no request may fail that is done.
                if state.outbox.done == state.outbox.posted {
                    state.gone.get_or_insert(reason);
                    return Ok(moved);
                }
                state.lost.get_or_insert_with(|| reason.clone());
                return Err(self.error(reason));
            }
        };
        let driving = reached.attended.drive();
        let wired = driving.progress();
        // Also of a wire that is lost: what came before the loss counts.
        let received = self.receive(state, Some(&reached))?;
        let wired = wired.and_then(|moved| Ok(moved | self.hand_on(state, &reached)?));
        drop(driving);
        match wired {
            Ok(moved) => Ok(moved | received),
            // Who broke the communicator is heard of a little later, and counts.
            Err(WireError::Lost { wire, .. }) if wire != NAME && wire != Copies::NAME => {
                Ok(received)
            }
            Err(error) => Err(error),
        }
    }

    /// Hands on to the wire what it takes: bytes, parcels, and how many of the peer's parcels have landed.
    fn hand_on(&self, state: &mut State, reached: &Reached) -> Result<bool, WireError> {
        let State { outbox, direct, .. } = state;
        let takes = |region| self.path.takes(region);
        let told = direct.look(self.open, takes);
        told.into_iter().for_each(|(to, load)| outbox.tell(to, load));
        let mut moved = self.fill(state, Some(reached))?;
        moved |= self.ship(state, reached)?;
        moved |= self.acknowledge(state, reached)?;
        Ok(moved)
    }
}

impl Link for Staged {
    fn peer(&self) -> u32 {
        self.peer
    }

    fn accept(&self, _: u64, _: u64, _: &[u8]) -> Result<(), WireError> {
        Ok(())
    }

    fn retire(&self, _: u64) {}

    /// Packets too: parcels hold whole ones, and the copy that ends at the peer's writes aligned units of 8 bytes whole.
    fn write(&self, write: &Write<'_>) -> Result<Posted, WireError> {
        let Write { source, from, to, bytes, .. } = *write;
        let start = source.address().expose_provenance() as u64;
        let to = self.path.name(to, bytes);
        self.post(Post::Bytes { from: start.wrapping_add(from), to, bytes, unit: write.unit })
    }

    fn signal(&self, _: u64, to: u64, value: u64) -> Result<Posted, WireError> {
        self.post(Post::Header { to: self.path.name(to, 8), load: Load::Value(value) })
    }

    fn posted(&self) -> u64 {
        self.enter().outbox.posted
    }

    fn completed(&self) -> Result<u64, WireError> {
        Ok(self.alive()?.outbox.done)
    }

    fn progress(&self) -> Result<bool, WireError> {
        let mut state = self.alive()?;
        let advanced = self.advance(&mut state);
        if let (Err(error), None) = (&advanced, &state.lost) {
            state.lost = Some(error.to_string());
            state.faulty = true;
        }
        advanced
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn arm(&self) -> Result<bool, WireError> {
        self.alive().map(|_| true)
    }

    fn stop(&self) {
        self.enter().lost.get_or_insert_with(|| "this rank ended it".to_owned());
        self.out.stop();
        self.into.stop();
    }

    fn describe(&self) -> String {
        format!("parcels of pinned memory, {}", self.out.describe())
    }
}
