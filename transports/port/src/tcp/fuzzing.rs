//! For fuzzers: what peers and strangers say to the TCP wire is any bytes, and what must hold of whatever it makes of them
//! is checked.
//!
//! Built with `--cfg fuzzing` (`cargo xtask fuzz`; the targets are in `transports/fuzz`) and for tests. Each function says how
//! far the bytes came, so that a test sees that they come anywhere.

mod traffic;

use super::address::Address;
use super::protocol::frame::{Frame, LONGEST};
use super::protocol::hello::{HELLO, Hello, PROOF, REPLY, check, derive, is_proof, reply};
use std::array;

pub use traffic::wire_traffic;

/// The address of an opening: what is read of one is all of it. Returns whether it is one.
pub fn wire_address(bytes: &[u8]) -> bool {
    let Some(address) = Address::read(bytes) else { return false };
    assert_eq!(address.bytes(), bytes);
    true
}

/// The head of a frame: it waits for all of its bytes, and is the same when it is written and read again. Returns whether it
/// is one.
pub fn wire_frame(bytes: &[u8]) -> bool {
    let Ok(Some((frame, length))) = Frame::take(bytes) else { return false };
    assert!(length <= LONGEST.min(bytes.len()));
    for some in 0..length {
        assert_eq!(Frame::take(&bytes[..some]), Ok(None), "{frame:?}, {some} bytes");
    }
    let mut written = Vec::new();
    frame.put(&mut written);
    assert_eq!(Frame::take(&written), Ok(Some((frame, length))));
    true
}

/// A handshake whose messages somebody changes on their way: each side is sure of the other exactly if both have one key
/// and nothing was changed. Returns how many are.
pub fn wire_handshake(bytes: &[u8]) -> usize {
    const LENGTH: usize = HELLO + REPLY + PROOF;
    let Some((&how, rest)) = bytes.split_first() else { return 0 };
    stranger(rest);
    let same = how & 1 == 0;
    // Of each change the place in all three messages, and what is done to it.
    let mut changes = [0; LENGTH];
    for &[at, change] in rest.as_chunks().0 {
        changes[usize::from(at) % LENGTH] ^= change;
    }
    let keys = [derive(&[5; 32]), derive(&[if same { 5 } else { 6 }; 32])];
    let (ranks, tokens, nonce) = ([3, 9], [[1; 16], [2; 16]], [7; 32]);
    let hello = Hello { ranks, tokens, stripe: 1, stripes: 4, nonce }.bytes();
    let changed = |from: usize, to: usize| changes[from..to].iter().any(|change| *change != 0);

    let heard: [u8; HELLO] = array::from_fn(|at| hello[at] ^ changes[at]);
    // The callee looks for the opening only if it can be read.
    let Ok(read) = Hello::read(&heard) else {
        assert!(changed(0, 12), "a hello that was not changed, or not where it is told");
        return 0;
    };
    assert_eq!(read.bytes(), heard);
    let said = reply(&keys[1], &heard, &[8; 32]);
    let answer: [u8; REPLY] = array::from_fn(|at| said[at] ^ changes[HELLO + at]);
    let sure = check(&keys[0], &hello, &answer);
    assert_eq!(sure.is_ok(), same && !changed(0, HELLO + REPLY), "{changes:?}");
    let Ok(proof) = sure else { return 0 };
    let proof: [u8; PROOF] = array::from_fn(|at| proof[at] ^ changes[HELLO + REPLY + at]);
    let proven = is_proof(&keys[1], &heard, &said, &proof);
    assert_eq!(proven, !changed(HELLO + REPLY, LENGTH), "{changes:?}");
    1 + usize::from(proven)
}

/// Whatever somebody says who has no key proves nothing.
fn stranger(bytes: &[u8]) {
    fn padded<const N: usize>(bytes: &[u8]) -> [u8; N] {
        array::from_fn(|at| bytes.get(at).copied().unwrap_or_default())
    }
    let key = derive(&[5; 32]);
    let hello = padded(bytes);
    if let Ok(read) = Hello::read(&hello) {
        assert_eq!(read.bytes(), hello);
    }
    assert!(check(&key, &hello, &padded(bytes)).is_err());
    assert!(!is_proof(&key, &hello, &reply(&key, &hello, &[8; 32]), &padded(bytes)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sound_comes_through() {
        let (token, listens) = ([9; 16], "10.0.0.1:80".parse().unwrap());
        let mut address = Address { rank: 7, stripes: 4, token, listens }.bytes();
        assert!(wire_address(&address));
        address.push(0);
        assert!(!wire_address(&address));
        assert!(wire_frame(&[3, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]));
        assert!(!wire_frame(&[1; 23]) && !wire_frame(&[5; 32]));
    }

    #[test]
    fn sides_are_sure_unless_something_was_changed() {
        for (bytes, expected) in [
            (&[0][..], 2),
            (&[1], 0),
            (&[0, 195, 1], 1),
            (&[0, 0, 1], 0),
            (&[0, 40, 1], 0),
            (&[0, 100, 1, 100, 1], 2),
        ] {
            assert_eq!(wire_handshake(bytes), expected, "{bytes:?}");
        }
    }
}
