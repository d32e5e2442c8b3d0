//! Plans without canonical sizes: blocks of runtime sizes, and plans that one size has to do for.

use super::family::boundaries;
use super::slices::gcd;
use super::{Cases, Grid};
use crate::lower::message_side;
use crate::model::Collective;
use crate::program::{CallSizes, Layout, Program};
use std::collections::BTreeSet;

/// Most pieces of a runtime block, or of a buffer that is one chunk.
const MOST_PIECES: u64 = 1 << 16;

/// Most windows of all pipelines at the one size that is looked at.
const MOST_WINDOWS: u64 = 1 << 12;

/// Most pairs of pieces of one move, over all moves: a walk compares them all, for overlaps.
const MOST_PAIRS: u64 = 1 << 28;

/// Plans with runtime sizes: every block is one chunk, in as many pieces as slices need.
pub(super) fn runtime(layout: &Layout) -> Cases {
    let moves = layout.ranks.iter().flat_map(|rank| &rank.block_moves);
    let parts: BTreeSet<u64> = moves.map(|moved| moved.parts).collect();
    let pieces = parts.iter().try_fold(1u64, |all, &parts| {
        (all / gcd(all, parts)).checked_mul(parts).filter(|&all| all <= MOST_PIECES)
    });
    let mut doubts = Vec::new();
    let mut sliced: std::collections::BTreeMap<_, u64> = std::collections::BTreeMap::new();
    for moved in
        layout.ranks.iter().flat_map(|rank| &rank.block_moves).filter(|moved| moved.parts > 1)
    {
        for block in [moved.source, moved.destination] {
            let name = (block.rank, block.output, block.index);
            let known = *sliced.entry(name).or_insert(moved.parts);
            if known != moved.parts && doubts.is_empty() {
                doubts.push(format!(
                    "block {} of the {} of rank {} is moved in slices of {known} and of {}, which meet differently at other lengths",
                    block.index, block.area(), block.rank, moved.parts
                ));
            }
        }
    }
    let stride = pieces.unwrap_or_else(|| {
        doubts.push("blocks are moved in too many different slices to look at them all".to_owned());
        1
    });
    let programs =
        (0..layout.ranks.len() as u32).map(|rank| Program { rank, ..Program::default() });
    let sizes = CallSizes { input: 0, output: 0, element: 1, strict: false };
    let (programs, cuts) = (programs.collect(), (0..=stride).collect());
    Cases { grids: vec![Grid { sizes, valid: true, programs, stride, cuts }], doubts }
}

/// Chunks of all moves up to which a plan is looked at at a concrete size.
const MOST_CHUNKS: u64 = 1 << 22;

/// Plans without canonical sizes: one valid size, to find faults at, and the doubt. All of a buffer is one chunk, in equal
/// pieces.
pub(super) fn concrete(layout: &Layout, doubt: String) -> Cases {
    // A move may come to a piece for each chunk.
    let ranks = &layout.geometry.ranks;
    let chunks = ranks.iter().flat_map(|rank| &rank.moves).map(|moved| moved.size);
    if chunks.fold(0u64, u64::saturating_add) > MOST_CHUNKS {
        return Cases { grids: Vec::new(), doubts: vec![doubt] };
    }
    let grid = candidates(layout).find_map(|sizes| {
        let programs = (0..layout.ranks.len() as u32).map(|rank| layout.program(rank, sizes));
        let programs = programs.collect::<Result<Vec<_>, _>>().ok()?;
        let windows = |program: &Program| {
            program.loops.iter().fold(0u64, |all, &windows| all.saturating_add(windows))
        };
        let all = programs.iter().map(windows).fold(0u64, u64::saturating_add);
        let moves = programs.iter().flat_map(|program| &program.moves);
        let pairs = moves.map(|pieces| (pieces.len() as u64).saturating_pow(2));
        let pairs = pairs.fold(0u64, u64::saturating_add);
        // Raw bytes and packets of one move have to be equally many.
        let mut segments = programs.iter().flat_map(|program| &program.segments);
        let padded = segments.any(|segment| segment.len != segment.padded);
        if all > MOST_WINDOWS || pairs > MOST_PAIRS || (padded && layout.packets) {
            return None;
        }
        let scratch = programs.iter().map(|program| program.scratch_bytes).max().unwrap_or(0);
        let stride = sizes.input.checked_add(sizes.output)?.max(scratch).max(1);
        // Every piece is as long as the others, so that both sides of each move, and all blocks of a buffer, are cut alike.
        let mut piece = [sizes.input, sizes.output].into_iter().fold(stride, gcd);
        boundaries(layout, &programs, |position| piece = gcd(piece, position));
        let blocks = [sizes.input, sizes.output].map(|bytes| bytes / layout.ranks.len() as u64);
        let piece = blocks.into_iter().fold(piece, gcd);
        let cuts = (0..=stride / piece).map(|number| number * piece);
        (stride / piece <= MOST_PIECES).then(|| Grid {
            sizes,
            valid: true,
            programs,
            stride,
            cuts: cuts.collect(),
        })
    });
    Cases { grids: grid.into_iter().collect(), doubts: vec![doubt] }
}

/// Sizes that the plan may accept, the likelier first.
fn candidates(layout: &Layout) -> impl Iterator<Item = CallSizes> + '_ {
    let rules = &layout.geometry.rules;
    let ranks = layout.ranks.len().max(1) as u64;
    let unit = rules.unit(1).unwrap_or(1);
    let chunks = rules.shapes.iter().flat_map(|shape| shape.chunks).filter(|&chunks| chunks > 0);
    let whole = chunks.chain([ranks]).fold(unit, |all, chunks| {
        (all / gcd(all, chunks)).checked_mul(chunks).filter(|&all| all <= 1 << 40).unwrap_or(all)
    });
    let messages = [
        whole,
        whole.saturating_mul(16),
        rules.min.next_multiple_of(ranks),
        rules.min,
        rules.max,
        0,
    ];
    let messages =
        messages.into_iter().map(|message| message.clamp(rules.min, rules.max.max(rules.min)));
    let shape = rules.shapes.first().map_or([1, 1], |shape| shape.chunks);
    messages.flat_map(move |message| {
        let side = message_side(&layout.collective);
        let other = match layout.collective {
            Collective::AllGather
            | Collective::Gather
            | Collective::ReduceScatter
            | Collective::Scatter => message / ranks,
            _ => message,
        };
        let mut sizes = CallSizes { input: other, output: other, element: 1, strict: false };
        *(if side == 0 { &mut sizes.input } else { &mut sizes.output }) = message;
        let chunk = message / shape[0].max(1);
        let even =
            CallSizes { input: message, output: chunk.saturating_mul(shape[1].max(1)), ..sizes };
        [sizes, even]
    })
}
