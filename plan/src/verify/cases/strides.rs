//! Strides of plans with pipelines: at which of them windows end in different orders, and iterations number 1, 2, 3 or as many
//! as matter.

use super::family::{ELEMENTS, Family, Stride};
use super::pipelines::Needed;
use crate::lower::slice_start;
use std::collections::{BTreeMap, BTreeSet};

/// Iterations up to which every order of window ends is looked at.
const ITERATIONS: u64 = 3;
/// Most executions of instructions in pipelines, over all blocks of a plan.
const MOST_STEPS: u128 = 1 << 20;
/// Most of them where a plan needs so many.
const MOST_NEEDED: u128 = 1 << 22;

/// Adds the strides to look at, where `slices` are those that slices of groups need, in units.
pub(super) fn all(
    family: &Family<'_>,
    slices: &[u64],
    needed: &Needed,
    strides: &mut Vec<Stride>,
    doubts: &mut Vec<String>,
) {
    let shapes = Shapes::new(family, needed);
    let mut seen = BTreeSet::new();
    let mut units_seen = BTreeSet::new();
    let mut add = |units: u64, unit: u64, element: u64, strides: &mut Vec<Stride>| {
        let stride = units.saturating_mul(unit);
        if units > 0 && shapes.fits(stride) && seen.insert(shapes.signature(stride, unit)) {
            strides.push(Stride { units, unit, element });
        }
        shapes.fits(stride)
    };
    for element in ELEMENTS {
        let Ok(unit) = family.layout.geometry.rules.unit(element) else { continue };
        let whole = needed.loops.iter().all(|pipeline| pipeline.unit.is_multiple_of(element));
        if !whole || !units_seen.insert(unit) {
            continue;
        }
        let (low, high) = family.range(unit);
        // Small sizes stand for large ones, not the other way.
        let low = if shapes.fits(low.saturating_mul(unit)) { low.max(1) } else { 1 };
        let high = high.max(low);
        add(low, unit, element, strides);
        for (stride, last) in shapes.breakpoints() {
            let below = stride / unit;
            for units in below.saturating_sub(1)..=below.saturating_add(u64::from(!last)) {
                if (low..=high).contains(&units) {
                    add(units, unit, element, strides);
                }
            }
        }
        let enough = needed.stride.div_ceil(u128::from(unit)).try_into().unwrap_or(u64::MAX);
        let enough = enough.clamp(low, high);
        if !add(enough, unit, element, strides) {
            doubts.push(format!(
                "pipelines take {} iterations at the same size as one takes {}, too many to look at",
                shapes.most(enough.saturating_mul(unit)),
                needed.most
            ));
        }
    }
    if super::slices::any(family.layout) {
        for &units in slices {
            let Stride { unit, element, .. } = family.at(units).0;
            if !add(units, unit, element, strides) {
                doubts.push("slices of groups make pipelines too long to look at".to_owned());
                break;
            }
        }
    }
}

/// What decides where accesses of a plan with pipelines end.
struct Shapes<'a> {
    needed: &'a Needed,
    /// Window (0 outside of pipelines), chunks and slices of moves.
    moves: BTreeSet<(u64, u64, u64)>,
    /// Window and chunks that are covered, of pipelines, and how many instructions are in them.
    loops: BTreeMap<(u64, u64), u128>,
}

impl<'a> Shapes<'a> {
    fn new(family: &Family<'_>, needed: &'a Needed) -> Self {
        let mut shapes = Shapes { needed, moves: BTreeSet::new(), loops: BTreeMap::new() };
        for rank in &family.layout.geometry.ranks {
            for moved in &rank.moves {
                let unit = moved.in_loop.map_or(0, |index| rank.loops[index as usize].unit);
                if unit > 0 || moved.parts > 1 {
                    shapes.moves.insert((unit, moved.size, moved.parts));
                }
            }
        }
        for pipeline in &needed.loops {
            *shapes.loops.entry((pipeline.unit, pipeline.chunks)).or_default() +=
                u128::from(pipeline.steps);
        }
        shapes
    }

    /// Strides at which the end of a window meets the end of a chunk or of a move, and whether it is the last window's.
    fn breakpoints(&self) -> BTreeSet<(u64, bool)> {
        let moves = self
            .moves
            .iter()
            .filter(|kind| kind.0 > 0)
            .map(|&(unit, size, parts)| (unit, size, parts));
        let loops = self.loops.keys().map(|&(unit, chunks)| (unit, chunks, 1));
        let mut breakpoints = BTreeSet::new();
        for (unit, size, parts) in moves.chain(loops) {
            for windows in 1..=ITERATIONS {
                let bytes = unit.saturating_mul(windows);
                // Inside moves of many chunks the ends of all chunks are too many to be looked at.
                for chunks in
                    [1, 2, size].into_iter().filter(|&chunks| (1..=size).contains(&chunks))
                {
                    let stride = bytes.saturating_mul(parts) / chunks;
                    breakpoints.insert((stride, windows == ITERATIONS));
                }
            }
        }
        breakpoints
    }

    fn iterations(stride: u64, (unit, chunks): (u64, u64)) -> u128 {
        (u128::from(stride) * u128::from(chunks)).div_ceil(u128::from(unit))
    }

    /// The most iterations of any pipeline.
    fn most(&self, stride: u64) -> u128 {
        self.loops.keys().map(|&kind| Self::iterations(stride, kind)).max().unwrap_or(0)
    }

    /// Whether all iterations of all pipelines can be looked at.
    fn fits(&self, stride: u64) -> bool {
        let steps = self
            .loops
            .iter()
            .map(|(&kind, &steps)| Self::iterations(stride, kind).saturating_mul(steps.max(1)));
        // Slices may be longer than what their pipeline covers: windows of moves count as well as iterations.
        let windows = self.moves.iter().map(|&(unit, size, _)| match unit {
            0 => 0,
            unit => Self::iterations(stride, (unit, size)),
        });
        let parts: u128 = self.moves.iter().map(|&(.., parts)| u128::from(parts)).sum();
        let most = MOST_STEPS.max(self.needed.steps.min(MOST_NEEDED));
        parts <= MOST_STEPS
            && windows.fold(0u128, u128::saturating_add) <= most
            && steps.fold(0u128, u128::saturating_add) <= most
    }

    /// Where accesses end: chunk, and place among all places inside chunks. Equal for strides that differ in nothing else.
    fn signature(&self, stride: u64, unit: u64) -> Vec<(u64, u64)> {
        let mut ends = Vec::new();
        for &(window, size, parts) in &self.moves {
            for part in 0..parts {
                let [start, end] = [part, part + 1].map(|part| {
                    slice_start(size.saturating_mul(stride / unit), part, parts)
                        .saturating_mul(unit)
                });
                ends.extend([start, end]);
                let mut at = start;
                while window > 0 && at < end {
                    ends.push(at);
                    at = at.saturating_add(window);
                }
                ends.push(u64::MAX);
            }
        }
        let mut places: Vec<u64> =
            ends.iter().filter(|&&end| end < u64::MAX).map(|end| end % stride).collect();
        places.sort_unstable();
        places.dedup();
        let place = |end: u64| {
            let at = places.partition_point(|&place| place < end % stride);
            if end == u64::MAX { (u64::MAX, 0) } else { (end / stride, at as u64) }
        };
        let mut signature: Vec<_> = ends.into_iter().map(place).collect();
        signature.extend(
            self.loops.keys().map(|&kind| (Self::iterations(stride, kind) as u64, u64::MAX)),
        );
        signature
    }
}
