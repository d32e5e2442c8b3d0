//! How posts become parcels, and what is known of those under way: one rank's side of a staged link, without I/O.
//!
//! Parcels are numbered from 0 and take [`SLOTS`] slots in turn. The sender counts what it has written, and the receiver what
//! has landed in its device's memory; a slot is filled again once that count has come back.

use std::collections::VecDeque;

/// Bytes of device memory that a parcel holds.
pub const PAYLOAD: u64 = 256 << 10;
/// Parcels under way at once, each way.
pub const SLOTS: u64 = 8;
/// Bytes of a header, a line.
pub const HEADER: u64 = 64;
/// Posts that wait or are under way at once.
const MOST: usize = 64;

/// Byte offset of the count of parcels that the peer has written here, in the memory that both write.
pub const ARRIVED: u64 = 0;
/// Byte offset of the count of this rank's parcels that have landed at the peer's.
pub const LANDED: u64 = HEADER;
/// Bytes of that memory.
pub const BYTES: u64 = incoming(0) + SLOTS * (HEADER + PAYLOAD);

/// Where this rank fills a parcel.
pub const fn outgoing(number: u64) -> u64 {
    2 * HEADER + (number % SLOTS) * (HEADER + PAYLOAD)
}

/// Where the peer writes one.
pub const fn incoming(number: u64) -> u64 {
    2 * HEADER + SLOTS * (HEADER + PAYLOAD) + (number % SLOTS) * (HEADER + PAYLOAD)
}

/// A place at the receiver's: a region and an offset there, or an address of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The region, or `FOREIGN`.
    pub region: u64,
    /// Bytes from its start, or the address.
    pub offset: u64,
}

/// What a parcel is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Its payload's first bytes go to the place.
    Bytes(u64),
    /// The word there becomes this, after all before.
    Value(u64),
}

/// What stands before a parcel's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The parcel's number.
    pub number: u64,
    /// Where it goes.
    pub to: Place,
    /// What it is for.
    pub load: Load,
}

impl Header {
    /// As words.
    pub fn words(&self) -> [u64; 8] {
        let (kind, load) = match self.load {
            Load::Bytes(bytes) => (1, bytes),
            Load::Value(value) => (2, value),
        };
        [self.number + 1, kind, self.to.region, self.to.offset, load, 0, 0, 0]
    }

    /// The header of parcel `number`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(words: [u64; 8], number: u64) -> Result<Self, String> {
        let [first, kind, region, offset, load, ..] = words;
        let load = match kind {
            1 if load <= PAYLOAD => Load::Bytes(load),
            2 => Load::Value(load),
            _ => return Err(format!("a parcel of kind {kind} with {load} bytes")),
        };
        if first != number + 1 {
            return Err(format!("parcel {}, where {number} comes next", first.wrapping_sub(1)));
        }
        Ok(Header { number, to: Place { region, offset }, load })
    }

    /// Bytes of the parcel.
    pub fn bytes(&self) -> u64 {
        match self.load {
            Load::Bytes(bytes) => HEADER + bytes,
            Load::Value(_) => HEADER,
        }
    }
}

/// What is to go to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Post {
    /// Bytes of device memory.
    Bytes {
        /// Their address here.
        from: u64,
        /// Where they go.
        to: Place,
        /// How many.
        bytes: u64,
    },
    /// A word.
    Value {
        /// Where it goes.
        to: Place,
        /// What it becomes.
        value: u64,
    },
}

/// A parcel to be filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parcel {
    /// Its header.
    pub header: Header,
    /// Where its payload is, of bytes.
    pub from: u64,
}

/// A sender's posts, and its parcels under way.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Posts of which something is not yet in a parcel.
    waiting: VecDeque<Post>,
    /// Of those that are: the number of parcels when they were.
    under_way: VecDeque<u64>,
    cut: u64,
    landed: u64,
    /// Posts so far, and those that have landed.
    pub posted: u64,
    /// As above.
    pub done: u64,
}

impl Outbox {
    /// Takes a post, unless too many wait.
    pub fn post(&mut self, post: Post) -> bool {
        let takes = self.waiting.len() + self.under_way.len() < MOST;
        if takes {
            self.waiting.push_back(post);
            self.posted += 1;
        }
        takes
    }

    /// The next parcel, where a slot is free for it.
    pub fn cut(&mut self) -> Option<Parcel> {
        if self.cut - self.landed >= SLOTS {
            return None;
        }
        let number = self.cut;
        let first = self.waiting.front_mut()?;
        let (parcel, whole) = match first {
            Post::Value { to, value } => {
                let header = Header { number, to: *to, load: Load::Value(*value) };
                (Parcel { header, from: 0 }, true)
            }
            Post::Bytes { from, to, bytes } => {
                let part = (*bytes).min(PAYLOAD);
                let header = Header { number, to: *to, load: Load::Bytes(part) };
                let parcel = Parcel { header, from: *from };
                *from = from.wrapping_add(part);
                to.offset = to.offset.wrapping_add(part);
                *bytes -= part;
                (parcel, *bytes == 0)
            }
        };
        self.cut += 1;
        if whole {
            self.waiting.pop_front();
            self.under_way.push_back(self.cut);
        }
        Some(parcel)
    }

    /// Notes that so many parcels have landed, of `written`; whether that is news.
    ///
    /// # Errors
    /// Of a count that cannot be.
    pub fn land(&mut self, landed: u64, written: u64) -> Result<bool, String> {
        if landed > written || landed < self.landed {
            let known = self.landed;
            return Err(format!(
                "{landed} parcels landed, of {known} before and {written} written"
            ));
        }
        let news = landed > self.landed;
        self.landed = landed;
        while self.under_way.front().is_some_and(|&end| end <= landed) {
            self.under_way.pop_front();
            self.done += 1;
        }
        Ok(news)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(offset: u64) -> Place {
        Place { region: 7, offset }
    }

    #[test]
    fn headers_are_read_as_they_were_written_and_others_are_refused() {
        for load in [Load::Bytes(0), Load::Bytes(PAYLOAD), Load::Value(u64::MAX)] {
            let header = Header { number: 5, to: place(64), load };
            assert_eq!(Header::parse(header.words(), 5), Ok(header));
            assert!(Header::parse(header.words(), 6).is_err());
        }
        let long = Header { number: 0, to: place(0), load: Load::Bytes(PAYLOAD + 1) };
        assert!(Header::parse(long.words(), 0).is_err());
        assert!(Header::parse([0; 8], 0).is_err());
    }

    #[test]
    fn slots_do_not_overlap() {
        let mut starts: Vec<u64> = (0..SLOTS).flat_map(|n| [outgoing(n), incoming(n)]).collect();
        starts.extend([ARRIVED, LANDED, BYTES]);
        starts.sort_unstable();
        assert!(starts[1..].windows(2).skip(1).all(|two| two[1] - two[0] >= HEADER + PAYLOAD));
        assert_eq!(outgoing(SLOTS), outgoing(0));
    }

    #[test]
    fn a_post_is_cut_to_parcels_that_follow_each_other_and_is_done_with_the_last() {
        let mut outbox = Outbox::default();
        let bytes = PAYLOAD * 2 + 24;
        assert!(outbox.post(Post::Bytes { from: 1 << 20, to: place(8), bytes }));
        assert!(outbox.post(Post::Value { to: place(0), value: 3 }));
        let parcels: Vec<Parcel> = std::iter::from_fn(|| outbox.cut()).collect();
        let loads: Vec<Load> = parcels.iter().map(|parcel| parcel.header.load).collect();
        let whole = Load::Bytes(PAYLOAD);
        assert_eq!(loads, [whole, whole, Load::Bytes(24), Load::Value(3)]);
        assert_eq!(parcels[2].from, (1 << 20) + 2 * PAYLOAD);
        assert_eq!(parcels[2].header.to, place(8 + 2 * PAYLOAD));
        assert_eq!(outbox.land(2, 4), Ok(true));
        assert_eq!((outbox.posted, outbox.done), (2, 0));
        assert_eq!(outbox.land(3, 4), Ok(true));
        assert_eq!(outbox.done, 1);
        assert!(outbox.land(5, 4).is_err() && outbox.land(2, 4).is_err());
        assert_eq!(outbox.land(4, 4), Ok(true));
        assert_eq!((outbox.done, outbox.land(4, 4)), (2, Ok(false)));
    }

    #[test]
    fn no_more_is_taken_than_fits_and_no_slot_is_filled_before_it_is_free() {
        let mut outbox = Outbox::default();
        let value = Post::Value { to: place(0), value: 0 };
        let taken = (0..2 * MOST).filter(|_| outbox.post(value)).count();
        assert_eq!(taken, MOST);
        assert_eq!(std::iter::from_fn(|| outbox.cut()).count() as u64, SLOTS);
        assert_eq!(outbox.land(1, SLOTS), Ok(true));
        assert_eq!(std::iter::from_fn(|| outbox.cut()).count(), 1);
        assert!(outbox.post(value) && !outbox.post(value));
    }
}
