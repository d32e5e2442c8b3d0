//! Measures the host kernels: throughput by data type, operator, size and instruction set, and the time of short calls.
//!
//! `cargo run --release -p antiphon-kernels --example kernels [WORD]...` runs the lines that contain every word. GB/s are
//! 10^9 bytes of result a second, in-cache at 16 KiB; a 2-to-1 reduction moves three times as much.

use std::hint::black_box;
use std::time::{Duration, Instant};

use antiphon_kernels::{self as kernels, Isa, Kernels};
use antiphon_types::{DataType, ReduceOp};

const MAX: usize = 4 << 20;
const SOURCES: usize = 8;

/// The shortest time of one call among several rounds: what the kernel needs when nothing disturbs it.
fn nanos(mut call: impl FnMut()) -> f64 {
    let mut calls = 1u32;
    let mut best = f64::MAX;
    let mut rounds = 0;
    while rounds < 8 {
        let start = Instant::now();
        for _ in 0..calls {
            call();
        }
        let took = start.elapsed();
        if took < Duration::from_micros(300) {
            calls *= 2;
        } else {
            best = best.min(took.as_secs_f64() * 1e9 / f64::from(calls));
            rounds += 1;
        }
    }
    best
}

/// Prints one line, if its name has all the words of the command line.
fn line(name: &str, bytes: usize, call: impl FnMut()) {
    if std::env::args().skip(1).all(|word| name.split_whitespace().any(|w| w == word)) {
        let nanos = nanos(call);
        println!("{name:<44} {nanos:>10.1} ns {:>8.1} GB/s", bytes as f64 / nanos);
    }
}

fn main() {
    // Small values in every format, so that no sum leaves the usual range; 64 bytes apart from each other's pages.
    let mut memory: Vec<Vec<u64>> =
        (0..2 * SOURCES).map(|_| vec![0x3C3C_3C3C_3C3C_3C3C; MAX / 8 + 8]).collect();
    let pointers: Vec<*mut u8> = memory.iter_mut().map(|m| m.as_mut_ptr().cast()).collect();
    let (dsts, srcs) = pointers.split_at(SOURCES);
    // SAFETY (all calls below): every buffer has MAX bytes and is used by this thread alone.
    let srcs: Vec<*const u8> = srcs.iter().map(|p| p.cast_const()).collect();

    for bytes in [4, 8, 16, 64, 256, 1024, 4096, 16 << 10, 256 << 10, MAX] {
        line(&format!("copy {bytes}"), bytes, || {
            // SAFETY: see above.
            unsafe { kernels::copy(black_box(dsts[0]), black_box(srcs[0]), black_box(bytes)) }
        });
        line(&format!("memcpy {bytes}"), bytes, || {
            // SAFETY: see above.
            unsafe {
                black_box(srcs[0]).copy_to_nonoverlapping(black_box(dsts[0]), black_box(bytes));
            }
        });
        line(&format!("copy_to 4 {bytes}"), bytes, || {
            // SAFETY: see above.
            unsafe { kernels::copy_to(black_box(&dsts[..4]), srcs[0], black_box(bytes)) }
        });
    }
    for kernels in Isa::ALL.into_iter().filter_map(Kernels::for_isa) {
        let isa = kernels.isa();
        for dtype in DataType::ALL {
            for op in [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min] {
                for (n, d) in [(2, 1), (2, 2), (3, 1), (4, 1), (8, 1), (8, 8)] {
                    for bytes in [4, 8, 16, 64, 1024, 16 << 10, MAX] {
                        line(&format!("{isa} {dtype} {op} {n}->{d} {bytes}"), bytes, || {
                            // SAFETY: see above.
                            unsafe {
                                let (dsts, srcs) = black_box((&dsts[..d], &srcs[..n]));
                                kernels.reduce(dtype, op, dsts, srcs, black_box(bytes));
                            }
                        });
                    }
                }
            }
            line(&format!("{isa} {dtype} divide 16384"), 16384, || {
                // SAFETY: see above.
                unsafe { kernels.divide(dtype, black_box(dsts[0]), 16384, black_box(1)) }
                // SAFETY: see above.
                unsafe { kernels.divide(dtype, black_box(dsts[1]), 16384, black_box(3)) }
            });
        }
        for bytes in [4, 8, 16, 32, 64, 1024, 16 << 10, 1 << 20] {
            let (raw, packets, out) = (srcs[0], dsts[1], dsts[2]);
            line(&format!("{isa} pack {bytes}"), bytes, || {
                // SAFETY: see above; packets take twice the bytes.
                unsafe { kernels.pack_to(&[black_box(packets)], raw, bytes, black_box(bytes), 7) }
            });
            line(&format!("{isa} pack_to 4 {bytes}"), bytes, || {
                // SAFETY: see above; packets take twice the bytes.
                unsafe { kernels.pack_to(black_box(&dsts[4..]), raw, bytes, black_box(bytes), 7) }
            });
            // SAFETY: see above; packets take twice the bytes.
            unsafe { kernels.pack_to(&[packets], raw, bytes, bytes, 7) };
            line(&format!("{isa} unpack {bytes}"), bytes, || {
                // SAFETY: see above; packets take twice the bytes.
                let n =
                    unsafe { kernels.unpack(out, black_box(packets), bytes, black_box(bytes), 7) };
                assert_eq!(n, bytes);
            });
            line(&format!("{isa} poll {bytes}"), bytes, || {
                // SAFETY: see above; packets take twice the bytes.
                let n =
                    unsafe { kernels.unpack(out, black_box(packets), bytes, black_box(bytes), 8) };
                assert_eq!(n, 0);
            });
            line(&format!("{isa} forward {bytes}"), bytes, || {
                // SAFETY: see above; packets take twice the bytes.
                let n = unsafe { kernels.forward(black_box(&[out]), packets, black_box(bytes), 7) };
                assert_eq!(n, bytes);
            });
        }
    }
}
