//! How posts become parcels, and what is known of those under way: one rank's side of a staged link, without I/O.
//!
//! Parcels are numbered from 0 and take [`SLOTS`] slots in turn. The sender counts what it has written, and the receiver what
//! has landed in its device's memory; a slot is filled again once that count has come back.

use antiphon_port::Unit;
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
    /// The place is where so many bytes of the sender's memory begin, which its wire knows as the region and its peers' kernels
    /// by the number: they may be written to without parcels.
    Learn { bytes: u64, number: u64 },
    /// No more than others, from here on.
    Forget,
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
        let (kind, load, more) = match self.load {
            Load::Bytes(bytes) => (1, bytes, 0),
            Load::Value(value) => (2, value, 0),
            Load::Learn { bytes, number } => (3, bytes, number),
            Load::Forget => (4, 0, 0),
        };
        [self.number + 1, kind, self.to.region, self.to.offset, load, more, 0, 0]
    }

    /// The header of parcel `number`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(words: [u64; 8], number: u64) -> Result<Self, String> {
        let [first, kind, region, offset, load, more, ..] = words;
        let load = match kind {
            1 if load <= PAYLOAD => Load::Bytes(load),
            2 => Load::Value(load),
            3 if offset.checked_add(load).is_some() => Load::Learn { bytes: load, number: more },
            4 => Load::Forget,
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
            Load::Value(_) | Load::Learn { .. } | Load::Forget => HEADER,
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
        /// How they may appear.
        unit: Unit,
    },
    /// What has no bytes of device memory: a word, or news of memory.
    Header {
        /// Where it goes.
        to: Place,
        /// What it is.
        load: Load,
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

/// When a post has landed.
#[derive(Clone, Copy, Debug)]
struct End {
    /// It has landed once this many parcels have,
    parcels: u64,
    /// and this many of the wire's posts.
    position: u64,
}

/// A sender's posts, and its parcels under way.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Posts that are not yet, or not all, on their way, and whether somebody waits for them.
    waiting: VecDeque<(Post, bool)>,
    /// The ends of posts that are on their way, and that somebody waits for.
    under_way: VecDeque<End>,
    /// Where bytes go that are under way, how many, and when they have landed.
    targets: VecDeque<(Place, u64, End)>,
    cut: u64,
    landed: u64,
    /// How many of the wire's posts have landed.
    completed: u64,
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
            self.waiting.push_back((post, true));
            self.posted += 1;
        }
        takes
    }

    /// Tells the peer something, in order with what is posted.
    pub fn tell(&mut self, to: Place, load: Load) {
        self.waiting.push_back((Post::Header { to, load }, false));
    }

    /// What comes next, if it is bytes: from where, to where, and how many.
    pub fn next_bytes(&self) -> Option<(u64, Place, u64)> {
        match self.waiting.front()?.0 {
            Post::Bytes { from, to, bytes, unit: Unit::Bytes } => Some((from, to, bytes)),
            _ => None,
        }
    }

    /// Whether the next bytes go where no bytes under way go. Bytes that meet some need a parcel: it is unpacked after the
    /// parcels before it, and told of after what went without parcels. Bytes that go without a parcel come after nothing.
    pub fn is_apart(&self, to: Place, bytes: u64) -> bool {
        let end = |place: Place, bytes: u64| place.offset.saturating_add(bytes);
        self.targets.iter().all(|&(other, length, _)| {
            other.region != to.region
                || end(other, length) <= to.offset
                || end(to, bytes) <= other.offset
        })
    }

    /// Notes that the next post went without parcels: it has landed when `position` of the wire's posts have.
    pub fn sent(&mut self, position: u64) {
        if let Some((post, _)) = self.waiting.pop_front() {
            let end = End { parcels: self.cut, position };
            self.under_way.push_back(end);
            if let Post::Bytes { to, bytes, .. } = post {
                self.targets.push_back((to, bytes, end));
            }
        }
    }

    /// The last of the wire's posts that must be known to have landed.
    pub fn awaited(&self) -> u64 {
        self.under_way.iter().map(|end| end.position).max().unwrap_or(0)
    }

    /// The next parcel, where a slot is free for it.
    pub fn cut(&mut self) -> Option<Parcel> {
        if self.cut - self.landed >= SLOTS {
            return None;
        }
        let number = self.cut;
        let (first, waited) = self.waiting.front_mut()?;
        let waited = *waited;
        let (parcel, whole) = match first {
            Post::Header { to, load } => {
                (Parcel { header: Header { number, to: *to, load: *load }, from: 0 }, true)
            }
            Post::Bytes { from, to, bytes, .. } => {
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
        if let Header { to, load: Load::Bytes(bytes), .. } = parcel.header {
            self.targets.push_back((to, bytes, End { parcels: self.cut, position: 0 }));
        }
        if whole {
            self.waiting.pop_front();
            // It depends on none of the wire's posts.
            let end = End { parcels: self.cut, position: 0 };
            self.under_way.extend(waited.then_some(end));
        }
        Some(parcel)
    }

    /// Notes that `landed` of `written` parcels have landed, and `completed` of the wire's posts; returns whether that is news.
    ///
    /// # Errors
    /// Of a count that cannot be.
    pub fn land(&mut self, landed: u64, written: u64, completed: u64) -> Result<bool, String> {
        if landed > written || landed < self.landed {
            let known = self.landed;
            return Err(format!(
                "{landed} parcels landed, of {known} before and {written} written"
            ));
        }
        let news = landed > self.landed || completed > self.completed;
        self.landed = landed;
        self.completed = self.completed.max(completed);
        let completed = self.completed;
        let is_over = |end: &End| end.parcels <= landed && end.position <= completed;
        while self.under_way.front().is_some_and(is_over) {
            self.under_way.pop_front();
            self.done += 1;
        }
        self.targets.retain(|(_, _, end)| !is_over(end));
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
        let learn = Load::Learn { bytes: 9, number: 1 << 32 };
        for load in
            [Load::Bytes(0), Load::Bytes(PAYLOAD), Load::Value(u64::MAX), learn, Load::Forget]
        {
            let header = Header { number: 5, to: place(64), load };
            assert_eq!(Header::parse(header.words(), 5), Ok(header));
            assert!(Header::parse(header.words(), 6).is_err());
        }
        let long = Header { number: 0, to: place(0), load: Load::Bytes(PAYLOAD + 1) };
        assert!(Header::parse(long.words(), 0).is_err());
        let learn = Load::Learn { bytes: u64::MAX, number: 1 };
        let beyond = Header { number: 0, to: place(1), load: learn };
        assert!(Header::parse(beyond.words(), 0).is_err());
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
        let unit = Unit::Bytes;
        assert!(outbox.post(Post::Bytes { from: 1 << 20, to: place(8), bytes, unit }));
        assert!(outbox.post(Post::Header { to: place(0), load: Load::Value(3) }));
        let parcels: Vec<Parcel> = std::iter::from_fn(|| outbox.cut()).collect();
        let loads: Vec<Load> = parcels.iter().map(|parcel| parcel.header.load).collect();
        let whole = Load::Bytes(PAYLOAD);
        assert_eq!(loads, [whole, whole, Load::Bytes(24), Load::Value(3)]);
        assert_eq!(parcels[2].from, (1 << 20) + 2 * PAYLOAD);
        assert_eq!(parcels[2].header.to, place(8 + 2 * PAYLOAD));
        assert_eq!(outbox.land(2, 4, 0), Ok(true));
        assert_eq!((outbox.posted, outbox.done), (2, 0));
        assert_eq!(outbox.land(3, 4, 0), Ok(true));
        assert_eq!(outbox.done, 1);
        assert!(outbox.land(5, 4, 0).is_err() && outbox.land(2, 4, 0).is_err());
        assert_eq!(outbox.land(4, 4, 0), Ok(true));
        assert_eq!((outbox.done, outbox.land(4, 4, 0)), (2, Ok(false)));
    }

    #[test]
    fn what_goes_without_parcels_is_done_in_order_with_what_has_some() {
        let mut outbox = Outbox::default();
        let bytes = |unit| Post::Bytes { from: 64, to: place(8), bytes: PAYLOAD + 8, unit };
        outbox.tell(place(0), Load::Forget);
        assert!(outbox.post(bytes(Unit::Bytes)) && outbox.post(bytes(Unit::Packets)));
        assert_eq!(outbox.next_bytes(), None, "news come first");
        assert_eq!(outbox.cut().unwrap().header.load, Load::Forget);
        assert_eq!(outbox.next_bytes(), Some((64, place(8), PAYLOAD + 8)));
        outbox.cut().unwrap();
        assert_eq!(outbox.next_bytes(), Some((64 + PAYLOAD, place(8 + PAYLOAD), 8)), "the rest");
        outbox.sent(17);
        assert_eq!(outbox.next_bytes(), None, "packets stay together");
        assert_eq!(std::iter::from_fn(|| outbox.cut()).count(), 2);
        assert_eq!((outbox.awaited(), outbox.land(4, 4, 16), outbox.done), (17, Ok(true), 0));
        assert_eq!((outbox.land(4, 4, 17), outbox.done, outbox.posted), (Ok(true), 2, 2));
    }

    #[test]
    fn bytes_that_go_where_some_are_under_way_are_not_apart_until_those_have_landed() {
        let mut outbox = Outbox::default();
        let bytes =
            |offset| Post::Bytes { from: 64, to: place(offset), bytes: 8, unit: Unit::Bytes };
        assert!(outbox.post(bytes(8)) && outbox.post(bytes(24)));
        outbox.cut().unwrap();
        outbox.sent(17);
        let apart = |outbox: &Outbox| {
            [0, 1, 15, 16, 17, 31, 32].map(|offset| outbox.is_apart(place(offset), 8))
        };
        assert_eq!(apart(&outbox), [true, false, false, true, false, false, true]);
        assert!(outbox.is_apart(Place { region: 8, offset: 8 }, 8));
        outbox.land(1, 1, 0).unwrap();
        assert_eq!(apart(&outbox), [true, true, true, true, false, false, true]);
        outbox.land(1, 1, 17).unwrap();
        assert_eq!(apart(&outbox), [true; 7]);
    }

    #[test]
    fn no_more_is_taken_than_fits_and_no_slot_is_filled_before_it_is_free() {
        let mut outbox = Outbox::default();
        let value = Post::Header { to: place(0), load: Load::Value(0) };
        let taken = (0..2 * MOST).filter(|_| outbox.post(value)).count();
        assert_eq!(taken, MOST);
        assert_eq!(std::iter::from_fn(|| outbox.cut()).count() as u64, SLOTS);
        assert_eq!(outbox.land(1, SLOTS, 0), Ok(true));
        assert_eq!(std::iter::from_fn(|| outbox.cut()).count(), 1);
        assert!(outbox.post(value) && !outbox.post(value));
    }
}
