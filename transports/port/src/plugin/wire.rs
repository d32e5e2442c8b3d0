//! A plugin's driver and ends, as the traits of [`crate::wire`].

use super::{Loaded, abi, link};
use crate::WireError;
use crate::wire::{Opening, Registration, Settings, Wire, WireDriver};
use antiphon_hal::{Backend, DmaBuf, HalError, Memory};
use antiphon_transport::{Peer, Reach};
use std::ffi::{CString, c_char, c_void};
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// Bytes that an address or a blob may have.
const BLOB_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Driver(Arc<Loaded>);

impl Driver {
    pub(super) fn new(loaded: Arc<Loaded>) -> Self {
        Driver(loaded)
    }
}

impl WireDriver for Driver {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn open(&self, settings: &Settings) -> Result<Arc<dyn Wire>, WireError> {
        let loaded = Arc::clone(&self.0);
        let interface = settings.interface.as_deref().map(CString::new).transpose();
        let interface = interface.map_err(|_| WireError::Invalid {
            operation: "open an end",
            wire: loaded.name.clone(),
            saw: format!("interface {:?}", settings.interface),
            allowed: "names without a zero byte".to_owned(),
        })?;
        let mut asked = abi::Settings::from(settings);
        asked.interface_name = interface.as_ref().map_or(ptr::null(), |name| name.as_ptr());
        // An address has no zero byte.
        let device = settings.device.and_then(|pci| CString::new(pci.to_string()).ok());
        asked.device = device.as_ref().map_or(ptr::null(), |device| device.as_ptr());
        let mut raw = ptr::null_mut();
        // SAFETY: settings, room for a pointer and for an error outlive the call; `interface` and
        // `device` keep the texts.
        loaded.call("open an end", None, |error| unsafe {
            (loaded.functions.wire_open)(&raw const asked, &raw mut raw, error)
        })?;
        let raw = loaded.given("open an end", raw)?;
        Ok(Arc::new(End(Arc::new(RawEnd { loaded, raw }))))
    }
}

impl Loaded {
    /// What a function that succeeded gave.
    pub(super) fn given<T>(
        &self,
        operation: &'static str,
        given: *mut T,
    ) -> Result<NonNull<T>, WireError> {
        NonNull::new(given).ok_or_else(|| WireError::System {
            operation,
            wire: self.name.clone(),
            reason: "the plugin gave a null pointer".to_owned(),
        })
    }

    /// Bytes that the plugin gives.
    pub(super) fn bytes(
        &self,
        operation: &'static str,
        function: impl FnOnce(*mut abi::Bytes, *mut abi::Error) -> i32,
    ) -> Result<Vec<u8>, WireError> {
        let mut data = vec![0; BLOB_BYTES];
        let mut bytes = abi::Bytes {
            struct_bytes: size_of::<abi::Bytes>() as u32,
            reserved: 0,
            data: data.as_mut_ptr(),
            capacity: data.len() as u64,
            length: 0,
        };
        self.call(operation, None, |error| function(&raw mut bytes, error))?;
        data.truncate(bytes.length as usize);
        data.shrink_to_fit();
        Ok(data)
    }

    /// A description, which the plugin writes as `snprintf` does.
    pub(super) fn description(&self, function: impl Fn(*mut c_char, u64) -> u64) -> String {
        let mut text = vec![0u8; 256];
        let whole = function(text.as_mut_ptr().cast(), text.len() as u64);
        if whole >= text.len() as u64 {
            text = vec![0; whole.min(4096) as usize + 1];
            function(text.as_mut_ptr().cast(), text.len() as u64);
        }
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        String::from_utf8_lossy(&text[..end]).into_owned()
    }
}

/// The plugin's end. What belongs to it keeps it.
#[derive(Debug)]
pub(super) struct RawEnd {
    pub(super) loaded: Arc<Loaded>,
    /// Nobody else has it: live from `open`, which got it, until `drop`, which alone closes it.
    raw: NonNull<abi::Wire>,
}

// SAFETY: any thread may call the plugin's functions, by its contract.
unsafe impl Send for RawEnd {}
// SAFETY: by the same contract several may at once; the last call is made by `drop`, which has the end to itself.
unsafe impl Sync for RawEnd {}

impl Drop for RawEnd {
    fn drop(&mut self) {
        // SAFETY: live, and this is its last call, also of what belongs to it: links, openings and registrations keep `self`.
        unsafe { (self.loaded.functions.wire_close)(self.raw.as_ptr()) }
    }
}

#[derive(Debug)]
struct End(Arc<RawEnd>);

impl Wire for End {
    fn name(&self) -> &str {
        &self.0.loaded.name
    }

    fn reach(&self, peer: &Peer) -> Reach {
        let RawEnd { loaded, raw } = &*self.0;
        let flag = |set: bool, flag: u32| if set { flag } else { 0 };
        let asked = abi::Peer {
            struct_bytes: size_of::<abi::Peer>() as u32,
            rank: peer.rank,
            pid: peer.pid,
            flags: flag(peer.same_process, abi::SAME_PROCESS)
                | flag(peer.same_node, abi::SAME_NODE)
                | flag(peer.process_access, abi::PROCESS_ACCESS),
        };
        let mut cost = 0;
        // SAFETY: the end is live until `drop`; `asked`, `cost` and the room for an error outlive the call.
        let answer = loaded.call("reach a peer", None, |error| unsafe {
            (loaded.functions.wire_reach)(raw.as_ptr(), &raw const asked, &raw mut cost, error)
        });
        match answer {
            Ok(()) => Reach::At { cost },
            Err(WireError::Unavailable { reason, cure, .. }) => {
                Reach::No { why: format!("{reason}; {cure}") }
            }
            Err(error) => Reach::No { why: error.to_string() },
        }
    }

    fn describe(&self) -> String {
        let RawEnd { loaded, raw } = &*self.0;
        // SAFETY: the end is live until `drop`; `text` is room for `room` bytes, by `description`.
        loaded.description(|text, room| unsafe {
            (loaded.functions.wire_describe)(raw.as_ptr(), text, room)
        })
    }

    fn takes_gpu_memory(&self) -> bool {
        self.0.loaded.more.memory_register_dma_buf.is_some()
    }

    fn register(&self, memory: &Arc<dyn Memory>) -> Result<Registration, WireError> {
        let RawEnd { loaded, raw: end } = &*self.0;
        let operation = "register memory";
        let dma_buf = match memory.backend() {
            Backend::Host => None,
            _ => Some(self.0.dma_buf(memory)?),
        };
        let by_dma_buf = dma_buf.as_ref().map(|(function, DmaBuf { descriptor, offset, .. })| {
            let struct_bytes = size_of::<abi::DmaBuf>() as u32;
            (
                *function,
                abi::DmaBuf { struct_bytes, descriptor: descriptor.as_raw_fd(), offset: *offset },
            )
        });
        let lent =
            Lent { _memory: Arc::clone(memory), _dma_buf: dma_buf.map(|(_, buffer)| buffer) };
        let keep = Box::into_raw(Box::new(lent));
        let asked = abi::Memory {
            struct_bytes: size_of::<abi::Memory>() as u32,
            backend: match memory.backend() {
                Backend::Host => abi::HOST,
                Backend::Cuda => abi::CUDA,
                Backend::Rocm => abi::ROCM,
            },
            number: memory.id(),
            address: memory.address(),
            bytes: memory.len(),
            keep: keep.cast(),
            release: Some(release),
        };
        let mut raw = ptr::null_mut();
        let given = loaded.bytes(operation, |blob, error| {
            let (end, raw) = (end.as_ptr(), &raw mut raw);
            // SAFETY: the end is live until `drop`; `asked`, the buffer, `raw`, and what `bytes` gives outlive the call. The
            // memory is mapped, and the buffer's descriptor open, until `release`, for `keep` holds both.
            unsafe {
                match &by_dma_buf {
                    None => {
                        (loaded.functions.memory_register)(end, &raw const asked, blob, raw, error)
                    }
                    Some((register, buffer)) => {
                        register(end, &raw const asked, buffer, blob, raw, error)
                    }
                }
            }
        });
        let blob = given.inspect_err(|_| {
            // SAFETY: a plugin that fails does not call `release`, so that this is the one.
            unsafe { release(keep.cast()) }
        })?;
        let raw = loaded.given(operation, raw)?;
        let keep = Box::new(Registered { end: Arc::clone(&self.0), raw });
        Ok(Registration { region: memory.id(), bytes: memory.len(), blob, keep })
    }

    fn open(&self, peer: u32) -> Result<Box<dyn Opening>, WireError> {
        let RawEnd { loaded, raw: end } = &*self.0;
        let mut raw = ptr::null_mut();
        // SAFETY: the end is live until `drop`; the room for a pointer and for an error outlives the call.
        loaded.call("open a link", Some(peer), |error| unsafe {
            (loaded.functions.opening_open)(end.as_ptr(), peer, &raw mut raw, error)
        })?;
        let raw = loaded.given("open a link", raw)?;
        Ok(Box::new(link::PluginOpening::new(Arc::clone(&self.0), raw, peer)?))
    }
}

type RegisterDmaBuf = unsafe extern "C" fn(
    *mut abi::Wire,
    *const abi::Memory,
    *const abi::DmaBuf,
    *mut abi::Bytes,
    *mut *mut abi::Registration,
    *mut abi::Error,
) -> i32;

impl RawEnd {
    /// What it takes to register memory of a GPU: the plugin's function, and the memory as a buffer.
    fn dma_buf(&self, memory: &Arc<dyn Memory>) -> Result<(RegisterDmaBuf, DmaBuf), WireError> {
        let wire = || self.loaded.name.clone();
        let unsupported = |operation| WireError::Unsupported { operation, wire: wire() };
        let Some(function) = self.loaded.more.memory_register_dma_buf else {
            return Err(unsupported("register memory of a GPU"));
        };
        let exported = memory.export_dma_buf(0, memory.len());
        let buffer = exported.map_err(|error| match error {
            HalError::Unsupported { .. } => {
                unsupported("register memory of a GPU that exports no dma-bufs")
            }
            other => WireError::System {
                operation: "export memory of a GPU",
                wire: wire(),
                reason: other.to_string(),
            },
        })?;
        Ok((function, buffer))
    }
}

/// What a plugin was lent.
struct Lent {
    _memory: Arc<dyn Memory>,
    _dma_buf: Option<DmaBuf>,
}

/// Gives a memory back that a plugin was lent.
///
/// # Safety
/// `keep` came with a memory that was lent to the plugin, and comes back once.
unsafe extern "C" fn release(keep: *mut c_void) {
    // SAFETY: by the caller's promise what `register` made.
    drop(unsafe { Box::from_raw(keep.cast::<Lent>()) });
}

#[derive(Debug)]
struct Registered {
    /// Keeps the plugin's end, which its registrations need.
    end: Arc<RawEnd>,
    /// Nobody else has it: live from `register`, which got it, until `drop`, which alone ends it.
    raw: NonNull<abi::Registration>,
}

// SAFETY: any thread may call the plugin's functions, by its contract.
unsafe impl Send for Registered {}
// SAFETY: nothing is called but by `drop`, which has it to itself.
unsafe impl Sync for Registered {}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: live, and not used any more: this is its last call. `end` still keeps the end.
        unsafe { (self.end.loaded.functions.memory_deregister)(self.raw.as_ptr()) }
    }
}
