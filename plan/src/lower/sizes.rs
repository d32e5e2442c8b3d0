//! Chunk arithmetic: where chunk k of a buffer starts when a call has these sizes.
//!
//! A buffer is one block, or, where the collective divides it by rank, one block per rank; each block has `f`
//! chunks. With `c = ceil(block / f)` rounded up to the alignment, chunk k starts at
//! `(k / f) * block + min((k % f) * c, block)`. Scratch is not clipped: its chunk k starts at `k * c`. Where the
//! plan format's own rule accepts the sizes, `block = f * c` and both reduce to the format's `k * c`.

use super::error::LowerError;
use crate::model::{Collective, Plan};
use crate::program::CallSizes;

/// What the plan says of sizes: chunk counts, limits and the collective.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SizeRules {
    ranks: u64,
    alignment: u64,
    packets: bool,
    /// The smallest and largest message, inclusive.
    pub(crate) min: u64,
    pub(crate) max: u64,
    /// The distinct chunk counts of the plan's ranks; nearly always one.
    pub(crate) shapes: Vec<Shape>,
    /// Per rank, its shape.
    pub(crate) shape_of: Vec<u32>,
}

/// Chunk counts of a rank, and how far references reach into its buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Chunks of input and output; 0 is no constraint.
    pub(crate) chunks: [u64; 2],
    /// Chunks of input and output to one block.
    pub(super) per_block: [u64; 2],
    /// One past the last chunk of input and output that some operation names.
    pub(crate) reach: [u64; 2],
    /// The largest number of scratch slots of a rank of this shape.
    pub(super) scratch: u64,
    /// Whether a block of the input is a block of the output in every call, in bytes and in chunks.
    pub(super) alike: bool,
}

/// A chunk index as whole blocks and the chunks after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Split {
    pub(super) whole: u64,
    pub(super) rest: u64,
}

impl Split {
    /// Splits `index` where a block has `per_block` chunks, at least 1.
    pub(super) fn new(index: u64, per_block: u64) -> Self {
        Split { whole: index / per_block, rest: index % per_block }
    }
}

/// Where one buffer's chunks are, at one call's sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Slot {
    /// Bytes of a block.
    block: u64,
    /// Bytes between the chunks of a block.
    step: u64,
    /// Where the chunks of a block end at the latest, in bytes from its start.
    limit: u64,
    /// Chunks to a block.
    per_block: u64,
    /// Bytes between chunks in scratch.
    pub(super) stride: u64,
}

impl Slot {
    /// A buffer without end whose chunks are one stride each.
    fn endless(stride: u64) -> Self {
        Slot { block: 0, step: stride, limit: u64::MAX, per_block: u64::MAX, stride }
    }

    /// The first byte of a chunk.
    #[inline]
    pub(super) fn offset(&self, chunk: Split) -> u64 {
        chunk.whole * self.block + (chunk.rest * self.step).min(self.limit)
    }

    /// The first byte of chunk `index`.
    pub(super) fn start(&self, index: u64) -> u64 {
        self.offset(Split::new(index, self.per_block))
    }

    /// Whether every chunk is shorter than its stride.
    #[inline]
    pub(super) fn is_loose(&self) -> bool {
        self.step != self.stride
    }

    /// Whether chunk k starts at `k * stride`, whatever k is.
    fn is_uniform(&self) -> bool {
        !self.is_loose() && self.per_block.checked_mul(self.stride) == Some(self.block)
    }
}

/// Whether the plan's smallest and largest message count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limits {
    /// They do: as in every call.
    OfThePlan,
    /// They do not: for reasoning about sizes that stand for others.
    Ignored,
}

/// How many equal parts input and output have, where the collective ties the size of the one to that of the other.
fn parts(collective: &Collective, ranks: u64) -> Option<[u64; 2]> {
    match collective {
        Collective::AllGather | Collective::Gather => Some([1, ranks]),
        Collective::ReduceScatter | Collective::Scatter => Some([ranks, 1]),
        Collective::AllReduce
        | Collective::AllToAll
        | Collective::Broadcast
        | Collective::Reduce => Some([1, 1]),
        Collective::AllToAllV
        | Collective::AllGatherV
        | Collective::SendRecv
        | Collective::Test
        | Collective::Other(_) => None,
    }
}

/// Whether the collective ties the size of the output to that of the input, so that blocks of both are equally long.
pub(crate) fn ties(collective: &Collective) -> bool {
    parts(collective, 1).is_some()
}

/// The buffer whose size is that of the message: 0 for the input, 1 for the output.
pub(crate) fn message_side(collective: &Collective) -> usize {
    usize::from(matches!(collective, Collective::AllGather | Collective::Gather))
}

/// All slots of one call: three per shape (input, output, scratch).
pub(super) struct Slots {
    inline: [Slot; 3 * INLINE_SHAPES],
    spilled: Vec<Slot>,
    /// Unit of padding and of thread-block group slices.
    pub(super) unit: u64,
    /// The one distance of chunks in every buffer, where there is one.
    pub(super) uniform: Option<u64>,
}

const CHUNKS_OVERFLOW: LowerError = LowerError::Overflow { what: "a buffer in whole chunks" };

/// Shapes that need no heap.
const INLINE_SHAPES: usize = 4;

impl Slots {
    /// The slots as a table, three per shape.
    pub(super) fn table(&self) -> &[Slot] {
        if self.spilled.is_empty() { &self.inline } else { &self.spilled }
    }
}

impl SizeRules {
    /// The rules of `plan`; `reach` is filled in while its operations are lowered.
    pub(super) fn new(plan: &Plan, packets: bool) -> Self {
        let ranks = plan.gpus.len() as u64;
        let parts = parts(&plan.collective, ranks);
        let divided = match plan.collective {
            Collective::AllGather | Collective::Gather => [false, true],
            Collective::ReduceScatter | Collective::Scatter => [true, false],
            Collective::AllToAll => [true, true],
            _ => [false, false],
        };
        let mut rules = SizeRules {
            ranks,
            alignment: plan.buffer_alignment,
            packets,
            min: plan.min_message_size,
            max: plan.max_message_size,
            ..SizeRules::default()
        };
        for gpu in &plan.gpus {
            let chunks = [gpu.input_chunks, gpu.output_chunks];
            let known = rules.shapes.iter().position(|shape| shape.chunks == chunks);
            let at = known.unwrap_or_else(|| {
                let per_block = [0, 1].map(|side| {
                    let whole = divided[side] && chunks[side].is_multiple_of(ranks);
                    if whole { chunks[side] / ranks } else { chunks[side] }
                });
                let same = |[input, output]: [u64; 2]| {
                    input.checked_mul(chunks[1]) == output.checked_mul(chunks[0])
                };
                let alike = per_block[0] == per_block[1] && parts.is_some_and(same);
                rules.shapes.push(Shape { chunks, per_block, alike, ..Shape::default() });
                rules.shapes.len() - 1
            });
            rules.shapes[at].scratch = rules.shapes[at].scratch.max(gpu.scratch_chunks);
            rules.shape_of.push(at as u32);
        }
        rules
    }

    /// Chunks to a block of a rank's input and output; 0 where chunks are one stride each without end.
    pub(crate) fn per_block(&self, rank: u32) -> [u64; 2] {
        let shape = self.shape_of.get(rank as usize).map(|&shape| self.shapes[shape as usize]);
        shape.map_or([0; 2], |shape| shape.per_block)
    }

    /// Whether a rank's input and output, which are those of a call in place, have the same chunks in common as at all other such
    /// sizes. Where nothing ties the one size to the other, they have if they are to each other as the plan's numbers of chunks
    /// are: a shorter one would be taken for a block of the longer one, and lie on other chunks of it.
    pub(super) fn keep_chunks(&self, collective: &Collective, rank: u32, sizes: CallSizes) -> bool {
        let CallSizes { input, output, element, .. } = sizes;
        let shape = self.shape_of.get(rank as usize).map(|&shape| self.shapes[shape as usize]);
        let [inputs, outputs] = shape.map_or([0; 2], |shape| shape.chunks);
        if ties(collective) || inputs == 0 || outputs == 0 {
            return true;
        }
        let proportional =
            u128::from(input) * u128::from(outputs) == u128::from(output) * u128::from(inputs);
        let whole = |bytes: u64| matches!(bytes.checked_rem(element), Some(0));
        proportional && (inputs == outputs || input.is_multiple_of(inputs) && whole(input / inputs))
    }

    /// What strides and slices of groups are multiples of, for elements of this many bytes.
    pub(crate) fn unit(&self, element: u64) -> Result<u64, LowerError> {
        let multiple = if self.packets { lcm(element, 8)? } else { element };
        round_up(self.alignment.max(1), multiple)
    }

    /// The slots of a call, or why the call is refused.
    pub(super) fn slots(
        &self,
        collective: &Collective,
        sizes: CallSizes,
        limits: Limits,
    ) -> Result<Slots, LowerError> {
        self.admit(collective, sizes, limits)?;
        let unit = self.unit(sizes.element)?;
        let mut slots = Slots {
            inline: [Slot::default(); 3 * INLINE_SHAPES],
            spilled: Vec::new(),
            unit,
            uniform: None,
        };
        if self.shapes.len() > INLINE_SHAPES {
            slots.spilled = vec![Slot::default(); 3 * self.shapes.len()];
        }
        let fallback = self.first_stride(collective, sizes, unit)?;
        let mut uniform = Some(fallback);
        for (at, shape) in self.shapes.iter().enumerate() {
            let sides = self.sides(collective, shape, sizes, unit)?;
            let stride = one_stride(collective, shape, &sides, sizes)?.unwrap_or(fallback);
            let mut three = [Slot::endless(stride); 3];
            for side in 0..2 {
                if let Some(slot) = sides[side] {
                    three[side] = slot;
                    if !slot.is_uniform() {
                        uniform = None;
                    }
                } else {
                    self.reaches(collective, shape, side, stride, sizes)?;
                }
            }
            shape.scratch.checked_mul(stride).ok_or(LowerError::Overflow { what: "scratch" })?;
            if stride != fallback {
                uniform = None;
            }
            let table =
                if slots.spilled.is_empty() { &mut slots.inline[..] } else { &mut slots.spilled };
            table[3 * at..3 * at + 3].copy_from_slice(&three);
        }
        slots.uniform = uniform;
        Ok(slots)
    }

    /// Refuses sizes that no chunk arithmetic can make right.
    fn admit(
        &self,
        collective: &Collective,
        sizes: CallSizes,
        limits: Limits,
    ) -> Result<(), LowerError> {
        let CallSizes { input, output, element, strict } = sizes;
        for (buffer, bytes) in [("an input", input), ("an output", output)] {
            if !matches!(bytes.checked_rem(element), Some(0)) {
                return Err(LowerError::Element { buffer, bytes, element });
            }
        }
        let message = [input, output][message_side(collective)];
        if limits == Limits::OfThePlan && (message < self.min || message > self.max) {
            let (min, max) = (self.min, self.max);
            return Err(LowerError::Size {
                collective: collective.clone(),
                saw: message,
                min,
                max,
            });
        }
        let shape = |rule: String| {
            Err(LowerError::Shape { collective: collective.clone(), input, output, rule })
        };
        if self.constrains(0)
            && self.constrains(1)
            && let Some(parts) = parts(collective, self.ranks)
            && input.checked_mul(parts[1]) != output.checked_mul(parts[0])
        {
            return shape(match parts {
                [1, 1] => "they must be equal".to_owned(),
                [1, ranks] => format!("the output must be {ranks} inputs"),
                [ranks, _] => format!("the input must be {ranks} outputs"),
            });
        }
        if strict { self.admit_strict(sizes) } else { Ok(()) }
    }

    fn constrains(&self, side: usize) -> bool {
        self.shapes.iter().any(|shape| shape.chunks[side] > 0)
    }

    /// The format's own rule, for callers that want what other implementations accept and nothing else.
    fn admit_strict(&self, sizes: CallSizes) -> Result<(), LowerError> {
        let alignment = self.alignment.max(1);
        for shape in &self.shapes {
            let mut chunk_bytes = None;
            for (side, (buffer, bytes)) in
                [("an input", sizes.input), ("an output", sizes.output)].into_iter().enumerate()
            {
                let refuse = |rule| Err(LowerError::Strict { buffer, bytes, rule });
                let chunks = shape.chunks[side];
                if chunks == 0 {
                    continue;
                }
                if bytes % alignment != 0 {
                    return refuse(format!("it must be a multiple of {alignment} bytes"));
                }
                if !(bytes / alignment).is_multiple_of(chunks) {
                    return refuse(format!(
                        "it must be {chunks} chunks of whole {alignment} bytes"
                    ));
                }
                let each = bytes / chunks;
                if let Some(other) = chunk_bytes.filter(|&other| other != each) {
                    return refuse(format!(
                        "its chunks of {each} bytes must be those of the input, {other}"
                    ));
                }
                chunk_bytes = Some(each);
            }
            if chunk_bytes.is_none() {
                let (buffer, bytes) = ("an input", sizes.input);
                let rule = "the plan must divide the input or the output in chunks".to_owned();
                return Err(LowerError::Strict { buffer, bytes, rule });
            }
        }
        Ok(())
    }

    /// Input and output slots of a shape; `None` for a side without constraint.
    fn sides(
        &self,
        collective: &Collective,
        shape: &Shape,
        sizes: CallSizes,
        unit: u64,
    ) -> Result<[Option<Slot>; 2], LowerError> {
        let bytes = [sizes.input, sizes.output];
        let free = parts(collective, self.ranks).is_none();
        if free && let Some(distance) = even_chunk(shape, bytes, sizes.element) {
            let stride = round_up(distance, unit)?;
            for chunks in shape.chunks {
                chunks.checked_mul(stride).ok_or(CHUNKS_OVERFLOW)?;
            }
            return Ok([0, 1].map(|side| {
                let (block, per_block) = (bytes[side], shape.chunks[side]);
                let slot = Slot { block, step: distance, limit: block, per_block, stride };
                (per_block > 0).then_some(slot)
            }));
        }
        let mut sides = [None; 2];
        for side in 0..2 {
            let chunks = shape.chunks[side];
            if chunks == 0 {
                continue;
            }
            let per_block = shape.per_block[side];
            let blocks = chunks / per_block;
            let block = bytes[side] / blocks;
            if !bytes[side].is_multiple_of(blocks) || !block.is_multiple_of(sizes.element) {
                let buffer = ["input", "output"][side];
                return Err(LowerError::Shape {
                    collective: collective.clone(),
                    input: sizes.input,
                    output: sizes.output,
                    rule: format!(
                        "the {buffer} must be {blocks} equal blocks of whole elements of {} bytes",
                        sizes.element
                    ),
                });
            }
            let stride = round_up(block.div_ceil(per_block), unit)?;
            chunks.checked_mul(stride).ok_or(CHUNKS_OVERFLOW)?;
            sides[side] = Some(Slot { block, step: stride, limit: block, per_block, stride });
        }
        Ok(sides)
    }

    /// The stride for ranks that constrain neither buffer: it is the stride of the first rank that constrains one.
    fn first_stride(
        &self,
        collective: &Collective,
        sizes: CallSizes,
        unit: u64,
    ) -> Result<u64, LowerError> {
        for shape in &self.shapes {
            let sides = self.sides(collective, shape, sizes, unit)?;
            if let Some(slot) = sides[0].or(sides[1]) {
                return Ok(slot.stride);
            }
        }
        round_up(sizes.input.max(sizes.output), unit)
    }

    /// Refuses references beyond the end of a buffer whose size the plan does not constrain.
    fn reaches(
        &self,
        collective: &Collective,
        shape: &Shape,
        side: usize,
        stride: u64,
        sizes: CallSizes,
    ) -> Result<(), LowerError> {
        let end = shape.reach[side].checked_mul(stride).ok_or(CHUNKS_OVERFLOW)?;
        let bytes = [sizes.input, sizes.output][side];
        if end <= bytes {
            return Ok(());
        }
        Err(LowerError::Shape {
            collective: collective.clone(),
            input: sizes.input,
            output: sizes.output,
            rule: format!(
                "the plan uses {end} bytes of the {} ({} chunks of {stride})",
                ["input", "output"][side],
                shape.reach[side]
            ),
        })
    }
}

/// The stride of a shape; its input and output must agree.
fn one_stride(
    collective: &Collective,
    shape: &Shape,
    sides: &[Option<Slot>; 2],
    sizes: CallSizes,
) -> Result<Option<u64>, LowerError> {
    match *sides {
        [Some(input), Some(output)] if input.stride != output.stride => Err(LowerError::Shape {
            collective: collective.clone(),
            input: sizes.input,
            output: sizes.output,
            rule: format!(
                "chunks must be equally long in both, but {} input chunks are {} bytes apart and {} output chunks {}",
                shape.chunks[0], input.stride, shape.chunks[1], output.stride
            ),
        }),
        [input, output] => Ok(input.or(output).map(|slot| slot.stride)),
    }
}

/// The size of every chunk, where all constrained buffers divide into equal chunks of whole elements.
fn even_chunk(shape: &Shape, bytes: [u64; 2], element: u64) -> Option<u64> {
    let mut distance = None;
    for (bytes, chunks) in bytes.into_iter().zip(shape.chunks) {
        if chunks == 0 {
            continue;
        }
        let each = bytes / chunks;
        let whole = bytes.is_multiple_of(chunks) && each.is_multiple_of(element);
        if !whole || distance.is_some_and(|distance| distance != each) {
            return None;
        }
        distance = Some(each);
    }
    distance
}

fn round_up(value: u64, unit: u64) -> Result<u64, LowerError> {
    value.checked_next_multiple_of(unit).ok_or(LowerError::Overflow { what: "a chunk" })
}

fn lcm(a: u64, b: u64) -> Result<u64, LowerError> {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    (a / x).checked_mul(b).ok_or(LowerError::Overflow { what: "the element size" })
}
