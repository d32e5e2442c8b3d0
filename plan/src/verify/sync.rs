//! Channels, semaphores and barriers: what is handed on through them.
//!
//! Where one block signals and one waits, the k-th wait takes the k-th signal in every schedule. Where several blocks
//! contend, the order in which they come is a choice; the walk is then repeated for every order (`explore`).

use super::clock::{Clock, Handed};
use std::collections::VecDeque;

/// What a signal carries.
#[derive(Clone, Debug)]
pub(super) struct Message {
    /// What is handed on, by it and the signals before it.
    pub handed: Handed,
    /// The launch it was sent in.
    pub launch: u32,
}

/// How a receiving end is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// Several blocks signal, or several wait.
    pub contended: bool,
    /// Several blocks signal, and some wait.
    pub signallers: bool,
    /// Several blocks wait.
    pub waiters: bool,
    /// Some signals are relaxed.
    pub relaxed: bool,
    /// Threads that have not met signal, in whichever order: the first may be the one that hands on least.
    pub loose: bool,
}

/// The receiving end of a channel.
#[derive(Clone, Debug, Default)]
pub(super) struct Inbound {
    messages: VecDeque<Message>,
    /// Messages that are taken and forgotten.
    taken: u64,
    /// Number of the last ticket: waits so far.
    pub expected: u64,
    /// What the signals so far hand on, where later ones build on it.
    latest: Option<Message>,
    usage: Usage,
}

impl Inbound {
    pub fn new(usage: Usage) -> Self {
        Inbound { usage, ..Inbound::default() }
    }

    /// Signals received so far.
    pub fn received(&self) -> u64 {
        self.taken + self.messages.len() as u64
    }

    /// One more signal. A relaxed one hands on what was released before in the same launch.
    pub fn push(&mut self, mut message: Message, release: bool) {
        if self.usage.contended {
            if let Some(latest) = &self.latest {
                let own = message.handed.step;
                latest.handed.teach(&mut message.handed.clock);
                message.handed.step = own;
            }
            self.latest = Some(message.clone());
        } else if self.usage.relaxed {
            match &self.latest {
                Some(latest) if !release && latest.launch == message.launch => {
                    message = latest.clone();
                }
                _ => self.latest = Some(message.clone()),
            }
        }
        self.messages.push_back(message);
    }

    /// The signal with this number, from 1, if it has come.
    pub fn take(&mut self, ticket: u64) -> Option<Message> {
        let at = ticket.checked_sub(self.taken + 1)? as usize;
        if self.usage.contended {
            return self.messages.get(at).cloned();
        }
        // One block waits, in order.
        self.messages.get(at)?;
        self.taken = ticket;
        self.messages.drain(..=at).next_back()
    }
}

/// A semaphore of a rank.
#[derive(Clone, Debug)]
pub(super) struct Semaphore {
    /// Its value, as the plan's runtime counts it.
    pub value: i64,
    /// What all releases so far hand on.
    all: Option<Clock>,
    /// What each release and those before it hand on; where one block acquires and one releases.
    releases: VecDeque<Clock>,
    /// Tokens that were there from the start and are not taken yet.
    initial: i64,
    pub contended: bool,
}

impl Semaphore {
    pub fn new(value: i64, contended: bool) -> Self {
        let initial = value.max(0);
        Semaphore { value, all: None, releases: VecDeque::new(), initial, contended }
    }

    /// One more token.
    pub fn release(&mut self, handed: &Handed) {
        // Initial values may be anything, and the runtime's counter wraps too.
        self.value = self.value.wrapping_add(1);
        let mut clock = handed.clock.clone();
        clock.learn(handed.step);
        match &mut self.all {
            Some(all) => all.join(&clock),
            all => *all = Some(clock),
        }
        if !self.contended {
            self.releases.extend(self.all.clone());
        }
    }

    /// Takes a token of a semaphore that nobody contends for, and gives what the token hands on; `Err` while there is no token.
    pub fn take(&mut self) -> Result<Option<Clock>, ()> {
        if self.initial > 0 {
            self.initial -= 1;
            self.value -= 1;
            return Ok(None);
        }
        let clock = self.releases.pop_front().ok_or(())?;
        self.value = self.value.wrapping_sub(1);
        Ok(Some(clock))
    }

    /// What everyone who passes now learns.
    pub fn all(&self) -> Option<&Clock> {
        self.all.as_ref()
    }
}

/// A barrier of a rank.
#[derive(Clone, Debug)]
pub(super) struct Barrier {
    pub blocks: u32,
    pub arrived: u64,
    /// What everybody who arrived hands on.
    all: Option<Clock>,
}

impl Barrier {
    pub fn new(blocks: u32) -> Self {
        Barrier { blocks, arrived: 0, all: None }
    }

    /// One more block. Gives the number of arrivals that it has to wait for, and, if it is the last of them, what
    /// all of them learn.
    pub fn arrive(&mut self, handed: &Handed) -> (u64, Option<Clock>) {
        let round = u64::from(self.blocks.max(1));
        let full = (self.arrived / round + 1) * round;
        self.arrived += 1;
        let all = self.all.get_or_insert_with(|| handed.clock.clone());
        handed.teach(all);
        (full, (self.arrived == full).then(|| all.clone()))
    }
}
