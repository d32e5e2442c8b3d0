//! Puts over ports, fused with the signals and flushes that follow them.
//!
//! The language's own passes leave these apart, because its later stages have methods for the fused forms. This stage has
//! not.

use super::operation::{Operation, What};
use crate::dsl::Transfer;
use crate::model::ChannelType;
use std::collections::HashMap;

/// Joins every put over a port with the signal for the same chunks, and both with the flush. The put may move to a later
/// place for that, behind operations that have nothing to do with its chunks.
pub fn fuse(operations: Vec<Operation>) -> Vec<Operation> {
    let mut fused: Vec<Option<Operation>> = Vec::with_capacity(operations.len());
    // Positions in `fused`, per rank and block.
    let mut blocks: HashMap<(u64, u64), Vec<usize>> = HashMap::new();
    for mut operation in operations {
        let key = (operation.rank, operation.block);
        if let (Some(position), Some(what)) =
            joined(&operation, blocks.entry(key).or_default(), &fused)
        {
            // The joined operation takes the later of the two places: nobody can tell that the put is done before it is
            // signalled.
            fused[position] = None;
            blocks.entry(key).or_default().retain(|&other| other != position);
            operation.what = what;
        }
        for &block in operation.blocks() {
            blocks.entry((operation.rank, block)).or_default().push(fused.len());
        }
        fused.push(Some(operation));
    }
    fused.into_iter().flatten().collect()
}

/// The position of an earlier operation of its block that this one can be joined with, and what the two become.
fn joined(
    next: &Operation,
    block: &[usize],
    fused: &[Option<Operation>],
) -> (Option<usize>, Option<What>) {
    use Transfer::{Put, PutWithSignal, PutWithSignalAndFlush};
    let port = ChannelType::Port;
    let (before, after, from, to) = match next.what {
        What::Signal { kind: ChannelType::Port, from, to } => (Put, PutWithSignal, from, to),
        What::Flush { from, to } => (PutWithSignal, PutWithSignalAndFlush, from, to),
        _ => return (None, None),
    };
    let wanted = What::Transfer { transfer: before, kind: port, from, to };
    for &position in block.iter().rev() {
        let Some(earlier) = &fused[position] else { continue };
        if earlier.what == wanted {
            let what = What::Transfer { transfer: after, kind: port, from, to };
            return (Some(position), Some(what));
        }
        // A signal must not be delayed, so nothing may lie between it and a flush.
        if before == PutWithSignal
            || earlier.synchronises()
            || matches!(earlier.what, What::Barrier { .. })
        {
            break;
        }
        let (reads, writes) = earlier.accesses();
        if reads.iter().chain(&writes).any(|chunk| chunk.overlaps(&to))
            || writes.iter().any(|chunk| chunk.overlaps(&from))
        {
            break;
        }
    }
    (None, None)
}
