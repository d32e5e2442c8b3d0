//! Which device memory goes over a link's wire itself, without parcels: what this rank lends, and what the peer has told of.
//!
//! A rank that lends memory tells the peer in the order of what it sends: with a parcel before those that say where a launch's
//! buffers are. So a peer never takes an address for memory that was there before, and nothing has to be answered: whether
//! bytes go directly or in parcels is the sender's choice, one by one, since both end at the same place before the parcel of
//! the signal that follows them.

use super::parcels::{Load, Place};
use antiphon_codegen::abi::FOREIGN;

/// The most memories of a peer's that are known at a time: what it sends must not grow without end.
const MOST: usize = 1 << 16;

/// A memory of this rank or of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// As its owner's wire knows it.
    pub region: u64,
    /// As peers' kernels know it.
    pub number: u64,
    /// Its address in its owner's process.
    pub start: u64,
    /// How long it is.
    pub bytes: u64,
    /// Peers may write to it. Otherwise only its owner sends from it, and its number means nothing.
    pub open: bool,
}

impl Range {
    /// Where bytes begin in it, if all are inside.
    fn holds(&self, address: u64, bytes: u64) -> Option<u64> {
        let offset = address.checked_sub(self.start)?;
        (offset.checked_add(bytes)? <= self.bytes).then_some(offset)
    }

    fn overlaps(&self, start: u64, bytes: u64) -> bool {
        self.start < start.saturating_add(bytes) && start < self.start.saturating_add(self.bytes)
    }

    /// Whether both are the same memory, however far they are lent.
    fn is(&self, other: &Range) -> bool {
        let what = |range: &Range| (range.region, range.start, range.bytes);
        what(self) == what(other)
    }
}

/// How far a memory of this rank's is lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Whether the wire takes it is not known yet.
    New,
    /// The wire takes it, and the peer was told, if it may write there.
    Lent { told: bool },
    /// The wire does not.
    Barred,
}

/// The memories of both ends.
#[derive(Debug, Default)]
pub struct Direct {
    own: Vec<(Range, Standing)>,
    theirs: Vec<Range>,
}

impl Direct {
    /// Lends a memory, unless it is lent at least as far. Memory that was lent at its addresses is not there any more: returns
    /// what to tell the peer of that, before all else.
    pub fn lend(&mut self, range: Range) -> Vec<(Place, Load)> {
        // One memory may have a buffer that peers touch, and one that they do not: lending the other does not change the first.
        let lends = |known: &Range| known.is(&range) && (known.open || !range.open);
        if self.own.iter().any(|(known, _)| *known == range || lends(known)) {
            return Vec::new();
        }
        let gone = self.take_back(range.start, range.bytes);
        self.own.push((range, Standing::New));
        gone
    }

    /// Takes back all that was lent at these addresses; returns what to tell the peer.
    pub fn take_back(&mut self, start: u64, bytes: u64) -> Vec<(Place, Load)> {
        let over = self.own.extract_if(.., |(known, _)| known.overlaps(start, bytes));
        over.filter_map(|(known, standing)| forget(known, standing)).collect()
    }

    /// Finds out which of the memories that are new the wire takes; returns what to tell the peer, which may write to this rank's
    /// memory if that is `open`.
    pub fn look(&mut self, open: bool, takes: impl Fn(u64) -> bool) -> Vec<(Place, Load)> {
        let mut news = Vec::new();
        for (range, standing) in &mut self.own {
            if *standing != Standing::New {
                continue;
            }
            *standing = match takes(range.region) {
                true => Standing::Lent { told: open && range.open },
                false => Standing::Barred,
            };
            if *standing == (Standing::Lent { told: true }) {
                let Range { region, number, start, bytes, .. } = *range;
                news.push((Place { region, offset: start }, Load::Learn { bytes, number }));
            }
        }
        news
    }

    /// Takes back memories of this rank that are gone; returns what to tell the peer.
    pub fn withdraw(&mut self, is_there: impl Fn(u64) -> bool) -> Vec<(Place, Load)> {
        let gone = self.own.extract_if(.., |(range, _)| !is_there(range.region));
        gone.filter_map(|(range, standing)| forget(range, standing)).collect()
    }

    /// The peer has told of a memory.
    ///
    /// # Errors
    /// Of more than any peer has.
    pub fn learn(&mut self, range: Range) -> Result<(), String> {
        self.theirs.retain(|known| {
            known.region != range.region && !known.overlaps(range.start, range.bytes)
        });
        if self.theirs.len() >= MOST {
            return Err(format!("more than {MOST} memories that may be written to"));
        }
        self.theirs.push(range);
        Ok(())
    }

    /// The peer has taken a memory back.
    pub fn forget(&mut self, region: u64) {
        self.theirs.retain(|known| known.region != region);
    }

    /// The lent memory of this rank that holds bytes to be sent: its region, and where in it they are.
    pub fn source(&self, from: u64, bytes: u64) -> Option<(u64, u64)> {
        let lent =
            self.own.iter().filter(|(_, standing)| matches!(standing, Standing::Lent { .. }));
        lent.map(|(range, _)| range)
            .find_map(|range| range.holds(from, bytes).map(|at| (range.region, at)))
    }

    /// The peer's memory that holds the place to which bytes go: its region, and where in it that is.
    pub fn target(&self, to: Place, bytes: u64) -> Option<(u64, u64)> {
        self.theirs.iter().find_map(|range| {
            let at = match to.region {
                FOREIGN => range.holds(to.offset, bytes),
                number if number == range.number => {
                    range.holds(range.start.checked_add(to.offset)?, bytes)
                }
                _ => None,
            };
            at.map(|at| (range.region, at))
        })
    }
}

/// What a peer is told of a memory that it may not write to any more.
fn forget(range: Range, standing: Standing) -> Option<(Place, Load)> {
    let place = Place { region: range.region, offset: range.start };
    (standing == Standing::Lent { told: true }).then_some((place, Load::Forget))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(region: u64, start: u64, bytes: u64) -> Range {
        Range { region, number: region + 100, start, bytes, open: true }
    }

    fn place(region: u64, offset: u64) -> Place {
        Place { region, offset }
    }

    #[test]
    fn memory_is_lent_once_the_wire_takes_it_and_the_peer_is_told_once() {
        let mut direct = Direct::default();
        assert_eq!(direct.lend(range(1, 1000, 50)), []);
        assert_eq!(direct.lend(range(2, 2000, 50)), []);
        assert_eq!(direct.source(1000, 1), None, "not yet");
        let told = direct.look(true, |region| region == 1);
        assert_eq!(told, [(place(1, 1000), Load::Learn { bytes: 50, number: 101 })]);
        assert_eq!(
            (direct.look(true, |_| true), direct.lend(range(1, 1000, 50))),
            (vec![], vec![])
        );
        assert_eq!(direct.source(1010, 40), Some((1, 10)));
        assert_eq!(
            [direct.source(1010, 41), direct.source(999, 1), direct.source(2000, 1)],
            [None; 3]
        );
        let gone = direct.withdraw(|region| region == 2);
        assert_eq!((gone, direct.source(1010, 1)), (vec![(place(1, 1000), Load::Forget)], None));
    }

    #[test]
    fn a_device_without_order_is_read_from_and_not_written_to() {
        let mut direct = Direct::default();
        direct.lend(range(1, 1000, 50));
        assert_eq!(direct.look(false, |_| true), []);
        assert_eq!(direct.source(1000, 50), Some((1, 0)));
        assert_eq!(direct.withdraw(|_| false), []);
    }

    #[test]
    fn the_peer_hears_of_what_it_may_write_to_alone() {
        let mut direct = Direct::default();
        let closed = Range { open: false, ..range(1, 1000, 50) };
        direct.lend(closed);
        assert_eq!(direct.look(true, |_| true), []);
        assert_eq!(direct.source(1000, 50), Some((1, 0)));
        // A launch lends it to peers, too.
        assert_eq!(direct.lend(range(1, 1000, 50)), []);
        assert_eq!(direct.look(true, |_| true).len(), 1);
        // The next one, of another buffer in it, does not take that back.
        assert_eq!((direct.lend(closed), direct.look(true, |_| true)), (vec![], vec![]));
        // Memory that is not lent is there now.
        assert_eq!(direct.take_back(1050, 10), []);
        assert_eq!(direct.take_back(1049, 10), [(place(1, 1000), Load::Forget)]);
        assert_eq!(direct.source(1000, 1), None);
    }

    #[test]
    fn memory_at_an_address_that_was_lent_before_takes_its_place() {
        let mut direct = Direct::default();
        for old in [range(1, 1000, 50), range(2, 1050, 50), range(3, 1100, 50)] {
            direct.lend(old);
        }
        direct.look(true, |_| true);
        let forgotten = direct.lend(range(4, 1040, 20));
        assert_eq!(forgotten, [(place(1, 1000), Load::Forget), (place(2, 1050), Load::Forget)]);
        assert_eq!([direct.source(1000, 1), direct.source(1045, 1)], [None; 2]);
        assert_eq!(direct.source(1100, 50), Some((3, 0)));
        // Bytes are in it again, and the wire is asked again.
        assert_eq!(direct.lend(range(1, 1000, 50)), [], "the peer had not heard of the other");
        assert_eq!(direct.look(true, |region| region != 4).len(), 1);
        assert_eq!(direct.source(1045, 5), Some((1, 45)));
    }

    #[test]
    fn places_of_the_peer_are_found_by_address_and_by_number() {
        let mut direct = Direct::default();
        direct.learn(range(1, 1000, 50)).unwrap();
        assert_eq!(direct.target(place(FOREIGN, 1049), 1), Some((1, 49)));
        assert_eq!(direct.target(place(101, 49), 1), Some((1, 49)));
        for (to, bytes) in [
            (place(FOREIGN, 1049), 2),
            (place(FOREIGN, 49), 1),
            (place(101, 50), 1),
            (place(101, u64::MAX), 1),
            (place(1, 0), 1),
        ] {
            assert_eq!(direct.target(to, bytes), None, "{to:?}");
        }
        direct.learn(range(2, 1020, 50)).unwrap();
        assert_eq!(direct.target(place(FOREIGN, 1000), 1), None, "it lies over the other");
        direct.forget(2);
        assert_eq!(direct.target(place(FOREIGN, 1030), 1), None);
        (0..MOST as u64).for_each(|at| direct.learn(range(at, at * 2, 1)).unwrap());
        assert!(direct.learn(range(MOST as u64, u64::MAX - 1, 1)).is_err());
    }
}
