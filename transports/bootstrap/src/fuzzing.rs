//! For fuzzers: each parser of what strangers, peers, launchers and people say is fed any bytes, and what must hold of
//! whatever it makes of them is checked.
//!
//! Built with `--cfg fuzzing` (`cargo xtask fuzz`; the targets are in `transports/fuzz`) and for tests. Each function says how
//! far the bytes came, so that a test sees that they come anywhere.

use std::mem::{Discriminant, discriminant};

use crate::collective::unpack;
use crate::frame::{Frame, FrameError, Inbound, Kind};
use crate::hello::{Introduction, decode_link, decode_words, encode_link, encode_words};
use crate::key::spread;
use crate::sync::hex;
use crate::tcp::{Place, UniqueId};
use crate::unix::card::{Card, Table};

pub use crate::launcher::fuzzing::launchers;
pub use crate::tcp::fuzzing::handshake;

/// A stream of frames: however it is cut on its way, it holds the same frames and ends by the same fault. Returns the number
/// of frames.
pub fn frames(bytes: &[u8]) -> usize {
    let Some((&[how, cut], rest)) = bytes.split_first_chunk() else { return 0 };
    let stream = if how & 1 == 0 { rest.to_vec() } else { framed(rest) };
    let whole = read(&stream, stream.len().max(1));
    assert_eq!(read(&stream, usize::from(cut) + 1), whole);
    assert!(stream.starts_with(&whole.0), "frames that were not sent");
    whole.1
}

/// Frames around what is in `bytes`: of each its kind, its length, its payload. Kinds are sound or not.
fn framed(mut bytes: &[u8]) -> Vec<u8> {
    let mut stream = Vec::new();
    while let Some((&[kind, length], rest)) = bytes.split_first_chunk() {
        let (payload, rest) = rest.split_at(rest.len().min(length.into()));
        let mut header = Frame::plain(Kind::Message, payload.to_vec()).header();
        header[10] = kind;
        stream.extend(header);
        stream.extend(payload);
        bytes = rest;
    }
    stream
}

/// What is read of a stream that comes in pieces: the bytes of its frames, their number, how it ends.
fn read(stream: &[u8], piece: usize) -> (Vec<u8>, usize, Option<Discriminant<FrameError>>) {
    let (mut inbound, mut bytes, mut count) = (Inbound::default(), Vec::new(), 0);
    for piece in stream.chunks(piece) {
        inbound.feed(piece, []);
        loop {
            match inbound.next() {
                Ok(None) => break,
                Ok(Some(frame)) => {
                    bytes.extend(frame.header());
                    bytes.extend(&frame.payload[..]);
                    count += 1;
                }
                Err(error) => return (bytes, count, Some(discriminant(&error))),
            }
        }
    }
    (bytes, count, None)
}

/// Payloads of frames: what is read of one is all of it, and nothing else. Returns the number of parsers that take it.
pub fn payloads(bytes: &[u8]) -> usize {
    let mut taken = crate::tcp::fuzzing::payloads(bytes);
    if let Some(card) = Card::decode(bytes) {
        assert_eq!(card.encode(), bytes);
        taken += 1;
    }
    if let Some(table) = Table::decode(bytes) {
        assert_eq!(table.encode(), bytes);
        taken += 1;
    }
    if let Some((key, rank)) = decode_link(bytes) {
        assert_eq!(encode_link(&key, rank), bytes);
        taken += 1;
    }
    let words = bytes.len() / 4 * 4;
    assert_eq!(encode_words(decode_words(bytes)), bytes[..words]);
    const ALL: usize = 300;
    for here in [0, 1, 256] {
        let mut parts = vec![Vec::new(); here];
        let read = unpack(bytes, ALL, &mut parts);
        let new = &parts[here..];
        let length: usize = new.iter().map(|part| 4 + part.len()).sum();
        let expected = if read.is_some() { bytes.len() } else { 8 };
        assert_eq!(8 + length, expected, "a stretch of {} parts", new.len());
        assert!(parts.len() <= ALL);
        taken += usize::from(read.is_some());
    }
    taken
}

/// Places where a job meets, and unique ids, as people and launchers write them. What was read is written and read again.
/// Returns whether it is a place.
pub fn places(bytes: &[u8]) -> bool {
    let Some((&how, rest)) = bytes.split_first() else { return false };
    let text = if how & 1 == 0 { String::from_utf8_lossy(rest).into_owned() } else { id(rest) };
    if let Ok(id) = text.parse::<UniqueId>() {
        assert_eq!(id.to_string().parse().ok(), Some(id));
    }
    let Ok((place, interface)) = Place::parse(&text) else { return false };
    // The text of an id that is shown is its address.
    if interface.is_none() && !matches!(place, Place::Id(_)) {
        assert_eq!(Place::parse(&place.to_string()).ok(), Some((place, None)));
    }
    true
}

/// The text of an id with this content and a right checksum.
fn id(content: &[u8]) -> String {
    format!("antiphon1:{}{}", hex(content), hex(&spread(content)[..4]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::random;

    /// Any bytes, by a seed that failures show.
    fn noise(seed: u64) -> Vec<u8> {
        let blocks =
            (0..seed % 8).flat_map(|block| spread(&[seed, block].map(u64::to_le_bytes).concat()));
        blocks.skip(seed as usize % 32).collect()
    }

    #[test]
    fn noise_is_taken_by_no_parser_and_harms_none() {
        let first = u64::from_le_bytes(random().unwrap()[..8].try_into().unwrap()) >> 1;
        for seed in first..first + 2000 {
            println!("seed {seed}");
            let bytes = noise(seed);
            frames(&bytes);
            payloads(&bytes);
            handshake(&bytes);
            places(&bytes);
            launchers(&bytes);
        }
    }

    #[test]
    fn what_is_sound_comes_through() {
        // Two frames, of which the second is empty, and one of an unknown kind.
        let bytes = [&[1, 4][..], &[1, 3], b"abc", &[24, 0, 99, 1, 0]].concat();
        assert_eq!(frames(&bytes), 2);
        assert_eq!(frames(&[&[0, 0][..], &framed(&bytes[2..])].concat()), 2);
        // The key of a link, and a rank; a stretch of two parts.
        assert_eq!(payloads(&[7; 20]), 1);
        assert_eq!(payloads(&encode_words([0, 2, 1, 0, u32::MAX])[..17]), 1);
        assert!(places(b"\0ib0:[fd00::1]:80") && places(b"\0file:/a") && !places(b"\0a"));
        for (length, sound) in [(37, false), (38, true), (39, false), (50, true)] {
            assert_eq!(places(&vec![1; 1 + length]), sound, "{length} bytes of content");
        }
    }
}
