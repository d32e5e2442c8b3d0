//! Openings and links, behind the functions of the interface.
//!
//! All functions here are called by the program, which keeps to `antiphon_wire.h`; [`handles`](super::handles) says what of it
//! they rely on. Each names below what it does with its arguments.

use super::ends::End;
use super::handles::{Handle, close, give_handle, give_result, quietly_with, take, with};
use super::{abi, describe, give, guarded, read, slice};
use crate::WireError;
use crate::wire::{Link, Opening, Posted, Unit, Write};
use std::ffi::c_char;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// What the pointer to an opening points to.
pub(super) struct Opened {
    opening: Box<dyn Opening>,
    end: Arc<End>,
}

/// What the pointer to a link points to.
pub(super) struct Linked {
    link: Arc<dyn Link>,
    end: Arc<End>,
}

impl Handle for abi::Opening {
    type Object = Opened;
}

impl Handle for abi::Link {
    type Object = Linked;
}

pub(super) unsafe extern "C" fn opening_open(
    wire: *mut abi::Wire,
    peer: u32,
    opening: *mut *mut abi::Opening,
    error: *mut abi::Error,
) -> i32 {
    // SAFETY: an end that is not closed, and room for a pointer and an error, for the call.
    unsafe {
        with(wire, error, |end| {
            let made = Opened { opening: end.wire.open(peer)?, end: Arc::clone(end) };
            give_handle(opening, made);
            Ok(abi::OK)
        })
    }
}

pub(super) unsafe extern "C" fn opening_address(
    opening: *mut abi::Opening,
    address: *mut abi::Bytes,
    error: *mut abi::Error,
) -> i32 {
    // SAFETY: an opening that is not closed or connected, and room for bytes and an error, for the call.
    unsafe {
        with(opening, error, |opened| {
            give(address, &opened.opening.address(), "tell a link's address")?;
            Ok(abi::OK)
        })
    }
}

pub(super) unsafe extern "C" fn opening_connect(
    opening: *mut abi::Opening,
    address: *const u8,
    address_bytes: u64,
    link: *mut *mut abi::Link,
    error: *mut abi::Error,
) -> i32 {
    let connect = || {
        // SAFETY: an opening that is not closed or connected; this is the call that ends it, whatever comes of it.
        let Opened { opening, end } = *unsafe { take(opening) };
        // SAFETY: so many bytes, for the call.
        let connected = opening.connect(unsafe { slice(address, address_bytes) })?;
        // SAFETY: room for a pointer, for the call.
        unsafe { give_handle(link, Linked { link: connected, end }) };
        Ok(abi::OK)
    };
    // SAFETY: room for an error, for the call.
    unsafe { guarded(error, connect) }
}

pub(super) unsafe extern "C" fn opening_close(opening: *mut abi::Opening) {
    // SAFETY: an opening that is not closed or connected; this is the call that ends it.
    unsafe { close(opening) }
}

pub(super) unsafe extern "C" fn link_accept(
    link: *mut abi::Link,
    region: u64,
    bytes: u64,
    blob: *const u8,
    blob_bytes: u64,
    error: *mut abi::Error,
) -> i32 {
    // SAFETY: a link that is not closed, so many bytes, and room for an error, for the call.
    unsafe {
        with(link, error, |linked| {
            linked.link.accept(region, bytes, slice(blob, blob_bytes))?;
            Ok(abi::OK)
        })
    }
}

pub(super) unsafe extern "C" fn link_retire(link: *mut abi::Link, region: u64) {
    // SAFETY: a link that is not closed.
    unsafe { quietly_with(link, (), |linked| linked.link.retire(region)) }
}

fn status(posted: Posted) -> i32 {
    match posted {
        Posted::Queued => abi::OK,
        Posted::Full => abi::FULL,
    }
}

fn write(linked: &Linked, asked: &abi::Write) -> Result<i32, WireError> {
    let Linked { link, end } = linked;
    let invalid = |saw: String, allowed: &str| WireError::Invalid {
        operation: "write",
        wire: end.wire.name().to_owned(),
        saw,
        allowed: allowed.to_owned(),
    };
    let unit = match asked.unit {
        abi::BYTES => Unit::Bytes,
        abi::PACKETS => Unit::Packets,
        other => return Err(invalid(format!("unit {other}"), "bytes and packets")),
    };
    let source = end
        .memory(asked.source)
        .ok_or_else(|| invalid(format!("source {}", asked.source), "memory that is registered"))?;
    let abi::Write { from, region, to, bytes, .. } = *asked;
    link.write(&Write { source: &source, from, region, to, bytes, unit }).map(status)
}

pub(super) unsafe extern "C" fn link_write(
    link: *mut abi::Link,
    asked: *const abi::Write,
    error: *mut abi::Error,
) -> i32 {
    // SAFETY: a link that is not closed, a write as long as it says, and room for an error, for the call.
    unsafe { with(link, error, |linked| write(linked, read(asked, "write")?)) }
}

pub(super) unsafe extern "C" fn link_signal(
    link: *mut abi::Link,
    region: u64,
    to: u64,
    value: u64,
    error: *mut abi::Error,
) -> i32 {
    // SAFETY: a link that is not closed, and room for an error, for the call.
    unsafe { with(link, error, |linked| linked.link.signal(region, to, value).map(status)) }
}

pub(super) unsafe extern "C" fn link_posted(link: *mut abi::Link) -> u64 {
    // SAFETY: a link that is not closed.
    unsafe { quietly_with(link, 0, |linked| linked.link.posted()) }
}

pub(super) unsafe extern "C" fn link_completed(
    link: *mut abi::Link,
    count: *mut u64,
    error: *mut abi::Error,
) -> i32 {
    // SAFETY: a link that is not closed, and room for a count and an error, for the call.
    unsafe {
        with(link, error, |linked| {
            give_result(count, linked.link.completed()?);
            Ok(abi::OK)
        })
    }
}

pub(super) unsafe extern "C" fn link_progress(
    link: *mut abi::Link,
    moved: *mut i32,
    error: *mut abi::Error,
) -> i32 {
    // SAFETY: a link that is not closed, and room for a flag and an error, for the call.
    unsafe {
        with(link, error, |linked| {
            give_result(moved, linked.link.progress()?.into());
            Ok(abi::OK)
        })
    }
}

pub(super) unsafe extern "C" fn link_descriptor(link: *mut abi::Link) -> i32 {
    let number = |linked: &Linked| linked.link.descriptor().map_or(-1, |fd| fd.as_raw_fd());
    // SAFETY: a link that is not closed.
    unsafe { quietly_with(link, -1, number) }
}

pub(super) unsafe extern "C" fn link_arm(
    link: *mut abi::Link,
    armed: *mut i32,
    error: *mut abi::Error,
) -> i32 {
    // SAFETY: a link that is not closed, and room for a flag and an error, for the call.
    unsafe {
        with(link, error, |linked| {
            give_result(armed, linked.link.arm()?.into());
            Ok(abi::OK)
        })
    }
}

pub(super) unsafe extern "C" fn link_stop(link: *mut abi::Link) {
    // SAFETY: a link that is not closed.
    unsafe { quietly_with(link, (), |linked| linked.link.stop()) }
}

pub(super) unsafe extern "C" fn link_describe(
    link: *mut abi::Link,
    text: *mut c_char,
    capacity: u64,
) -> u64 {
    // SAFETY: a link that is not closed, and room for so many bytes, for the call.
    unsafe { quietly_with(link, 0, |linked| describe(text, capacity, &linked.link.describe())) }
}

pub(super) unsafe extern "C" fn link_close(link: *mut abi::Link) {
    // SAFETY: a link that is not closed; this is the call that ends it.
    unsafe { close(link) }
}
