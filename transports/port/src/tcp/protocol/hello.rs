//! The handshake of a connection: both sides prove that they have the key, without showing it.
//!
//! The caller says which opening it wants, from which one, for which stripe, with a nonce ([`Hello`]); the callee answers
//! with its own nonce and a keyed hash over both messages ([`reply`]); the caller checks it and sends its own
//! ([`check`]), which the callee checks ([`is_proof`]). A recording of one connection is worth nothing on another, as
//! both nonces are new every time, and the two hashes begin with different words.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;

const MAGIC: [u8; 8] = *b"antiwire";
/// Changes whenever anything after it does.
const VERSION: u32 = 1;
/// Bytes of a caller's first message.
pub(crate) const HELLO: usize = 88;
/// Bytes of the answer.
pub(crate) const REPLY: usize = 76;
/// Bytes of a caller's second message.
pub(crate) const PROOF: usize = 32;

/// What names an opening: random, so that nobody finds it by trying.
pub(crate) type Token = [u8; 16];

/// Why a connection is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It speaks something else.
    Stranger,
    /// It speaks another version.
    Version(u32),
    /// It has another key.
    Key,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Stranger => f.write_str("what answers there is not a TCP wire of Antiphon"),
            Refusal::Version(version) => write!(
                f,
                "the peer's TCP wire has version {version}, this one {VERSION}; run one version of Antiphon everywhere"
            ),
            Refusal::Key => f.write_str(
                "the peer does not prove the communicator's key; give all ranks one secret",
            ),
        }
    }
}

/// A caller's first message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// The caller's rank, and the callee's.
    pub ranks: [u32; 2],
    /// The caller's opening, and the callee's.
    pub tokens: [Token; 2],
    /// Which stripe of the link, of how many.
    pub stripe: u16,
    pub stripes: u16,
    pub nonce: [u8; 32],
}

impl Hello {
    /// As it travels.
    pub fn bytes(&self) -> [u8; HELLO] {
        let [from, to] = self.ranks.map(u32::to_le_bytes);
        let (stripe, stripes) = (self.stripe.to_le_bytes(), self.stripes.to_le_bytes());
        let version = VERSION.to_le_bytes();
        let parts: [&[u8]; 9] = [
            &MAGIC,
            &version,
            &from,
            &to,
            &stripe,
            &stripes,
            &self.tokens[0],
            &self.tokens[1],
            &self.nonce,
        ];
        join(parts)
    }

    /// From what a caller sent.
    pub fn read(bytes: &[u8; HELLO]) -> Result<Self, Refusal> {
        let mut rest = body(bytes)?;
        Ok(Hello {
            ranks: [u32::from_le_bytes(take(&mut rest)), u32::from_le_bytes(take(&mut rest))],
            stripe: u16::from_le_bytes(take(&mut rest)),
            stripes: u16::from_le_bytes(take(&mut rest)),
            tokens: [take(&mut rest), take(&mut rest)],
            nonce: take(&mut rest),
        })
    }
}

/// The key of a wire's handshakes, from the communicator's.
pub(crate) fn derive(key: &[u8; 32]) -> [u8; 32] {
    keyed(key, &[b"antiphon tcp wire"]).finalize().into_bytes().into()
}

/// The callee's answer to a hello.
pub(crate) fn reply(key: &[u8; 32], hello: &[u8; HELLO], nonce: &[u8; 32]) -> [u8; REPLY] {
    let hash: [u8; 32] = keyed(key, &[b"callee", hello, nonce]).finalize().into_bytes().into();
    join([&MAGIC, &VERSION.to_le_bytes(), nonce, &hash])
}

/// The callee's answer to a hello of another version, which tells its own.
pub(crate) fn reply_to_other_version() -> [u8; REPLY] {
    join([&MAGIC, &VERSION.to_le_bytes(), &[0; 64]])
}

/// Checks the callee's answer; the caller's proof.
pub(crate) fn check(
    key: &[u8; 32],
    hello: &[u8; HELLO],
    reply: &[u8; REPLY],
) -> Result<[u8; PROOF], Refusal> {
    let mut rest = body(reply)?;
    let (nonce, hash): ([u8; 32], [u8; 32]) = (take(&mut rest), take(&mut rest));
    let expected = keyed(key, &[b"callee", hello, &nonce]);
    expected.verify_slice(&hash).map_err(|_| Refusal::Key)?;
    Ok(keyed(key, &[b"caller", hello, reply]).finalize().into_bytes().into())
}

/// Whether a caller's proof is right.
pub(crate) fn is_proof(
    key: &[u8; 32],
    hello: &[u8; HELLO],
    reply: &[u8; REPLY],
    proof: &[u8; PROOF],
) -> bool {
    keyed(key, &[b"caller", hello, reply]).verify_slice(proof).is_ok()
}

/// What follows magic and version.
fn body(bytes: &[u8]) -> Result<&[u8], Refusal> {
    let (magic, rest) = bytes.split_first_chunk::<8>().ok_or(Refusal::Stranger)?;
    let (version, rest) = rest.split_first_chunk::<4>().ok_or(Refusal::Stranger)?;
    match u32::from_le_bytes(*version) {
        _ if *magic != MAGIC => Err(Refusal::Stranger),
        VERSION => Ok(rest),
        other => Err(Refusal::Version(other)),
    }
}

fn keyed(key: &[u8; 32], parts: &[&[u8]]) -> Hmac<Sha256> {
    let mut padded = [0; 64];
    padded[..32].copy_from_slice(key);
    // The same as a key of 32 bytes, by the definition of HMAC.
    let mut mac = Hmac::<Sha256>::new(&padded.into());
    for part in parts {
        mac.update(&(part.len() as u64).to_le_bytes());
        mac.update(part);
    }
    mac
}

fn join<const N: usize, const P: usize>(parts: [&[u8]; P]) -> [u8; N] {
    let mut all = [0; N];
    for (to, from) in all.iter_mut().zip(parts.into_iter().flatten()) {
        *to = *from;
    }
    all
}

/// The next bytes of a message whose length is right.
fn take<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    let Some((first, more)) = rest.split_first_chunk::<N>() else { return [0; N] };
    *rest = more;
    *first
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        let (ranks, tokens, nonce) = ([3, 9], [[1; 16], [2; 16]], [7; 32]);
        Hello { ranks, tokens, stripe: 1, stripes: 4, nonce }
    }

    #[test]
    fn two_sides_with_one_key_prove_it_and_with_two_do_not() {
        let (key, other) = (derive(&[5; 32]), derive(&[6; 32]));
        let first = hello().bytes();
        assert_eq!(Hello::read(&first).unwrap(), hello());
        let second = reply(&key, &first, &[8; 32]);
        let proof = check(&key, &first, &second).unwrap();
        assert!(is_proof(&key, &first, &second, &proof));
        assert_eq!(check(&other, &first, &second), Err(Refusal::Key));
        assert!(!is_proof(&other, &first, &second, &proof));
        // A recording does not fit another nonce, and the callee's own hash is no proof.
        let again = reply(&key, &first, &[9; 32]);
        assert!(!is_proof(&key, &first, &again, &proof));
        let own: [u8; 32] = second[44..].try_into().unwrap();
        assert!(!is_proof(&key, &first, &second, &own));
    }

    #[test]
    fn every_changed_bit_is_noticed() {
        let key = derive(&[5; 32]);
        let first = hello().bytes();
        let second = reply(&key, &first, &[8; 32]);
        let proof = check(&key, &first, &second).unwrap();
        for at in 0..HELLO * 8 {
            let mut changed = first;
            changed[at / 8] ^= 1 << (at % 8);
            assert!(!is_proof(&key, &changed, &second, &proof), "bit {at} of the hello");
            assert!(check(&key, &changed, &second).is_err());
        }
        for at in 0..REPLY * 8 {
            let mut changed = second;
            changed[at / 8] ^= 1 << (at % 8);
            assert!(check(&key, &first, &changed).is_err(), "bit {at} of the reply");
        }
    }

    #[test]
    fn versions_are_named_and_strangers_are_told_apart() {
        let mut other = hello().bytes();
        other[8] = 9;
        assert_eq!(Hello::read(&other), Err(Refusal::Version(9)));
        let text = Refusal::Version(9).to_string();
        assert!(text.contains("version 9") && text.contains("this one 1"), "{text}");
        assert_eq!(Hello::read(&[0x47; HELLO]), Err(Refusal::Stranger));
        let mut answer = reply_to_other_version();
        assert_eq!(check(&[0; 32], &hello().bytes(), &answer), Err(Refusal::Key));
        answer[8] = 2;
        assert_eq!(check(&[0; 32], &hello().bytes(), &answer), Err(Refusal::Version(2)));
    }
}
