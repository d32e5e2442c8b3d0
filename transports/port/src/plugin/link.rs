//! A plugin's openings and links, as the traits of [`crate::wire`].

use super::abi;
use super::wire::RawEnd;
use crate::WireError;
use crate::wire::{Link, Opening, Posted, Unit, Write};
use std::fmt;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) struct PluginOpening {
    /// Keeps the plugin's end, which its openings need.
    end: Arc<RawEnd>,
    /// The plugin's opening, which nobody else has: live from `new`, which gets it, until it is connected or dropped.
    raw: NonNull<abi::Opening>,
    /// It is not live any more.
    connected: bool,
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
        let (connected, address) = (false, Vec::new());
        let mut opening = PluginOpening { end, raw, connected, peer, address };
        let loaded = &opening.end.loaded;
        // SAFETY: the opening was just made, and `opening` keeps it; `bytes` and `error` are live for the call.
        opening.address = loaded.bytes("tell a link's address", |bytes, error| unsafe {
            (loaded.functions.opening_address)(raw.as_ptr(), bytes, error)
        })?;
        Ok(opening)
    }
}

impl Drop for PluginOpening {
    fn drop(&mut self) {
        if !self.connected {
            // SAFETY: live, and not used any more: this is its last call. `end` still keeps the end.
            unsafe { (self.end.loaded.functions.opening_close)(self.raw.as_ptr()) }
        }
    }
}

impl Opening for PluginOpening {
    fn address(&self) -> Vec<u8> {
        self.address.clone()
    }

    fn connect(mut self: Box<Self>, address: &[u8]) -> Result<Arc<dyn Link>, WireError> {
        let (end, peer) = (Arc::clone(&self.end), self.peer);
        self.connected = true;
        let opening = self.raw.as_ptr();
        let loaded = &end.loaded;
        let mut raw = ptr::null_mut();
        loaded.call("connect a link", Some(peer), |error| {
            let (address, bytes) = (address.as_ptr(), address.len() as u64);
            // SAFETY: live until here, and this is its last call: `drop` does without. `address` are so many bytes, and the
            // other pointers are to live values, for the call.
            unsafe {
                let connect = loaded.functions.opening_connect;
                connect(opening, address, bytes, &raw mut raw, error)
            }
        })?;
        let raw = loaded.given("connect a link", raw)?;
        // SAFETY: the plugin has just given the link, and nobody has closed it.
        let descriptor = unsafe { (loaded.functions.link_descriptor)(raw.as_ptr()) };
        let written = AtomicU64::new(0);
        Ok(Arc::new(PluginLink { end, raw, peer, descriptor, written }))
    }
}

struct PluginLink {
    /// Keeps the plugin's end, which its links need.
    end: Arc<RawEnd>,
    /// The plugin's link, which nobody else has: live from `connect`, which got it, until `drop`, which alone closes it.
    raw: NonNull<abi::Link>,
    peer: u32,
    /// Negative if there is none.
    descriptor: RawFd,
    /// Posts up to the last write.
    written: AtomicU64,
}

// SAFETY: any thread may call the plugin's functions, by its contract.
unsafe impl Send for PluginLink {}
// SAFETY: by the same contract several may at once; the last call is made by `drop`, which has the link to itself.
unsafe impl Sync for PluginLink {}

impl fmt::Debug for PluginLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.end.loaded.name;
        f.debug_struct("PluginLink").field("wire", name).field("peer", &self.peer).finish()
    }
}

impl Drop for PluginLink {
    fn drop(&mut self) {
        // SAFETY: live, and not used any more: this is its last call. `end` still keeps the end.
        unsafe { (self.functions().link_close)(self.raw.as_ptr()) }
    }
}

impl PluginLink {
    fn functions(&self) -> &abi::Functions {
        &self.end.loaded.functions
    }

    /// Calls one of the functions with the link, which is live meanwhile, and with room for an error.
    fn call(
        &self,
        operation: &'static str,
        function: impl FnOnce(&abi::Functions, *mut abi::Link, *mut abi::Error) -> i32,
    ) -> Result<(), WireError> {
        let (functions, raw) = (self.functions(), self.raw.as_ptr());
        self.end.loaded.call(operation, Some(self.peer), |error| function(functions, raw, error))
    }

    /// The same for a function that posts.
    fn post(
        &self,
        operation: &'static str,
        function: impl FnOnce(&abi::Functions, *mut abi::Link, *mut abi::Error) -> i32,
    ) -> Result<Posted, WireError> {
        let (functions, raw) = (self.functions(), self.raw.as_ptr());
        self.end.loaded.post(operation, self.peer, |error| function(functions, raw, error))
    }
}

impl Link for PluginLink {
    fn peer(&self) -> u32 {
        self.peer
    }

    fn accept(&self, region: u64, bytes: u64, blob: &[u8]) -> Result<(), WireError> {
        let (data, length) = (blob.as_ptr(), blob.len() as u64);
        self.call("accept a region", |functions, link, error| {
            // SAFETY: live, as `call` says; `data` are the `length` bytes of `blob`, which outlives the call.
            unsafe { (functions.link_accept)(link, region, bytes, data, length, error) }
        })
    }

    fn retire(&self, region: u64) {
        // SAFETY: live until `drop`.
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
        // SAFETY: live, as `post` says; `asked` outlives the call, and is as long as it says.
        let posted = self.post("write", |functions, link, error| unsafe {
            (functions.link_write)(link, &raw const asked, error)
        })?;
        if posted == Posted::Queued {
            self.written.fetch_max(self.posted(), Ordering::Relaxed);
        }
        Ok(posted)
    }

    fn signal(&self, region: u64, to: u64, value: u64) -> Result<Posted, WireError> {
        // SAFETY: live, as `post` says.
        self.post("signal", |functions, link, error| unsafe {
            (functions.link_signal)(link, region, to, value, error)
        })
    }

    fn posted(&self) -> u64 {
        // SAFETY: live until `drop`.
        unsafe { (self.functions().link_posted)(self.raw.as_ptr()) }
    }

    fn completed(&self) -> Result<u64, WireError> {
        let mut count = 0;
        // SAFETY: live, as `call` says; `count` outlives the call.
        self.call("count completions", |functions, link, error| unsafe {
            (functions.link_completed)(link, &raw mut count, error)
        })?;
        Ok(count)
    }

    /// By whole posts: plugins say no more. What comes from the peer only the peer knows.
    fn carried(&self) -> u64 {
        let written = self.written.load(Ordering::Relaxed);
        self.completed().map_or(0, |completed| completed.min(written))
    }

    fn progress(&self) -> Result<bool, WireError> {
        let mut moved = 0;
        // SAFETY: live, as `call` says; `moved` outlives the call.
        self.call("make progress", |functions, link, error| unsafe {
            (functions.link_progress)(link, &raw mut moved, error)
        })?;
        Ok(moved != 0)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the plugin keeps it open as long as the link lives, which is as long as `self`.
        (self.descriptor >= 0).then(|| unsafe { BorrowedFd::borrow_raw(self.descriptor) })
    }

    fn arm(&self) -> Result<bool, WireError> {
        let mut armed = 0;
        // SAFETY: live, as `call` says; `armed` outlives the call.
        self.call("arm a link", |functions, link, error| unsafe {
            (functions.link_arm)(link, &raw mut armed, error)
        })?;
        Ok(armed != 0)
    }

    fn stop(&self) {
        // SAFETY: live until `drop`.
        unsafe { (self.functions().link_stop)(self.raw.as_ptr()) }
    }

    fn describe(&self) -> String {
        // SAFETY: live until `drop`; `text` is room for `room` bytes, by `description`.
        self.end.loaded.description(|text, room| unsafe {
            (self.functions().link_describe)(self.raw.as_ptr(), text, room)
        })
    }
}
