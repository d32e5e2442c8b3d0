//! The handles of one memory as one message: a blob, and descriptors beside it.

use crate::error::HalError;
use crate::handle::MemoryHandle;
use std::os::fd::OwnedFd;

/// `AML`, then the version of the layout. A single handle is its own blob, which begins otherwise.
const MAGIC: [u8; 4] = *b"AML\x01";

impl MemoryHandle {
    /// The blobs of `parts` ([`crate::Memory::export_parts`]) as one: that of the handle where it is one.
    pub fn parts_to_blob(parts: &[MemoryHandle]) -> Vec<u8> {
        if let [one] = parts {
            return one.to_blob();
        }
        let mut blob = MAGIC.to_vec();
        for part in parts {
            let part = part.to_blob();
            // A handle's blob is at most a hundred bytes.
            blob.extend_from_slice(&(part.len() as u32).to_le_bytes());
            blob.extend_from_slice(&part);
        }
        blob
    }

    /// Puts the handles together that [`parts_to_blob`](Self::parts_to_blob) gave in another process, and their
    /// [descriptors](Self::descriptor), in the same order. Both may come from anywhere: there must be exactly as many
    /// descriptors as the handles need.
    pub fn parts_from_blob(
        blob: &[u8],
        descriptors: impl IntoIterator<Item = OwnedFd>,
    ) -> Result<Vec<Self>, HalError> {
        let invalid = |saw: String, allowed: &str| HalError::Invalid {
            what: "read the handles of a memory",
            saw,
            allowed: allowed.to_owned(),
            cure: "run the same version of Antiphon on every rank, and pass blob and descriptors together",
        };
        let mut descriptors = descriptors.into_iter();
        let mut read = |blob: &[u8]| {
            let descriptor = MemoryHandle::needs_descriptor(blob).then(|| descriptors.next());
            MemoryHandle::from_blob(blob, descriptor.flatten())
        };
        let mut parts = Vec::new();
        match blob.strip_prefix(&MAGIC) {
            None => parts.push(read(blob)?),
            Some(mut rest) => {
                while let Some((length, behind)) = rest.split_first_chunk::<4>() {
                    let length = u32::from_le_bytes(*length) as usize;
                    let Some((part, behind)) = behind.split_at_checked(length) else {
                        let saw = format!("{} bytes of a handle of {length}", behind.len());
                        return Err(invalid(saw, "whole handles"));
                    };
                    parts.push(read(part)?);
                    rest = behind;
                }
                if !rest.is_empty() || parts.is_empty() {
                    let saw = format!("{} handles and {} bytes", parts.len(), rest.len());
                    return Err(invalid(saw, "1 handle or more, and nothing behind them"));
                }
            }
        }
        match descriptors.count() {
            0 => Ok(parts),
            more => {
                Err(invalid(format!("{more} descriptors too many"), "one for each handle of one"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Backend;
    use proptest::prelude::*;
    use std::fs::File;
    use std::sync::Arc;

    fn descriptor() -> OwnedFd {
        File::open("/dev/null").expect("cannot open /dev/null").into()
    }

    /// Handles of memory in as many parts as `kinds` says, with a descriptor where it does.
    fn parts(kinds: &[bool]) -> Vec<MemoryHandle> {
        let backend = Backend::Cuda;
        let part = |(at, with): (usize, &bool)| match (at as u64 + 1, with) {
            (bytes, true) => MemoryHandle::Device {
                backend,
                descriptor: Arc::new(descriptor()),
                home: None,
                bytes,
            },
            (bytes, false) => MemoryHandle::Fabric { backend, handle: [at as u8; 64], bytes },
        };
        kinds.iter().enumerate().map(part).collect()
    }

    fn count(kinds: &[bool]) -> usize {
        kinds.iter().filter(|&&with| with).count()
    }

    fn descriptors(count: usize) -> Vec<OwnedFd> {
        (0..count).map(|_| descriptor()).collect()
    }

    #[test]
    fn what_is_cut_short_or_has_another_number_of_descriptors_is_refused() {
        for kinds in [&[true][..], &[true, false, true], &[false, false]] {
            let blob = MemoryHandle::parts_to_blob(&parts(kinds));
            let needed = count(kinds);
            // Cut between two handles, the rest is a message of fewer, which leaves descriptors over; without any
            // descriptor, only the importer can tell, by the length.
            for length in 0..blob.len() {
                let fits = MemoryHandle::parts_from_blob(&blob[..length], descriptors(needed));
                assert!(fits.is_err() || needed == 0, "{kinds:?}: {length} of {}", blob.len());
            }
            for wrong in [needed.wrapping_sub(1), needed + 1] {
                if wrong != usize::MAX {
                    let refused = MemoryHandle::parts_from_blob(&blob, descriptors(wrong));
                    assert!(refused.is_err(), "{kinds:?}: {wrong} descriptors");
                }
            }
        }
        assert!(MemoryHandle::parts_from_blob(&MemoryHandle::parts_to_blob(&[]), []).is_err());
    }

    proptest! {
        #[test]
        fn parts_round_trip(kinds in prop::collection::vec(any::<bool>(), 1..20)) {
            let parts = parts(&kinds);
            let blob = MemoryHandle::parts_to_blob(&parts);
            let again = MemoryHandle::parts_from_blob(&blob, descriptors(count(&kinds))).unwrap();
            let blobs = |parts: &[MemoryHandle]| -> Vec<_> {
                parts.iter().map(MemoryHandle::to_blob).collect()
            };
            prop_assert_eq!(blobs(&again), blobs(&parts));
        }

        #[test]
        fn arbitrary_bytes_never_panic(mut blob: Vec<u8>, list: bool) {
            if list {
                blob.splice(..0, MAGIC);
            }
            let _ = MemoryHandle::parts_from_blob(&blob, descriptors(1));
        }
    }
}
