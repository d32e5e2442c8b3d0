//! Memory, and the handles by which other processes map it.

use crate::driver::Backend;
use crate::error::HalError;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// A mapped allocation: this process's own, or a peer's that was imported.
///
/// The mapping lives until the last `Arc` is dropped. The bytes are shared with every process that mapped the
/// same handle, so they are reached through raw pointers only, and whoever reads and writes them at the same time
/// must order the accesses with atomics or signals.
pub trait Memory: Send + Sync + fmt::Debug {
    /// The backend of the device that mapped it.
    fn backend(&self) -> Backend;

    /// Where it is mapped in this process; a multiple of [`crate::Caps::page_bytes`].
    fn address(&self) -> *mut u8;

    /// Bytes asked for at allocation; the mapping may extend to the end of the page.
    fn len(&self) -> u64;

    /// Always `false`: nothing of zero length is ever allocated or imported.
    fn is_empty(&self) -> bool {
        false
    }

    /// A number no other memory of this process has had or will have, unlike the address.
    fn id(&self) -> u64;

    /// What a peer needs to map the same bytes.
    fn export(&self) -> Result<MemoryHandle, HalError>;
}

/// What a process needs to map another's memory.
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
        /// Bytes of the memory; the object is at least as long.
        bytes: u64,
    },
}

/// `AMH`, then the version of the layout.
const MAGIC: [u8; 4] = *b"AMH\x01";
const KIND_SHARED_MEMORY: u32 = 1;
const BLOB_BYTES: usize = 16;

impl MemoryHandle {
    /// Bytes of the memory.
    pub fn bytes(&self) -> u64 {
        match self {
            MemoryHandle::SharedMemory { bytes, .. } => *bytes,
        }
    }

    /// The descriptor to pass along with the blob, if this kind of handle has one.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            MemoryHandle::SharedMemory { descriptor, .. } => Some(descriptor.as_fd()),
        }
    }

    /// The part of the handle that is plain bytes, of the same layout on every machine.
    pub fn to_blob(&self) -> Vec<u8> {
        let MemoryHandle::SharedMemory { bytes, .. } = self;
        let mut blob = Vec::with_capacity(BLOB_BYTES);
        blob.extend_from_slice(&MAGIC);
        blob.extend_from_slice(&KIND_SHARED_MEMORY.to_le_bytes());
        blob.extend_from_slice(&bytes.to_le_bytes());
        blob
    }

    /// Puts a handle together from what [`to_blob`](Self::to_blob) and [`descriptor`](Self::descriptor) gave in
    /// another process. The blob may come from anywhere; whether the descriptor is as long as the blob says is
    /// checked by [`crate::Device::import`].
    pub fn from_blob(blob: &[u8], descriptor: Option<OwnedFd>) -> Result<Self, HalError> {
        let invalid = |saw: String, allowed: String, cure| HalError::Invalid {
            what: "read a memory handle",
            saw,
            allowed,
            cure,
        };
        let Ok(fields) = <&[u8; BLOB_BYTES]>::try_from(blob) else {
            return Err(invalid(
                format!("{} bytes", blob.len()),
                format!("{BLOB_BYTES}"),
                "run the same version of Antiphon on every rank",
            ));
        };
        let [m0, m1, m2, m3, k0, k1, k2, k3, size @ ..] = *fields;
        let (magic, kind) = ([m0, m1, m2, m3], u32::from_le_bytes([k0, k1, k2, k3]));
        if magic != MAGIC || kind != KIND_SHARED_MEMORY {
            return Err(invalid(
                format!("layout {magic:02x?}, kind {kind}"),
                format!("layout {MAGIC:02x?}, kind {KIND_SHARED_MEMORY}"),
                "run the same version of Antiphon on every rank",
            ));
        }
        let Some(descriptor) = descriptor else {
            return Err(invalid(
                "no descriptor".to_owned(),
                "a handle of shared memory with its descriptor".to_owned(),
                "pass the descriptor along over a local socket",
            ));
        };
        Ok(MemoryHandle::SharedMemory {
            descriptor: Arc::new(descriptor),
            bytes: u64::from_le_bytes(size),
        })
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

    #[test]
    fn every_truncation_and_every_changed_header_byte_is_refused() {
        let handle =
            MemoryHandle::SharedMemory { descriptor: Arc::new(some_descriptor()), bytes: 77 };
        let blob = handle.to_blob();
        for len in 0..blob.len() {
            assert!(MemoryHandle::from_blob(&blob[..len], Some(some_descriptor())).is_err());
        }
        for at in 0..8 {
            let mut changed = blob.clone();
            changed[at] ^= 0x40;
            assert!(MemoryHandle::from_blob(&changed, Some(some_descriptor())).is_err());
        }
        let without = MemoryHandle::from_blob(&blob, None).unwrap_err().to_string();
        assert!(without.contains("descriptor"), "{without}");
    }

    proptest! {
        #[test]
        fn blobs_round_trip(bytes: u64) {
            let handle =
                MemoryHandle::SharedMemory { descriptor: Arc::new(some_descriptor()), bytes };
            let again = MemoryHandle::from_blob(&handle.to_blob(), Some(some_descriptor())).unwrap();
            prop_assert_eq!(again.bytes(), bytes);
            prop_assert!(again.descriptor().is_some());
        }

        #[test]
        fn arbitrary_bytes_never_panic(blob: Vec<u8>) {
            let _ = MemoryHandle::from_blob(&blob, Some(some_descriptor()));
        }
    }
}
