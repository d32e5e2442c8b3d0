//! One way to tell contents apart by a number, the same in all processes and builds. By accident alone different ones have
//! equal numbers; nobody is kept from making such.

/// The number of these bytes (FNV-1a).
pub(crate) fn fingerprint<'a>(bytes: impl IntoIterator<Item = &'a u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
