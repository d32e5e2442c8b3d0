//! Keys that the ranks of a group share, derived from the job's secret.

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// A secret of 256 bits from one of any length.
pub(crate) fn spread(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// The keyed hash (HMAC-SHA-256, RFC 2104) of some parts, each with its length, so that none runs into the next.
pub(crate) fn keyed(key: &[u8; 32], parts: &[&[u8]]) -> [u8; 32] {
    // Keys of any length are taken; this one is no longer than a block.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return spread(key) };
    for part in parts {
        mac.update(&(part.len() as u64).to_le_bytes());
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_by_secret_and_by_every_part() {
        let keys = [
            keyed(&[1; 32], &[b"ab", b"c"]),
            keyed(&[1; 32], &[b"a", b"bc"]),
            keyed(&[1; 32], &[b"abc"]),
            keyed(&[2; 32], &[b"abc"]),
        ];
        for (at, key) in keys.iter().enumerate() {
            assert!(!keys[..at].contains(key), "{at}");
        }
        assert_eq!(keys[2], keyed(&[1; 32], &[b"abc"]));
    }
}
