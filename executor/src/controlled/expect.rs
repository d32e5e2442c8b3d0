//! What the users must read, if the plan keeps its collective's promise: from the inputs, without running anything.

use super::machine::Machine;
use super::values::Inputs;
use antiphon_plan::model::Collective;
use antiphon_plan::program::{Instruction, Layout};
use antiphon_plan::schedule::Case;
use antiphon_types::{DataType, ReduceOp};

/// Where the bytes of a rank's output come from.
enum From {
    /// The reduction of all inputs from this byte on.
    All(usize),
    /// One input, from this byte on.
    One(usize, usize),
}

/// What every output must be after every launch, laid out as the machine's own outputs, and for every byte whether it is
/// promised. `None` if the collective promises nothing.
///
/// A plan does not say which rank is the root of a collective that has one: it is the first for which the outputs of the
/// machine's last run are right, and rank 0 if there is none.
pub(super) fn expected(machine: &Machine<'_>) -> Option<(Vec<u8>, Vec<bool>)> {
    let rooted = machine.layout.collective.has_root();
    let first = from_root(machine, 0)?;
    let met = |(values, promised): &(Vec<u8>, Vec<bool>)| {
        let both = values.iter().zip(&machine.outputs).zip(promised);
        both.into_iter().all(|((value, output), &promised)| !promised || value == output)
    };
    if !rooted || met(&first) {
        return Some(first);
    }
    let others = (1..machine.layout.ranks.len()).filter_map(|root| from_root(machine, root));
    Some(others.into_iter().find(met).unwrap_or(first))
}

fn from_root(machine: &Machine<'_>, root: usize) -> Option<(Vec<u8>, Vec<bool>)> {
    let Machine { layout, case, inputs, .. } = machine;
    let ranks = layout.ranks.len();
    let reduce = reduce_of(layout);
    let mut values = vec![0; machine.outputs.len()];
    let mut promised = vec![false; values.len()];
    for launch in 1..=case.launches {
        for rank in 0..ranks {
            let range = machine.output_range(rank, launch);
            for (start, len, from) in pieces(&layout.collective, case, ranks, (rank, root))? {
                let at = range.start + start..range.start + start + len;
                promised[at.clone()].fill(true);
                fill(&mut values[at], &from, (inputs, launch, ranks), (machine.dtype, reduce));
            }
        }
    }
    Some((values, promised))
}

/// The parts of a rank's output: start, length and what must be there.
fn pieces(
    collective: &Collective,
    case: &Case,
    ranks: usize,
    (rank, root): (usize, usize),
) -> Option<Vec<(usize, usize, From)>> {
    let (input, output) = (case.sizes.input as usize, case.sizes.output as usize);
    let both = input.min(output);
    let gathered = || {
        let len = input.min(output / ranks.max(1));
        (0..ranks).map(|peer| (peer * len, len, From::One(peer, 0))).collect()
    };
    Some(match collective {
        Collective::AllReduce => vec![(0, both, From::All(0))],
        Collective::AllGather | Collective::AllGatherV => gathered(),
        Collective::ReduceScatter => {
            let len = output.min(input / ranks);
            vec![(0, len, From::All(rank * len))]
        }
        Collective::AllToAll | Collective::AllToAllV => {
            let len = both / ranks;
            (0..ranks).map(|peer| (peer * len, len, From::One(peer, rank * len))).collect()
        }
        Collective::Broadcast => vec![(0, both, From::One(root, 0))],
        Collective::Reduce if rank == root => vec![(0, both, From::All(0))],
        Collective::Gather if rank == root => gathered(),
        Collective::Reduce | Collective::Gather => Vec::new(),
        Collective::Scatter => {
            let len = output.min(input / ranks);
            vec![(0, len, From::One(root, rank * len))]
        }
        Collective::SendRecv | Collective::Test | Collective::Other(_) => return None,
    })
}

fn fill(
    out: &mut [u8],
    from: &From,
    (inputs, launch, ranks): (&Inputs, u32, usize),
    (dtype, reduce): (DataType, ReduceOp),
) {
    match *from {
        From::One(rank, start) => {
            let input = inputs.of(rank, launch);
            out.copy_from_slice(&input[start..start + out.len()]);
        }
        From::All(start) => {
            let len = out.len();
            out.copy_from_slice(&inputs.of(0, launch)[start..start + len]);
            for rank in 1..ranks {
                let input = &inputs.of(rank, launch)[start..start + len];
                if dtype == DataType::U8 {
                    for (a, b) in out.iter_mut().zip(input) {
                        *a = combine(u32::from(*a), u32::from(*b), reduce) as u8;
                    }
                } else {
                    for (a, b) in out.chunks_exact_mut(4).zip(input.chunks_exact(4)) {
                        let [x, y] = [&*a, b].map(|x| u32::from_le_bytes([x[0], x[1], x[2], x[3]]));
                        a.copy_from_slice(&combine(x, y, reduce).to_le_bytes());
                    }
                }
            }
        }
    }
}

fn combine(a: u32, b: u32, reduce: ReduceOp) -> u32 {
    match reduce {
        ReduceOp::Sum | ReduceOp::Avg => a.wrapping_add(b),
        ReduceOp::Prod => a.wrapping_mul(b),
        ReduceOp::Min => a.min(b),
        ReduceOp::Max => a.max(b),
    }
}

/// The operator of the plan: that of its first reduction.
fn reduce_of(layout: &Layout) -> ReduceOp {
    let all = layout.ranks.iter().flat_map(|rank| &rank.instructions);
    let mut found = all.filter_map(|instruction| match *instruction {
        Instruction::Move { sources, reduce, .. } if sources.len() > 1 => Some(reduce),
        _ => None,
    });
    found.next().unwrap_or(ReduceOp::Sum)
}
