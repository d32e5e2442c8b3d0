//! Keys that the ranks of a group share, derived from the job's secret.

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// A secret of 256 bits from one of any length.
pub(crate) fn spread(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// The keyed hash (HMAC-SHA-256, RFC 2104) of some parts, each with its length, so that none runs into the next.
pub(crate) fn keyed(key: &[u8; 32], parts: &[&[u8]]) -> [u8; 32] {
    // A key that is shorter than a block is one with zeros behind it.
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    let mut mac = Hmac::<Sha256>::new(&block.into());
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

    #[test]
    fn the_hash_is_the_standard_one() {
        // What Python's `hmac.digest(bytes(range(32)), b"\2" + bytes(7) + b"ab" + bytes(8), "sha256")` says.
        let key = std::array::from_fn(|at| at as u8);
        let hash: String =
            keyed(&key, &[b"ab", b""]).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hash, "553b532f759c6d7223d7d849f24a76cea47bbac21633fb7faa1d77b2ce43f4e7");
    }
}
