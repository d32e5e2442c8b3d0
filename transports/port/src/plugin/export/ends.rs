//! Drivers, ends and registrations, behind the functions of the interface.
//!
//! All functions here keep to `antiphon_wire.h`: their safety is that their callers do so too.
#![allow(clippy::missing_safety_doc, clippy::undocumented_unsafe_blocks)]

use super::{Exported, Lent, abi, describe, give, guarded, quietly, read};
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
struct Registered {
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

pub(super) unsafe extern "C" fn init<E: Exported>(
    _: *const abi::Host,
    error: *mut abi::Error,
) -> i32 {
    unsafe { guarded(error, || E::driver().map(|_| abi::OK)) }
}

pub(super) unsafe extern "C" fn wire_open<E: Exported>(
    settings: *const abi::Settings,
    wire: *mut *mut abi::Wire,
    error: *mut abi::Error,
) -> i32 {
    let open = || {
        let asked = unsafe { read(settings, "open an end") }?;
        let name = asked.interface_name;
        let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) });
        let name = name.map(|name| name.to_string_lossy().into_owned());
        let settings = Settings::new(asked.rank, asked.key).with_interface(name);
        let opened = E::driver()?.open(&settings)?;
        let end = Arc::new(End { wire: opened, memories: RwLock::default() });
        unsafe { *wire = Box::into_raw(Box::new(end)).cast() };
        Ok(abi::OK)
    };
    unsafe { guarded(error, open) }
}

/// The end behind a pointer.
pub(super) unsafe fn end<'a>(wire: *mut abi::Wire) -> &'a Arc<End> {
    unsafe { &*wire.cast::<Arc<End>>() }
}

pub(super) unsafe extern "C" fn wire_close(wire: *mut abi::Wire) {
    quietly((), || drop(unsafe { Box::from_raw(wire.cast::<Arc<End>>()) }));
}

pub(super) unsafe extern "C" fn wire_describe(
    wire: *mut abi::Wire,
    text: *mut c_char,
    capacity: u64,
) -> u64 {
    quietly(0, || unsafe { describe(text, capacity, &end(wire).wire.describe()) })
}

pub(super) unsafe extern "C" fn wire_reach(
    wire: *mut abi::Wire,
    peer: *const abi::Peer,
    cost: *mut u32,
    error: *mut abi::Error,
) -> i32 {
    let reach = || {
        let asked = unsafe { read(peer, "reach a peer") }?;
        let peer = Peer {
            rank: asked.rank,
            pid: asked.pid,
            same_process: asked.flags & abi::SAME_PROCESS != 0,
            same_node: asked.flags & abi::SAME_NODE != 0,
            process_access: asked.flags & abi::PROCESS_ACCESS != 0,
        };
        let wire = &unsafe { end(wire) }.wire;
        match wire.reach(&peer) {
            Reach::At { cost: found } => unsafe { *cost = found },
            Reach::No { why } => {
                let (wire, cure) = (wire.name().to_owned(), "use another wire".to_owned());
                return Err(WireError::Unavailable { wire, reason: why, cure });
            }
        }
        Ok(abi::OK)
    };
    unsafe { guarded(error, reach) }
}

pub(super) unsafe extern "C" fn memory_register(
    wire: *mut abi::Wire,
    memory: *const abi::Memory,
    blob: *mut abi::Bytes,
    registration: *mut *mut abi::Registration,
    error: *mut abi::Error,
) -> i32 {
    let operation = "register memory";
    let register = || {
        let end = Arc::clone(unsafe { end(wire) });
        let asked = *unsafe { read(memory, operation) }?;
        let backend = match asked.backend {
            abi::HOST => Backend::Host,
            abi::CUDA => Backend::Cuda,
            abi::ROCM => Backend::Rocm,
            other => {
                return Err(WireError::Invalid {
                    operation,
                    wire: end.wire.name().to_owned(),
                    saw: format!("memory of backend {other}"),
                    allowed: "host, CUDA and ROCm".to_owned(),
                });
            }
        };
        let mut memories = end.memories.write().unwrap_or_else(PoisonError::into_inner);
        let lent = match memories.get(&asked.number) {
            Some((lent, _)) => Arc::clone(lent),
            None => Arc::new(Lent { memory: asked, backend, owed: Mutex::default() }),
        };
        let memory = Arc::clone(&lent) as Arc<dyn Memory>;
        let Registration { blob: given, keep, .. } = end.wire.register(&memory)?;
        unsafe { give(blob, &given, operation) }?;
        // From here on nothing fails: the memory is owed back.
        lent.owe(asked);
        memories.entry(asked.number).or_insert((lent, 0)).1 += 1;
        drop(memories);
        let made = Box::new(Registered { end, number: asked.number, _keep: keep });
        unsafe { *registration = Box::into_raw(made).cast() };
        Ok(abi::OK)
    };
    unsafe { guarded(error, register) }
}

pub(super) unsafe extern "C" fn memory_deregister(registration: *mut abi::Registration) {
    quietly((), || drop(unsafe { Box::from_raw(registration.cast::<Registered>()) }));
}
