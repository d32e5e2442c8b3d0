//! Drivers, ends and registrations, behind the functions of the interface.
//!
//! All functions here are called by the program, which keeps to `antiphon_wire.h`; [`handles`](super::handles) says what of it
//! they rely on. Each names below what it does with its arguments.

use super::handles::{Handle, close, give_handle, give_result, quietly_with, with};
use super::{Exported, Lent, abi, describe, give, guarded, read, read_grown};
use crate::WireError;
use crate::wire::{Keep, Registration, Settings, Wire};
use antiphon_hal::{Backend, Memory};
use antiphon_transport::{Peer, Reach};
use std::collections::HashMap;
use std::ffi::{CStr, c_char};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// An end, and the memories that are registered with it.
pub(super) struct End {
    pub(super) wire: Arc<dyn Wire>,
    /// By number: the memory, and by how many registrations.
    memories: RwLock<HashMap<u64, (Arc<Lent>, usize)>>,
}

impl End {
    /// A registered memory.
    pub(super) fn memory(&self, number: u64) -> Option<Arc<dyn Memory>> {
        let memories = self.memories.read().unwrap_or_else(PoisonError::into_inner);
        memories.get(&number).map(|(memory, _)| Arc::clone(memory) as Arc<dyn Memory>)
    }
}

/// What the pointer to a registration points to.
pub(super) struct Registered {
    end: Arc<End>,
    number: u64,
    /// The wire's.
    _keep: Box<dyn Keep>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut memories = self.end.memories.write().unwrap_or_else(PoisonError::into_inner);
        let Some((_, count)) = memories.get_mut(&self.number) else { return };
        *count -= 1;
        if *count == 0 {
            let memory = memories.remove(&self.number);
            // Perhaps the last reference, whose release is the program's code.
            drop(memories);
            drop(memory);
        }
    }
}

impl Handle for abi::Wire {
    type Object = Arc<End>;
}

impl Handle for abi::Registration {
    type Object = Registered;
}

pub(super) unsafe extern "C" fn init<E: Exported>(
    _: *const abi::Host,
    error: *mut abi::Error,
) -> i32 {
    // SAFETY: room for an error, for the call.
    unsafe { guarded(error, || E::driver().map(|_| abi::OK)) }
}

/// Bytes of the settings, by revision.
const SETTINGS: [usize; 2] =
    [std::mem::offset_of!(abi::Settings, device), size_of::<abi::Settings>()];

pub(super) unsafe extern "C" fn wire_open<E: Exported>(
    settings: *const abi::Settings,
    wire: *mut *mut abi::Wire,
    error: *mut abi::Error,
) -> i32 {
    let open = || {
        // SAFETY: settings as long as they say, for the call; zeros are settings.
        let asked = unsafe { read_grown(settings, &SETTINGS, "open an end") }?;
        let [name, device] = [asked.interface_name, asked.device].map(|text| {
            // SAFETY: not null, so that it is a text that ends, for the call.
            let text = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) });
            text.map(|text| text.to_string_lossy().into_owned())
        });
        // What is no address is no device.
        let device = device.and_then(|device| device.parse().ok());
        let settings =
            Settings::new(asked.rank, asked.key).with_interface(name).with_device(device);
        let opened = E::driver()?.open(&settings)?;
        let end = Arc::new(End { wire: opened, memories: RwLock::default() });
        // SAFETY: room for a pointer, for the call.
        unsafe { give_handle(wire, end) };
        Ok(abi::OK)
    };
    // SAFETY: room for an error, for the call.
    unsafe { guarded(error, open) }
}

pub(super) unsafe extern "C" fn wire_close(wire: *mut abi::Wire) {
    // SAFETY: an end that is not closed; this is the call that ends it.
    unsafe { close(wire) }
}

pub(super) unsafe extern "C" fn wire_describe(
    wire: *mut abi::Wire,
    text: *mut c_char,
    capacity: u64,
) -> u64 {
    // SAFETY: an end that is not closed, and room for so many bytes, for the call.
    unsafe { quietly_with(wire, 0, |end| describe(text, capacity, &end.wire.describe())) }
}

fn reach(wire: &dyn Wire, asked: &abi::Peer) -> Result<u32, WireError> {
    let peer = Peer {
        rank: asked.rank,
        pid: asked.pid,
        same_process: asked.flags & abi::SAME_PROCESS != 0,
        same_node: asked.flags & abi::SAME_NODE != 0,
        process_access: asked.flags & abi::PROCESS_ACCESS != 0,
    };
    match wire.reach(&peer) {
        Reach::At { cost } => Ok(cost),
        Reach::No { why } => {
            let (wire, cure) = (wire.name().to_owned(), "use another wire".to_owned());
            Err(WireError::Unavailable { wire, reason: why, cure })
        }
    }
}

pub(super) unsafe extern "C" fn wire_reach(
    wire: *mut abi::Wire,
    peer: *const abi::Peer,
    cost: *mut u32,
    error: *mut abi::Error,
) -> i32 {
    // SAFETY: an end that is not closed, a peer as long as it says, and room for a cost and an error, for the call.
    unsafe {
        with(wire, error, |end| {
            give_result(cost, reach(&*end.wire, read(peer, "reach a peer")?)?);
            Ok(abi::OK)
        })
    }
}

/// Registers what the program lends. `tell` gives the program what the peers need; the memory is owed back only where that
/// works.
fn register(
    end: &Arc<End>,
    asked: &abi::Memory,
    dma_buf: Option<abi::DmaBuf>,
    tell: impl FnOnce(&[u8]) -> Result<(), WireError>,
) -> Result<Registered, WireError> {
    let backend = match asked.backend {
        abi::HOST => Backend::Host,
        abi::CUDA => Backend::Cuda,
        abi::ROCM => Backend::Rocm,
        other => {
            return Err(WireError::Invalid {
                operation: REGISTER,
                wire: end.wire.name().to_owned(),
                saw: format!("memory of backend {other}"),
                allowed: "host, CUDA and ROCm".to_owned(),
            });
        }
    };
    let mut memories = end.memories.write().unwrap_or_else(PoisonError::into_inner);
    let lent = match memories.get(&asked.number) {
        Some((lent, _)) => Arc::clone(lent),
        None => Arc::new(Lent { memory: *asked, backend, dma_buf, owed: Mutex::default() }),
    };
    let memory = Arc::clone(&lent) as Arc<dyn Memory>;
    let Registration { blob, keep, .. } = end.wire.register(&memory)?;
    tell(&blob)?;
    // From here on nothing fails: the memory is owed back.
    lent.owe(*asked);
    memories.entry(asked.number).or_insert((lent, 0)).1 += 1;
    drop(memories);
    Ok(Registered { end: Arc::clone(end), number: asked.number, _keep: keep })
}

const REGISTER: &str = "register memory";

pub(super) unsafe extern "C" fn memory_register(
    wire: *mut abi::Wire,
    memory: *const abi::Memory,
    blob: *mut abi::Bytes,
    registration: *mut *mut abi::Registration,
    error: *mut abi::Error,
) -> i32 {
    // SAFETY: an end that is not closed, a memory as long as it says, and room for bytes, a pointer and an error, for the
    // call.
    unsafe {
        with(wire, error, |end| {
            let asked = read(memory, REGISTER)?;
            let made = register(end, asked, None, |given| give(blob, given, REGISTER))?;
            give_handle(registration, made);
            Ok(abi::OK)
        })
    }
}

pub(super) unsafe extern "C" fn memory_register_dma_buf(
    wire: *mut abi::Wire,
    memory: *const abi::Memory,
    buffer: *const abi::DmaBuf,
    blob: *mut abi::Bytes,
    registration: *mut *mut abi::Registration,
    error: *mut abi::Error,
) -> i32 {
    // SAFETY: an end that is not closed, a memory and a buffer as long as they say, and room for bytes, a pointer and an
    // error, for the call.
    unsafe {
        with(wire, error, |end| {
            let (asked, buffer) = (read(memory, REGISTER)?, *read(buffer, REGISTER)?);
            if buffer.descriptor < 0 {
                let (wire, saw) = (end.wire.name().to_owned(), "no descriptor".to_owned());
                let allowed = "a dma-buf's".to_owned();
                return Err(WireError::Invalid { operation: REGISTER, wire, saw, allowed });
            }
            let made = register(end, asked, Some(buffer), |given| give(blob, given, REGISTER))?;
            give_handle(registration, made);
            Ok(abi::OK)
        })
    }
}

pub(super) unsafe extern "C" fn memory_deregister(registration: *mut abi::Registration) {
    // SAFETY: a registration that is not ended; this is the call that ends it.
    unsafe { close(registration) }
}
