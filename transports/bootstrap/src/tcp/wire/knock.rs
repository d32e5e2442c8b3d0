//! A connection between two ranks of a formed job until both ends have proven themselves, on the control thread.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use rustix::io::Errno;

use super::super::contact::{Contact, Progress, Why};
use super::super::handshake::{Purpose, Verdict};
use super::{CALL, Opening, STRANGERS, Slot, TcpWire, Terms};
use crate::control::{Control, Dispatch, Source};
use crate::sync::lock;

/// A connection that is being proven.
pub(super) struct Knock {
    wire: Weak<TcpWire>,
    /// The peer that is called; `None` where the other end calls.
    callee: Option<u32>,
    /// With the token of the control thread, which is set before anything is looked at.
    contact: Mutex<Option<(Contact, u64)>>,
}

impl Knock {
    /// Begins a call.
    pub fn call(
        wire: &Weak<TcpWire>,
        terms: &Terms,
        to: u32,
        control: &Control,
    ) -> Result<Arc<Knock>, Why> {
        let address = terms.addresses[to as usize];
        let mut contact = Contact::call(address, terms.key, Purpose::Link, terms.rank, to)
            .map_err(|_| Why::Os(Errno::IO))?
            .map_err(Why::Os)?;
        contact.until = Instant::now() + CALL;
        let knock =
            Arc::new(Knock { wire: wire.clone(), callee: Some(to), contact: Mutex::new(None) });
        knock.watch(contact, control, true)?;
        Ok(knock)
    }

    /// Takes in a connection from the door.
    pub fn answer(wire: &Arc<TcpWire>, socket: OwnedFd) {
        // Without random bits nobody can be let in.
        let Ok(Some(contact)) = Contact::answer(socket, wire.terms.key, wire.terms.rank) else {
            return;
        };
        let knock =
            Arc::new(Knock { wire: Arc::downgrade(wire), callee: None, contact: Mutex::new(None) });
        if knock.watch(contact, &wire.control, false).is_err() {
            return;
        }
        let excess = {
            let mut state = lock(&wire.state);
            state.strangers.push_back(knock);
            let most = state.slots.len() + STRANGERS;
            if state.strangers.len() > most { state.strangers.pop_front() } else { None }
        };
        if let Some(oldest) = excess {
            oldest.end(&wire.control);
        }
    }

    fn watch(
        self: &Arc<Knock>,
        contact: Contact,
        control: &Control,
        calls: bool,
    ) -> Result<(), Why> {
        let until = contact.until;
        let mut slot = lock(&self.contact);
        let token =
            control.add(contact.socket.as_fd(), self.clone()).map_err(|_| Why::Os(Errno::NOMEM))?;
        control.writable(contact.socket.as_fd(), token, calls);
        *slot = Some((contact, token));
        drop(slot);
        let alarm: Arc<dyn Dispatch> = self.clone();
        control.post_at(until, Arc::downgrade(&alarm));
        Ok(())
    }

    /// Whether it came to an end, one way or the other.
    pub fn is_over(&self) -> bool {
        lock(&self.contact).is_none()
    }

    /// Closes the connection, unless it is a link already.
    pub fn end(&self, control: &Control) {
        if let Some((contact, token)) = lock(&self.contact).take() {
            control.remove(contact.socket.as_fd(), token);
        }
    }

    /// It is no stranger any more.
    fn leave(&self, wire: &TcpWire) {
        lock(&wire.state).strangers.retain(|other| !std::ptr::eq(Arc::as_ptr(other), self));
    }

    fn advance(&self) {
        let Some(wire) = self.wire.upgrade() else { return };
        let (contact, progress) = {
            let mut slot = lock(&self.contact);
            let Some((contact, token)) = slot.as_mut() else { return };
            let connecting = contact.is_connecting();
            contact.due = true;
            let progress = contact.advance();
            if let Progress::Waiting = progress {
                if connecting && !contact.is_connecting() {
                    wire.control.writable(contact.socket.as_fd(), *token, false);
                }
                return;
            }
            wire.control.remove(contact.socket.as_fd(), *token);
            let Some((contact, _)) = slot.take() else { return };
            (contact, progress)
        };
        let callee = self.callee;
        if callee.is_none() {
            self.leave(&wire);
        }
        match (progress, callee) {
            (Progress::Waiting, _) => {}
            (Progress::Proven { .. }, Some(peer)) => wire.install(peer, contact.socket),
            (Progress::Over(why), Some(peer)) => wire.call_failed(peer, why),
            (Progress::Proven { purpose, rank }, None) => wire.decide(contact, purpose, rank),
            // A stranger: a port scanner, a health check. It is dropped, and that is all.
            (Progress::Over(_), None) => {}
        }
    }
}

impl TcpWire {
    /// A rank has come to the door: whether it becomes the link.
    ///
    /// Of two calls that cross, the lower rank's counts: so the higher one's is turned away while the lower one's is
    /// under way, and given up where the lower one's comes in.
    fn decide(&self, contact: Contact, purpose: Purpose, rank: u32) {
        let (verdict, own) = {
            let mut state = lock(&self.state);
            let expected = purpose == Purpose::Link
                && !state.closed
                && rank != self.terms.rank
                && !state.gone.contains_key(&rank);
            match state.slots.get_mut(rank as usize).filter(|_| expected) {
                None | Some(Slot::Linked(_)) => (Verdict::Unexpected, None),
                Some(slot @ Slot::Idle) => {
                    // From now on frames wait for this connection, and no other is begun.
                    *slot = Slot::Opening(Opening::new(Vec::new()));
                    (Verdict::Welcome, None)
                }
                Some(Slot::Opening(opening)) => match &mut opening.call {
                    Ok(_) if self.terms.rank < rank => (Verdict::Crossed, None),
                    call => (Verdict::Welcome, std::mem::replace(call, Ok(None)).ok().flatten()),
                },
            }
        };
        if let Some(own) = own {
            own.end(&self.control);
        }
        let said = contact.verdict(verdict);
        if verdict == Verdict::Welcome {
            if said {
                self.install(rank, contact.socket);
            } else {
                // Where it was wanted here as well, it is called again.
                self.call_failed(rank, Why::Closed);
            }
        }
    }
}

/// Its time is up.
impl Dispatch for Knock {
    fn dispatch(&self) {
        let Some(wire) = self.wire.upgrade() else { return };
        let late = lock(&self.contact).take();
        let Some((contact, token)) = late else { return };
        wire.control.remove(contact.socket.as_fd(), token);
        match self.callee {
            Some(peer) => wire.call_failed(peer, Why::Slow),
            None => self.leave(&wire),
        }
    }
}

impl Source for Knock {
    fn ready(&self) {
        self.advance();
    }
}
