//! The sending half: posts become heads and ranges of memory, ready for `sendmsg`.

use super::frame::{Frame, LONGEST};
use super::{MOST_PIECE, Part};
use antiphon_hal::Memory;
use std::collections::VecDeque;
use std::sync::Arc;

/// Writes up to so many bytes are copied, so that they leave together with what follows.
const SMALL: u64 = 512;
/// Longer writes travel on the other stripes, where there are any.
const LARGE: u64 = 64 << 10;
/// Pieces of large writes: long enough that a system call for each costs nothing, short enough to spread.
const PIECE: u64 = 256 << 10;
/// No more posts are taken up while so many bytes of them wait on the first stripe.
const ENOUGH: u64 = 256 << 10;

/// A post that was checked.
#[derive(Debug)]
pub(crate) enum Post {
    Write { memory: Arc<dyn Memory>, from: u64, region: u64, to: u64, bytes: u64, packets: bool },
    Signal { region: u64, to: u64, value: u64 },
}

/// What will be sent next on a stripe.
#[derive(Debug)]
enum Segment {
    /// So many bytes of the stripe's own buffer.
    Staged(usize),
    /// A range of a posted memory.
    Direct { memory: Arc<dyn Memory>, from: u64, bytes: u64 },
}

#[derive(Debug, Default)]
struct Stripe {
    staged: Vec<u8>,
    /// Bytes of `staged` that are sent already.
    begin: usize,
    /// Bytes that were in front of `staged` and are gone.
    gone: u64,
    segments: VecDeque<Segment>,
    waiting: u64,
}

/// A write of several pieces that is being taken up.
#[derive(Debug)]
struct Cut {
    memory: Arc<dyn Memory>,
    from: u64,
    region: u64,
    to: u64,
    left: u64,
    packets: bool,
}

/// The sending half of a link.
#[derive(Debug)]
pub(crate) struct Sender {
    stripes: Vec<Stripe>,
    cut: Option<Cut>,
    begun: u64,
    /// Bytes of writes that were sent, but for those of small ones.
    carried: u64,
    /// Where among all bytes ever staged on the first stripe the last acknowledgement begins.
    acknowledgement: Option<u64>,
}

impl Sender {
    /// A sender over so many stripes, at least one.
    pub fn new(stripes: usize) -> Self {
        let stripes = (0..stripes.max(1)).map(|_| Stripe::default()).collect();
        Sender { stripes, cut: None, begun: 0, carried: 0, acknowledgement: None }
    }

    /// How many posts were taken up, from the first on.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// Bytes of writes that were sent, but for those of small ones.
    pub fn carried(&self) -> u64 {
        self.carried
    }

    /// Whether nothing that was taken up waits to be sent.
    pub fn is_idle(&self) -> bool {
        self.cut.is_none() && self.stripes.iter().all(|stripe| stripe.waiting == 0)
    }

    /// Bytes that wait on a stripe.
    pub fn waiting(&self, stripe: usize) -> u64 {
        self.stripes[stripe].waiting
    }

    /// Takes up posts from the front of `posts` while there is room for them; whether any, or any piece.
    pub fn take(&mut self, posts: &mut VecDeque<Post>) -> bool {
        let mut some = false;
        loop {
            if let Some(cut) = self.cut.take() {
                if let Some(rest) = self.piece(cut, &mut some) {
                    self.cut = Some(rest);
                    return some;
                }
                continue;
            }
            if self.stripes[0].waiting >= ENOUGH {
                return some;
            }
            let Some(post) = posts.pop_front() else { return some };
            some = true;
            match post {
                Post::Signal { region, to, value } => {
                    self.control(&Frame::Signal { region, to, value });
                    self.begun += 1;
                }
                Post::Write { memory, from, region, to, bytes, packets } => {
                    self.cut = Some(Cut { memory, from, region, to, left: bytes, packets });
                }
            }
        }
    }

    /// Puts a head on the first stripe.
    pub fn control(&mut self, frame: &Frame) {
        self.stripes[0].stage(|out| frame.put(out));
    }

    /// Says how many of the peer's posts have landed. An acknowledgement that no byte has left of says so instead of another:
    /// a peer that reads nothing shall not make them pile up.
    pub fn acknowledge(&mut self, position: u64) {
        let frame = Frame::Acknowledge { position };
        let stripe = &mut self.stripes[0];
        let unsent = self.acknowledgement.and_then(|begins| stripe.unsent(begins));
        match unsent {
            Some(place) => {
                let mut bytes = Vec::with_capacity(LONGEST);
                frame.put(&mut bytes);
                place[..bytes.len()].copy_from_slice(&bytes);
            }
            None => {
                self.acknowledgement = Some(stripe.gone + stripe.staged.len() as u64);
                self.control(&frame);
            }
        }
    }

    /// Sends pieces of a write while there is room; what is left of it.
    fn piece(&mut self, mut cut: Cut, some: &mut bool) -> Option<Cut> {
        let spread = cut.left > LARGE && !cut.packets && self.stripes.len() > 1;
        loop {
            let (stripe, most) = if spread {
                let free = (1..self.stripes.len()).find(|&at| self.stripes[at].waiting == 0);
                let Some(stripe) = free else { return Some(cut) };
                (stripe, PIECE)
            } else {
                if self.stripes[0].waiting >= ENOUGH {
                    return Some(cut);
                }
                (0, MOST_PIECE)
            };
            let bytes = cut.left.min(most);
            let last = bytes == cut.left;
            let Cut { region, to, packets, .. } = cut;
            let stripe_number = stripe as u16;
            self.control(&Frame::Write {
                stripe: stripe_number,
                last,
                packets,
                bytes: bytes as u32,
                region,
                to,
            });
            self.stripes[stripe].add(&cut.memory, cut.from, bytes);
            *some = true;
            if last {
                self.begun += 1;
                return None;
            }
            cut.from += bytes;
            cut.to += bytes;
            cut.left -= bytes;
        }
    }

    /// Where the next bytes to send on a stripe lie; how many of `parts` were filled.
    ///
    /// They stay valid until the next call that changes this sender: it holds the memories.
    pub fn gather(&mut self, stripe: usize, parts: &mut [Part]) -> usize {
        let Stripe { staged, begin, segments, .. } = &mut self.stripes[stripe];
        let mut at = *begin;
        let mut count = 0;
        for (part, segment) in parts.iter_mut().zip(segments.iter()) {
            *part = match segment {
                Segment::Staged(bytes) => {
                    at += bytes;
                    let start = staged.as_mut_ptr().wrapping_add(at - bytes);
                    Part { start, bytes: *bytes }
                }
                Segment::Direct { memory, from, bytes } => Part {
                    start: memory.address().wrapping_add(*from as usize),
                    bytes: *bytes as usize,
                },
            };
            count += 1;
        }
        count
    }

    /// So many of the bytes that [`gather`](Self::gather) showed were sent.
    pub fn sent(&mut self, stripe: usize, bytes: usize) {
        let stripe = &mut self.stripes[stripe];
        let mut left = bytes as u64;
        stripe.waiting = stripe.waiting.saturating_sub(left);
        while let Some(segment) = stripe.segments.front_mut() {
            let all = match segment {
                Segment::Staged(bytes) => *bytes as u64,
                Segment::Direct { bytes, .. } => *bytes,
            };
            let now = left.min(all);
            match segment {
                Segment::Staged(_) => stripe.begin += now as usize,
                Segment::Direct { .. } => self.carried += now,
            }
            left -= now;
            if now < all {
                match segment {
                    Segment::Staged(bytes) => *bytes -= now as usize,
                    Segment::Direct { from, bytes, .. } => {
                        *from += now;
                        *bytes -= now;
                    }
                }
                break;
            }
            stripe.segments.pop_front();
        }
        if stripe.segments.is_empty() || stripe.begin >= ENOUGH as usize {
            // All of it, where nothing waits.
            stripe.staged.drain(..stripe.begin);
            stripe.gone += stripe.begin as u64;
            stripe.begin = 0;
        }
    }
}

impl Stripe {
    /// What was staged from the so-many-th byte on, unless that has been sent.
    fn unsent(&mut self, from: u64) -> Option<&mut [u8]> {
        let at = usize::try_from(from.checked_sub(self.gone)?).ok()?;
        (at >= self.begin).then(|| self.staged.get_mut(at..)).flatten()
    }

    fn stage(&mut self, put: impl FnOnce(&mut Vec<u8>)) {
        let before = self.staged.len();
        put(&mut self.staged);
        let bytes = self.staged.len() - before;
        self.waiting += bytes as u64;
        match self.segments.back_mut() {
            Some(Segment::Staged(more)) => *more += bytes,
            _ => self.segments.push_back(Segment::Staged(bytes)),
        }
    }

    fn add(&mut self, memory: &Arc<dyn Memory>, from: u64, bytes: u64) {
        if bytes > SMALL {
            self.waiting += bytes;
            let memory = Arc::clone(memory);
            self.segments.push_back(Segment::Direct { memory, from, bytes });
        } else if bytes > 0 {
            let start = memory.address().wrapping_add(from as usize);
            self.stage(|out| {
                out.reserve(bytes as usize);
                let end = out.len();
                // SAFETY: the range lies in a memory that the caller holds (checked when it was posted), whose owner
                // keeps it as it is until the post completes; `out` has room for it, and is another allocation.
                unsafe {
                    out.as_mut_ptr().add(end).copy_from_nonoverlapping(start, bytes as usize);
                    out.set_len(end + bytes as usize);
                }
            });
        }
    }
}
