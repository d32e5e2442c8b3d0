//! One rank's state: who is there, what has arrived, what is waited for. How bytes travel is the [`Wire`]'s affair.
//!
//! Lock order: a mesh's lock is never held while its wire is called, so that meshes of one process may call each other.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::Duration;

use crate::collective::Rounds;
use crate::control::{Control, Dispatch};
use crate::error::Lost;
use crate::frame::{Frame, Kind};
use crate::inbox::Inbox;
use crate::sync::lock;
use crate::{PeerInfo, Result};

/// Carries frames to the other ranks.
pub(crate) trait Wire: Send + Sync {
    /// Queues a frame; never blocks. A failure shows as the loss of the peer.
    fn send(&self, to: u32, frame: Frame);
    /// Says goodbye to all peers and lets go of the links, after what is queued has left (within bounds).
    fn close(&self);
}

/// How a peer went.
#[derive(Clone, Debug)]
pub(crate) enum Gone {
    Left,
    Lost(Lost),
}

/// An abort: the mesh rank that called it, and why.
#[derive(Clone, Debug)]
pub(crate) struct Abort {
    pub by: u32,
    pub reason: String,
}

pub(crate) struct State {
    pub closed: bool,
    pub rounds: Rounds,
    pub inbox: Inbox,
    /// By mesh rank.
    pub gone: Vec<Option<Gone>>,
    /// By wire id of the group.
    pub aborted: HashMap<u64, Abort>,
}

/// One rank's end. Ranks are mesh ranks here; groups renumber on top.
pub(crate) struct Mesh {
    pub rank: u32,
    pub peers: Vec<PeerInfo>,
    pub limit: Duration,
    /// What only the ranks of this job know.
    pub secret: [u8; 32],
    pub state: Mutex<State>,
    /// Signalled when a wait may have ended.
    pub changed: Condvar,
    wire: Box<dyn Wire>,
    control: Arc<Control>,
    me: Weak<Mesh>,
}

impl Mesh {
    /// A mesh over the wire that `wire` makes; the wire delivers by [`Mesh::receive`] through the weak reference.
    pub fn new(
        rank: u32,
        peers: Vec<PeerInfo>,
        limit: Duration,
        secret: [u8; 32],
        wire: impl FnOnce(&Weak<Mesh>) -> Result<Box<dyn Wire>>,
    ) -> Result<Arc<Mesh>> {
        let control = Control::get()?;
        let gone = vec![None; peers.len()];
        let state = State {
            closed: false,
            rounds: Rounds::default(),
            inbox: Inbox::default(),
            gone,
            aborted: HashMap::new(),
        };
        let mut failed = None;
        let mesh = Arc::new_cyclic(|me| {
            let wire = wire(me).unwrap_or_else(|error| {
                failed = Some(error);
                Box::new(NoWire)
            });
            let (state, changed, me) = (Mutex::new(state), Condvar::new(), me.clone());
            Mesh { rank, peers, limit, secret, state, changed, wire, control, me }
        });
        match failed {
            Some(error) => Err(error),
            None => Ok(mesh),
        }
    }

    /// Sends to a rank, which may be this one.
    pub fn send(&self, to: u32, frame: Frame) {
        if to == self.rank {
            // What this rank makes is well formed.
            let _ = self.receive(self.rank, frame);
        } else {
            self.wire.send(to, frame);
        }
    }

    /// Takes in a frame from a peer. An error means that the peer does not keep to the protocol.
    pub fn receive(&self, from: u32, frame: Frame) -> std::result::Result<(), String> {
        let mut state = lock(&self.state);
        if state.closed {
            return Ok(());
        }
        match frame.kind {
            Kind::Message => {
                state.inbox.push_message(from, frame);
                self.schedule(&mut state);
            }
            Kind::Part => {
                if state.rounds.take_part(from, frame) {
                    self.changed.notify_all();
                }
            }
            Kind::Abort => {
                let reason = String::from_utf8_lossy(&frame.payload).into_owned();
                state.aborted.entry(frame.group).or_insert(Abort { by: from, reason });
                state.inbox.push_recheck();
                self.schedule(&mut state);
                self.changed.notify_all();
            }
            Kind::Bye => {
                state.gone[from as usize].get_or_insert(Gone::Left);
                self.changed.notify_all();
            }
            kind => return Err(format!("a {kind:?} frame after the job had formed")),
        }
        Ok(())
    }

    /// Records that a peer is lost, unless it had left before.
    pub fn lose(&self, peer: u32, reason: String) {
        let mut state = lock(&self.state);
        let slot = &mut state.gone[peer as usize];
        if slot.is_none() {
            *slot = Some(Gone::Lost(Lost { pid: self.peers[peer as usize].pid, reason }));
            state.inbox.push_recheck();
            self.schedule(&mut state);
            self.changed.notify_all();
        }
    }

    /// Makes the control thread look at the inbox, at most once at a time.
    pub fn schedule(&self, state: &mut State) {
        if !std::mem::replace(&mut state.inbox.posted, true)
            && let Some(me) = self.me.upgrade()
        {
            self.control.post(me);
        }
    }

    fn close(&self) {
        let inbox = {
            let mut state = lock(&self.state);
            state.closed = true;
            std::mem::take(&mut state.inbox)
        };
        self.wire.close();
        // Handlers may own anything, so their last references go without the lock.
        drop(inbox);
    }
}

impl Dispatch for Mesh {
    fn dispatch(&self) {
        while let Some(call) = crate::inbox::next_call(self) {
            call.run(self);
        }
    }
}

/// Stands in for the wire of a mesh that could not be made.
struct NoWire;

impl Wire for NoWire {
    fn send(&self, _: u32, _: Frame) {}
    fn close(&self) {}
}

/// What users own: as the last one goes, on its own thread, the mesh says goodbye. (The control thread holds the mesh
/// itself for moments, and must not be the one to close it while the process is already ending.)
pub(crate) struct Session(pub Arc<Mesh>);

impl Drop for Session {
    fn drop(&mut self) {
        self.0.close();
    }
}
