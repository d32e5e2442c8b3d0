//! The protocol of the TCP wire, without a socket in it: posts become bytes, bytes become stores.
//!
//! A link has one or more connections, its *stripes*. The first carries [frames](frame) both ways: writes with their
//! bytes, signals, acknowledgements. Bytes of large writes travel on the other stripes, where there are any: a frame on
//! the first announces which bytes come next on which stripe, so that these carry nothing but bytes, the kernel puts
//! them where they belong, and nobody looks at a stripe on which nothing is expected.
//!
//! *Order.* Frames are read in the order of the posts. A signal waits until every piece announced before it has come;
//! frames after it are read meanwhile. *Completion.* A post has landed when it and all before it are in place; how many
//! have is told when the peer asks, or along with whatever is sent anyway.
//!
//! Whoever talks to [`Receiver`] has proven itself by a [handshake](hello). What it says is checked nevertheless, and a
//! [`Fault`] ends the link before anything is touched.

pub(super) mod frame;
pub(super) mod hello;
pub(super) mod receive;
pub(super) mod send;
#[cfg(test)]
mod tests;

pub(super) use receive::{Receiver, Regions};
pub(super) use send::{Post, Sender};

use std::fmt;

/// The most bytes that one frame announces.
pub(super) const MOST_PIECE: u64 = 1 << 20;

/// How a peer broke the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault(String);

impl Fault {
    pub fn new(what: &str, saw: impl fmt::Display, allowed: impl fmt::Display) -> Self {
        Fault(format!("the peer broke the protocol: {what}: saw {saw}, allowed {allowed}"))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A range of memory that a system call reads or fills. Whoever made it knows how long it is good.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub start: *mut u8,
    pub bytes: usize,
}

impl Part {
    pub const NONE: Part = Part { start: std::ptr::null_mut(), bytes: 0 };
}
