//! What ranks give to calls, and what calls must leave: by the simplest code, element by element.

use crate::hash;
use crate::places::Block;
use crate::program::{Call, Ranks, What};
use antiphon::oracle::Value;
use antiphon::oracle::number::{FloatFormat, decode, wrap};
use antiphon::{DataType, Op};
use std::sync::LazyLock;

/// After so many elements the values of an input come again, so that few sums need be found out.
const PERIOD: u64 = 1021;

/// A whole number, as an element.
fn whole(dtype: DataType, value: i128) -> u64 {
    if dtype.is_float() { encode(dtype, value as f64) } else { value as u64 }
}

/// A random sign, and a random number.
fn signed(bits: u64) -> (i128, u64) {
    (if bits & 1 == 0 { 1 } else { -1 }, bits >> 1)
}

/// What a rank's input is multiplied by.
pub fn factor(call: &Call, rank: u32) -> u64 {
    let (sign, bits) = signed(hash(&[call.values, 6, rank.into()]));
    let most = if call.dtype.size() == 1 { 1 } else { 4 };
    whole(call.dtype, sign * (1 + i128::from(bits % most)))
}

/// Element `at` of what a rank gives to a call.
///
/// Of floats that are reduced, calls whose order of sums is known have any; others have such whole numbers that every sum and
/// product of them is exact, in whatever order. There are no zeros, whose sign would depend on the order.
fn element(call: &Call, rank: u32, at: u64) -> u64 {
    let bits = hash(&[call.values, 5, rank.into(), at % PERIOD]);
    let Some(format) = FloatFormat::of(call.dtype).filter(|_| call.what.reduces()) else {
        return bits;
    };
    let (sign, bits) = signed(bits);
    if call.ordered {
        let scale = if call.op == Op::Prod { 0.5 } else { 2f64.powi((bits >> 32) as i32 % 6 - 3) };
        let fraction = (bits % (1 << format.mantissa_bits.min(30))) as f64;
        return encode(
            call.dtype,
            sign as f64 * scale * (1.0 + fraction / 2f64.powi(format.mantissa_bits.min(30) as i32)),
        );
    }
    let most = match (call.op, call.dtype.size()) {
        (Op::Prod, _) => 2,
        (_, 1) => 1,
        _ => 8,
    };
    whole(call.dtype, sign * (1 + i128::from(bits % most)))
}

/// The bits of the element of a type that is nearest to a number, of two the even one.
fn encode(dtype: DataType, value: f64) -> u64 {
    let single = value as f32;
    match dtype {
        DataType::F64 => value.to_bits(),
        DataType::F32 => single.to_bits().into(),
        DataType::F16 => half::f16::from_f32(single).to_bits().into(),
        DataType::Bf16 => half::bf16::from_f32(single).to_bits().into(),
        _ => nearest(&POSITIVE[usize::from(dtype == DataType::F8E5m2)], single),
    }
}

/// The finite positive values of the 8-bit floats, in the order of their codes.
static POSITIVE: LazyLock<[Vec<f32>; 2]> = LazyLock::new(|| {
    [DataType::F8E4m3, DataType::F8E5m2].map(|dtype| {
        let format = FloatFormat::of(dtype).expect("a float");
        (0..0x80).map(|code| format.decode(code) as f32).take_while(|it| it.is_finite()).collect()
    })
});

/// The code of the nearest of these values, of two the even one, with the sign of the number.
fn nearest(values: &[f32], number: f32) -> u64 {
    let size = number.abs();
    let above = values.partition_point(|&value| value < size).min(values.len() - 1);
    let below = above.saturating_sub(1);
    let (up, down) = (values[above] - size, size - values[below]);
    let is_above = up < down || up == down && above % 2 == 0;
    (if is_above { above } else { below }) as u64 | u64::from(number.is_sign_negative()) << 7
}

/// Folds elements in their order, and rounds once, as docs/numerics.md has it.
fn fold(dtype: DataType, op: Op, elements: impl Iterator<Item = u64>) -> u64 {
    let value = |bits| decode(dtype, bits);
    let combined = elements.map(value).reduce(|one, other| match (one, other) {
        (Value::Integer(one), Value::Integer(other)) => Value::Integer(match op {
            Op::Sum | Op::Avg => one + other,
            Op::Prod => wrap(dtype, one.wrapping_mul(other)),
            Op::Min => one.min(other),
            Op::Max => one.max(other),
        }),
        (Value::Float(one), Value::Float(other)) => {
            let exact = match op {
                Op::Sum | Op::Avg => one + other,
                Op::Prod => one * other,
                Op::Min => one.min(other),
                Op::Max => one.max(other),
            };
            Value::Float(if dtype == DataType::F64 { exact } else { f64::from(exact as f32) })
        }
        _ => unreachable!("elements of one type"),
    });
    match combined {
        Some(Value::Integer(value)) => value as u64,
        Some(Value::Float(value)) => encode(dtype, value),
        None => unreachable!("there are ranks"),
    }
}

/// Element `at` of the reduction of all inputs.
fn reduced(call: &Call, ranks: &Ranks, at: u64) -> u64 {
    let &Call { dtype, op, .. } = call;
    let term = |&rank: &u32| match call.scaled {
        true => fold(dtype, Op::Prod, [element(call, rank, at), factor(call, rank)].into_iter()),
        false => element(call, rank, at),
    };
    let of_node = |node: &Vec<u32>| fold(dtype, op, node.iter().map(term));
    let all = fold(dtype, op, ranks.nodes.iter().map(of_node));
    if op != Op::Avg {
        return all;
    }
    match decode(dtype, all) {
        Value::Integer(sum) => (sum / i128::from(ranks.world)) as u64,
        Value::Float(sum) if dtype == DataType::F64 => encode(dtype, sum / f64::from(ranks.world)),
        Value::Float(sum) => encode(dtype, f64::from(sum as f32 / ranks.world as f32)),
    }
}

fn pack(dtype: DataType, elements: impl Iterator<Item = u64>) -> Vec<u8> {
    elements.flat_map(|bits| bits.to_le_bytes().into_iter().take(dtype.size())).collect()
}

/// All that a rank gives to a call: the bytes of its send buffer.
pub fn input(call: &Call, rank: u32, count: u64) -> Vec<u8> {
    pack(call.dtype, (0..count).map(|at| element(call, rank, at)))
}

/// What a call leaves in a rank's receive buffer of `count` elements: runs of bytes, and the element at which each begins. What
/// lies between them it does not touch.
pub fn output(call: &Call, ranks: &Ranks, rank: u32, count: u64) -> Vec<(u64, Vec<u8>)> {
    let from = |peer: u32, at: u64| element(call, peer, at);
    let block = call.count.max(1);
    let split = |at: u64| ((at / block) as u32, at % block);
    let own = u64::from(rank) * call.count;
    let all = |of: &dyn Fn(u64) -> u64| vec![(0, pack(call.dtype, (0..count).map(of)))];
    let sums: Vec<u64> = match call.what.reduces() {
        true => (0..PERIOD.min(own + count)).map(|at| reduced(call, ranks, at)).collect(),
        false => Vec::new(),
    };
    let sum = |at: u64| sums[(at % PERIOD) as usize];
    match call.what {
        What::AllReduce | What::Reduce(_) => all(&sum),
        What::ReduceScatter => all(&|at| sum(own + at)),
        What::AllGather | What::Gather(_) => all(&|at| from(split(at).0, split(at).1)),
        What::AllToAll => all(&|at| from(split(at).0, own + split(at).1)),
        What::Broadcast(root) => all(&|at| from(root, at)),
        What::Scatter(root) => all(&|at| from(root, own + at)),
        What::AllToAllV
        | What::AllGatherV
        | What::Transfers
        | What::Transfer { .. }
        | What::Shift(_) => {
            let run = |block: Block| {
                let elements =
                    (block.there..block.there + block.count).map(|at| from(block.peer, at));
                (block.at, pack(call.dtype, elements))
            };
            call.receives(ranks.world, rank).into_iter().map(run).collect()
        }
    }
}
