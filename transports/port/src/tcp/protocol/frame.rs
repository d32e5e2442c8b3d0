//! What travels on the first stripe: heads of 16 to 32 bytes, little endian.

use super::{Fault, MOST_PIECE};

const WRITE: u8 = 1;
const SIGNAL: u8 = 2;
const ACKNOWLEDGE: u8 = 3;
const ASK: u8 = 4;

const LAST: u8 = 1;
const PACKETS: u8 = 2;

/// The longest head.
pub(crate) const LONGEST: usize = 32;

/// One head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A write, or a piece of one.
    Write {
        /// Where its bytes travel; on the first stripe (0) they follow at once.
        stripe: u16,
        /// No piece of the same write follows.
        last: bool,
        /// Every 8 bytes appear at once.
        packets: bool,
        bytes: u32,
        region: u64,
        to: u64,
    },
    /// A signal.
    Signal { region: u64, to: u64, value: u64 },
    /// So many of the posts that came have landed.
    Acknowledge { position: u64 },
    /// Tell as soon as so many have.
    Ask { position: u64 },
}

impl Frame {
    /// Appends the head to what will be sent.
    pub fn put(&self, out: &mut Vec<u8>) {
        let head = |kind: u8, flags: u8, stripe: u16, bytes: u32| {
            let [s0, s1] = stripe.to_le_bytes();
            let [b0, b1, b2, b3] = bytes.to_le_bytes();
            [kind, flags, s0, s1, b0, b1, b2, b3]
        };
        let (head, words) = match *self {
            Frame::Write { stripe, last, packets, bytes, region, to } => {
                let flags = if last { LAST } else { 0 } | if packets { PACKETS } else { 0 };
                (head(WRITE, flags, stripe, bytes), [Some(region), Some(to), None])
            }
            Frame::Signal { region, to, value } => {
                (head(SIGNAL, LAST, 0, 0), [Some(region), Some(to), Some(value)])
            }
            Frame::Acknowledge { position } => {
                (head(ACKNOWLEDGE, 0, 0, 0), [Some(position), None, None])
            }
            Frame::Ask { position } => (head(ASK, 0, 0, 0), [Some(position), None, None]),
        };
        out.extend_from_slice(&head);
        for word in words.into_iter().flatten() {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }

    /// The head at the beginning of `bytes` and its length; `None` if there is too little of it yet.
    pub fn take(bytes: &[u8]) -> Result<Option<(Self, usize)>, Fault> {
        let Some((head, rest)) = bytes.split_first_chunk::<8>() else { return Ok(None) };
        let [kind, flags, s0, s1, b0, b1, b2, b3] = *head;
        let (stripe, bytes) = (u16::from_le_bytes([s0, s1]), u32::from_le_bytes([b0, b1, b2, b3]));
        let words = match kind {
            WRITE => 2,
            SIGNAL => 3,
            ACKNOWLEDGE | ASK => 1,
            other => return Err(Fault::new("a frame", format!("kind {other}"), "1 to 4")),
        };
        if rest.len() < words * 8 {
            return Ok(None);
        }
        let mut rest = rest.chunks_exact(8);
        let mut word = || {
            let bytes = rest.next().and_then(|bytes| bytes.try_into().ok());
            u64::from_le_bytes(bytes.unwrap_or_default())
        };
        let frame = match kind {
            WRITE if u64::from(bytes) > MOST_PIECE => {
                return Err(Fault::new("a write's bytes", bytes, MOST_PIECE));
            }
            WRITE => Frame::Write {
                stripe,
                last: flags & LAST != 0,
                packets: flags & PACKETS != 0,
                bytes,
                region: word(),
                to: word(),
            },
            SIGNAL => Frame::Signal { region: word(), to: word(), value: word() },
            ACKNOWLEDGE => Frame::Acknowledge { position: word() },
            _ => Frame::Ask { position: word() },
        };
        Ok(Some((frame, 8 + words * 8)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn examples() -> Vec<Frame> {
        let write = |stripe, last, packets, bytes| Frame::Write {
            stripe,
            last,
            packets,
            bytes,
            region: 0x0102_0304_0506_0708,
            to: u64::MAX - 1,
        };
        vec![
            write(0, false, false, 0),
            write(u16::MAX, true, false, 1),
            write(3, false, true, MOST_PIECE as u32),
            Frame::Signal { region: 1, to: 2, value: u64::MAX },
            Frame::Acknowledge { position: 1 << 60 },
            Frame::Ask { position: 0 },
        ]
    }

    #[test]
    fn frames_round_trip_and_wait_for_all_of_their_bytes() {
        for frame in examples() {
            let mut bytes = Vec::new();
            frame.put(&mut bytes);
            assert!(bytes.len() <= LONGEST);
            for some in 0..bytes.len() {
                assert_eq!(Frame::take(&bytes[..some]).unwrap(), None, "{frame:?}, {some} bytes");
            }
            assert_eq!(Frame::take(&bytes).unwrap(), Some((frame, bytes.len())));
            bytes.extend([7; 9]);
            assert_eq!(Frame::take(&bytes).unwrap(), Some((frame, bytes.len() - 9)));
        }
    }

    #[test]
    fn unknown_kinds_and_absurd_lengths_are_faults() {
        for kind in [0, 5, 255] {
            let fault = Frame::take(&[kind, 0, 0, 0, 0, 0, 0, 0]).unwrap_err().to_string();
            assert!(fault.contains(&format!("kind {kind}")), "{fault}");
        }
        let mut bytes = Vec::new();
        let frame = Frame::Write {
            stripe: 0,
            last: true,
            packets: false,
            bytes: MOST_PIECE as u32 + 1,
            region: 0,
            to: 0,
        };
        frame.put(&mut bytes);
        assert!(Frame::take(&bytes).unwrap_err().to_string().contains("1048577"));
    }
}
