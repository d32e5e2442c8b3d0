//! Floating point of 16 bits or less on the simulated driver, a test fixture: every code of every type, by each way that the
//! device library has for an architecture, bit for bit what the host's kernels compute.
//!
//! The fixture has words of its own for the instructions of GPUs; what is shown of these is what is made of them.

#[macro_use]
#[path = "../../../tests/gpusim/tests/support/mod.rs"]
mod support;

// Cargo builds the driver's library for it.
use antiphon_gpusim as _;

use antiphon_codegen::{Target, divide};
use antiphon_hal::kernels;
use antiphon_plan::{DataType, ReduceOp};
use std::ffi::CStr;
use support::Driver;

/// Each operator on two sources, on three, and on two element by element.
const KERNEL: &str = "
template <class Op> AP_INLINE void all(const Vector *a, const Vector *b, const Vector *c, Vector *to, u64 vectors) {
    for (u64 i = AP_THREAD(); i < vectors; i += AP_THREADS()) {
        typename Accumulator<Op, 2, Vector>::Type two;
        two.take(a[i]);
        two.template combine<Op>(b[i]);
        to[i] = two.result();
        typename Accumulator<Op, 3, Vector>::Type three;
        three.take(a[i]);
        three.template combine<Op>(b[i]);
        three.template combine<Op>(c[i]);
        to[vectors + i] = three.result();
        const Stored *left = (const Stored *)(a + i), *right = (const Stored *)(b + i);
        for (u32 k = 0; k < 16 / sizeof(Stored); ++k) {
            const Wide wide = Op::template apply<Wide>(widened(left[k]), widened(right[k]));
            ((Stored *)(to + 2 * vectors + i))[k] = narrowed(wide);
        }
    }
}
AP_KERNEL(512) combine_all(u64 a, u64 b, u64 c, u64 to, u64 vectors) {
    const Vector *from[3] = {(const Vector *)a, (const Vector *)b, (const Vector *)c};
    all<Sum>(from[0], from[1], from[2], (Vector *)to, vectors);
    all<Prod>(from[0], from[1], from[2], (Vector *)to + 3 * vectors, vectors);
    all<Min>(from[0], from[1], from[2], (Vector *)to + 6 * vectors, vectors);
    all<Max>(from[0], from[1], from[2], (Vector *)to + 9 * vectors, vectors);
}
";

const OPS: [ReduceOp; 4] = [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max];

/// One without arithmetic of two floats at once, one with, and one that has conversions of 8-bit floats as well.
const ARCHITECTURES: [&CStr; 3] = [c"sm_70", c"sm_80", c"sm_90"];

/// Codes in no order.
fn scattered(index: usize) -> u16 {
    let mixed = (index as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 40) as u16
}

/// Three sources: all pairs of 8-bit codes; all 16-bit codes beside zeros, beside any, and beside those whose bits end
/// where the code's rounding begins.
fn sources(dtype: DataType) -> [Vec<u8>; 3] {
    let mut all = [const { Vec::new() }; 3];
    for index in 0..1_usize << 16 {
        let code = index as u16;
        if dtype.size() == 1 {
            let third = scattered(index) as u8;
            for (source, code) in all.iter_mut().zip([code as u8, (code >> 8) as u8, third]) {
                source.push(code);
            }
            continue;
        }
        let (any, other) = (scattered(index), scattered(index + (1 << 16)));
        let mantissa = if dtype == DataType::F16 { 10 } else { 7 };
        let below = (code & 0x7fff).saturating_sub((any % 4 + mantissa - 1) << mantissa);
        let below = below & !((1 << mantissa) - 1) | other & 0x8000;
        for codes in [[code, 0, 0], [code, any, other], [code, below, any & 0x8000 | 1]] {
            for (source, code) in all.iter_mut().zip(codes) {
                source.extend_from_slice(&code.to_le_bytes());
            }
        }
    }
    all
}

/// What the host's kernels make of some sources.
fn by_host(dtype: DataType, op: ReduceOp, sources: &[Vec<u8>]) -> Vec<u8> {
    let mut to = vec![0_u8; sources[0].len()];
    let from: Vec<*const u8> = sources.iter().map(|source| source.as_ptr()).collect();
    // SAFETY: all have as many bytes, and the destination is none of the sources.
    unsafe { kernels::reduce(dtype, op, &[to.as_mut_ptr()], &from, sources[0].len()) };
    to
}

fn every_code(dtype: DataType) {
    let driver = Driver::start();
    let sources = sources(dtype);
    let bytes = sources[0].len();
    let places = sources.each_ref().map(|source| {
        let place = driver.allocate(bytes);
        driver.write(place, source);
        place
    });
    let to = driver.allocate(12 * bytes);
    let text = divide::text(Target::Cuda, dtype) + KERNEL;
    for architecture in ARCHITECTURES {
        let function = driver.function(driver.module_for(&text, architecture), "combine_all");
        let [a, b, c] = places;
        assert_eq!(driver.launch(function, 1, 32, 0, &[a, b, c, to, bytes as u64 / 16]), 0);
        driver.finish(0);
        let found: Vec<u8> = driver.read(to, 12 * bytes);
        for (op, found) in OPS.into_iter().zip(found.chunks(3 * bytes)) {
            let two = by_host(dtype, op, &sources[..2]);
            let three = by_host(dtype, op, &sources);
            for (what, found) in found.chunks(bytes).enumerate() {
                let expected = if what == 1 { &three } else { &two };
                let mut pairs = found.chunks(dtype.size()).zip(expected.chunks(dtype.size()));
                if let Some(at) = pairs.position(|(found, expected)| found != expected) {
                    let range = at * dtype.size()..(at + 1) * dtype.size();
                    let codes = sources.each_ref().map(|source| &source[range.clone()]);
                    panic!(
                        "{dtype} {op:?} {what} for {architecture:?}: {codes:x?} give {:x?} and not {:x?}",
                        &found[range.clone()],
                        &expected[range]
                    );
                }
            }
        }
    }
}

macro_rules! every_code {
    ($($name:ident: $dtype:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                every_code(DataType::$dtype);
            }
        )*
    };
}

every_code! { f16: F16, bf16: Bf16, f8e4m3: F8E4m3, f8e5m2: F8E5m2 }

/// What a finite code is in steps of the smallest one. Of bf16, exponents up to 100 fit.
fn steps(code: u16, mantissa: u32) -> i128 {
    let magnitude = u32::from(code & 0x7fff);
    let (exponent, fraction) = (magnitude >> mantissa, magnitude & ((1 << mantissa) - 1));
    let significand = if exponent == 0 { fraction } else { fraction | 1 << mantissa };
    let steps = i128::from(significand) << exponent.saturating_sub(1);
    if code & 0x8000 == 0 { steps } else { -steps }
}

/// The nearest code to a number of steps, the even one of two as near.
fn nearest(steps: i128, mantissa: u32) -> u16 {
    let magnitude = steps.unsigned_abs();
    let drop = (128 - magnitude.leading_zeros()).saturating_sub(mantissa + 1);
    let (kept, rest) = (magnitude >> drop, magnitude & ((1 << drop) - 1));
    let half = (1_u128 << drop) >> 1;
    let up = drop > 0 && (rest > half || rest == half && kept & 1 == 1);
    // What carries beyond the fraction counts the exponent up.
    let code = ((drop << mantissa) + kept as u32 + u32::from(up)) as u16;
    if steps < 0 { code | 0x8000 } else { code }
}

/// Instructions that add two floats of 16 bits round their sum once, and the host rounds it to 32 bits before.
#[test]
fn sums_of_two_are_those_that_are_rounded_once() {
    for (dtype, mantissa, most) in
        [(DataType::F16, 10, 30_u16 << 10), (DataType::Bf16, 7, 100 << 7)]
    {
        let mut codes = [const { Vec::new() }; 2];
        for left in 0..most {
            for index in 0..64 {
                let right = scattered(usize::from(left) * 64 + index);
                let far = right & 0x7fff;
                // Half of them at most two exponents more than the fraction away.
                let near = left.saturating_sub(far % ((mantissa as u16 + 2) << mantissa));
                let right = if index % 2 == 0 { far % most } else { near } | right & 0x8000;
                for (codes, code) in codes.iter_mut().zip([left, right]) {
                    codes.extend_from_slice(&code.to_le_bytes());
                }
            }
        }
        let sums = by_host(dtype, ReduceOp::Sum, &codes);
        let code = |bytes: &[u8]| u16::from_le_bytes(bytes.try_into().expect("2 bytes"));
        for ((a, b), sum) in codes[0].chunks(2).zip(codes[1].chunks(2)).zip(sums.chunks(2)) {
            let exact = steps(code(a), mantissa) + steps(code(b), mantissa);
            assert_eq!(code(sum), nearest(exact, mantissa), "{dtype}: {a:x?} and {b:x?}");
        }
    }
}
