//! The receiving half: bytes of the stripes become stores to registered memory.

use super::frame::{Frame, LONGEST};
use super::{Fault, Part};
use antiphon_hal::Memory;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is read at once where no bytes of a write are due: heads, small writes, and the beginning of a longer one.
const BUFFER: usize = 16 << 10;
/// What is read behind the bytes of a write that go straight to their place: the next heads.
const BEHIND: usize = 8 * LONGEST;
/// The most pieces, and signals, that wait for other stripes. Frames behind them are read later.
const MOST_WAITING: usize = 1024;

/// The memory that a peer may write to.
pub(crate) trait Regions: fmt::Debug {
    /// The memory of a region.
    fn find(&self, region: u64) -> Option<Arc<dyn Memory>>;
}

/// Bytes that are due, and their place.
#[derive(Debug)]
struct Piece {
    memory: Arc<dyn Memory>,
    to: u64,
    left: u64,
    packets: bool,
    last: bool,
    /// Which post it belongs to, counted from 1.
    post: u64,
}

impl Piece {
    fn place(&self) -> Part {
        let start = self.memory.address().wrapping_add(self.to as usize);
        Part { start, bytes: self.left as usize }
    }

    fn advance(&mut self, bytes: u64) {
        self.to += bytes;
        self.left -= bytes;
    }

    /// Stores the first of `bytes`, whole units of packets; how many.
    fn store(&mut self, bytes: &[u8]) -> usize {
        let most = bytes.len().min(self.left as usize);
        let place = self.place().start;
        let some = if self.packets {
            let (units, _) = bytes[..most].as_chunks::<8>();
            for (at, unit) in units.iter().enumerate() {
                // SAFETY: an aligned unit inside the memory (both checked when the frame came), which `self` holds;
                // whoever looks at packets does so by atomics.
                let cell = unsafe { &*place.cast::<AtomicU64>().add(at) };
                cell.store(u64::from_ne_bytes(*unit), Ordering::Relaxed);
            }
            units.len() * 8
        } else {
            // SAFETY: the range lies inside the memory, which `self` holds; a plan reads it after the signal only, and who
            // looks at launch descriptors before does so by atomics, and knows mixtures by their checksum.
            unsafe { place.copy_from_nonoverlapping(bytes.as_ptr(), most) };
            most
        };
        self.advance(some as u64);
        some
    }
}

/// A signal that waits for pieces on other stripes.
#[derive(Debug)]
struct Waiting {
    memory: Arc<dyn Memory>,
    to: u64,
    value: u64,
    post: u64,
}

fn set(memory: &Arc<dyn Memory>, to: u64, value: u64) {
    let counter = memory.address().wrapping_add(to as usize).cast::<AtomicU64>();
    // SAFETY: an aligned counter inside the memory (both checked when the frame came), which the caller holds; counters
    // are shared through atomics.
    unsafe { &*counter }.store(value, Ordering::Release);
}

/// The receiving half of a link.
#[derive(Debug)]
pub(crate) struct Receiver {
    buffer: Box<[u8]>,
    /// The bytes of `buffer` that are not read yet.
    begin: usize,
    end: usize,
    /// The write whose bytes are due on the first stripe.
    body: Option<Piece>,
    /// What is due on the others; the first one's list stays empty.
    due: Vec<VecDeque<Piece>>,
    pieces: usize,
    signals: VecDeque<Waiting>,
    /// Posts whose frames have all come, with bytes on the first stripe.
    come: u64,
    /// Bytes of writes that have come.
    carried: u64,
    /// The first position that the peer wants to hear of and has not, and the last.
    asked: Option<(u64, u64)>,
    acknowledged: u64,
}

impl Receiver {
    /// A receiver over so many stripes.
    pub fn new(stripes: usize) -> Self {
        Receiver {
            buffer: vec![0; BUFFER].into(),
            begin: 0,
            end: 0,
            body: None,
            due: (0..stripes.max(1)).map(|_| VecDeque::new()).collect(),
            pieces: 0,
            signals: VecDeque::new(),
            come: 0,
            carried: 0,
            asked: None,
            acknowledged: 0,
        }
    }

    /// Where the next bytes of a stripe belong; no parts if none may be read from it now.
    ///
    /// The parts stay valid until the next call that changes this receiver: it holds the memories.
    pub fn room(&mut self, stripe: usize) -> [Part; 2] {
        if stripe > 0 {
            let mut due = self.due[stripe].iter().map(Piece::place);
            return [(); 2].map(|()| due.next().unwrap_or(Part::NONE));
        }
        if self.is_paused() {
            return [Part::NONE; 2];
        }
        if self.begin > 0 {
            self.buffer.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
        }
        let free = &mut self.buffer[self.end..];
        let direct = self.body.as_ref().filter(|body| !body.packets).map(Piece::place);
        let behind = direct.map_or(free.len(), |_| free.len().min(BEHIND));
        let buffer = Part { start: free.as_mut_ptr(), bytes: behind };
        direct.map_or([buffer, Part::NONE], |direct| [direct, buffer])
    }

    /// Whether bytes are due on a stripe other than the first.
    pub fn expects(&self, stripe: usize) -> bool {
        !self.due[stripe].is_empty()
    }

    /// Whether bytes are due on any stripe other than the first.
    pub fn expects_any(&self) -> bool {
        self.pieces > 0
    }

    /// So many bytes of a stripe were put where [`room`](Self::room) said, in that order.
    pub fn filled(
        &mut self,
        stripe: usize,
        bytes: usize,
        regions: &dyn Regions,
    ) -> Result<(), Fault> {
        let mut left = bytes as u64;
        if stripe > 0 {
            while let Some(piece) = self.due[stripe].front_mut() {
                let now = left.min(piece.left);
                piece.advance(now);
                self.carried += now;
                left -= now;
                if piece.left > 0 {
                    break;
                }
                self.due[stripe].pop_front();
                self.pieces -= 1;
            }
            self.release_signals();
        } else {
            if let Some(body) = self.body.as_mut().filter(|body| !body.packets) {
                let now = left.min(body.left);
                body.advance(now);
                self.carried += now;
                left -= now;
            }
            self.end += left as usize;
        }
        self.read(regions)
    }

    /// How many posts have landed, from the first on.
    pub fn landed(&self) -> u64 {
        let pieces = self.due.iter().filter_map(VecDeque::front).map(|piece| piece.post);
        let waiting = pieces.chain(self.signals.front().map(|signal| signal.post)).min();
        waiting.map_or(self.come, |first| first - 1)
    }

    /// Bytes of writes that have come.
    pub fn carried(&self) -> u64 {
        self.carried
    }

    /// What the peer said of this rank's own posts: how many have landed.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// The position to tell the peer, if it wants to know by now.
    pub fn answer(&mut self) -> Option<u64> {
        let (first, last) = self.asked?;
        let landed = self.landed();
        if landed < first {
            return None;
        }
        self.asked = (last > landed).then_some((last, last));
        Some(landed)
    }

    /// Whether the first stripe is not read until the others have caught up.
    pub fn is_paused(&self) -> bool {
        self.pieces >= MOST_WAITING || self.signals.len() >= MOST_WAITING
    }

    fn release_signals(&mut self) {
        while let Some(signal) = self.signals.front() {
            let earlier = |due: &VecDeque<Piece>| due.front().is_some_and(|p| p.post < signal.post);
            if self.due.iter().any(earlier) {
                return;
            }
            set(&signal.memory, signal.to, signal.value);
            self.signals.pop_front();
        }
    }

    /// Acts on what is in the buffer.
    fn read(&mut self, regions: &dyn Regions) -> Result<(), Fault> {
        loop {
            if let Some(body) = &mut self.body {
                let stored = body.store(&self.buffer[self.begin..self.end]);
                self.begin += stored;
                self.carried += stored as u64;
                if body.left > 0 {
                    return Ok(());
                }
                self.come += u64::from(body.last);
                self.body = None;
            }
            if self.is_paused() {
                return Ok(());
            }
            let Some((frame, bytes)) = Frame::take(&self.buffer[self.begin..self.end])? else {
                return Ok(());
            };
            self.begin += bytes;
            self.act(&frame, regions)?;
        }
    }

    fn act(&mut self, frame: &Frame, regions: &dyn Regions) -> Result<(), Fault> {
        match *frame {
            Frame::Write { stripe, last, packets, bytes, region, to } => {
                let left = u64::from(bytes);
                let memory = inside(regions, "a write", region, to, left)?;
                let units = if packets { to | left } else { 0 };
                if !units.is_multiple_of(8) || (packets && stripe > 0) {
                    let saw = format!("{left} bytes of packets at {to} on stripe {stripe}");
                    return Err(Fault::new("a write", saw, "multiples of 8 on stripe 0"));
                }
                let piece = Piece { memory, to, left, packets, last, post: self.come + 1 };
                if stripe == 0 {
                    self.body = Some(piece);
                    return Ok(());
                }
                let stripes = self.due.len();
                let Some(due) = self.due.get_mut(usize::from(stripe)).filter(|_| left > 0) else {
                    let saw = format!("{left} bytes on stripe {stripe}");
                    return Err(Fault::new("a write", saw, format!("some on {stripes} stripes")));
                };
                due.push_back(piece);
                self.pieces += 1;
                self.come += u64::from(last);
            }
            Frame::Signal { region, to, value } => {
                let memory = inside(regions, "a signal", region, to, 8)?;
                if !to.is_multiple_of(8) {
                    return Err(Fault::new("a signal", format!("offset {to}"), "multiples of 8"));
                }
                self.come += 1;
                if self.pieces == 0 && self.signals.is_empty() {
                    set(&memory, to, value);
                } else {
                    self.signals.push_back(Waiting { memory, to, value, post: self.come });
                }
            }
            Frame::Acknowledge { position } => {
                self.acknowledged = self.acknowledged.max(position);
            }
            Frame::Ask { position } => {
                let first = self.asked.map_or(position, |(first, _)| first);
                self.asked = Some((first, position));
            }
        }
        Ok(())
    }
}

/// The memory of a region, if a range lies inside.
fn inside(
    regions: &dyn Regions,
    what: &str,
    region: u64,
    to: u64,
    bytes: u64,
) -> Result<Arc<dyn Memory>, Fault> {
    let Some(memory) = regions.find(region) else {
        return Err(Fault::new(what, format!("region {region}"), "regions that are registered"));
    };
    if to.checked_add(bytes).is_none_or(|end| end > memory.len()) {
        let saw = format!("{bytes} bytes at offset {to} of region {region}");
        return Err(Fault::new(what, saw, format!("{} bytes", memory.len())));
    }
    Ok(memory)
}
