//! A plugin's openings and links, as the traits of [`crate::wire`].

use super::abi;
use super::wire::RawEnd;
use crate::WireError;
use crate::wire::{Link, Opening, Posted, Unit, Write};
use std::fmt;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

pub(super) struct PluginOpening {
    end: Arc<RawEnd>,
    /// `None` once it was connected.
    raw: Option<NonNull<abi::Opening>>,
    peer: u32,
    address: Vec<u8>,
}

// SAFETY: any thread may call the plugin's functions, by its contract.
unsafe impl Send for PluginOpening {}
// SAFETY: by the same contract several may at once; the last call is made by who has the opening to itself.
unsafe impl Sync for PluginOpening {}

impl fmt::Debug for PluginOpening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PluginOpening").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl PluginOpening {
    pub(super) fn new(
        end: Arc<RawEnd>,
        raw: NonNull<abi::Opening>,
        peer: u32,
    ) -> Result<Self, WireError> {
        let mut opening = PluginOpening { end, raw: Some(raw), peer, address: Vec::new() };
        let loaded = &opening.end.loaded;
        // SAFETY: a live opening, and pointers to what the header says, for the call.
        opening.address = loaded.bytes("tell a link's address", |bytes, error| unsafe {
            (loaded.functions.opening_address)(raw.as_ptr(), bytes, error)
        })?;
        Ok(opening)
    }
}

impl Drop for PluginOpening {
    fn drop(&mut self) {
        if let Some(raw) = self.raw {
            // SAFETY: a live opening of an end that lives; this is its last call.
            unsafe { (self.end.loaded.functions.opening_close)(raw.as_ptr()) }
        }
    }
}

impl Opening for PluginOpening {
    fn address(&self) -> Vec<u8> {
        self.address.clone()
    }

    fn connect(mut self: Box<Self>, address: &[u8]) -> Result<Arc<dyn Link>, WireError> {
        let (end, peer) = (Arc::clone(&self.end), self.peer);
        let opening = self.raw.take().map_or(ptr::null_mut(), NonNull::as_ptr);
        let loaded = &end.loaded;
        let mut raw = ptr::null_mut();
        loaded.call("connect a link", Some(peer), |error| {
            let (address, bytes) = (address.as_ptr(), address.len() as u64);
            // SAFETY: a live opening, whose last call this is, and pointers to what the header says, for the call.
            unsafe {
                let connect = loaded.functions.opening_connect;
                connect(opening, address, bytes, &raw mut raw, error)
            }
        })?;
        let raw = loaded.given("connect a link", raw)?;
        // SAFETY: a live link.
        let descriptor = unsafe { (loaded.functions.link_descriptor)(raw.as_ptr()) };
        Ok(Arc::new(PluginLink { end, raw, peer, descriptor }))
    }
}

struct PluginLink {
    end: Arc<RawEnd>,
    raw: NonNull<abi::Link>,
    peer: u32,
    /// Negative if there is none.
    descriptor: RawFd,
}

// SAFETY: any thread may call the plugin's functions, by its contract.
unsafe impl Send for PluginLink {}
// SAFETY: as above.
unsafe impl Sync for PluginLink {}

impl fmt::Debug for PluginLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.end.loaded.name;
        f.debug_struct("PluginLink").field("wire", name).field("peer", &self.peer).finish()
    }
}

impl Drop for PluginLink {
    fn drop(&mut self) {
        // SAFETY: a live link of an end that lives; this is its last call.
        unsafe { (self.functions().link_close)(self.raw.as_ptr()) }
    }
}

impl PluginLink {
    fn functions(&self) -> &abi::Functions {
        &self.end.loaded.functions
    }

    fn call(
        &self,
        operation: &'static str,
        function: impl FnOnce(&abi::Functions, *mut abi::Link, *mut abi::Error) -> i32,
    ) -> Result<i32, WireError> {
        let (functions, raw) = (self.functions(), self.raw.as_ptr());
        self.end.loaded.call(operation, Some(self.peer), |error| function(functions, raw, error))
    }
}

fn posted(status: i32) -> Posted {
    if status == abi::FULL { Posted::Full } else { Posted::Queued }
}

impl Link for PluginLink {
    fn peer(&self) -> u32 {
        self.peer
    }

    fn accept(&self, region: u64, bytes: u64, blob: &[u8]) -> Result<(), WireError> {
        let (data, length) = (blob.as_ptr(), blob.len() as u64);
        self.call("accept a region", |functions, link, error| {
            // SAFETY: a live link, and pointers to what the header says, for the call.
            unsafe { (functions.link_accept)(link, region, bytes, data, length, error) }
        })?;
        Ok(())
    }

    fn retire(&self, region: u64) {
        // SAFETY: a live link.
        unsafe { (self.functions().link_retire)(self.raw.as_ptr(), region) }
    }

    fn write(&self, write: &Write<'_>) -> Result<Posted, WireError> {
        let asked = abi::Write {
            struct_bytes: size_of::<abi::Write>() as u32,
            unit: match write.unit {
                Unit::Bytes => abi::BYTES,
                Unit::Packets => abi::PACKETS,
            },
            source: write.source.id(),
            from: write.from,
            region: write.region,
            to: write.to,
            bytes: write.bytes,
        };
        // SAFETY: a live link, and pointers to what the header says, for the call.
        self.call("write", |functions, link, error| unsafe {
            (functions.link_write)(link, &raw const asked, error)
        })
        .map(posted)
    }

    fn signal(&self, region: u64, to: u64, value: u64) -> Result<Posted, WireError> {
        // SAFETY: a live link, and room for an error.
        self.call("signal", |functions, link, error| unsafe {
            (functions.link_signal)(link, region, to, value, error)
        })
        .map(posted)
    }

    fn posted(&self) -> u64 {
        // SAFETY: a live link.
        unsafe { (self.functions().link_posted)(self.raw.as_ptr()) }
    }

    fn completed(&self) -> Result<u64, WireError> {
        let mut count = 0;
        // SAFETY: a live link, and pointers to what the header says, for the call.
        self.call("count completions", |functions, link, error| unsafe {
            (functions.link_completed)(link, &raw mut count, error)
        })?;
        Ok(count)
    }

    fn progress(&self) -> Result<bool, WireError> {
        let mut moved = 0;
        // SAFETY: as above.
        self.call("make progress", |functions, link, error| unsafe {
            (functions.link_progress)(link, &raw mut moved, error)
        })?;
        Ok(moved != 0)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the plugin keeps it open as long as the link lives.
        (self.descriptor >= 0).then(|| unsafe { BorrowedFd::borrow_raw(self.descriptor) })
    }

    fn arm(&self) -> Result<bool, WireError> {
        let mut armed = 0;
        // SAFETY: as above.
        self.call("arm a link", |functions, link, error| unsafe {
            (functions.link_arm)(link, &raw mut armed, error)
        })?;
        Ok(armed != 0)
    }

    fn stop(&self) {
        // SAFETY: a live link.
        unsafe { (self.functions().link_stop)(self.raw.as_ptr()) }
    }

    fn describe(&self) -> String {
        // SAFETY: a live link, and room for as much as is said.
        self.end.loaded.description(|text, room| unsafe {
            (self.functions().link_describe)(self.raw.as_ptr(), text, room)
        })
    }
}
