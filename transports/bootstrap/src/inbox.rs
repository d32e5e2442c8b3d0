//! Messages on their way to handlers.
//!
//! Everything that a handler is to hear passes through one queue, which only the control thread empties: so handlers
//! see each peer's messages in order, and its loss after its last message.

use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::Handler;
use crate::absent::Gone;
use crate::error::Lost;
use crate::frame::Frame;
use crate::group::Group;
use crate::mesh::{Mesh, State};
use crate::sync::lock;

/// Wire id of the group, channel.
type Key = (u64, u64);

enum Event {
    Message {
        from: u32,
        frame: Frame,
    },
    /// A loss or an abort happened, or a handler came that has not been told of those before it.
    Recheck,
}

enum Channel {
    /// Nobody has subscribed yet: messages wait.
    Unheard(VecDeque<Event>),
    Heard {
        /// How many subscribed before.
        before: u64,
        group: Arc<Group>,
        handler: Arc<dyn Handler>,
        told_lost: HashSet<u32>,
        told_abort: bool,
    },
    /// The handler has gone: messages are dropped.
    Deaf,
}

#[derive(Default)]
pub(crate) struct Inbox {
    events: VecDeque<Event>,
    channels: HashMap<Key, Channel>,
    /// How often somebody has subscribed.
    subscribed: u64,
    /// The control thread has been asked to look and has not looked yet.
    pub posted: bool,
}

impl Inbox {
    pub fn push_message(&mut self, from: u32, frame: Frame) {
        self.events.push_back(Event::Message { from, frame });
    }

    pub fn push_recheck(&mut self) {
        self.events.push_back(Event::Recheck);
    }

    /// Gives the channel its handler; false if it has one.
    pub fn subscribe(
        &mut self,
        group: &Arc<Group>,
        channel: u64,
        handler: Arc<dyn Handler>,
    ) -> bool {
        let key = (group.id, channel);
        if matches!(self.channels.get(&key), Some(Channel::Heard { .. })) {
            return false;
        }
        let before = self.subscribed;
        self.subscribed += 1;
        let heard = Channel::Heard {
            before,
            group: group.clone(),
            handler,
            told_lost: HashSet::new(),
            told_abort: false,
        };
        if let Some(Channel::Unheard(kept)) = self.channels.insert(key, heard) {
            // Kept messages are older than any in the queue.
            for event in kept.into_iter().rev() {
                self.events.push_front(event);
            }
        }
        self.events.push_back(Event::Recheck);
        true
    }

    /// Forgets a group's channels that have no handler; the caller drops what comes back without the lock.
    pub fn forget(&mut self, group: u64) -> impl Sized + use<> {
        let idle = |key: &Key, channel: &mut Channel| {
            key.0 == group && !matches!(channel, Channel::Heard { .. })
        };
        self.channels.extract_if(idle).collect::<Vec<_>>()
    }

    /// How many channels something is known of.
    #[cfg(test)]
    pub fn remembered(&self) -> usize {
        self.channels.len()
    }

    /// Whether somebody here listens to the group.
    pub fn is_heard(&self, group: u64) -> bool {
        let heard = |channel: &Channel| matches!(channel, Channel::Heard { .. });
        self.channels.iter().any(|(key, channel)| key.0 == group && heard(channel))
    }

    /// Ends a subscription; the caller drops what comes back without the lock.
    pub fn unsubscribe(&mut self, group: u64, channel: u64) -> impl Sized + use<> {
        self.channels.insert((group, channel), Channel::Deaf)
    }
}

enum What {
    Message { from: u32, frame: Frame },
    Lost { peer: u32, why: Lost },
    Aborted { by: u32, reason: String },
}

/// One call of a handler.
pub(crate) struct Call {
    group: Arc<Group>,
    handler: Arc<dyn Handler>,
    what: What,
}

/// The next handler call that is due, if any; otherwise the mesh may be posted again.
pub(crate) fn next_call(mesh: &Mesh) -> Option<Call> {
    let mut state = lock(&mesh.state);
    let state = &mut *state;
    loop {
        let Some(event) = state.inbox.events.pop_front() else {
            state.inbox.posted = false;
            return None;
        };
        match event {
            Event::Message { from, frame } => {
                let key = (frame.group, frame.stream);
                let given_up = state.aborted.contains_key(&key.0) && !state.is_held(key.0);
                if given_up && !state.inbox.channels.contains_key(&key) {
                    // Nobody will subscribe to that.
                    continue;
                }
                let channel = state
                    .inbox
                    .channels
                    .entry(key)
                    .or_insert_with(|| Channel::Unheard(VecDeque::new()));
                match channel {
                    Channel::Unheard(kept) => kept.push_back(Event::Message { from, frame }),
                    Channel::Deaf => drop(frame),
                    Channel::Heard { group, handler, .. } => {
                        // The group's id is made of its members, so that others cannot address it but by mischief.
                        let Some(from) = group.rank_of(from) else { continue };
                        let what = What::Message { from, frame };
                        return Some(Call { group: group.clone(), handler: handler.clone(), what });
                    }
                }
            }
            Event::Recheck => {
                if let Some(call) = untold(state, mesh.rank) {
                    state.inbox.events.push_front(Event::Recheck);
                    return Some(call);
                }
            }
        }
    }
}

/// A loss or abort that a handler has not been told. Handlers that came first hear first: a program may leave because of what it
/// hears through a group that was made for another one, and the other group's handler is to know by then.
fn untold(state: &mut State, me: u32) -> Option<Call> {
    let mut channels: Vec<_> = state.inbox.channels.values_mut().collect();
    channels.sort_unstable_by_key(|channel| match channel {
        Channel::Heard { before, .. } => *before,
        Channel::Unheard(_) | Channel::Deaf => u64::MAX,
    });
    for channel in channels {
        let Channel::Heard { group, handler, told_lost, told_abort, .. } = channel else { break };
        let mut what = None;
        for (&rank, gone) in &state.absent.gone {
            if let Gone::Lost(why) = gone
                && let Some(peer) = group.rank_of(rank)
                && told_lost.insert(peer)
            {
                what = Some(What::Lost { peer, why: why.clone() });
                break;
            }
        }
        if what.is_none()
            && !*told_abort
            && let Some(abort) = state.aborted.get(&group.id)
            && abort.by != me
            && let Some(by) = group.rank_of(abort.by)
        {
            *told_abort = true;
            what = Some(What::Aborted { by, reason: abort.reason.clone() });
        }
        if let Some(what) = what {
            return Some(Call { group: group.clone(), handler: handler.clone(), what });
        }
    }
    None
}

impl Call {
    /// Runs the handler. A panic ends its group, not the control thread, which serves others as well.
    pub fn run(self, mesh: &Mesh) {
        let Call { group, handler, what } = self;
        let outcome = catch_unwind(AssertUnwindSafe(|| match what {
            What::Message { from, frame } => {
                handler.message(from, frame.tag, &frame.payload, frame.descriptors);
            }
            What::Lost { peer, why } => handler.peer_lost(peer, &why),
            What::Aborted { by, reason } => handler.aborted(by, &reason),
        }));
        if let Err(panic) = outcome {
            let text = panic
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "no text".to_owned());
            crate::group::abort(mesh, &group, &format!("a message handler panicked: {text}"));
        }
    }
}
