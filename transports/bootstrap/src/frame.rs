//! The unit that travels between ranks: a fixed header, a payload, descriptors.
//!
//! The header opens with the magic and the version, so that a stranger is told apart by its first bytes and another
//! build by its next ones. [`Inbound`] turns a stream of bytes (and the descriptors that came along) back into
//! frames; it never allocates more than has arrived, whatever length a header claims.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Longest payload of one message or one rank's part of an exchange, in bytes.
pub const MAX_PAYLOAD: usize = 64 << 20;
/// Most descriptors that one message carries (the kernel takes 253 in one call).
pub const MAX_DESCRIPTORS: usize = 64;

/// Version of the protocol. A job runs one version only.
pub(crate) const VERSION: u16 = 2;
/// What every connection of this protocol begins with.
pub(crate) const MAGIC: [u8; 8] = *b"ANTIPHON";
/// Longest payload of a frame: the longest part, and what says where it belongs.
pub(crate) const MAX_BODY: usize = MAX_PAYLOAD + 64;
/// Bytes of a header.
pub(crate) const HEADER: usize = 40;

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Kind {
    /// An application's message: `stream` is the channel, `tag` the tag.
    Message = 1,
    /// One rank's part of a collective: `stream` is the sequence number, `tag` the operation.
    Part = 2,
    /// The group is aborted; the payload is the reason. `stream` is 0, or one more than the only rank that is to hear it.
    Abort = 3,
    /// The sender leaves in good order.
    Bye = 4,
    /// A stretch of a collective's result, from its gatherer: `stream` is the sequence number.
    Result = 5,
    /// The gatherer's word that ranks called different operations as one collective.
    Mismatch = 6,
    /// A question to a collective's gatherer: who has taken part? The payload may name a rank that is gone.
    Ask = 7,
    /// The gatherer's answer.
    Answer = 8,
    /// Ranks that are gone, from the rank that watches all.
    News = 9,
    /// An abort on its way by the rank that watches all: `tag` is who aborted, `stream` as above.
    AbortBy = 10,
    /// The sender has let go of the group, and goes on with others; or the rank whose number is one less than `tag` has, by the word
    /// of the group's gatherer.
    Leave = 11,
    /// Forming: a rank presents itself to rank 0.
    Join = 16,
    /// Forming: the ranks that rank 0 has seen; over TCP a rank's word to rank 0 that its time is up, with its limit.
    Roster = 17,
    /// Forming: everyone's address, from rank 0.
    Table = 18,
    /// Forming: the job cannot form; the payload is the reason.
    Reject = 19,
    /// Forming: a lower rank opens its link to a higher one.
    Link = 20,
    /// Forming: the higher rank's answer.
    Welcome = 21,
    /// Forming: the lower rank's proof, which completes a link.
    Proof = 22,
    /// Forming: all links of the sender are complete.
    Ready = 23,
    /// Forming: all links of all ranks are complete.
    Go = 24,
    /// Forming over TCP: where rank 0 listens, from the process that made the id; empty as long as it has not come.
    Way = 25,
}

impl Kind {
    const ALL: [Kind; 21] = [
        Kind::Message,
        Kind::Part,
        Kind::Abort,
        Kind::Bye,
        Kind::Result,
        Kind::Mismatch,
        Kind::Ask,
        Kind::Answer,
        Kind::News,
        Kind::AbortBy,
        Kind::Leave,
        Kind::Join,
        Kind::Roster,
        Kind::Table,
        Kind::Reject,
        Kind::Link,
        Kind::Welcome,
        Kind::Proof,
        Kind::Ready,
        Kind::Go,
        Kind::Way,
    ];

    fn from_code(code: u16) -> Option<Kind> {
        Kind::ALL.into_iter().find(|&kind| kind as u16 == code)
    }
}

/// One frame.
#[derive(Debug)]
pub(crate) struct Frame {
    pub kind: Kind,
    pub tag: u32,
    /// Wire id of the group that the frame concerns.
    pub group: u64,
    /// Channel or sequence number, by `kind`.
    pub stream: u64,
    pub payload: Arc<Vec<u8>>,
    pub descriptors: Vec<OwnedFd>,
}

impl Frame {
    /// A frame that carries bytes alone and concerns the whole job.
    pub fn plain(kind: Kind, payload: Vec<u8>) -> Frame {
        let (tag, group, stream) = (0, 0, 0);
        Frame { kind, tag, group, stream, payload: Arc::new(payload), descriptors: Vec::new() }
    }

    /// The same bytes for another receiver; descriptors do not go along.
    pub fn share(&self) -> Frame {
        let (kind, tag, group, stream) = (self.kind, self.tag, self.group, self.stream);
        Frame { kind, tag, group, stream, payload: self.payload.clone(), descriptors: Vec::new() }
    }

    /// Whether a rank is to hear of an abort.
    pub fn is_for(&self, rank: u32) -> bool {
        self.stream == 0 || self.stream == u64::from(rank) + 1
    }

    /// The header bytes. The caller has bounded payload and descriptors.
    pub fn header(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10..12].copy_from_slice(&(self.kind as u16).to_le_bytes());
        bytes[12..16].copy_from_slice(&self.tag.to_le_bytes());
        bytes[16..20].copy_from_slice(&(self.payload.len() as u32).to_le_bytes());
        bytes[20..24].copy_from_slice(&(self.descriptors.len() as u32).to_le_bytes());
        bytes[24..32].copy_from_slice(&self.group.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.stream.to_le_bytes());
        bytes
    }
}

/// Why a stream of bytes is not a stream of frames.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("bytes that do not begin a frame ({0:02x?})")]
    Magic(Vec<u8>),
    #[error("protocol version {0}, where {VERSION} is spoken")]
    Version(u16),
    #[error("a frame of the unknown kind {0}")]
    Kind(u16),
    #[error("a frame of {0} bytes, where {MAX_BODY} are allowed")]
    Length(u32),
    #[error("a frame with {0} descriptors, where {MAX_DESCRIPTORS} are allowed")]
    Descriptors(u32),
    #[error("a frame that promises {promised} descriptors, of which {arrived} arrived")]
    Missing { promised: usize, arrived: usize },
}

/// Bytes that are kept for what arrives next.
const KEPT: usize = 1 << 20;

/// What has arrived on one link and is not yet a whole frame.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    bytes: Vec<u8>,
    taken: usize,
    descriptors: VecDeque<OwnedFd>,
}

impl Inbound {
    /// Adds bytes and descriptors in the order of their arrival.
    pub fn feed(&mut self, bytes: &[u8], descriptors: impl IntoIterator<Item = OwnedFd>) {
        if self.taken > 0 && self.taken == self.bytes.len() {
            self.bytes.clear();
            // Nobody needs again what one large exchange took.
            self.bytes.shrink_to(KEPT);
            self.taken = 0;
        }
        self.bytes.extend_from_slice(bytes);
        self.descriptors.extend(descriptors);
    }

    /// Takes the next whole frame; `None` until more bytes arrive. An error is final: the stream has lost its frame
    /// boundaries.
    pub fn next(&mut self) -> Result<Option<Frame>, FrameError> {
        let rest = &self.bytes[self.taken..];
        let seen = rest.len().min(MAGIC.len());
        if rest[..seen] != MAGIC[..seen] {
            return Err(FrameError::Magic(rest[..seen].to_vec()));
        }
        let Some((header, body)) = rest.split_first_chunk::<HEADER>() else {
            return self.wait();
        };
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| header[at + byte]));
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| header[at + byte]));
        let (version, kind) = (word(8) as u16, (word(8) >> 16) as u16);
        if version != VERSION {
            return Err(FrameError::Version(version));
        }
        let kind = Kind::from_code(kind).ok_or(FrameError::Kind(kind))?;
        let (length, promised) = (word(16), word(20));
        if length as usize > MAX_BODY {
            return Err(FrameError::Length(length));
        }
        if promised as usize > MAX_DESCRIPTORS {
            return Err(FrameError::Descriptors(promised));
        }
        let (length, promised) = (length as usize, promised as usize);
        let Some(payload) = body.get(..length) else { return self.wait() };
        // Descriptors travel with the first byte of their frame, so they precede its last one.
        let arrived = self.descriptors.len();
        if arrived < promised {
            return Err(FrameError::Missing { promised, arrived });
        }
        let frame = Frame {
            kind,
            tag: word(12),
            group: long(24),
            stream: long(32),
            payload: Arc::new(payload.to_vec()),
            descriptors: self.descriptors.drain(..promised).collect(),
        };
        self.taken += HEADER + length;
        Ok(Some(frame))
    }

    fn wait(&mut self) -> Result<Option<Frame>, FrameError> {
        // Dropping the consumed front once per incomplete frame keeps the copying linear.
        self.bytes.drain(..self.taken);
        self.taken = 0;
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(frame: &Frame) -> Vec<u8> {
        [&frame.header()[..], &frame.payload].concat()
    }

    fn sample(length: usize) -> Frame {
        let payload = Arc::new((0..length).map(|at| at as u8).collect());
        let (tag, group, stream) = (7, u64::MAX - 1, 1 << 40);
        Frame { kind: Kind::Message, tag, group, stream, payload, descriptors: Vec::new() }
    }

    #[test]
    fn frames_survive_any_cut() {
        let lengths = [0usize, 1, 39, 40, 41, 1000];
        let stream: Vec<u8> = lengths.iter().flat_map(|&n| encode(&sample(n))).collect();
        for cut in [1, 2, 7, 40, 41, 333, stream.len()] {
            let mut inbound = Inbound::default();
            let mut seen = Vec::new();
            for piece in stream.chunks(cut) {
                inbound.feed(piece, []);
                while let Some(frame) = inbound.next().unwrap() {
                    assert_eq!(
                        (frame.kind, frame.tag, frame.group, frame.stream),
                        (Kind::Message, 7, u64::MAX - 1, 1 << 40)
                    );
                    assert_eq!(frame.payload, sample(frame.payload.len()).payload);
                    seen.push(frame.payload.len());
                }
            }
            assert_eq!(seen, lengths, "cut {cut}");
        }
    }

    #[test]
    fn every_field_of_the_header_is_checked() {
        let good = encode(&sample(3));
        let patched = |at: usize, bytes: &[u8]| {
            let mut bad = good.clone();
            bad[at..at + bytes.len()].copy_from_slice(bytes);
            let mut inbound = Inbound::default();
            inbound.feed(&bad, []);
            inbound.next().unwrap_err()
        };
        assert!(matches!(patched(0, b"GET / HT"), FrameError::Magic(_)));
        assert_eq!(patched(8, &[9, 0]), FrameError::Version(9));
        assert_eq!(patched(10, &[99, 1]), FrameError::Kind(355));
        assert_eq!(patched(16, &[255; 4]), FrameError::Length(u32::MAX));
        assert_eq!(patched(20, &[65, 0, 0, 0]), FrameError::Descriptors(65));
        assert_eq!(patched(20, &[2, 0, 0, 0]), FrameError::Missing { promised: 2, arrived: 0 });
    }

    #[test]
    fn a_stranger_is_known_by_its_first_wrong_byte() {
        let mut inbound = Inbound::default();
        inbound.feed(b"ANTx", []);
        assert_eq!(inbound.next().unwrap_err(), FrameError::Magic(b"ANTx".to_vec()));
    }
}
