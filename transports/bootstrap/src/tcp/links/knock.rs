//! A connection between two ranks of a formed job until both ends have proven themselves, on the control thread.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use rustix::io::Errno;

use super::super::contact::{Contact, Progress, Why};
use super::super::handshake::{Purpose, Verdict};
use super::{CALL, Opening, Slot, TcpLinks, Terms};
use crate::control::{Control, Dispatch, Source};
use crate::meeting::STRANGERS;
use crate::sync::lock;

/// A connection that is being proven.
pub(super) struct Knock {
    links: Weak<TcpLinks>,
    /// Watches the connection. Links that are gone cannot tell of it, and then nobody else would let go.
    control: Arc<Control>,
    /// The peer that is called; `None` where the other end calls.
    callee: Option<u32>,
    /// With the token of the control thread, which is set before anything is looked at.
    contact: Mutex<Option<(Contact, u64)>>,
}

impl Knock {
    /// Begins a call.
    pub fn call(
        links: &Weak<TcpLinks>,
        terms: &Terms,
        to: u32,
        control: &Arc<Control>,
    ) -> Result<Arc<Knock>, Why> {
        let address = terms.addresses[to as usize];
        let mut contact = Contact::call(address, terms.key, Purpose::Link, terms.rank, to)
            .map_err(|_| Why::Os(Errno::IO))?
            .map_err(Why::Os)?;
        contact.until = Instant::now() + CALL;
        let knock = Knock::new(links.clone(), Some(to), control);
        knock.watch(contact, true)?;
        Ok(knock)
    }

    fn new(links: Weak<TcpLinks>, callee: Option<u32>, control: &Arc<Control>) -> Arc<Knock> {
        Arc::new(Knock { links, control: control.clone(), callee, contact: Mutex::new(None) })
    }

    /// Takes in a connection from the door.
    pub fn answer(links: &Arc<TcpLinks>, socket: OwnedFd) {
        // Without random bits nobody can be let in.
        let Ok(Some(contact)) = Contact::answer(socket, links.terms.key, links.terms.rank) else {
            return;
        };
        let knock = Knock::new(Arc::downgrade(links), None, &links.control);
        if knock.watch(contact, false).is_err() {
            return;
        }
        let excess = {
            let mut state = lock(&links.state);
            let most = state.slots.len() + STRANGERS;
            if state.closed {
                // Closing has emptied the list, and nobody would end a connection that is added to it now.
                Some(knock)
            } else {
                state.strangers.push_back(knock);
                if state.strangers.len() > most { state.strangers.pop_front() } else { None }
            }
        };
        if let Some(oldest) = excess {
            oldest.end();
        }
    }

    fn watch(self: &Arc<Knock>, contact: Contact, calls: bool) -> Result<(), Why> {
        let until = contact.until;
        let mut slot = lock(&self.contact);
        let socket = contact.socket.as_fd();
        let token = self.control.add(socket, self.clone()).map_err(|_| Why::Os(Errno::NOMEM))?;
        self.control.writable(socket, token, calls);
        *slot = Some((contact, token));
        drop(slot);
        let alarm: Arc<dyn Dispatch> = self.clone();
        self.control.post_at(until, Arc::downgrade(&alarm));
        Ok(())
    }

    /// Whether it came to an end, one way or the other.
    pub fn is_over(&self) -> bool {
        lock(&self.contact).is_none()
    }

    /// Closes the connection, unless it is a link already.
    pub fn end(&self) {
        if let Some((contact, token)) = lock(&self.contact).take() {
            self.control.remove(contact.socket.as_fd(), token);
        }
    }

    /// It is no stranger any more.
    fn leave(&self, links: &TcpLinks) {
        lock(&links.state).strangers.retain(|other| !std::ptr::eq(Arc::as_ptr(other), self));
    }

    fn advance(&self) {
        // Its descriptor stays ready: were it left in, the control thread would come here again and again.
        let Some(links) = self.links.upgrade() else { return self.end() };
        let (contact, progress) = {
            let mut slot = lock(&self.contact);
            let Some((contact, token)) = slot.as_mut() else { return };
            let connecting = contact.is_connecting();
            contact.due = true;
            let progress = contact.advance();
            if let Progress::Waiting = progress {
                if connecting && !contact.is_connecting() {
                    links.control.writable(contact.socket.as_fd(), *token, false);
                }
                return;
            }
            links.control.remove(contact.socket.as_fd(), *token);
            let Some((contact, _)) = slot.take() else { return };
            (contact, progress)
        };
        let callee = self.callee;
        if callee.is_none() {
            self.leave(&links);
        }
        match (progress, callee) {
            (Progress::Waiting, _) => {}
            (Progress::Proven { .. }, Some(peer)) => links.install(peer, contact.socket),
            (Progress::Over(why), Some(peer)) => links.call_failed(peer, why),
            (Progress::Proven { purpose, rank }, None) => links.decide(contact, purpose, rank),
            // A stranger: a port scanner, a health check. It is dropped, and that is all.
            (Progress::Over(_), None) => {}
        }
    }
}

impl TcpLinks {
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
            own.end();
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
        let Some(links) = self.links.upgrade() else { return self.end() };
        let late = lock(&self.contact).take();
        let Some((contact, token)) = late else { return };
        links.control.remove(contact.socket.as_fd(), token);
        match self.callee {
            Some(peer) => links.call_failed(peer, Why::Slow),
            None => self.leave(&links),
        }
    }
}

impl Source for Knock {
    fn ready(&self) {
        self.advance();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;
    use crate::PeerInfo;
    use crate::absent::Gone;
    use crate::mesh::{Carrier, Mesh};

    /// Longer than anything takes that works.
    const PATIENCE: Duration = Duration::from_secs(20);

    fn listener() -> TcpListener {
        TcpListener::bind("127.0.0.1:0").unwrap()
    }

    /// Rank 0 of a world of 2, and where its peer listens, on another node.
    fn half_a_world() -> (Arc<Mesh>, Arc<TcpLinks>, TcpListener) {
        let peer = listener();
        let door = listener();
        let addresses = vec![door.local_addr().unwrap(), peer.local_addr().unwrap()];
        let silence = Duration::from_secs(10);
        let terms = Terms { rank: 0, nodes: vec![0, 1], addresses, silence, key: [3; 32] };
        let info = |node| PeerInfo { pid: 1, same_process: false, node, address: None };
        let mut made = None;
        let mesh = Mesh::new(0, vec![info(0), info(1)], PATIENCE, [0; 32], |mesh| {
            let links = TcpLinks::new(terms, door.into(), mesh)?;
            made = Some(links.clone());
            Ok(Box::new(links))
        });
        (mesh.unwrap(), made.unwrap(), peer)
    }

    /// A connection, and its other end.
    fn connection() -> (TcpStream, OwnedFd) {
        let listener = listener();
        let outside = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let inside = listener.accept().unwrap().0;
        inside.set_nonblocking(true).unwrap();
        (outside, inside.into())
    }

    /// Closes it without a goodbye, for which nobody is left.
    fn close(links: &Arc<TcpLinks>) {
        links.note_gone(1, &Gone::Left);
        links.close(&[]);
    }

    /// Waits until the other end is closed, whatever it says before.
    fn closes(mut outside: TcpStream) {
        outside.set_read_timeout(Some(PATIENCE)).unwrap();
        match outside.read_to_end(&mut Vec::new()) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => panic!("the connection stays open: {error}"),
        }
    }

    #[test]
    fn a_call_that_a_close_overtakes_is_ended() {
        let (mesh, links, peer) = half_a_world();
        close(&links);
        links.call(1);
        let called = peer.accept().unwrap().0;
        drop((links, mesh));
        closes(called);
    }

    #[test]
    fn a_stranger_whom_a_close_overtakes_is_dropped() {
        let (mesh, links, _peer) = half_a_world();
        close(&links);
        let (outside, inside) = connection();
        Knock::answer(&links, inside);
        drop((links, mesh));
        closes(outside);
    }

    #[test]
    fn a_link_that_a_close_overtakes_is_ended() {
        let (_mesh, links, _peer) = half_a_world();
        close(&links);
        let (outside, inside) = connection();
        links.install(1, inside);
        closes(outside);
    }

    #[test]
    fn a_call_to_a_rank_that_is_gone_is_ended() {
        let (_mesh, links, peer) = half_a_world();
        let begun = Instant::now();
        links.send(1, crate::frame::Frame::plain(crate::frame::Kind::Message, Vec::new()));
        let called = peer.accept().unwrap().0;
        links.note_gone(1, &Gone::Left);
        closes(called);
        assert!(begun.elapsed() < CALL, "it ended for want of time");
    }

    #[test]
    fn a_connection_whose_wire_is_gone_is_let_go_of() {
        let (_mesh, links, peer) = half_a_world();
        let knock = Knock::call(&Weak::new(), &links.terms, 1, &links.control);
        let mut called = peer.accept().unwrap().0;
        drop(knock);
        called.write_all(b"?").unwrap();
        closes(called);
    }
}
