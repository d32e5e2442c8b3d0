//! The handles by which other processes map memory.

use crate::driver::Backend;
use crate::error::HalError;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// What a process needs to map another's memory, or to join another's multicast group.
///
/// It travels in two parts: [`to_blob`](Self::to_blob), bytes that fit any message, and
/// [`descriptor`](Self::descriptor), which (where there is one) only a local socket can pass on.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum MemoryHandle {
    /// A shared-memory object of this machine.
    SharedMemory {
        /// The object. Owned by the handle: it may be passed on while the handle lives.
        descriptor: Arc<OwnedFd>,
        /// Where it is mapped already.
        home: Option<Home>,
        /// Bytes of the memory; the object is at least as long.
        bytes: u64,
    },
    /// Memory of a GPU, as a descriptor that its driver made, for processes of this machine.
    Device {
        /// The backend that made it.
        backend: Backend,
        /// The driver's descriptor. Owned by the handle.
        descriptor: Arc<OwnedFd>,
        /// Where it is mapped already; none where it is not mapped as one.
        home: Option<Home>,
        /// Bytes of the memory; the driver's allocation is at least as long.
        bytes: u64,
    },
    /// Memory of a GPU, for processes on all machines of its NVLink domain.
    Fabric {
        /// The backend that made it.
        backend: Backend,
        /// The driver's handle.
        handle: [u8; 64],
        /// Bytes of the memory; the driver's allocation is at least as long.
        bytes: u64,
    },
    /// Memory of a GPU that an application allocated itself, by its driver's classic IPC, for processes of this
    /// machine.
    Ipc {
        /// The backend that made it.
        backend: Backend,
        /// The driver's handle.
        handle: [u8; 64],
        /// A number of the process that exported it, which no other process has.
        process: u64,
        /// Its number there, where it is the application's; otherwise 0.
        number: u64,
        /// Bytes of the allocation.
        bytes: u64,
    },
    /// A multicast group, as a descriptor that the driver made, for processes of this machine.
    Multicast {
        /// The backend that made it.
        backend: Backend,
        /// The driver's descriptor. Owned by the handle.
        descriptor: Arc<OwnedFd>,
        /// How many devices take part.
        members: u32,
        /// Bytes that every member binds.
        bytes: u64,
    },
}

/// The mapping that a process has, which all ranks of the process use. So nobody there writes memory of a GPU by one address
/// while others read it by another, and memory of the host takes one mapping and one descriptor however many ranks use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    /// A number of the process, which no other process has.
    pub process: u64,
    /// The mapping's number there, never 0.
    pub number: u64,
}

/// `AMH`, then the version of the layout.
const MAGIC: [u8; 4] = *b"AMH\x04";
const KIND_SHARED_MEMORY: u16 = 1;
const KIND_DEVICE: u16 = 2;
const KIND_FABRIC: u16 = 3;
const KIND_IPC: u16 = 4;
const KIND_MULTICAST: u16 = 5;
/// Magic, kind, backend, bytes of the memory.
const HEADER_BYTES: usize = 16;
const SAME_VERSION: &str = "run the same version of Antiphon on every rank";

impl MemoryHandle {
    /// Bytes of the memory.
    pub fn bytes(&self) -> u64 {
        match self {
            MemoryHandle::SharedMemory { bytes, .. }
            | MemoryHandle::Device { bytes, .. }
            | MemoryHandle::Fabric { bytes, .. }
            | MemoryHandle::Ipc { bytes, .. }
            | MemoryHandle::Multicast { bytes, .. } => *bytes,
        }
    }

    /// The backend whose devices can import it.
    pub fn backend(&self) -> Backend {
        match self {
            MemoryHandle::SharedMemory { .. } => Backend::Host,
            MemoryHandle::Device { backend, .. }
            | MemoryHandle::Fabric { backend, .. }
            | MemoryHandle::Ipc { backend, .. }
            | MemoryHandle::Multicast { backend, .. } => *backend,
        }
    }

    /// What it is a handle of, for messages.
    pub(crate) fn kind_name(&self) -> &'static str {
        match self {
            MemoryHandle::SharedMemory { .. } => "shared memory",
            MemoryHandle::Device { .. } => "a device's memory",
            MemoryHandle::Fabric { .. } => "a device's memory on a fabric",
            MemoryHandle::Ipc { .. } => "an application's device memory",
            MemoryHandle::Multicast { .. } => "a multicast group",
        }
    }

    /// The descriptor to pass along with the blob, if this kind of handle has one.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            MemoryHandle::SharedMemory { descriptor, .. }
            | MemoryHandle::Device { descriptor, .. }
            | MemoryHandle::Multicast { descriptor, .. } => Some(descriptor.as_fd()),
            MemoryHandle::Fabric { .. } | MemoryHandle::Ipc { .. } => None,
        }
    }

    /// The part of the handle that is plain bytes, of the same layout on every machine.
    pub fn to_blob(&self) -> Vec<u8> {
        let kind = match self {
            MemoryHandle::SharedMemory { .. } => KIND_SHARED_MEMORY,
            MemoryHandle::Device { .. } => KIND_DEVICE,
            MemoryHandle::Fabric { .. } => KIND_FABRIC,
            MemoryHandle::Ipc { .. } => KIND_IPC,
            MemoryHandle::Multicast { .. } => KIND_MULTICAST,
        };
        let mut blob = Vec::with_capacity(HEADER_BYTES + 80);
        blob.extend_from_slice(&MAGIC);
        blob.extend_from_slice(&kind.to_le_bytes());
        blob.extend_from_slice(&number_of(self.backend()).to_le_bytes());
        blob.extend_from_slice(&self.bytes().to_le_bytes());
        match self {
            MemoryHandle::SharedMemory { home, .. } | MemoryHandle::Device { home, .. } => {
                let (process, number) = home.map_or((0, 0), |home| (home.process, home.number));
                blob.extend_from_slice(&process.to_le_bytes());
                blob.extend_from_slice(&number.to_le_bytes());
            }
            MemoryHandle::Fabric { handle, .. } => blob.extend_from_slice(handle),
            MemoryHandle::Ipc { handle, process, number, .. } => {
                blob.extend_from_slice(handle);
                blob.extend_from_slice(&process.to_le_bytes());
                blob.extend_from_slice(&number.to_le_bytes());
            }
            MemoryHandle::Multicast { members, .. } => {
                blob.extend_from_slice(&members.to_le_bytes());
            }
        }
        blob
    }

    /// Whether the handle of which `blob` is a part has a descriptor.
    pub(crate) fn needs_descriptor(blob: &[u8]) -> bool {
        let kind = blob.get(4..6).and_then(|kind| kind.try_into().ok()).map(u16::from_le_bytes);
        matches!(kind, Some(KIND_SHARED_MEMORY | KIND_DEVICE | KIND_MULTICAST))
    }

    /// Puts a handle together from what [`to_blob`](Self::to_blob) and [`descriptor`](Self::descriptor) gave in
    /// another process. The blob may come from anywhere; whether the memory is as long as the blob says is checked
    /// by [`crate::Device::import`].
    pub fn from_blob(blob: &[u8], descriptor: Option<OwnedFd>) -> Result<Self, HalError> {
        let invalid = |saw: String, allowed: String, cure| HalError::Invalid {
            what: "read a memory handle",
            saw,
            allowed,
            cure,
        };
        let Some((header, body)) = blob.split_first_chunk::<HEADER_BYTES>() else {
            let allowed = format!("{HEADER_BYTES} or more");
            return Err(invalid(format!("{} bytes", blob.len()), allowed, SAME_VERSION));
        };
        let [m0, m1, m2, m3, k0, k1, b0, b1, size @ ..] = *header;
        let (magic, kind) = ([m0, m1, m2, m3], u16::from_le_bytes([k0, k1]));
        let (number, bytes) = (u16::from_le_bytes([b0, b1]), u64::from_le_bytes(size));
        let backend = Backend::ALL.into_iter().find(|&backend| number_of(backend) == number);
        let known = magic == MAGIC && (KIND_SHARED_MEMORY..=KIND_MULTICAST).contains(&kind);
        let fits = |backend| (backend == Backend::Host) == (kind == KIND_SHARED_MEMORY);
        let Some(backend) = backend.filter(|&backend| known && fits(backend)) else {
            return Err(invalid(
                format!("layout {magic:02x?}, kind {kind}, backend {number}"),
                format!(
                    "layout {MAGIC:02x?}, kinds {KIND_SHARED_MEMORY} to {KIND_MULTICAST}, each with its backend"
                ),
                SAME_VERSION,
            ));
        };
        let length = |expected: usize| {
            let saw = format!("{} bytes", blob.len());
            invalid(saw, format!("{} for kind {kind}", HEADER_BYTES + expected), SAME_VERSION)
        };
        let descriptor = || {
            descriptor.map(Arc::new).ok_or_else(|| {
                invalid(
                    "no descriptor".to_owned(),
                    "a handle of this kind with its descriptor".to_owned(),
                    "pass the descriptor along over a local socket",
                )
            })
        };
        match kind {
            KIND_SHARED_MEMORY | KIND_DEVICE => {
                let [p0, p1, p2, p3, p4, p5, p6, p7, number @ ..] =
                    *<&[u8; 16]>::try_from(body).map_err(|_| length(16))?;
                let process = u64::from_le_bytes([p0, p1, p2, p3, p4, p5, p6, p7]);
                let number = u64::from_le_bytes(number);
                let home = (number != 0).then_some(Home { process, number });
                let descriptor = descriptor()?;
                Ok(match backend {
                    Backend::Host => MemoryHandle::SharedMemory { descriptor, home, bytes },
                    _ => MemoryHandle::Device { backend, descriptor, home, bytes },
                })
            }
            KIND_FABRIC => {
                let handle = *<&[u8; 64]>::try_from(body).map_err(|_| length(64))?;
                Ok(MemoryHandle::Fabric { backend, handle, bytes })
            }
            KIND_IPC => {
                let [handle @ .., p0, p1, p2, p3, p4, p5, p6, p7, n0, n1, n2, n3, n4, n5, n6, n7] =
                    *<&[u8; 80]>::try_from(body).map_err(|_| length(80))?;
                let process = u64::from_le_bytes([p0, p1, p2, p3, p4, p5, p6, p7]);
                let number = u64::from_le_bytes([n0, n1, n2, n3, n4, n5, n6, n7]);
                Ok(MemoryHandle::Ipc { backend, handle, process, number, bytes })
            }
            _ => {
                let members = *<&[u8; 4]>::try_from(body).map_err(|_| length(4))?;
                let members = u32::from_le_bytes(members);
                Ok(MemoryHandle::Multicast { backend, descriptor: descriptor()?, members, bytes })
            }
        }
    }
}

/// The number of a backend in blobs.
const fn number_of(backend: Backend) -> u16 {
    match backend {
        Backend::Host => 0,
        Backend::Cuda => 1,
        Backend::Rocm => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs::File;

    fn some_descriptor() -> OwnedFd {
        File::open("/dev/null").expect("cannot open /dev/null").into()
    }

    fn one_of_each(bytes: u64) -> [MemoryHandle; 6] {
        let descriptor = Arc::new(some_descriptor());
        let handle = std::array::from_fn(|at| at as u8);
        let backend = Backend::Cuda;
        let home = Some(Home { process: 5 << 40, number: 7 });
        [
            MemoryHandle::SharedMemory { descriptor: Arc::clone(&descriptor), home, bytes },
            MemoryHandle::Device {
                backend,
                descriptor: Arc::clone(&descriptor),
                home: None,
                bytes,
            },
            MemoryHandle::Device { backend, descriptor: Arc::clone(&descriptor), home, bytes },
            MemoryHandle::Fabric { backend: Backend::Rocm, handle, bytes },
            MemoryHandle::Ipc { backend, handle, process: 1 << 40, number: 3 << 33, bytes },
            MemoryHandle::Multicast { backend, descriptor, members: 8, bytes },
        ]
    }

    #[test]
    fn every_other_length_and_every_changed_header_byte_is_refused() {
        for handle in one_of_each(77) {
            let mut blob = handle.to_blob();
            for len in 0..blob.len() {
                assert!(MemoryHandle::from_blob(&blob[..len], Some(some_descriptor())).is_err());
            }
            for at in 0..8 {
                let mut changed = blob.clone();
                changed[at] ^= 0x40;
                assert!(MemoryHandle::from_blob(&changed, Some(some_descriptor())).is_err());
            }
            if handle.descriptor().is_some() {
                let without = MemoryHandle::from_blob(&blob, None).unwrap_err().to_string();
                assert!(without.contains("descriptor"), "{without}");
            }
            blob.push(0);
            assert!(MemoryHandle::from_blob(&blob, Some(some_descriptor())).is_err());
        }
    }

    #[test]
    fn a_kind_of_another_backend_is_refused() {
        let [shared, device, ..] = one_of_each(77);
        for (mut blob, number) in [(shared.to_blob(), 1), (device.to_blob(), 0)] {
            blob[6] = number;
            assert!(MemoryHandle::from_blob(&blob, Some(some_descriptor())).is_err());
        }
    }

    proptest! {
        #[test]
        fn blobs_round_trip(bytes: u64) {
            for handle in one_of_each(bytes) {
                let blob = handle.to_blob();
                let again = MemoryHandle::from_blob(&blob, Some(some_descriptor())).unwrap();
                prop_assert_eq!(again.bytes(), bytes);
                prop_assert_eq!(again.backend(), handle.backend());
                prop_assert_eq!(again.kind_name(), handle.kind_name());
                prop_assert_eq!(again.descriptor().is_some(), handle.descriptor().is_some());
                prop_assert_eq!(again.to_blob(), blob);
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(blob: Vec<u8>) {
            let _ = MemoryHandle::from_blob(&blob, Some(some_descriptor()));
        }
    }
}
