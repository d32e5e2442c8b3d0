//! Slices of thread-block groups: at which strides their boundaries come in different orders.

use super::family::{ELEMENTS, Family};
use crate::lower::slice_start;
use crate::program::Layout;
use std::collections::BTreeMap;

/// Most boundaries that are looked at, over all strides.
const MOST_BOUNDARIES: u64 = 4_000_000;

/// Moves that are cut in the same places: chunks and number of slices; and whether some of them move packets.
type Kinds = BTreeMap<(u64, u64), bool>;

/// Whether any move is sliced.
pub(super) fn any(layout: &Layout) -> bool {
    !kinds(layout).is_empty()
}

fn kinds(layout: &Layout) -> Kinds {
    let mut kinds = Kinds::new();
    for moved in layout.geometry.ranks.iter().flat_map(|rank| &rank.moves) {
        if moved.parts > 1 {
            *kinds.entry((moved.size, moved.parts)).or_default() |= moved.packets;
        }
    }
    kinds
}

/// Strides, in units, that stand for all valid ones as far as slices go; never empty.
pub(super) fn representatives(family: &Family<'_>, doubts: &mut Vec<String>) -> Vec<u64> {
    let rules = &family.layout.geometry.rules;
    let lows = ELEMENTS
        .map(|element| rules.unit(element).map_or(u64::MAX, |unit| family.range(unit).0).max(1));
    let low = lows.into_iter().min().unwrap_or(1);
    let high = family.range(family.unit).1.max(low);
    let valid = |units: &u64| family.at(*units).1;
    let kinds = kinds(family.layout);
    if kinds.is_empty() {
        return vec![lows.into_iter().find(valid).unwrap_or(low)];
    }
    let Some(last) = settled(&kinds, low, high) else {
        doubts.push(
            "slices of groups of so many sizes meet in too many ways to look at them all"
                .to_owned(),
        );
        return vec![high.min(low.saturating_add(1 << 20))];
    };
    let mut kept: Vec<Pattern> = Vec::new();
    // Large strides first: small ones, whose slices are partly empty, mostly say nothing new.
    for units in (low..=last).rev() {
        let pattern = Pattern::new(&kinds, units);
        let fits = kept.iter_mut().find(|known| known.covers(&pattern, &kinds));
        match fits {
            None => kept.push(pattern),
            Some(known) => {
                // Of two that say the same, one that a call may have.
                if !valid(&known.units) && valid(&units) && pattern.covers(known, &kinds) {
                    *known = pattern;
                }
            }
        }
    }
    let mut units: Vec<u64> = kept.into_iter().map(|pattern| pattern.units).collect();
    units.reverse();
    units
}

/// The last stride to look at: beyond it all is as one period earlier.
fn settled(kinds: &Kinds, low: u64, high: u64) -> Option<u64> {
    let (mut period, mut most, mut each) = (1u64, 1, 0u64);
    for &(_, parts) in kinds.keys() {
        period = (period / gcd(period, parts)).checked_mul(parts)?;
        most = most.max(parts);
        each = each.checked_add(parts)?.checked_add(1)?;
    }
    let settled = period.checked_mul(most)? / 4;
    let last = settled.max(low - 1).checked_add(period)?.min(high);
    let work = (last - low).checked_add(1)?.checked_mul(each)?;
    (work <= MOST_BOUNDARIES).then_some(last)
}

pub(super) fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Where all slices begin and end at one stride.
struct Pattern {
    units: u64,
    /// For each kind, the start of every slice and the end of the last, in units from the start of the move.
    starts: Vec<u64>,
}

impl Pattern {
    fn new(kinds: &Kinds, units: u64) -> Self {
        let starts = kinds.keys().flat_map(|&(size, parts)| {
            (0..=parts).map(move |part| slice_start(size.saturating_mul(units), part, parts))
        });
        Pattern { units, starts: starts.collect() }
    }

    /// Whether `other` is this pattern with some pieces of chunks left empty: then what holds here holds there.
    ///
    /// Pieces with packets may not be empty there that are not here, for packets order launches.
    fn covers(&self, other: &Pattern, kinds: &Kinds) -> bool {
        let mut at = 0;
        for (&(_, parts), &packets) in kinds {
            let slices = at..at + parts as usize;
            let empty = |of: &Pattern, slice: usize| of.starts[slice] == of.starts[slice + 1];
            if packets && slices.clone().any(|slice| empty(other, slice) && !empty(self, slice)) {
                return false;
            }
            at = slices.end + 1;
        }
        // Where each position of a chunk goes.
        let mut images: Vec<(u64, u64)> = vec![(0, 0), (self.units, other.units)];
        for (&from, &to) in self.starts.iter().zip(&other.starts) {
            let chunk = from / self.units;
            let Some(image) = to.checked_sub(chunk * other.units) else { return false };
            images.push((from % self.units, image));
        }
        images.sort_unstable();
        images.windows(2).all(|pair| {
            let [(from, to), (next_from, next_to)] = [pair[0], pair[1]];
            to <= next_to && (from != next_from || to == next_to)
        })
    }
}
