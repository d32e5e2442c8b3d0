//! Memory that the devices know.

use super::{Nic, dma_buf, refused};
use crate::address::RegionAddress;
use antiphon_hal::{Backend, DmaBuf, Memory};
use antiphon_port::WireError;
use rdma_sys as sys;
use std::ptr::NonNull;
use std::sync::Arc;

/// A memory, registered with every port that this end uses.
#[derive(Debug)]
pub struct Region {
    // Before the memory: registrations end first.
    parts: Vec<Part>,
    /// Memory of a GPU, as the cards reach it.
    _buffer: Option<DmaBuf>,
    /// The memory.
    pub memory: Arc<dyn Memory>,
}

#[derive(Debug)]
struct Part {
    registration: NonNull<sys::ibv_mr>,
    _nic: Arc<Nic>,
}

// SAFETY: the library's functions may be called from any thread; the pointer is freed by drop alone.
unsafe impl Send for Part {}
// SAFETY: as above; nothing changes after it was made.
unsafe impl Sync for Part {}

impl Region {
    /// Registers a memory for reading here and writing by peers: the host's by its address, a GPU's by its dma-buf.
    ///
    /// # Errors
    /// If a device refuses; [`WireError::Unsupported`] for memory of a GPU, where it or the machine knows no dma-bufs.
    pub fn new(nics: &[Arc<Nic>], memory: &Arc<dyn Memory>) -> Result<Self, WireError> {
        use sys::ibv_access_flags as access;
        let rights = (access::IBV_ACCESS_LOCAL_WRITE | access::IBV_ACCESS_REMOTE_WRITE).0 as i32;
        let buffer = match memory.backend() {
            Backend::Host => None,
            _ => Some(dma_buf::export(memory)?),
        };
        let parts = nics.iter().map(|nic| {
            let bytes = usize::try_from(memory.len()).unwrap_or(usize::MAX);
            let registration = match &buffer {
                // SAFETY: the memory is mapped as long as the region holds it, and the part is dropped before it.
                None => NonNull::new(unsafe {
                    sys::ibv_reg_mr(nic.domain.as_ptr(), memory.address().cast(), bytes, rights)
                })
                .ok_or_else(|| {
                    refused("register memory", &format!("{bytes} bytes with {}", nic.name()))
                })?,
                Some(buffer) => {
                    let start = memory.address().addr() as u64;
                    dma_buf::register(nic, buffer, (start, bytes), rights)?
                }
            };
            Ok(Part { registration, _nic: Arc::clone(nic) })
        });
        let parts = parts.collect::<Result<Vec<_>, WireError>>()?;
        Ok(Region { parts, _buffer: buffer, memory: Arc::clone(memory) })
    }

    /// The key of this rank's own requests on a port.
    pub fn local_key(&self, nic: usize) -> u32 {
        // SAFETY: the registration is there.
        unsafe { (*self.parts[nic].registration.as_ptr()).lkey }
    }

    /// What peers need to write here.
    pub fn address(&self) -> RegionAddress {
        RegionAddress {
            start: self.memory.address().addr() as u64,
            // SAFETY: the registrations are there.
            keys: self.parts.iter().map(|p| unsafe { (*p.registration.as_ptr()).rkey }).collect(),
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // SAFETY: nobody else has the pointer.
        unsafe { sys::ibv_dereg_mr(self.registration.as_ptr()) };
    }
}
