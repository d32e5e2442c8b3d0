//! Where a launch's own buffers are for its peers: mapped, reachable through the kernel, or staged.
//!
//! Memory that Antiphon allocated is mapped by peers and used as it is. Plain memory that no peer touches is used as
//! it is too. Plain memory that peers touch is reached through the kernel where the system permits it and the call is
//! large, or replaced by mapped memory with a copy before and after.

use crate::communicator::Shared;
use crate::context::{ContextState, KnownBuffer};
use crate::error::ExecutorError;
use crate::launch::{Launch, Order};
use crate::shared::control::{FOREIGN, RegionAt};
use crate::touches::Touch;
use antiphon_hal::kernels;
use antiphon_plan::model::Collective;

/// Bytes that a rank's two buffers cover, from which on reaching plain memory through the kernel is faster than staging
/// it: a copy that stays in the cores' caches beats the kernel's cost per page (measured; see docs/performance.md).
const PROCESS_ACCESS_FROM: u64 = 10 << 20;

/// A launch's own buffers.
pub struct Buffers {
    /// Where the engine reads the input.
    pub input: *const u8,
    /// Where the engine writes the output.
    pub output: *mut u8,
    /// Where peers find the input.
    pub input_at: RegionAt,
    /// Where peers find the output.
    pub output_at: RegionAt,
    /// Other ranks may reach into memory of the caller while the launch runs.
    pub reached_from_outside: bool,
    copy_input: bool,
    copy_output: bool,
    /// Input and output in staging, where peers work on a copy and this rank on the caller's buffers.
    beside: Option<[*mut u8; 2]>,
}

// SAFETY: addresses of buffers that belong to the launch; whoever polls it may use them.
unsafe impl Send for Buffers {}

impl Buffers {
    /// Whether staged results are to be copied to the caller's buffers.
    pub fn copies_back(&self) -> bool {
        self.copy_input || self.copy_output || self.beside.is_some()
    }

    /// Copies staged results to the caller's buffers.
    ///
    /// # Safety
    /// No block touches the buffers any more; the caller's buffers are valid for the launch's sizes.
    pub unsafe fn copy_out(&self, launch: &Launch<'_>) {
        let (input_bytes, output_bytes) = launch.order.bytes;
        let layout = launch.context.plan.layout();
        let touches = launch.sized.touches(layout, launch.shared.rank);
        // SAFETY: staging is as long as the caller's buffers, and does not overlap them.
        unsafe {
            if let (Some(copies), Some(touches)) = (self.beside, touches) {
                let originals = [launch.order.input.cast_mut(), launch.order.output];
                copy_touched(&touches.remote_writes, copies, originals);
            }
            if self.copy_output {
                copy_buffer(launch, true, output_bytes, self.output, launch.order.output);
            }
            if self.copy_input {
                let (from, to) = (self.input, launch.order.input.cast_mut());
                copy_buffer(launch, false, input_bytes, from, to);
            }
        }
    }
}

/// Copies ranges of the input and the output from one place to another.
///
/// # Safety
/// All ranges are inside both places' buffers, which do not overlap.
unsafe fn copy_touched(touched: &[Touch], from: [*mut u8; 2], to: [*mut u8; 2]) {
    for &Touch { output, start, end } in touched {
        let side = usize::from(output);
        let at = |base: *mut u8| base.wrapping_add(start as usize);
        // SAFETY: as this function's.
        unsafe { kernels::copy(at(to[side]), at(from[side]), (end - start) as usize) };
    }
}

/// Copies an input or output from one place to another: all of it, or, with runtime sizes, its blocks.
///
/// # Safety
/// Both places hold the launch's buffer of `bytes` bytes, and do not overlap.
unsafe fn copy_buffer(launch: &Launch<'_>, output: bool, bytes: u64, from: *const u8, to: *mut u8) {
    let layout = launch.context.plan.layout();
    let copy = |offset: u64, len: u64| {
        let (from, to) = (from.wrapping_add(offset as usize), to.wrapping_add(offset as usize));
        // SAFETY: as this function's; blocks lie inside their buffers.
        unsafe { kernels::copy(to, from, len as usize) };
    };
    if !layout.runtime_sizes {
        return copy(0, bytes);
    }
    let inputs = layout.ranks[launch.shared.rank as usize].runtime_blocks[0] as usize;
    let (sent, received) = launch.runtime_blocks.split_at(inputs);
    for block in if output { received } else { sent } {
        copy(block.offset, block.len);
    }
}

/// One buffer of the caller.
#[derive(Clone, Copy)]
struct Side {
    address: usize,
    bytes: u64,
    exposed: bool,
    /// Wires work on it.
    posted: bool,
    at: Option<RegionAt>,
}

impl Side {
    fn end(&self) -> usize {
        self.address + self.bytes as usize
    }

    fn overlaps(&self, other: &Side) -> bool {
        let filled = self.bytes > 0 && other.bytes > 0;
        filled && self.address < other.end() && other.address < self.end()
    }

    /// Bytes from the first to the last of two sides that overlap, else of both together.
    fn span(&self, other: &Side) -> u64 {
        if self.overlaps(other) {
            (self.end().max(other.end()) - self.address.min(other.address)) as u64
        } else {
            self.bytes.saturating_add(other.bytes)
        }
    }
}

/// Finds or makes a place for the launch's buffers.
///
/// # Safety
/// The caller's buffers are valid for the launch's sizes.
pub unsafe fn place(
    launch: &Launch<'_>,
    state: &mut ContextState,
) -> Result<Buffers, ExecutorError> {
    let shared = launch.shared;
    let (input_bytes, output_bytes) = launch.order.bytes;
    let uses = launch.context.plan.uses(shared.rank);
    let everywhere = shared.assisted_from_elsewhere();
    let mut side = |address: usize, bytes: u64, exposed, posted| -> Result<Side, ExecutorError> {
        let at = if bytes == 0 {
            Some(RegionAt::default())
        } else {
            find(launch, state, address, bytes)?
        };
        Ok(Side { address, bytes, exposed: exposed || everywhere, posted, at })
    };
    let Order { input, output, .. } = *launch.order;
    let input = side(input.addr(), input_bytes, uses.input.exposed, uses.input.posted)?;
    let output = side(output.addr(), output_bytes, uses.output.exposed, uses.output.posted)?;
    let through_kernel =
        shared.process_access && !shared.crowded && input.span(&output) >= PROCESS_ACCESS_FROM;
    let by_peers = |side: &Side| side.exposed && !shared.one_process && !through_kernel;
    let stage = |side: &Side| side.at.is_none() && (side.posted || by_peers(side));
    if stage(&input) || stage(&output) {
        // SAFETY: as this function's.
        return unsafe { staged(launch, state, input, output, [stage(&input), stage(&output)]) };
    }
    Ok(Buffers {
        input: launch.order.input,
        output: launch.order.output,
        input_at: input.at.unwrap_or_else(|| exposed(launch.order.input)),
        output_at: output.at.unwrap_or_else(|| exposed(launch.order.output)),
        reached_from_outside: reached(shared, &input) || reached(shared, &output),
        copy_input: false,
        copy_output: false,
        beside: None,
    })
}

/// The size of memory for so many bytes that are staged: room to grow, but none worth speaking of beside what is needed.
fn staging_bytes(needed: u64) -> u64 {
    const GROWS: u64 = 64 << 20;
    if needed <= GROWS { needed.next_power_of_two() } else { needed }
}

/// Whether other ranks work on a buffer in the caller's own memory: by the plan, or because a thread of this process steps the
/// rank's blocks.
fn reached(shared: &Shared, side: &Side) -> bool {
    side.exposed || shared.shared_process
}

/// A plain address, for peers of this process or through the kernel.
fn exposed(pointer: *const u8) -> RegionAt {
    RegionAt { region: FOREIGN, offset: pointer.expose_provenance() as u64 }
}

/// The region that holds a buffer, announced to the peers; `None` for plain memory.
fn find(
    launch: &Launch<'_>,
    state: &mut ContextState,
    address: usize,
    bytes: u64,
) -> Result<Option<RegionAt>, ExecutorError> {
    let shared = launch.shared;
    let epoch = shared.device.epoch();
    let is_known = |known: &&KnownBuffer| {
        known.address == address && known.bytes == bytes && known.epoch == epoch
    };
    if let Some(known) = state.known.iter().find(is_known) {
        return Ok(known.at);
    }
    let at = match shared.device.find(std::ptr::without_provenance(address), bytes) {
        Some((memory, offset)) => match shared.announce(&memory) {
            Ok(region) => Some(RegionAt { region, offset }),
            // Another process's: as plain memory.
            Err(error) if error.is_not_shareable() => None,
            Err(error) => return Err(error),
        },
        None => None,
    };
    if state.known.len() >= 16 || state.known.first().is_some_and(|known| known.epoch != epoch) {
        state.known.clear();
    }
    state.known.push(KnownBuffer { address, bytes, epoch, at });
    Ok(at)
}

/// Replaces the caller's buffers by mapped memory. Buffers that overlap keep their distance.
unsafe fn staged(
    launch: &Launch<'_>,
    state: &mut ContextState,
    input: Side,
    output: Side,
    [mut stage_input, mut stage_output]: [bool; 2],
) -> Result<Buffers, ExecutorError> {
    let shared = launch.shared;
    let uses = launch.context.plan.uses(shared.rank);
    let overlap = input.overlaps(&output);
    let (input_offset, output_offset, needed);
    if overlap {
        (stage_input, stage_output) = (true, true);
        let start = input.address.min(output.address);
        input_offset = (input.address - start) as u64;
        output_offset = (output.address - start) as u64;
        needed = input.span(&output);
    } else {
        input_offset = 0;
        output_offset = if stage_input { input.bytes.next_multiple_of(128) } else { 0 };
        needed = output_offset + if stage_output { output.bytes } else { 0 };
    }
    let enough = state.staging.as_ref().is_some_and(|staging| staging.len() >= needed);
    let staging = match &state.staging {
        Some(staging) if enough => staging.clone(),
        _ => {
            let staging = shared.device.allocate(staging_bytes(needed.max(input.bytes)))?;
            state.staging.insert(staging).clone()
        }
    };
    let region = shared.announce(&staging)?;
    let base = staging.address();
    let input_copy = base.wrapping_add(input_offset as usize);
    let output_copy = base.wrapping_add(output_offset as usize);
    let place = |side: &Side, staged: bool, offset: u64, pointer: *const u8| match side.at {
        _ if staged => RegionAt { region, offset },
        Some(at) => at,
        None => exposed(pointer),
    };
    let input_at = place(&input, stage_input, input_offset, launch.order.input);
    let output_at = place(&output, stage_output, output_offset, launch.order.output);
    let Order { input: original_input, output: original_output, .. } = *launch.order;
    let touches = launch.sized.touches(launch.context.plan.layout(), shared.rank);
    let apart = touches.filter(|touches| {
        let both = stage_input && stage_output;
        both && !shared.assists() && touches.separable(input.address, output.address)
    });
    if let Some(touches) = apart {
        let copies = [input_copy, output_copy];
        let originals = [original_input.cast_mut(), original_output];
        // SAFETY: staging holds both buffers, apart from the caller's.
        unsafe { copy_touched(&touches.remote_reads, originals, copies) };
        return Ok(Buffers {
            input: original_input,
            output: original_output,
            input_at,
            output_at,
            reached_from_outside: false,
            copy_input: false,
            copy_output: false,
            beside: Some(copies),
        });
    }
    // A collective that writes its whole output needs nothing of what was there before; nor does a launch that does so on this
    // rank, as at the root of a gather.
    let whole = matches!(
        launch.context.plan.collective(),
        Collective::AllReduce
            | Collective::AllGather
            | Collective::ReduceScatter
            | Collective::AllToAll
            | Collective::AllToAllV
            | Collective::AllGatherV
    );
    let written = || whole || touches.is_some_and(|touches| touches.write_all(output.bytes));
    let keep_output = uses.output.read || !written();
    // SAFETY: staging is `needed` bytes long and apart from the caller's buffers.
    unsafe {
        if stage_output && keep_output {
            copy_buffer(launch, true, output.bytes, launch.order.output, output_copy);
        }
        if stage_input {
            copy_buffer(launch, false, input.bytes, launch.order.input, input_copy);
        }
    }
    let covered = overlap && input.address >= output.address && input.end() <= output.end();
    let copy_output = stage_output && (uses.output.written || (overlap && uses.input.written));
    Ok(Buffers {
        input: if stage_input { input_copy } else { launch.order.input },
        output: if stage_output { output_copy } else { launch.order.output },
        input_at,
        output_at,
        reached_from_outside: (!stage_input && reached(shared, &input))
            || (!stage_output && reached(shared, &output)),
        copy_input: stage_input && uses.input.written && !(covered && copy_output),
        copy_output,
        beside: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(address: usize, bytes: u64) -> Side {
        Side { address, bytes, exposed: true, posted: false, at: None }
    }

    #[test]
    fn staging_grows_by_powers_of_two_while_it_is_small() {
        let large = (40 << 30) + 1;
        for (needed, bytes) in [(1, 1), (100, 128), (64 << 20, 64 << 20), (large, large)] {
            assert_eq!(staging_bytes(needed), bytes, "{needed}");
        }
    }

    #[test]
    fn sides_overlap_when_they_share_a_byte() {
        let cases = [
            ((0, 8), (8, 8), false, 16),
            ((0, 8), (7, 8), true, 15),
            ((16, 4), (0, 64), true, 64),
            ((0, 8), (0, 8), true, 8),
            ((4, 0), (0, 8), false, 8),
            ((100, 8), (0, 8), false, 16),
        ];
        for (one, other, overlap, span) in cases {
            let (one, other) = (side(one.0, one.1), side(other.0, other.1));
            let found = (one.overlaps(&other), other.overlaps(&one));
            assert_eq!(found, (overlap, overlap), "{} {}", one.address, other.address);
            assert_eq!((one.span(&other), other.span(&one)), (span, span));
        }
    }
}
