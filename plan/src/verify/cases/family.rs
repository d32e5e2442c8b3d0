//! Canonical sizes: those at which every chunk of every buffer is exactly one stride.

use super::{Cases, Grid, pipelines, slices, strides};
use crate::lower::{LowerError, message_side, ties};
use crate::model::Collective;
use crate::program::{CallSizes, Instruction, Layout, Program};

/// Most grids of one plan.
const MOST_GRIDS: usize = 64;

/// Bytes of elements. The unit for the first is the smallest.
pub(super) const ELEMENTS: [u64; 4] = [1, 2, 4, 8];

/// The canonical sizes of a plan, one for each stride.
pub(super) struct Family<'a> {
    pub(super) layout: &'a Layout,
    /// Chunks of input and output, of all ranks that have any.
    counts: [u64; 2],
    /// The buffer whose size is that of the message.
    side: usize,
    /// What strides are multiples of, for elements of one byte.
    pub(super) unit: u64,
    /// Which of the two numbers are the plan's own.
    said: [bool; 2],
}

impl<'a> Family<'a> {
    /// The family of a plan, or why it has none.
    pub(super) fn new(layout: &'a Layout) -> Result<Self, String> {
        let rules = &layout.geometry.rules;
        let unit = rules.unit(1).map_err(|error| error.to_string())?;
        let (counts, said) = counts(layout)?;
        let side = message_side(&layout.collective);
        let family = Family { layout, counts, side, unit, said };
        // One canonical size is like the others: chunks and limits scale together.
        let refused = match family.sizes(unit, 1) {
            None => "their sizes do not fit in 64 bits".to_owned(),
            Some(sizes) => match layout.uniform_stride(sizes) {
                Ok(Some(stride)) if stride == unit => return Ok(family),
                Ok(_) => "chunks are not equally long in all buffers".to_owned(),
                Err(error) => error.to_string(),
            },
        };
        let [inputs, outputs] = counts;
        Err(format!(
            "there is no size at which {inputs} input and {outputs} output chunks are all equally long: {refused}"
        ))
    }

    /// Whether nothing says how long an output is for an input.
    fn is_free(&self) -> bool {
        !ties(&self.layout.collective)
    }

    /// Pipelines have as many iterations as chunks are long, which must be so on all ranks alike.
    fn pipelines(&self, doubts: &mut Vec<String>) {
        let has = |side: usize| {
            let shapes = &self.layout.geometry.rules.shapes;
            move |other: bool| {
                shapes
                    .iter()
                    .any(|shape| shape.chunks[side] > 0 && (shape.chunks[1 - side] > 0) == other)
            }
        };
        let (inputs, outputs) = (has(0), has(1));
        if self.is_free() && inputs(false) && outputs(false) && !inputs(true) {
            doubts.push(
                "some ranks have an input alone and others an output, which may differ in how long chunks are, and so in the \
                 iterations of pipelines"
                    .to_owned(),
            );
        }
    }

    /// In place, chunks must lie on chunks at every size.
    fn in_place(&self, doubts: &mut Vec<String>) {
        let layout = self.layout;
        if !layout.in_place {
            return;
        }
        let [inputs, outputs] = self.counts;
        if self.is_free() && self.said == [true; 2] && inputs != outputs {
            doubts.push(format!(
                "in place, {inputs} input chunks lie on {outputs} output chunks differently at other sizes"
            ));
        }
        for (side, name) in ["input", "output"].into_iter().enumerate() {
            let shapes = &layout.geometry.rules.shapes;
            if shapes.iter().any(|shape| shape.chunks[side] == 0 && shape.reach[side] > 0) {
                doubts.push(format!(
                    "in place, nothing says where an {name} is that some rank uses without a number of chunks"
                ));
            }
        }
    }

    /// The canonical sizes with chunks of `stride` bytes.
    pub(super) fn sizes(&self, stride: u64, element: u64) -> Option<CallSizes> {
        let [input, output] = self.counts.map(|chunks| chunks.checked_mul(stride));
        let mut bytes = [input?, output?];
        if self.said[1 - self.side] && !self.said[self.side] && stride > 0 {
            // A message that decides no stride may be as large as it has to be.
            let least = self.layout.geometry.rules.min.checked_next_multiple_of(stride)?;
            bytes[self.side] = least.max(bytes[self.side]);
        }
        Some(CallSizes { input: bytes[0], output: bytes[1], element, strict: false })
    }

    /// Whether a call may have these sizes.
    fn is_valid(&self, sizes: CallSizes) -> bool {
        let rules = &self.layout.geometry.rules;
        let message = [sizes.input, sizes.output][self.side];
        (rules.min..=rules.max).contains(&message)
    }

    /// The smallest and the largest stride of valid calls, clipped ones included, in units of `unit`; 0 is for empty buffers.
    pub(super) fn range(&self, unit: u64) -> (u64, u64) {
        let rules = &self.layout.geometry.rules;
        if !self.said[self.side] && self.said[1 - self.side] {
            return (0, u64::MAX);
        }
        let strides = |message: u64| message.div_ceil(self.counts[self.side]).div_ceil(unit);
        (strides(rules.min), strides(rules.max))
    }

    /// The size of so many units, with elements for which a call may have it, if there are any.
    pub(super) fn at(&self, units: u64) -> (Stride, bool) {
        let rules = &self.layout.geometry.rules;
        let of = |element| rules.unit(element).ok().map(|unit| Stride { units, unit, element });
        let valid = |at: &Stride| self.stride(units, at.unit).is_some_and(|(_, valid)| valid);
        match ELEMENTS.into_iter().filter_map(of).find(valid) {
            Some(at) => (at, true),
            None => (Stride { units, unit: self.unit, element: 1 }, false),
        }
    }

    /// Whether empty buffers are valid.
    pub(super) fn zero(&self) -> bool {
        self.layout.geometry.rules.min == 0
    }

    /// The stride of `units` units, and whether a call may have it.
    pub(super) fn stride(&self, units: u64, unit: u64) -> Option<(u64, bool)> {
        let stride = units.checked_mul(unit)?;
        Some((stride, self.is_valid(self.sizes(stride, 1)?)))
    }

    /// The grids and doubts of the plan, in which blocks are `contended` for some counter or not.
    pub(super) fn cases(&self, contended: bool) -> Cases {
        let mut cases = Cases::default();
        self.in_place(&mut cases.doubts);
        let slices = slices::representatives(self, &mut cases.doubts);
        let has_loops = self.layout.ranks.iter().any(|rank| rank.loops > 0);
        let sliced = slices.len() > 1 || slices::any(self.layout);
        let mut strides: Vec<Stride> = Vec::new();
        if has_loops {
            self.pipelines(&mut cases.doubts);
            let needed = pipelines::conditions(self, &mut cases.doubts);
            strides::all(self, &slices, &needed, &mut strides, &mut cases.doubts);
        } else {
            strides.extend(slices.iter().map(|&units| self.at(units).0));
        }
        if strides.len() > MOST_GRIDS {
            cases.doubts.push(format!(
                "{} sizes differ in how accesses meet, and no more than {MOST_GRIDS} were looked at",
                strides.len()
            ));
            strides.truncate(MOST_GRIDS);
        }
        // Empty buffers end waits for packets and for launches, which may have kept blocks that contend apart, and pipelines do
        // nothing. They come last: what plans compute shows at the first size.
        if (contended || has_loops) && self.zero() {
            strides.push(Stride { units: 0, unit: self.unit, element: 1 });
        }
        for at in strides {
            match self.grid(at, has_loops || sliced) {
                Ok(grid) => cases.grids.push(grid),
                Err(error) => cases.doubts.push(format!("a size was refused: {error}")),
            }
        }
        if cases.grids.is_empty() && cases.doubts.is_empty() {
            cases.doubts.push("no size was found that stands for the others".to_owned());
        }
        cases
    }

    fn grid(&self, at: Stride, divided: bool) -> Result<Grid, LowerError> {
        let overflow = LowerError::Overflow { what: "a buffer in whole chunks" };
        let (stride, valid) = self.stride(at.units, at.unit).ok_or(overflow.clone())?;
        let sizes = self.sizes(stride, at.element).ok_or(overflow)?;
        let ranks = 0..self.layout.ranks.len() as u32;
        let programs = ranks.map(|rank| self.layout.program_beyond(rank, sizes));
        let programs = programs.collect::<Result<Vec<_>, _>>()?;
        let stride = stride.max(1);
        let mut cuts = vec![0, stride];
        if divided {
            boundaries(self.layout, &programs, |position| cuts.push(position % stride));
            cuts.sort_unstable();
            cuts.dedup();
        }
        Ok(Grid { sizes, valid, programs, stride, cuts })
    }
}

/// A canonical size: its stride is `units` times `unit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stride {
    pub(super) units: u64,
    pub(super) unit: u64,
    /// Bytes of an element, for which `unit` is what lowering rounds to.
    pub(super) element: u64,
}

/// Calls `visit` with every position at which an access begins or ends, windows of pipelines included.
pub(super) fn boundaries(layout: &Layout, programs: &[Program], mut visit: impl FnMut(u64)) {
    for (rank, program) in layout.ranks.iter().zip(programs) {
        let mut window = None;
        for instruction in &rank.instructions {
            let (index, sides) = match *instruction {
                Instruction::LoopBegin { unit, .. } => {
                    window = Some(unit);
                    continue;
                }
                Instruction::LoopEnd { .. } => {
                    window = None;
                    continue;
                }
                Instruction::Move { sources, destinations, index, .. } => {
                    (index, sources.len() + destinations.len())
                }
                Instruction::Post { index, .. } => (index, 2),
                _ => continue,
            };
            for segment in &program.segments[program.moves[index as usize].range()] {
                let first = segment.offsets as usize;
                for &offset in &program.offsets[first..first + sides] {
                    for len in [segment.len, segment.padded] {
                        visit(offset);
                        visit(offset + len);
                        let Some(unit) = window else { continue };
                        // Windows count from the start of the block's share of the move.
                        let mut at = unit - segment.position % unit;
                        while at < len {
                            visit(offset + at);
                            at = at.saturating_add(unit);
                        }
                    }
                }
            }
        }
    }
}

/// Chunks of input and output at canonical sizes, and which of them the plan says itself.
fn counts(layout: &Layout) -> Result<([u64; 2], [bool; 2]), String> {
    let rules = &layout.geometry.rules;
    let mut said = [0; 2];
    for (side, name) in ["inputs", "outputs"].into_iter().enumerate() {
        for (rank, &shape) in rules.shape_of.iter().enumerate() {
            let chunks = rules.shapes[shape as usize].chunks[side];
            if chunks == 0 || chunks == said[side] {
                continue;
            }
            if said[side] != 0 {
                let other = said[side];
                return Err(format!(
                    "ranks divide their {name} differently: rank {rank} in {chunks} chunks, another in {other}"
                ));
            }
            said[side] = chunks;
        }
    }
    let ranks = layout.ranks.len().max(1) as u64;
    let reach = |side: usize| rules.shapes.iter().map(|shape| shape.reach[side]).max().unwrap_or(0);
    let natural = |side: usize| {
        let other = said[1 - side];
        let (divided, multiplied) = match layout.collective {
            Collective::AllGather | Collective::Gather => (0, 1),
            Collective::ReduceScatter | Collective::Scatter => (1, 0),
            _ => return other,
        };
        if side == divided {
            other.div_ceil(ranks)
        } else if side == multiplied {
            other.saturating_mul(ranks)
        } else {
            other
        }
    };
    let counts = [0, 1].map(|side| match said[side] {
        0 => natural(side).max(reach(side)).max(1),
        chunks => chunks,
    });
    Ok((counts, said.map(|chunks| chunks > 0)))
}
