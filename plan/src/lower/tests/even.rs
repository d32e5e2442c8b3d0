//! Sizes that one rank refuses, all refuse.

use crate::algorithms::{Algorithm, Shape};
use crate::lower::LowerError;
use crate::model::{Buffer, Collective, OpKind, Plan};
use crate::program::{CallSizes, Layout};
use crate::samples::*;
use proptest::prelude::*;

fn sizes(input: u64, output: u64) -> CallSizes {
    CallSizes { input, output, element: 4, strict: false }
}

/// An allreduce in which rank 1 alone copies a chunk of its input to another place of its output.
fn shifted() -> Plan {
    let mut plan = plan(Collective::AllReduce, 2, [2, 2, 0]);
    for (rank, to) in [(0, 0), (1, 1)] {
        let copy =
            data(OpKind::Copy, &[local(Buffer::Input, 0, 1)], &[local(Buffer::Output, to, 1)]);
        block(&mut plan, rank, vec![copy]);
    }
    plan
}

#[test]
fn a_rank_refuses_what_another_cannot_move() {
    let layout = Layout::new(&shifted()).unwrap();
    assert_eq!(layout.geometry.particular, [1]);
    assert_eq!(layout.admits(sizes(64, 64)), Ok(()));
    // A chunk of 32 bytes and one of 20: rank 0 would not mind.
    let uneven = sizes(52, 52);
    assert!(layout.program(0, uneven).is_ok());
    let error = layout.admits(uneven).unwrap_err();
    assert!(matches!(error, LowerError::Lengths { first_len: 32, second_len: 20, .. }), "{error}");
    assert_eq!(layout.program(1, uneven).unwrap_err(), error);
}

#[test]
fn built_in_plans_of_bound_sizes_suit_all_that_suit_their_buffers() {
    let mut seen = 0;
    for algorithm in Algorithm::ALL {
        for shape in [Shape::new(4), Shape::new(8)] {
            let Ok(plan) = algorithm.plan(shape) else { continue };
            let layout = Layout::new(&plan).unwrap();
            let none = layout.geometry.particular.is_empty();
            assert!(none || plan.collective == Collective::SendRecv, "{algorithm}");
            seen += usize::from(none);
        }
    }
    assert!(seen > 20, "{seen}");
}

/// A reference to one of the three buffers, or to one of the other rank's.
fn reference() -> impl Strategy<Value = (usize, bool, u64)> {
    (0usize..3, any::<bool>(), 0u64..4)
}

proptest! {
    #[test]
    fn what_is_admitted_is_what_every_rank_can_lower(
        collective in 0usize..5,
        chunks in prop::array::uniform2((1u64..4, 1u64..4)),
        moves in prop::collection::vec((0usize..2, reference(), reference(), 1u64..3), 1..4),
        unit in prop::sample::select(vec![0u64, 8, 12, 64]),
        (input, output) in (0u64..60, 0u64..60),
        bound: bool,
    ) {
        let (collective, parts) = [
            (Collective::AllReduce, [1, 1]),
            (Collective::AllGather, [1, 2]),
            (Collective::ReduceScatter, [2, 1]),
            (Collective::AllToAll, [2, 2]),
            (Collective::Test, [1, 1]),
        ][collective].clone();
        let mut plan = plan(collective, 2, [0, 0, 4]);
        for (gpu, (inputs, outputs)) in plan.gpus.iter_mut().zip(chunks) {
            (gpu.input_chunks, gpu.output_chunks) = (parts[0] * inputs, parts[1] * if bound { inputs } else { outputs });
        }
        connect(&mut plan);
        for (rank, from, to, size) in moves {
            let [from, to] = [from, to].map(|(buffer, far, index)| {
                let buffer = Buffer::ALL[buffer];
                let owner = if far { 1 - rank } else { rank };
                let gpu = &plan.gpus[owner];
                let chunks = [gpu.input_chunks, gpu.output_chunks, gpu.scratch_chunks][buffer as usize];
                let index = index.min(chunks - size.min(chunks));
                if far { remote(rank, owner, buffer, index, size) } else { local(buffer, index, size) }
            });
            let copy = data(OpKind::Copy, &[from], &[to]);
            block(&mut plan, rank, vec![if unit == 0 { copy } else { pipeline(unit, 2, vec![copy]) }]);
        }
        // References that leave their buffer are another matter.
        let Ok(layout) = Layout::new(&plan) else { return Ok(()) };
        let output = if bound { input * parts[1] / parts[0] } else { output };
        let sizes = sizes(4 * input, 4 * output);
        let every = (0..2).find_map(|rank| layout.program(rank, sizes).err());
        prop_assert_eq!(layout.admits(sizes).err(), every);
    }
}
