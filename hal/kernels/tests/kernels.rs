//! The kernels of every instruction set of this machine against an independent scalar reference, bit for bit.
//!
//! The reference works in exact arithmetic where it can: 8-bit floats are decoded by their definition and encoded by
//! searching the nearest of all codes; 16-bit floats go through the `half` crate.

use std::cmp::Ordering;

use antiphon_kernels::{self as kernels, Isa, Kernels};
use antiphon_types::{DataType, ReduceOp};
use proptest::prelude::*;

fn all_kernels() -> Vec<&'static Kernels> {
    let found: Vec<_> = Isa::ALL.into_iter().filter_map(Kernels::for_isa).collect();
    assert!(found.iter().any(|k| k.isa() == Kernels::active().isa()));
    found
}

/// The value of an 8-bit float code by definition: exponent and mantissa fields, as an exact binary64.
fn decode8(code: u8, mantissa_bits: u32, bias: i32, has_infinity: bool) -> f64 {
    let exponent = i32::from(code & 0x7F) >> mantissa_bits;
    let fraction = f64::from(code & ((1 << mantissa_bits) - 1)) / f64::from(1 << mantissa_bits);
    let magnitude = match code & 0x7F {
        0x7C if has_infinity => f64::INFINITY,
        0x7D.. if has_infinity => f64::NAN,
        0x7F => f64::NAN,
        _ if exponent == 0 => fraction * 2f64.powi(1 - bias),
        _ => (1.0 + fraction) * 2f64.powi(exponent - bias),
    };
    if code & 0x80 == 0 { magnitude } else { -magnitude }
}

/// Decodes E4M3 or E5M2.
fn float8(dtype: DataType, code: u8) -> f64 {
    match dtype {
        DataType::F8E4m3 => decode8(code, 3, 7, false),
        _ => decode8(code, 2, 15, true),
    }
}

/// The code nearest to `x` among all finite ones; of two as near, the one with the even code.
fn nearest8(dtype: DataType, x: f32) -> u8 {
    if x.is_nan() {
        return 0x7F;
    }
    let largest = if dtype == DataType::F8E4m3 { 448.0 } else { 57344.0 };
    let x = f64::from(x).clamp(-largest, largest);
    let magnitude = (0..0x7F_u8)
        .filter(|&code| float8(dtype, code).is_finite())
        .min_by(|&a, &b| {
            let distance = |code| (float8(dtype, code) - x.abs()).abs();
            distance(a).partial_cmp(&distance(b)).unwrap().then((a & 1).cmp(&(b & 1)))
        })
        .unwrap();
    magnitude | if x.is_sign_negative() { 0x80 } else { 0 }
}

/// One element as the reference holds it.
#[derive(Clone, Copy, Debug)]
enum Value {
    F32(f32),
    F64(f64),
    Int(i128),
}

fn decode(dtype: DataType, bytes: &[u8]) -> Value {
    macro_rules! le {
        ($t:ty) => {
            <$t>::from_le_bytes(bytes.try_into().unwrap())
        };
    }
    match dtype {
        DataType::F16 => Value::F32(half::f16::from_bits(le!(u16)).to_f32()),
        DataType::Bf16 => Value::F32(half::bf16::from_bits(le!(u16)).to_f32()),
        DataType::F32 => Value::F32(le!(f32)),
        DataType::F64 => Value::F64(le!(f64)),
        DataType::I8 => Value::Int(le!(i8).into()),
        DataType::U8 => Value::Int(le!(u8).into()),
        DataType::I32 => Value::Int(le!(i32).into()),
        DataType::U32 => Value::Int(le!(u32).into()),
        DataType::I64 => Value::Int(le!(i64).into()),
        DataType::U64 => Value::Int(le!(u64).into()),
        DataType::F8E4m3 | DataType::F8E5m2 => Value::F32(float8(dtype, bytes[0]) as f32),
    }
}

fn encode(dtype: DataType, value: Value) -> Vec<u8> {
    match (dtype, value) {
        (DataType::F16, Value::F32(x)) if x.is_nan() => vec![0x00, 0x7E],
        (DataType::Bf16, Value::F32(x)) if x.is_nan() => vec![0xC0, 0x7F],
        (DataType::F16, Value::F32(x)) => half::f16::from_f32(x).to_le_bytes().to_vec(),
        (DataType::Bf16, Value::F32(x)) => half::bf16::from_f32(x).to_le_bytes().to_vec(),
        (DataType::F32, Value::F32(x)) => x.to_le_bytes().to_vec(),
        (DataType::F64, Value::F64(x)) => x.to_le_bytes().to_vec(),
        (DataType::F8E4m3 | DataType::F8E5m2, Value::F32(x)) => vec![nearest8(dtype, x)],
        (_, Value::Int(x)) => x.to_le_bytes()[..dtype.size()].to_vec(),
        other => unreachable!("{other:?}"),
    }
}

/// The lesser of two floats by total order of values, -0.0 below +0.0, unless one is NaN.
fn lesser<F: Copy + PartialOrd>(a: F, b: F, total: fn(&F, &F) -> Ordering, want: Ordering) -> F {
    match a.partial_cmp(&b) {
        None if b.partial_cmp(&b).is_none() => b,
        None => a,
        Some(_) => {
            if total(&a, &b) == want {
                a
            } else {
                b
            }
        }
    }
}

fn combine(dtype: DataType, op: ReduceOp, a: Value, b: Value) -> Value {
    let want = if op == ReduceOp::Min { Ordering::Less } else { Ordering::Greater };
    match (a, b) {
        (Value::F32(a), Value::F32(b)) => Value::F32(match op {
            ReduceOp::Sum | ReduceOp::Avg => a + b,
            ReduceOp::Prod => a * b,
            ReduceOp::Min | ReduceOp::Max => lesser(a, b, f32::total_cmp, want),
        }),
        (Value::F64(a), Value::F64(b)) => Value::F64(match op {
            ReduceOp::Sum | ReduceOp::Avg => a + b,
            ReduceOp::Prod => a * b,
            ReduceOp::Min | ReduceOp::Max => lesser(a, b, f64::total_cmp, want),
        }),
        (Value::Int(a), Value::Int(b)) => {
            let exact = match op {
                ReduceOp::Sum | ReduceOp::Avg => a + b,
                ReduceOp::Prod => a.wrapping_mul(b),
                ReduceOp::Min => a.min(b),
                ReduceOp::Max => a.max(b),
            };
            // Back into the range of the type, as two's complement wraps.
            decode(dtype, &exact.to_le_bytes()[..dtype.size()])
        }
        other => unreachable!("{other:?}"),
    }
}

fn reference(dtype: DataType, op: ReduceOp, srcs: &[Vec<u8>]) -> Vec<u8> {
    if let [src] = srcs {
        return src.clone();
    }
    let size = dtype.size();
    (0..srcs[0].len() / size)
        .flat_map(|i| {
            let mut values = srcs.iter().map(|s| decode(dtype, &s[i * size..][..size]));
            let first = values.next().unwrap();
            encode(dtype, values.fold(first, |a, b| combine(dtype, op, a, b)))
        })
        .collect()
}

/// Bit-equal, but for the payload of f32 and f64 NaNs, which IEEE leaves to the CPU.
fn assert_same(dtype: DataType, found: &[u8], expected: &[u8], context: &str) {
    let size = dtype.size();
    assert_eq!(found.len(), expected.len(), "{context}");
    for (i, (f, e)) in found.chunks(size).zip(expected.chunks(size)).enumerate() {
        let nan = |bytes| match decode(dtype, bytes) {
            Value::F32(x) if size == 4 => x.is_nan(),
            Value::F64(x) => x.is_nan(),
            _ => false,
        };
        assert!(f == e || (f.len() == size && nan(f) && nan(e)), "{context} [{i}]: {f:x?} {e:x?}");
    }
}

/// Deterministic bytes; with few distinct values in a way that special values and ties are frequent.
fn fill(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    const SPECIAL: [u8; 12] = [0, 0x80, 0x7F, 0xFF, 0x7C, 0xFC, 0x3F, 0x40, 0xC0, 0x01, 0x78, 0x7E];
    (0..bytes)
        .map(|_| match next() {
            x if x % 3 == 0 => SPECIAL[(x >> 32) as usize % SPECIAL.len()],
            x => (x >> 40) as u8,
        })
        .collect()
}

/// A buffer whose payload begins `skew` bytes after an 8-aligned address, with guard bytes around it.
struct Skewed {
    words: Vec<u64>,
    skew: usize,
    len: usize,
}

const GUARD: usize = 64;

impl Skewed {
    fn new(data: &[u8], skew: usize) -> Self {
        let mut skewed = Skewed {
            words: vec![0xA5A5_A5A5_A5A5_A5A5; (data.len() + skew + 2 * GUARD).div_ceil(8)],
            skew,
            len: data.len(),
        };
        // SAFETY: the vector has room for guard, skew and data.
        unsafe { skewed.ptr().copy_from(data.as_ptr(), data.len()) };
        skewed
    }

    fn ptr(&mut self) -> *mut u8 {
        // SAFETY: guard and skew lie within the vector.
        unsafe { self.words.as_mut_ptr().cast::<u8>().add(GUARD + self.skew) }
    }

    /// The payload, once nothing else is found to be changed.
    fn checked(&self) -> &[u8] {
        // SAFETY: any bytes of a vector of u64 are initialised u8.
        let (_, bytes, _) = unsafe { self.words.align_to::<u8>() };
        let (before, rest) = bytes.split_at(GUARD + self.skew);
        let (payload, after) = rest.split_at(self.len);
        assert!(before.iter().chain(after).all(|&b| b == 0xA5), "wrote outside the buffer");
        payload
    }
}

/// One reduction on every instruction set; `in_place` names the source that is the first destination, too.
fn check_reduce(
    dtype: DataType,
    op: ReduceOp,
    data: &[Vec<u8>],
    skews: &[usize],
    destinations: usize,
    in_place: Option<usize>,
) {
    let expected = reference(dtype, op, data);
    for kernels in all_kernels() {
        let mut srcs: Vec<_> = data.iter().zip(skews).map(|(d, &s)| Skewed::new(d, s)).collect();
        let mut outs: Vec<_> = (0..destinations)
            .map(|i| Skewed::new(&vec![0xEE; expected.len()], skews[i % skews.len()] ^ 1))
            .collect();
        let src_ptrs: Vec<*const u8> = srcs.iter_mut().map(|s| s.ptr().cast_const()).collect();
        let mut dst_ptrs: Vec<*mut u8> = outs.iter_mut().map(Skewed::ptr).collect();
        if let Some(i) = in_place {
            dst_ptrs[0] = srcs[i].ptr();
        }
        // SAFETY: all buffers have the length of `expected`, and only the named source is a destination.
        unsafe { kernels.reduce(dtype, op, &dst_ptrs, &src_ptrs, expected.len()) };
        for (i, out) in outs.iter().enumerate() {
            let found = match in_place {
                Some(src) if i == 0 => srcs[src].checked(),
                _ => out.checked(),
            };
            let context = format!(
                "{} {dtype} {op} {} -> {destinations}, in place {in_place:?}, {} bytes",
                kernels.isa(),
                data.len(),
                expected.len()
            );
            assert_same(dtype, found, &expected, &context);
        }
    }
}

#[test]
fn every_type_operator_and_number_of_sources_matches_the_reference() {
    for dtype in DataType::ALL {
        for op in ReduceOp::ALL {
            for sources in 1..=9 {
                // Lengths around the block sizes, so that blocks, short blocks and single elements all occur.
                let count = [1, 7, 9, 31, 33, 67, 149][(sources + op as usize) % 7];
                let data: Vec<_> = (0..sources)
                    .map(|s| fill((s * 64 + dtype as usize) as u64 + 1, count * dtype.size()))
                    .collect();
                let skews: Vec<_> = (0..sources).map(|s| (s * 3 + op as usize) % 8).collect();
                check_reduce(dtype, op, &data, &skews, 1 + sources % 3, None);
                check_reduce(dtype, op, &data, &skews, 1 + sources % 2, Some(sources / 2));
            }
        }
    }
}

#[test]
fn long_reductions_match_the_reference_across_tiles() {
    for dtype in DataType::ALL {
        for (sources, destinations) in [(2, 1), (2, 2), (3, 1), (4, 2), (7, 3), (9, 1)] {
            let data: Vec<_> = (0..sources)
                .map(|s| fill((s * 64 + dtype as usize) as u64 + 1, 20_003 * dtype.size()))
                .collect();
            let place = (destinations == 1).then_some(sources - 1);
            let skews: Vec<_> = (0..sources).map(|s| s % 8).collect();
            check_reduce(dtype, ReduceOp::Sum, &data, &skews, destinations, place);
        }
    }
}

#[test]
fn all_pairs_of_8_bit_floats_reduce_to_the_nearest_code() {
    for dtype in [DataType::F8E4m3, DataType::F8E5m2] {
        let a: Vec<u8> = (0..=u16::MAX).map(|x| x as u8).collect();
        let b: Vec<u8> = (0..=u16::MAX).map(|x| (x >> 8) as u8).collect();
        for op in [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max] {
            check_reduce(dtype, op, &[a.clone(), b.clone()], &[0, 0], 1, None);
        }
    }
}

#[test]
fn every_16_bit_code_survives_a_sum_with_zero_and_a_product_with_its_neighbour() {
    let codes: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let shuffled: Vec<u8> =
        (0..=u16::MAX).map(|x| x.wrapping_mul(0x6255)).flat_map(u16::to_le_bytes).collect();
    let zeros = vec![0; codes.len()];
    for dtype in [DataType::F16, DataType::Bf16] {
        check_reduce(dtype, ReduceOp::Sum, &[codes.clone(), zeros.clone()], &[0, 0], 1, None);
        for op in [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max] {
            check_reduce(dtype, op, &[codes.clone(), shuffled.clone()], &[0, 0], 1, None);
        }
    }
}

#[test]
fn a_narrow_sum_rounds_once_at_the_end() {
    // 2048 + 1 + 1 is 2050 in binary16; rounding after each step would stay at 2048.
    let bytes = |x: f32| half::f16::from_f32(x).to_le_bytes().to_vec();
    let sum = reference(DataType::F16, ReduceOp::Sum, &[bytes(2048.), bytes(1.), bytes(1.)]);
    assert_eq!(sum, bytes(2050.));
    let data = [bytes(2048.), bytes(1.), bytes(1.)];
    check_reduce(DataType::F16, ReduceOp::Sum, &data, &[0, 0, 0], 1, None);
}

/// `x / n` as documented: floats in their accumulator, integers towards zero.
fn quotient(dtype: DataType, x: Value, n: u32) -> Vec<u8> {
    let value = match x {
        Value::F32(x) => Value::F32(x / n as f32),
        Value::F64(x) => Value::F64(x / f64::from(n)),
        Value::Int(x) => Value::Int(x / i128::from(n)),
    };
    encode(dtype, value)
}

#[test]
fn division_matches_the_reference_and_integers_truncate() {
    for dtype in DataType::ALL {
        for n in [0, 1, 2, 3, 5, 7, 8, 127, 128, 255, 1 << 24, (1 << 24) + 1, u32::MAX] {
            let mut data = fill(u64::from(n) + 77, 101 * dtype.size());
            let extremes: [&[u8]; 2] = [&[0, 0, 0, 0, 0, 0, 0, 0x80], &[0xFF; 8]];
            for (i, extreme) in extremes.iter().enumerate() {
                let size = dtype.size();
                data[i * size..][..size].copy_from_slice(&extreme[8 - size..]);
            }
            let expected: Vec<u8> = match n {
                0 | 1 => data.clone(),
                _ => data
                    .chunks(dtype.size())
                    .flat_map(|x| quotient(dtype, decode(dtype, x), n))
                    .collect(),
            };
            for kernels in all_kernels() {
                let mut buffer = Skewed::new(&data, 3);
                // SAFETY: the buffer has the length of the data.
                unsafe { kernels.divide(dtype, buffer.ptr(), data.len(), n) };
                let context = format!("{} {dtype} / {n}", kernels.isa());
                assert_same(dtype, buffer.checked(), &expected, &context);
            }
        }
    }
}

#[test]
fn copies_of_every_short_length_and_some_long_ones() {
    for len in (0..=300).chain([2047, 2048, 2049, 16 << 10, (16 << 10) + 5, 100_001]) {
        let data = fill(len as u64 + 5, len);
        let mut src = Skewed::new(&data, len % 8);
        let mut dsts = [1, 2, 5].map(|skew| Skewed::new(&vec![0; len], skew));
        let [a, b, c] = &mut dsts;
        // SAFETY: all buffers have `len` bytes.
        unsafe {
            kernels::copy(a.ptr(), src.ptr(), len);
            kernels::copy(src.ptr(), src.ptr(), len);
            kernels::copy_to(&[b.ptr(), c.ptr()], src.ptr(), len);
        }
        assert_eq!(src.checked(), data);
        for dst in &dsts {
            assert_eq!(dst.checked(), data, "{len}");
        }
    }
}

/// Packets made word by word.
fn packets(data: &[u8], padded: usize, flag: u32) -> Vec<u8> {
    let mut data = data.to_vec();
    data.resize(padded, 0);
    data.chunks(4).flat_map(|word| [word, &flag.to_le_bytes()].concat()).collect()
}

#[test]
fn packets_pack_unpack_and_forward_up_to_the_first_stale_unit() {
    for kernels in all_kernels() {
        for len in (0..=140_usize).chain([1000, 4096]) {
            let padded = len.next_multiple_of(8) + (len % 3) * 4;
            let (data, flag) =
                (fill(len as u64 + 9, len), 0x8000_0001_u32.wrapping_add(len as u32));
            let context = format!("{} {len} of {padded}", kernels.isa());
            let expected = packets(&data, padded, flag);
            let mut src = Skewed::new(&data, len % 4);
            let mut images = [(); 3].map(|()| Skewed::new(&vec![0; 2 * padded], 0));
            let [one, two, three] = &mut images;
            // SAFETY: the source has `len` bytes, the images twice `padded`, 8-aligned.
            unsafe {
                kernels.pack_to(&[one.ptr()], src.ptr(), len, padded, flag);
                kernels.pack_to(&[two.ptr(), three.ptr()], src.ptr(), len, padded, flag);
            }
            for image in &images {
                assert_eq!(image.checked(), expected, "{context}");
            }
            for stale in (0..=padded / 4).filter(|s| s % 5 == len % 5 || s * 4 == padded) {
                let mut image = expected.clone();
                if stale * 4 < padded {
                    image[stale * 8 + 4..][..4].copy_from_slice(&(flag - 1).to_le_bytes());
                }
                let mut from = Skewed::new(&image, 0);
                let mut out = Skewed::new(&vec![0xEE; len], 3);
                let mut onward = [(); 2].map(|()| Skewed::new(&vec![0xEE; 2 * padded], 0));
                let targets = onward.each_mut().map(Skewed::ptr);
                // SAFETY: as above.
                let counts = unsafe {
                    [
                        kernels.unpack(out.ptr(), from.ptr(), len, padded, flag),
                        kernels.forward(&targets, from.ptr(), padded, flag),
                        kernels.forward(&targets[..1], from.ptr(), padded, flag),
                    ]
                };
                assert_eq!(counts, [stale * 4; 3], "{context}");
                let ready = len.min(stale * 4);
                assert_eq!(out.checked()[..ready], data[..ready], "{context}");
                assert!(out.checked()[ready..].iter().all(|&b| b == 0xEE), "{context}");
                for image in &onward {
                    assert_eq!(image.checked()[..stale * 8], expected[..stale * 8], "{context}");
                    assert!(image.checked()[stale * 8..].iter().all(|&b| b == 0xEE), "{context}");
                }
            }
        }
    }
}

#[test]
fn a_reader_never_sees_a_flag_without_its_data() {
    const ROUNDS: u32 = 2000;
    const BYTES: usize = 4 * 37;
    for kernels in all_kernels() {
        let mut packets = vec![0u64; BYTES / 4];
        let shared = packets.as_mut_ptr().expose_provenance();
        let back = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for round in 1..=ROUNDS {
                    let data = [round.wrapping_mul(0x0101_0101); BYTES / 4];
                    let to = std::ptr::with_exposed_provenance_mut(shared);
                    // SAFETY: the vector outlives the scope; the reader acknowledged the round before.
                    unsafe { kernels.pack_to(&[to], data.as_ptr().cast(), BYTES, BYTES, round) };
                    while back.load(std::sync::atomic::Ordering::Acquire) != round {
                        std::thread::yield_now();
                    }
                }
            });
            for round in 1..=ROUNDS {
                let (mut data, mut at) = ([0u32; BYTES / 4], 0);
                while at < BYTES {
                    let from = std::ptr::with_exposed_provenance(shared + 2 * at);
                    // SAFETY: `at` stays within the data and twice that within the packets.
                    at += unsafe {
                        let to = data.as_mut_ptr().cast::<u8>().add(at);
                        kernels.unpack(to, from, BYTES - at, BYTES - at, round)
                    };
                    if at < BYTES {
                        std::thread::yield_now();
                    }
                }
                assert_eq!(data, [round.wrapping_mul(0x0101_0101); BYTES / 4]);
                back.store(round, std::sync::atomic::Ordering::Release);
            }
            writer.join().unwrap();
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_reduction_matches_the_reference(
        dtype in prop::sample::select(DataType::ALL.to_vec()),
        op in prop::sample::select(ReduceOp::ALL.to_vec()),
        count in 0usize..400,
        seeds in prop::collection::vec(any::<u64>(), 1..10),
        skew in 0usize..8,
        destinations in 1usize..4,
        in_place in any::<prop::sample::Index>(),
        place in any::<bool>(),
    ) {
        let data: Vec<_> = seeds.iter().map(|&s| fill(s, count * dtype.size())).collect();
        let skews: Vec<_> = (0..data.len()).map(|i| (skew * (i + 1)) % 8).collect();
        let in_place = place.then(|| in_place.index(data.len()));
        check_reduce(dtype, op, &data, &skews, destinations, in_place);
    }
}
