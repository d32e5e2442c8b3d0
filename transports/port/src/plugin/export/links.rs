//! Openings and links, behind the functions of the interface.
//!
//! All functions here keep to `antiphon_wire.h`: their safety is that their callers do so too.
#![allow(clippy::missing_safety_doc, clippy::undocumented_unsafe_blocks)]

use super::ends::{End, end};
use super::{abi, describe, give, guarded, quietly, read, slice};
use crate::WireError;
use crate::wire::{Link, Opening, Posted, Unit, Write};
use std::ffi::c_char;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// What the pointer to an opening points to.
struct Opened {
    opening: Box<dyn Opening>,
    end: Arc<End>,
}

/// What the pointer to a link points to.
struct Linked {
    link: Arc<dyn Link>,
    end: Arc<End>,
}

unsafe fn linked<'a>(link: *mut abi::Link) -> &'a Linked {
    unsafe { &*link.cast() }
}

pub(super) unsafe extern "C" fn opening_open(
    wire: *mut abi::Wire,
    peer: u32,
    opening: *mut *mut abi::Opening,
    error: *mut abi::Error,
) -> i32 {
    let open = || {
        let end = Arc::clone(unsafe { end(wire) });
        let made = Box::new(Opened { opening: end.wire.open(peer)?, end });
        unsafe { *opening = Box::into_raw(made).cast() };
        Ok(abi::OK)
    };
    unsafe { guarded(error, open) }
}

pub(super) unsafe extern "C" fn opening_address(
    opening: *mut abi::Opening,
    address: *mut abi::Bytes,
    error: *mut abi::Error,
) -> i32 {
    let tell = || {
        let opened = unsafe { &*opening.cast::<Opened>() };
        unsafe { give(address, &opened.opening.address(), "tell a link's address") }?;
        Ok(abi::OK)
    };
    unsafe { guarded(error, tell) }
}

pub(super) unsafe extern "C" fn opening_connect(
    opening: *mut abi::Opening,
    address: *const u8,
    address_bytes: u64,
    link: *mut *mut abi::Link,
    error: *mut abi::Error,
) -> i32 {
    let connect = || {
        let Opened { opening, end } = *unsafe { Box::from_raw(opening.cast::<Opened>()) };
        let connected = opening.connect(unsafe { slice(address, address_bytes) })?;
        unsafe { *link = Box::into_raw(Box::new(Linked { link: connected, end })).cast() };
        Ok(abi::OK)
    };
    unsafe { guarded(error, connect) }
}

pub(super) unsafe extern "C" fn opening_close(opening: *mut abi::Opening) {
    quietly((), || drop(unsafe { Box::from_raw(opening.cast::<Opened>()) }));
}

pub(super) unsafe extern "C" fn link_accept(
    link: *mut abi::Link,
    region: u64,
    bytes: u64,
    blob: *const u8,
    blob_bytes: u64,
    error: *mut abi::Error,
) -> i32 {
    let accept = || {
        unsafe { linked(link).link.accept(region, bytes, slice(blob, blob_bytes)) }?;
        Ok(abi::OK)
    };
    unsafe { guarded(error, accept) }
}

pub(super) unsafe extern "C" fn link_retire(link: *mut abi::Link, region: u64) {
    quietly((), || unsafe { linked(link) }.link.retire(region));
}

fn status(posted: Posted) -> i32 {
    match posted {
        Posted::Queued => abi::OK,
        Posted::Full => abi::FULL,
    }
}

pub(super) unsafe extern "C" fn link_write(
    link: *mut abi::Link,
    write: *const abi::Write,
    error: *mut abi::Error,
) -> i32 {
    let post = || {
        let Linked { link, end } = unsafe { linked(link) };
        let asked = unsafe { read(write, "write") }?;
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
        let source = end.memory(asked.source).ok_or_else(|| {
            invalid(format!("source {}", asked.source), "memory that is registered")
        })?;
        let abi::Write { from, region, to, bytes, .. } = *asked;
        link.write(&Write { source: &source, from, region, to, bytes, unit }).map(status)
    };
    unsafe { guarded(error, post) }
}

pub(super) unsafe extern "C" fn link_signal(
    link: *mut abi::Link,
    region: u64,
    to: u64,
    value: u64,
    error: *mut abi::Error,
) -> i32 {
    unsafe { guarded(error, || linked(link).link.signal(region, to, value).map(status)) }
}

pub(super) unsafe extern "C" fn link_posted(link: *mut abi::Link) -> u64 {
    quietly(0, || unsafe { linked(link) }.link.posted())
}

pub(super) unsafe extern "C" fn link_completed(
    link: *mut abi::Link,
    count: *mut u64,
    error: *mut abi::Error,
) -> i32 {
    let completed = || {
        unsafe { *count = linked(link).link.completed()? };
        Ok(abi::OK)
    };
    unsafe { guarded(error, completed) }
}

pub(super) unsafe extern "C" fn link_progress(
    link: *mut abi::Link,
    moved: *mut i32,
    error: *mut abi::Error,
) -> i32 {
    let progress = || {
        unsafe { *moved = linked(link).link.progress()?.into() };
        Ok(abi::OK)
    };
    unsafe { guarded(error, progress) }
}

pub(super) unsafe extern "C" fn link_descriptor(link: *mut abi::Link) -> i32 {
    quietly(-1, || unsafe { linked(link) }.link.descriptor().map_or(-1, |fd| fd.as_raw_fd()))
}

pub(super) unsafe extern "C" fn link_arm(
    link: *mut abi::Link,
    armed: *mut i32,
    error: *mut abi::Error,
) -> i32 {
    let arm = || {
        unsafe { *armed = linked(link).link.arm()?.into() };
        Ok(abi::OK)
    };
    unsafe { guarded(error, arm) }
}

pub(super) unsafe extern "C" fn link_stop(link: *mut abi::Link) {
    quietly((), || unsafe { linked(link) }.link.stop());
}

pub(super) unsafe extern "C" fn link_describe(
    link: *mut abi::Link,
    text: *mut c_char,
    capacity: u64,
) -> u64 {
    quietly(0, || unsafe { describe(text, capacity, &linked(link).link.describe()) })
}

pub(super) unsafe extern "C" fn link_close(link: *mut abi::Link) {
    quietly((), || drop(unsafe { Box::from_raw(link.cast::<Linked>()) }));
}
