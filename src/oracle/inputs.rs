//! Random inputs as a pure function of (seed, rank, launch, element).
//!
//! A counter-based generator (the finaliser of SplitMix64 over a keyed counter) makes any element directly, so
//! buffers are filled and checked piecewise, by whoever needs them.
//!
//! Floats are drawn as codes of their format, so every input is a number of the type: a random sign and mantissa
//! with an exponent from 2^-4 to 2^1, hence 1/16 <= |x| < 4 (one in 64 is zero). For products, where magnitudes
//! multiply, the exponent is that of [1, 2) or [1/2, 1) with the sign random. Integers take any value of the type,
//! except for averages, where |x| is kept so small that no sum over the ranks wraps.

use super::number::FloatFormat;
use antiphon_types::{DataType, ReduceOp};

/// How to make the inputs of every rank and launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inputs {
    /// Different seeds give unrelated inputs.
    pub seed: u64,
    /// Number of ranks.
    pub ranks: u32,
    /// Type of the elements.
    pub dtype: DataType,
    /// The reduction they are made for; `None` where data only moves.
    pub op: Option<ReduceOp>,
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finaliser of SplitMix64: a bijection in which every input bit affects every output bit.
const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Inputs {
    /// The stream of one rank's input in one launch.
    pub fn stream(&self, rank: u32, launch: u64) -> Stream {
        let key = mix(mix(self.seed ^ GOLDEN).wrapping_add(u64::from(rank)).wrapping_mul(GOLDEN));
        let key = mix(key.wrapping_add(launch).wrapping_mul(GOLDEN));
        Stream { key, draw: Draw::new(self) }
    }
}

/// The input of one rank in one launch.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    key: u64,
    draw: Draw,
}

/// How random bits become an element.
#[derive(Clone, Copy, Debug)]
enum Draw {
    /// A code of a floating-point format.
    Float { format: FloatFormat, lowest_exponent: i32, exponents: u64, zeros: bool },
    /// Any bits.
    Bits,
    /// An integer in `low..=low + span`.
    Range { low: i64, span: u64 },
}

impl Draw {
    fn new(inputs: &Inputs) -> Self {
        if let Some(format) = FloatFormat::of(inputs.dtype) {
            let product = inputs.op == Some(ReduceOp::Prod);
            let (lowest_exponent, exponents) = if product { (-1, 2) } else { (-4, 6) };
            return Draw::Float { format, lowest_exponent, exponents, zeros: !product };
        }
        if inputs.op != Some(ReduceOp::Avg) {
            return Draw::Bits;
        }
        let ranks = i64::from(inputs.ranks.max(1));
        let (low, high) = match inputs.dtype {
            DataType::I8 => (i64::from(i8::MIN), i64::from(i8::MAX)),
            DataType::U8 => (0, i64::from(u8::MAX)),
            DataType::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
            DataType::U32 => (0, i64::from(u32::MAX)),
            DataType::U64 => (0, i64::MAX),
            _ => (i64::MIN, i64::MAX),
        };
        let (low, high) = (low / ranks, high / ranks);
        Draw::Range { low, span: high.wrapping_sub(low) as u64 }
    }
}

impl Stream {
    /// The bits of an element, in the low bits of the result.
    #[inline]
    pub fn bits(&self, element: u64) -> u64 {
        let random = mix(self.key.wrapping_add(element.wrapping_mul(GOLDEN)));
        match self.draw {
            Draw::Bits => random,
            Draw::Range { low, span } => {
                let offset = ((u128::from(random) * (u128::from(span) + 1)) >> 64) as u64;
                (low as u64).wrapping_add(offset)
            }
            Draw::Float { format, lowest_exponent, exponents, zeros } => {
                // The mantissa takes the high bits, so the choices below take low ones. Only f64 has them meet,
                // where the last mantissa bits may as well follow the exponent.
                if zeros && random & 63 == 0 {
                    return 0;
                }
                let mantissa_bits = format.mantissa_bits;
                let mantissa = random >> (64 - mantissa_bits);
                let exponent = (random >> 7) % exponents;
                let field = (format.bias() + lowest_exponent) as u64 + exponent;
                let sign = (random >> 6) & 1;
                sign << (format.exponent_bits + mantissa_bits) | field << mantissa_bits | mantissa
            }
        }
    }

    /// Writes the elements from `first` on into `bytes`, whose length is a multiple of the element size.
    pub fn fill(&self, dtype: DataType, first: u64, bytes: &mut [u8]) {
        for (element, slot) in (first..).zip(bytes.chunks_exact_mut(dtype.size())) {
            slot.copy_from_slice(&self.bits(element).to_le_bytes()[..dtype.size()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::number::{Value, decode};
    use super::*;

    fn inputs(dtype: DataType, op: Option<ReduceOp>) -> Inputs {
        Inputs { seed: 7, ranks: 4, dtype, op }
    }

    #[test]
    fn floats_are_numbers_of_their_range() {
        for dtype in DataType::ALL.into_iter().filter(|dtype| dtype.is_float()) {
            for (op, low, high) in
                [(Some(ReduceOp::Sum), 1.0 / 16.0, 4.0), (Some(ReduceOp::Prod), 0.5, 2.0)]
            {
                let stream = inputs(dtype, op).stream(1, 2);
                let mut zeros = 0;
                for element in 0..20_000 {
                    let Value::Float(value) = decode(dtype, stream.bits(element)) else {
                        panic!("{dtype} is a float")
                    };
                    zeros += u32::from(value == 0.0);
                    assert!(
                        value == 0.0 || (low..high).contains(&value.abs()),
                        "{dtype} {op:?}: {value}"
                    );
                }
                assert_eq!(zeros == 0, op == Some(ReduceOp::Prod), "{dtype} {op:?}: {zeros} zeros");
            }
        }
    }

    #[test]
    fn averaged_integers_cannot_wrap() {
        for dtype in DataType::ALL.into_iter().filter(|dtype| !dtype.is_float()) {
            let inputs = inputs(dtype, Some(ReduceOp::Avg));
            for element in 0..5_000 {
                let sum: i128 = (0..4)
                    .map(|rank| match decode(dtype, inputs.stream(rank, 0).bits(element)) {
                        Value::Integer(value) => value,
                        Value::Float(value) => panic!("{dtype} decoded to {value}"),
                    })
                    .sum();
                assert_eq!(super::super::number::wrap(dtype, sum), sum, "{dtype}");
            }
        }
    }

    #[test]
    fn streams_differ_and_pieces_join() {
        let inputs = inputs(DataType::F32, None);
        let mut whole = vec![0; 400];
        inputs.stream(0, 0).fill(DataType::F32, 0, &mut whole);
        let mut piece = vec![0; 100];
        inputs.stream(0, 0).fill(DataType::F32, 50, &mut piece);
        assert_eq!(whole[200..300], piece[..]);
        for (rank, launch) in [(1, 0), (0, 1)] {
            let mut other = vec![0; 400];
            inputs.stream(rank, launch).fill(DataType::F32, 0, &mut other);
            assert_ne!(whole, other, "rank {rank} launch {launch}");
        }
    }
}
