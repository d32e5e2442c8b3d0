//! Reproducible calls on devices: a tensor's sum has the same bits in whatever message it lies, and wherever.

use crate::devices::devices;
use crate::{on_devices, on_simulator_of, options};
use antiphon::executor::hal::Stream;
use antiphon::executor::{Collectives, Communicator, Request, What};
use antiphon::plan::model::Collective;
use antiphon::{DataType, ReduceOp};
use antiphon_tests::harness::{Area, Source};
use antiphon_tests::name_of;
use half::bf16;
use std::collections::BTreeSet;
use std::sync::Arc;

const WORLD: u32 = 4;
/// Elements of the tensor whose sum is looked at.
const TENSOR: usize = 24;
/// Elements of messages, for which different algorithms and numbers of thread blocks are chosen.
const SIZES: [usize; 3] = [TENSOR, 900, 20_000];

/// Element `at` of a rank: sizes so far apart that every order of a sum rounds in its own way.
fn element(rank: u32, at: usize) -> f32 {
    let random = (at as u32 * 4 + rank).wrapping_mul(0x9E37_79B9).wrapping_mul(0x85EB_CA6B);
    f32::from_bits((random & 0x807F_FFFF) | (122 + (random >> 24) % 10) << 23)
}

/// The bits of a number of a type.
fn bits(dtype: DataType, number: f32) -> Vec<u8> {
    match dtype {
        DataType::F32 => number.to_le_bytes().to_vec(),
        DataType::Bf16 => bf16::from_f32(number).to_le_bytes().to_vec(),
        other => panic!("{other} is not among the types"),
    }
}

/// What the tensor's bits are to be: the ranks' elements added up in the order of the ranks, and rounded once.
fn expected(dtype: DataType) -> Vec<u8> {
    let of = |rank, at| match dtype {
        DataType::Bf16 => bf16::from_f32(element(rank, at)).to_f32(),
        _ => element(rank, at),
    };
    let sum = |at| (1..WORLD).fold(of(0, at), |sum, rank| sum + of(rank, at));
    (0..TENSOR).flat_map(|at| bits(dtype, sum(at))).collect()
}

/// The tensor's sum where it begins at element `offset` of an allreduce of so many elements.
fn sum(
    (rank, on, stream): (&Communicator, &Collectives, &Arc<dyn Stream>),
    dtype: DataType,
    elements: usize,
    offset: usize,
) -> Vec<u8> {
    let size = dtype.size();
    let area = || Area::new(rank, Source::Own, (elements * size) as u64).unwrap();
    let (mut input, output) = (area(), area());
    input.edit(|bytes| {
        for (at, cell) in bytes.chunks_exact_mut(size).enumerate() {
            // Around it lies what is in no other message.
            let number = match at.checked_sub(offset) {
                Some(at) if at < TENSOR => at,
                _ => 100_000 + elements + at,
            };
            cell.copy_from_slice(&bits(dtype, element(rank.rank(), number)));
        }
    });
    let request = Request {
        what: What::AllReduce,
        input: input.address().cast_const(),
        output: output.address(),
        count: elements as u64,
        dtype,
        op: ReduceOp::Sum,
        factor: None,
    };
    // SAFETY: both areas are as long as the call says, and live until it is over.
    unsafe { on.call(&request, Some(stream)) }.unwrap();
    on.executor().synchronize(stream).unwrap();
    output.bytes()[offset * size..(offset + TENSOR) * size].to_vec()
}

#[test]
fn a_sum_has_the_same_bits_in_every_message_and_place() {
    let test = name_of(a_sum_has_the_same_bits_in_every_message_and_place);
    if on_simulator_of(test, WORLD as usize).is_none() {
        return;
    }
    let told = on_devices(&devices(WORLD, WORLD), &options().with_reproducible(true), |rank| {
        let on = Collectives::new(&rank).unwrap();
        let stream = rank.stream().unwrap();
        let mut chosen = BTreeSet::new();
        for dtype in [DataType::F32, DataType::Bf16] {
            for elements in SIZES {
                let bytes = (elements * dtype.size()) as u64;
                let question = on.question(&Collective::AllReduce, bytes, dtype);
                chosen.insert(format!("{:?}", on.explain(&question).unwrap().candidate));
                for offset in BTreeSet::from([0, (elements - TENSOR) * 5 / 11, elements - TENSOR]) {
                    let found = sum((&rank, &on, &stream), dtype, elements, offset);
                    assert_eq!(found, expected(dtype), "{dtype}: {offset} of {elements}");
                }
            }
        }
        chosen
    });
    assert!(told[0].len() > 1, "all sizes are served alike, so this shows little: {:?}", told[0]);
}
