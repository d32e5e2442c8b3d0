//! What a proven peer says on the stripes of a link, in order or not.

use crate::tcp::protocol::frame::Frame;
use crate::tcp::protocol::{Part, Receiver, Regions};
use antiphon_hal::{Backend, HalError, Memory, MemoryHandle};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The memory that a peer may write to, with as much before and behind it that nobody may touch.
#[derive(Debug)]
struct Guarded(Vec<AtomicU64>);

const REGION: u64 = 7;
const WORDS: usize = 512;
const BYTES: u64 = WORDS as u64 * 8;
/// Signals go below, writes of whoever keeps the protocol above.
const COUNTERS: u64 = 256;
/// Every byte of a write of whoever keeps the protocol.
const FILLING: u8 = 0xa5;

impl Guarded {
    fn new() -> Self {
        Guarded((0..3 * WORDS).map(|_| AtomicU64::new(0)).collect())
    }

    fn word(&self, at: usize) -> u64 {
        self.0[WORDS + at].load(Ordering::Relaxed)
    }

    fn byte(&self, at: u64) -> u8 {
        self.word(at as usize / 8).to_ne_bytes()[at as usize % 8]
    }

    /// Whether a part lies inside.
    fn holds(&self, part: &Part) -> bool {
        let from = (part.start as usize).wrapping_sub(self.address() as usize) as u64;
        from.checked_add(part.bytes as u64).is_some_and(|end| end <= BYTES)
    }
}

// SAFETY: the words are the value's own, and atomics.
unsafe impl Memory for Guarded {
    fn backend(&self) -> Backend {
        Backend::Host
    }

    fn address(&self) -> *mut u8 {
        self.0[WORDS..2 * WORDS].as_ptr().cast_mut().cast()
    }

    fn len(&self) -> u64 {
        BYTES
    }

    fn id(&self) -> u64 {
        REGION
    }

    fn export(&self) -> Result<MemoryHandle, HalError> {
        Err(HalError::Unsupported { op: "export a memory of a fuzzer", backend: Backend::Host })
    }
}

/// What is said, and what must come of it where that is known.
#[derive(Debug, Default)]
struct Script {
    /// On the first stripe.
    said: Vec<u8>,
    /// Whether whoever speaks keeps the protocol.
    sound: bool,
    posts: u64,
    writes: Vec<(u64, u64)>,
    signals: Vec<(u64, u64)>,
    acknowledged: u64,
}

impl Script {
    /// Frames of six bytes each, with the bytes of writes where they are due.
    fn of(frames: &[u8], stripes: usize) -> Self {
        let mut script = Script { sound: true, ..Script::default() };
        let mut open = false;
        for &[kind, flags, stripe, length, page, offset] in frames.as_chunks().0 {
            let word = u64::from(page) << 8 | u64::from(offset);
            match kind % 6 {
                0..=2 => {
                    let (last, packets) = (flags & 1 != 0, flags & 2 != 0);
                    let stripe = u16::from(stripe) % (stripes as u16 + u16::from(flags & 4 != 0));
                    let bytes = u32::from(length) << (flags >> 6);
                    let to = COUNTERS + word % (BYTES - COUNTERS);
                    let inside = to + u64::from(bytes) <= BYTES;
                    let units =
                        !packets || (stripe == 0 && (to | u64::from(bytes)).is_multiple_of(8));
                    let some = usize::from(stripe) < stripes && (stripe == 0 || bytes > 0);
                    let frame = Frame::Write { stripe, last, packets, bytes, region: REGION, to };
                    frame.put(&mut script.said);
                    if !(inside && units && some) {
                        script.sound = false;
                        return script;
                    }
                    if stripe == 0 {
                        script.said.extend(vec![FILLING; bytes as usize]);
                    }
                    script.writes.push((to, to + u64::from(bytes)));
                    script.posts += u64::from(last);
                    open = !last;
                }
                // Never between the pieces of a write.
                3 if !open => {
                    let (to, value) = (word % COUNTERS, script.posts + 1);
                    Frame::Signal { region: REGION, to, value }.put(&mut script.said);
                    if !to.is_multiple_of(8) {
                        script.sound = false;
                        return script;
                    }
                    script.signals.push((to, value));
                    script.posts += 1;
                }
                4 => {
                    script.acknowledged = script.acknowledged.max(word);
                    Frame::Acknowledge { position: word }.put(&mut script.said);
                }
                5 => Frame::Ask { position: word }.put(&mut script.said),
                _ => {}
            }
        }
        script
    }

    /// What must have come of it where it was sound: every byte of a write, no other, and the last value of each signal.
    fn check(&self, memory: &Guarded) {
        let mut expected = [0; BYTES as usize];
        for &(from, to) in &self.writes {
            expected[from as usize..to as usize].fill(FILLING);
        }
        for at in COUNTERS..BYTES {
            assert_eq!(memory.byte(at), expected[at as usize], "byte {at} of {self:?}");
        }
        for at in (0..COUNTERS).step_by(8) {
            let last = self.signals.iter().rev().find(|(to, _)| *to == at);
            let value = last.map_or(0, |(_, value)| *value);
            assert_eq!(memory.word(at as usize / 8), value, "the signal at {at} of {self:?}");
        }
    }
}

/// What comes on the stripes of a link, in pieces of any length: nothing but the peer's region is touched, posts land one
/// after the other, and of a peer that keeps the protocol all that it posted is there in the end. Returns how many landed.
pub fn wire_traffic(bytes: &[u8]) -> u64 {
    let Some((&[how, piece], rest)) = bytes.split_first_chunk() else { return 0 };
    let stripes = 1 + usize::from(how & 3);
    let script = match how & 4 {
        0 => Script { said: rest.to_vec(), ..Script::default() },
        _ => Script::of(rest, stripes),
    };
    let memory = Arc::new(Guarded::new());
    let mut receiver = Receiver::new(stripes);
    let ended = deliver(&script, &memory, &mut receiver, stripes, usize::from(piece) + 1);
    let guards = memory.0[..WORDS].iter().chain(&memory.0[2 * WORDS..]);
    assert!(guards.into_iter().all(|word| word.load(Ordering::Relaxed) == 0), "{script:?}");
    if script.sound {
        assert!(ended, "not all was read of {script:?}");
        assert_eq!(receiver.landed(), script.posts, "{script:?}");
        assert_eq!(receiver.acknowledged(), script.acknowledged);
        script.check(&memory);
    }
    receiver.landed()
}

/// Regions as a peer names them.
#[derive(Debug)]
struct One(Arc<dyn Memory>);

impl Regions for One {
    fn find(&self, region: u64) -> Option<Arc<dyn Memory>> {
        (region == REGION).then(|| Arc::clone(&self.0))
    }
}

/// Brings what was said, until there is no more or a fault ends it; whether all of it came. On the other stripes comes
/// whatever is due there.
fn deliver(
    script: &Script,
    memory: &Arc<Guarded>,
    receiver: &mut Receiver,
    stripes: usize,
    piece: usize,
) -> bool {
    let regions = One(memory.clone());
    let (mut said, mut landed) = (&script.said[..], 0);
    loop {
        let mut some = false;
        // The last stripe first, so that signals wait now and then.
        for stripe in (0..stripes).rev() {
            let room = receiver.room(stripe);
            assert!(stripe == 0 || room.iter().all(|part| part.bytes == 0 || memory.holds(part)));
            let mut filled = 0;
            for part in room {
                let most = part.bytes.min(piece - filled);
                let source = if stripe == 0 { said } else { &[FILLING; 256] };
                let count = most.min(source.len());
                if count == 0 {
                    break;
                }
                // SAFETY: the receiver has named room for `part.bytes` bytes, in its buffer or in a memory that it
                // holds, and was not changed since; nobody else looks at it.
                unsafe { part.start.copy_from_nonoverlapping(source.as_ptr(), count) };
                filled += count;
                if stripe == 0 {
                    said = &said[count..];
                }
                if count < part.bytes {
                    break;
                }
            }
            if filled == 0 {
                continue;
            }
            some = true;
            if receiver.filled(stripe, filled, &regions).is_err() {
                return false;
            }
            assert!(receiver.landed() >= landed, "posts are taken back");
            landed = receiver.landed();
            if let Some(position) = receiver.answer() {
                assert_eq!(position, landed);
            }
        }
        if !some {
            return said.is_empty() && !receiver.expects_any() && !receiver.is_paused();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seeds that fuzzers begin with have to come somewhere; and any bytes harm nobody.
    #[test]
    fn what_is_sound_lands_and_what_is_not_ends_the_link() {
        // A write of two pieces on the second stripe, a signal behind it, a write of packets, an acknowledgement.
        let frames: [[u8; 6]; 5] = [
            [0, 0, 1, 200, 1, 3],
            [0, 1, 1, 9, 2, 0],
            [3, 0, 0, 0, 0, 16],
            [1, 3, 0, 64, 3, 8],
            [4, 0, 0, 0, 1, 2],
        ];
        for piece in [0, 1, 6, 255] {
            let sound = [&[1 | 4, piece][..], frames.as_flattened()].concat();
            assert_eq!(wire_traffic(&sound), 3, "in pieces of {}", piece + 1);
            // The same frames, said by somebody else: their bytes are the same, but not those on the second stripe.
            let said = Script::of(frames.as_flattened(), 2).said;
            assert_eq!(wire_traffic(&[&[1, piece][..], &said].concat()), 3);
            // To a stripe that is not there; behind the end; a counter that is not aligned.
            for bad in [[0, 5, 2, 9, 0, 0], [0, 65, 0, 255, 14, 255], [3, 0, 0, 0, 0, 17]] {
                let bytes = [&[1 | 4, piece][..], &frames[3], &bad, &frames[3]].concat();
                assert_eq!(wire_traffic(&bytes), 1, "{bad:?}");
            }
        }
        assert_eq!(wire_traffic(&[0, 9, 9, 9, 9, 9, 9, 9, 9, 9]), 0);
    }

    #[test]
    fn noise_harms_nobody() {
        let mut state = std::process::id() as u64 | 1;
        for round in 0..2000 {
            println!("round {round}, state {state}");
            let noise: Vec<u8> = (0..round % 90)
                .map(|_| {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    (state >> 32) as u8
                })
                .collect();
            wire_traffic(&noise);
            super::super::wire_handshake(&noise);
            super::super::wire_frame(&noise);
            super::super::wire_address(&noise);
        }
    }
}
