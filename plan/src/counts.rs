//! What a call says of the runtime blocks of one rank: where each is and how long.
//!
//! A rank knows its own blocks only. That both sides of a move agree is found out when data is about to move.

use crate::program::CallSizes;
use crate::schedule::Case;
use std::fmt;

/// Where a runtime block is in its buffer, in elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Extent {
    /// The first element.
    pub offset: u64,
    /// Number of elements; may be 0.
    pub count: u64,
}

impl Extent {
    /// `count` elements from `offset`.
    pub const fn new(offset: u64, count: u64) -> Self {
        Extent { offset, count }
    }

    /// One block after the other, with these numbers of elements, from the start of the buffer.
    pub fn packed(counts: &[u64]) -> Vec<Extent> {
        let mut offset = 0u64;
        let place = |&count: &u64| {
            let extent = Extent { offset, count };
            offset = offset.saturating_add(count);
            extent
        };
        counts.iter().map(place).collect()
    }

    /// One past the last element; none if it does not fit 64 bits.
    pub fn end(&self) -> Option<u64> {
        self.offset.checked_add(self.count)
    }
}

/// The runtime blocks of a rank in one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts<'a> {
    /// The blocks of the input, in the plan's order: for alltoallv what goes to each rank, for allgatherv one.
    pub send: &'a [Extent],
    /// The blocks of the output, in the plan's order: what comes from each rank.
    pub receive: &'a [Extent],
}

/// Which of the two buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The input.
    Send,
    /// The output.
    Receive,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Side::Send => "send",
            Side::Receive => "receive",
        })
    }
}

/// What is wrong with the blocks of a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CountsError {
    /// The plan needs blocks and the call has none.
    #[error(
        "it has runtime sizes, and the call says no counts; pass the rank's send and receive blocks"
    )]
    Missing,
    /// The call has blocks and the plan has none.
    #[error("it has no runtime sizes, and the call says counts; pass none")]
    Unexpected,
    /// Not as many blocks as the plan has.
    #[error("saw {saw} {side} blocks, allowed {allowed}, as many as the plan has")]
    Number {
        /// Input or output.
        side: Side,
        /// Blocks of the call.
        saw: usize,
        /// Blocks of the plan.
        allowed: u32,
    },
    /// A block that leaves its buffer.
    #[error(
        "{side} block {block} is {count} elements from {offset}, and the buffer has {elements}; pass blocks inside it",
        count = extent.count,
        offset = extent.offset
    )]
    Outside {
        /// Input or output.
        side: Side,
        /// The block.
        block: usize,
        /// Where it was to be.
        extent: Extent,
        /// Elements of the buffer.
        elements: u64,
    },
    /// Two receive blocks that share elements.
    #[error("receive blocks {first} and {second} overlap; pass blocks that are apart")]
    Overlap {
        /// One of them.
        first: usize,
        /// The other.
        second: usize,
    },
    /// A receive block over what is sent.
    #[error(
        "send block {send} and receive block {receive} share memory; pass buffers that are apart{}",
        if *.in_place { ", or the block that is sent as exactly the rank's own of those received" } else { "" }
    )]
    Shared {
        /// The block of the input.
        send: usize,
        /// The block of the output.
        receive: usize,
        /// The plan may run in place.
        in_place: bool,
    },
    /// The rank's own receive block is not as long as what the rank sends to all.
    #[error(
        "receive block {block} is the rank's own and is {saw} elements, where it sends {allowed}; pass equal counts"
    )]
    Own {
        /// The block.
        block: usize,
        /// Its elements.
        saw: u64,
        /// Elements that the rank sends.
        allowed: u64,
    },
}

/// What the blocks of a call must fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// Blocks of the input and of the output, as the plan says.
    pub blocks: [u32; 2],
    /// Elements of the input and of the output.
    pub elements: [u64; 2],
    /// The element at which each buffer starts in a common memory; only where the two share memory.
    pub starts: Option<[u64; 2]>,
    /// Whether the plan may run in place: then a send block may be exactly the receive block that is the rank's [own](Fit::own).
    pub in_place: bool,
    /// The rank whose blocks they are.
    pub rank: u32,
}

impl Fit {
    /// The receive block on which a send block lies in place: the smaller buffer is the rank's part of the larger.
    pub fn own(&self, send: usize) -> Option<usize> {
        let [input, output] = self.blocks.map(u64::from);
        let sizes = CallSizes { input, output, element: 1, strict: false };
        let places = Case { sizes, in_place: true, launches: 1 }.places(self.rank);
        let at = places.input.checked_add(send as u64)?.checked_sub(places.output)?;
        usize::try_from(at).ok().filter(|_| at < output)
    }
}

impl Counts<'_> {
    /// Checks the blocks by themselves: as many as the plan has, inside their buffers, and nothing written twice or
    /// written over what is read. Does not allocate where receive blocks come in ascending order.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self, fit: &Fit) -> Result<(), CountsError> {
        let sides = [(Side::Send, self.send), (Side::Receive, self.receive)];
        for (position, (side, extents)) in sides.into_iter().enumerate() {
            let (allowed, elements) = (fit.blocks[position], fit.elements[position]);
            if extents.len() != allowed as usize {
                return Err(CountsError::Number { side, saw: extents.len(), allowed });
            }
            let inside = |extent: &Extent| extent.end().is_some_and(|end| end <= elements);
            if let Some(block) = extents.iter().position(|extent| !inside(extent)) {
                let extent = extents[block];
                return Err(CountsError::Outside { side, block, extent, elements });
            }
        }
        if !ascending(self.receive) || fit.starts.is_some() {
            self.check_overlaps(fit)?;
        }
        Ok(())
    }

    /// For blocks that were [checked](Self::check): whether some send block lies exactly on the rank's own receive block, and
    /// whether some send block lies elsewhere. Empty blocks lie nowhere.
    pub fn places(&self, fit: &Fit) -> [bool; 2] {
        let lies = |(send, extent): (usize, &Extent)| {
            let own = fit.own(send).and_then(|own| self.receive.get(own));
            let starts = fit.starts.zip(own);
            starts.is_some_and(|([input, output], own)| {
                let (sent, received) = (input + extent.offset, output + own.offset);
                (sent, extent.count) == (received, own.count)
            })
        };
        let filled = self.send.iter().enumerate().filter(|(_, extent)| extent.count > 0);
        filled.map(lies).fold([false; 2], |[on, off], lies| [on | lies, off | !lies])
    }

    #[cold]
    fn check_overlaps(&self, fit: &Fit) -> Result<(), CountsError> {
        let filled = |extents: &[Extent], start: u64| {
            let all = extents.iter().enumerate().filter(|(_, extent)| extent.count > 0);
            let mut all: Vec<(u64, u64, usize)> = all
                .map(|(block, extent)| {
                    let first = start.saturating_add(extent.offset);
                    (first, first.saturating_add(extent.count), block)
                })
                .collect();
            all.sort_unstable();
            all
        };
        let [input, output] = fit.starts.unwrap_or_default();
        let receive = filled(self.receive, output);
        if let Some(pair) = receive.windows(2).find(|pair| pair[1].0 < pair[0].1) {
            let (first, second) = (pair[0].2.min(pair[1].2), pair[0].2.max(pair[1].2));
            return Err(CountsError::Overlap { first, second });
        }
        if fit.starts.is_none() {
            return Ok(());
        }
        for (first, end, send) in filled(self.send, input) {
            // Receive blocks are apart, so their ends ascend too.
            let at = receive.partition_point(|&(_, other_end, _)| other_end <= first);
            let shared = receive[at..].iter().take_while(|&&(start, ..)| start < end);
            for &(start, other_end, receive) in shared {
                let own = (start, other_end) == (first, end) && fit.own(send) == Some(receive);
                if !(own && fit.in_place) {
                    let in_place = fit.in_place;
                    return Err(CountsError::Shared { send, receive, in_place });
                }
            }
        }
        Ok(())
    }
}

/// Whether no block starts before the end of one before it, so that none can overlap.
fn ascending(extents: &[Extent]) -> bool {
    let mut end = 0;
    extents.iter().filter(|extent| extent.count > 0).all(|extent| {
        let after = extent.offset >= end;
        end = extent.offset.saturating_add(extent.count);
        after
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cmp::Ordering;

    #[test]
    fn packed_blocks_follow_each_other() {
        let e = Extent::new;
        assert_eq!(Extent::packed(&[3, 0, 5]), [e(0, 3), e(3, 0), e(3, 5)]);
        assert_eq!(Extent::packed(&[]), []);
        assert_eq!(Extent::packed(&[u64::MAX, 2])[1], e(u64::MAX, 2), "refused as outside");
    }

    fn extents() -> impl Strategy<Value = Vec<Extent>> {
        let extent = (0u64..14, 0u64..5).prop_map(|(offset, count)| Extent { offset, count });
        prop::collection::vec(extent, 0..4)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        /// Element by element, what `check` finds without looking at elements.
        #[test]
        fn blocks_are_accepted_if_no_element_is_written_twice_or_written_and_read(
            (send, receive) in (extents(), extents()),
            start in 0u64..20,
            shared: bool,
            in_place: bool,
            rank in 0u32..3,
        ) {
            let elements = [16u64, 15];
            let fit = Fit {
                blocks: [send.len() as u32, receive.len() as u32],
                elements,
                starts: shared.then_some([10, start]),
                in_place,
                rank,
            };
            let (sends, receives) = (send.len(), receive.len());
            let own = |block: usize| match sends.cmp(&receives) {
                Ordering::Less => Some(block + (rank as usize * sends).min(receives - sends)),
                Ordering::Equal => Some(block),
                Ordering::Greater => {
                    block.checked_sub((rank as usize * receives).min(sends - receives))
                }
            };
            let range = |extent: &Extent, start: u64| start + extent.offset..start + extent.end().unwrap();
            let inside = |all: &[Extent], len| all.iter().all(|extent| extent.end().unwrap() <= len);
            let meet = |a: &std::ops::Range<u64>, b: &std::ops::Range<u64>| {
                a.clone().any(|element| b.contains(&element))
            };
            let written: Vec<_> = receive.iter().map(|extent| range(extent, start)).collect();
            let twice = written.iter().enumerate().any(|(position, one)| {
                written[..position].iter().any(|other| meet(one, other))
            });
            let crossed = shared && send.iter().enumerate().any(|(block, extent)| {
                let read = range(extent, 10);
                written.iter().enumerate().any(|(received, other)| {
                    let owned = in_place && read == *other && own(block) == Some(received);
                    meet(&read, other) && !owned
                })
            });
            let right = inside(&send, 16) && inside(&receive, 15) && !twice && !crossed;
            let found = Counts { send: &send, receive: &receive }.check(&fit);
            prop_assert_eq!(found.is_ok(), right, "{:?}", found);
        }
    }
}
