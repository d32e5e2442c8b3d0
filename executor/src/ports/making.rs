//! How links come to stand: what a rank asks of its peers' control threads, and what it does when they ask.

use super::message::LinkMessage;
use super::mirror::Telling;
use super::{GRACE, Introduction, LOCAL, Ports, SHARED, Standing, lost};
use crate::communicator::CONTROL;
use crate::error::ExecutorError;
use crate::shared::control::RING;
use antiphon_bootstrap::BootstrapError;
use antiphon_port::{Attended, Link, WireError};
use log::debug;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

impl Ports {
    /// Tells what the peers said of themselves; links that they asked for already are opened now.
    pub fn introduce(&self, introductions: Vec<Introduction>) {
        let wanted: Vec<u32> = {
            let mut state = self.state();
            state.introductions = introductions;
            for (peer, standing) in self.links.iter().enumerate() {
                let mirror = state.introductions[peer].mirrors;
                let known = state.peers[peer].regions.contains_key(&mirror);
                if let Some(standing) = standing.get().filter(|_| known) {
                    standing.telling.mirror.get_or_init(|| mirror);
                }
            }
            let peers = (0..).zip(&state.peers);
            peers.filter(|(_, towards)| towards.wanted).map(|(peer, _)| peer).collect()
        };
        // Peers want these: one that cannot be had is no fault of a communicator that may never need it.
        wanted.into_iter().for_each(|peer| drop(self.open(peer)));
    }

    /// Begins a link to a peer, unless there is one, or one is on its way. That a peer has left shows when the link is used:
    /// it was no reason not to load a plan while it was there.
    ///
    /// # Errors
    /// Why there will be no link.
    pub fn want(&self, peer: u32) -> Result<(), ExecutorError> {
        self.enable();
        let (known, left) = {
            let towards = &mut self.state().peers[peer as usize];
            let wanted = std::mem::replace(&mut towards.wanted, true);
            (wanted || towards.refused.is_some(), towards.left)
        };
        if left {
            return Ok(());
        }
        if known {
            return self.link(peer).map(|_| ());
        }
        if peer < self.rank {
            self.ask(peer, LinkMessage::Want);
            return Ok(());
        }
        self.open(peer)
    }

    /// Tells a peer something that it must answer. One that has left never will.
    fn ask(&self, peer: u32, said: LinkMessage) {
        // The bootstrap reports a lost peer, which ends the communicator.
        let sent = self.voice.send(peer, said.message(CONTROL));
        if matches!(sent, Err(BootstrapError::PeerLeft { .. })) {
            self.left(peer, "the job");
        }
    }

    /// Notes that a peer has left. Of links that stand most see that themselves, once what was under way has landed.
    fn left(&self, peer: u32, what: &str) {
        if let Some(standing) = self.links[peer as usize].get()
            && standing.wire.is_some_and(|wire| self.wires[wire].name() == SHARED)
        {
            let (wire, reason) = (SHARED.to_owned(), format!("it has left {what}"));
            let lost = || (Instant::now(), WireError::Lost { wire, peer, reason });
            standing.lost.get_or_init(lost);
        }
        let mut state = self.state();
        let towards = &mut state.peers[peer as usize];
        towards.left = true;
        towards.refused.get_or_insert_with(|| format!("it has left {what}"));
        let opening = towards.opening.take();
        drop(state);
        drop(opening);
    }

    /// Finds out, once in a while, whether a peer whose link does not stand is still there.
    pub fn miss(&self, peer: u32) {
        if self.links[peer as usize].get().is_some() {
            return;
        }
        let due = {
            let towards = &mut self.state().peers[peer as usize];
            let due = towards.asked.is_none_or(|last| last.elapsed() >= GRACE);
            if due {
                towards.asked = Some(Instant::now());
            }
            due
        };
        if due {
            // Said twice, it changes nothing.
            self.ask(peer, LinkMessage::Want);
        }
    }

    /// Tells the peers that have to do with this rank's links, or are on its node, that there will be no more of them.
    pub fn leave(&self) {
        let told: Vec<u32> = {
            let state = self.state();
            let near = |peer: u32| {
                let known = state.introductions.get(peer as usize);
                known.is_some_and(|known| known.peer.same_node)
            };
            let others = (0..).zip(&state.peers).filter(|(peer, _)| *peer != self.rank);
            others.filter(|(peer, to)| to.wanted || near(*peer)).map(|(peer, _)| peer).collect()
        };
        told.into_iter().for_each(|peer| self.say(peer, LinkMessage::Leave));
    }

    /// Opens this rank's half of a link to a higher rank; one that cannot be opened is refused to the peer.
    fn open(&self, peer: u32) -> Result<(), ExecutorError> {
        self.try_open(peer).inspect_err(|error| {
            let why = match error {
                ExecutorError::Link { reason, .. } => reason.clone(),
                other => other.to_string(),
            };
            self.refuse(peer, why);
        })
    }

    /// Notes why there will be no link to a peer, and tells the peer.
    fn refuse(&self, peer: u32, why: String) {
        self.state().peers[peer as usize].refused = Some(why.clone());
        self.say(peer, LinkMessage::Refuse { why });
    }

    fn try_open(&self, peer: u32) -> Result<(), ExecutorError> {
        if peer < self.rank {
            return Ok(());
        }
        let mut state = self.state();
        // Whoever wants a link while the peers are introduced may come here besides `introduce`.
        if state.peers[peer as usize].opened {
            return Ok(());
        }
        let Some(introduction) = state.introductions.get(peer as usize) else {
            // Not introduced yet; `introduce` comes back to it.
            return Ok(());
        };
        let picked = self.pick(introduction);
        state.peers[peer as usize].opened = true;
        let wire = picked.map_err(ExecutorError::from)?;
        let opening = self.wires[wire].open(peer).map_err(|error| lost(peer, &error))?;
        let address = opening.address();
        state.peers[peer as usize].opening = Some((opening, wire));
        drop(state);
        self.ask(peer, LinkMessage::Open { wire: self.wires[wire].name().to_owned(), address });
        Ok(())
    }

    /// Handles a peer's message about links.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn receive(&self, peer: u32, tag: u32, payload: &[u8]) -> Result<(), String> {
        let said = LinkMessage::parse(tag, payload)?;
        if self.state().stopped {
            return Ok(());
        }
        match said {
            LinkMessage::Want => {
                // If something keeps the link from standing, the peer is told.
                let _ = self.want(peer);
                Ok(())
            }
            LinkMessage::Open { wire, address } => {
                if let Err(error) = self.answer(peer, &wire, &address) {
                    self.refuse(peer, error.to_string());
                }
                Ok(())
            }
            LinkMessage::Answer { address } => self.answered(peer, &address),
            LinkMessage::Refuse { why } => {
                self.refused(peer, why);
                Ok(())
            }
            LinkMessage::Leave => {
                self.left(peer, "the communicator");
                Ok(())
            }
            LinkMessage::Region { region, bytes, blob } => {
                self.told_region(peer, region, bytes, &blob)
            }
            LinkMessage::Retire { region } => {
                if let Some(standing) = self.links[peer as usize].get() {
                    standing.attended.link().retire(region);
                }
                self.state().peers[peer as usize].regions.remove(&region);
                Ok(())
            }
        }
    }

    /// A peer has opened the other half of a link that this rank opened.
    ///
    /// # Errors
    /// That this rank opened none.
    fn answered(&self, peer: u32, address: &[u8]) -> Result<(), String> {
        let (opening, refused) = {
            let towards = &mut self.state().peers[peer as usize];
            (towards.opening.take(), towards.refused.is_some())
        };
        let Some((opening, wire)) = opening else {
            // One that leaves may say so before it answers.
            let known = refused.then_some(());
            return known.ok_or_else(|| "an answer to a link that was not opened".to_owned());
        };
        let stood = opening.connect(address).and_then(|link| self.stand(peer, Some(wire), link));
        if let Err(error) = stood {
            self.refuse(peer, error.reason());
        }
        Ok(())
    }

    /// A peer has said why there will be no link.
    fn refused(&self, peer: u32, why: String) {
        let mut state = self.state();
        let towards = &mut state.peers[peer as usize];
        towards.refused = Some(why);
        let opening = towards.opening.take();
        drop(state);
        drop(opening);
    }

    /// A peer has said of a region of `bytes` bytes that this rank may write to, and how the link's wire reaches it.
    ///
    /// # Errors
    /// That there is no link, or why it cannot take the region.
    fn told_region(&self, peer: u32, region: u64, bytes: u64, blob: &[u8]) -> Result<(), String> {
        let Some(standing) = self.links[peer as usize].get() else {
            // The peer's half may have stood before it heard that this one cannot.
            if self.state().peers[peer as usize].refused.is_some() {
                return Ok(());
            }
            return Err("a region of a link that does not stand".to_owned());
        };
        let link = standing.attended.link();
        link.accept(region, bytes, blob).map_err(|error| error.to_string())?;
        let mut state = self.state();
        state.peers[peer as usize].regions.insert(region, bytes);
        let mirror = state.introductions.get(peer as usize).map(|known| known.mirrors);
        drop(state);
        if mirror == Some(region) {
            standing.telling.mirror.get_or_init(|| region);
            self.tell_come(standing);
        }
        Ok(())
    }

    /// The other half of a link that a lower rank opened.
    fn answer(&self, peer: u32, wire: &str, address: &[u8]) -> Result<(), WireError> {
        self.enable();
        self.state().peers[peer as usize].wanted = true;
        let found = self.wires.iter().position(|own| own.name() == wire);
        let at = found.ok_or_else(|| WireError::Unavailable {
            wire: wire.to_owned(),
            reason: format!("rank {} has no such wire", self.rank),
            cure: "force the same wire on all ranks, or none".to_owned(),
        })?;
        let opening = self.wires[at].open(peer)?;
        let own = opening.address();
        let link = opening.connect(address)?;
        // The peer's link stands before it hears of regions.
        self.say(peer, LinkMessage::Answer { address: own });
        self.stand(peer, Some(at), link)
    }

    /// A link stands: the proxy cares for it, and the peer hears of this rank's regions.
    pub fn stand(
        &self,
        peer: u32,
        wire: Option<usize>,
        link: Arc<dyn Link>,
    ) -> Result<(), WireError> {
        let lost = Arc::new(OnceLock::new());
        let note = Arc::clone(&lost);
        let whose = self.whose.clone();
        let lose = move |error: &WireError| {
            debug!("{whose}: {error}");
            note.get_or_init(|| (Instant::now(), error.clone()));
        };
        let telling = Arc::new(Telling::new(self.rank, Arc::clone(&self.come)));
        let still = Arc::clone(&telling);
        let attended = Attended::posting(link, lose, move |link| still.tell(link))?;
        let standing = Standing {
            attended,
            wire,
            telling,
            described: [const { AtomicU64::new(0) }; RING as usize],
            landed: AtomicU64::new(0),
            lost,
            direct: AtomicU64::new(0),
        };
        if let Some(wire) = wire {
            let (name, over) = (self.wires[wire].name(), standing.attended.link().describe());
            debug!("{} writes to rank {peer} over the wire {name}: {over}", self.whose);
        }
        // A thread that registers memory tells the peers of all links that stand: this peer is one of them, or hears of it below.
        let registering = self.registering();
        let state = self.state();
        let known = self.links[peer as usize].set(standing).is_err();
        if state.stopped {
            self.links[peer as usize].get().inspect(|standing| standing.attended.link().stop());
            return Ok(());
        }
        drop(state);
        let Some(wire) = wire.filter(|&wire| !known && self.wires[wire].name() != LOCAL) else {
            return Ok(());
        };
        for region in self.register_all(wire, &registering)? {
            self.say(peer, region);
        }
        Ok(())
    }
}
