//! Premultiplying by one factor: every element type against products worked out by hand.

use antiphon_kernels::scale;
use antiphon_types::DataType;

fn padded(element: &[u8]) -> [u8; 8] {
    let mut factor = [0xEE; 8];
    factor[..element.len()].copy_from_slice(element);
    factor
}

/// Scales `count` elements, out of place and in place, and compares each with `expected`.
fn check(dtype: DataType, element: &[u8], factor: &[u8], expected: &[u8], count: usize) {
    let source = element.repeat(count);
    let mut target = vec![0xAAu8; source.len() + 1];
    let mut same = source.clone();
    let bytes = source.len();
    // SAFETY: all have as many bytes as said.
    unsafe {
        scale(dtype, target.as_mut_ptr(), source.as_ptr(), bytes, padded(factor));
        scale(dtype, same.as_mut_ptr(), same.as_ptr(), bytes, padded(factor));
    }
    assert_eq!(target[..bytes], expected.repeat(count), "{} x {count}", dtype.name());
    assert_eq!(target[bytes], 0xAA, "{} x {count}: beyond its end", dtype.name());
    assert_eq!(same, target[..bytes], "{} x {count} in place", dtype.name());
}

#[test]
fn every_type_is_multiplied_and_rounded_once() {
    let half = |x: f32| half::f16::from_f32(x).to_le_bytes();
    let brain = |x: f32| half::bf16::from_f32(x).to_le_bytes();
    // Less than a block of factors, exactly one, and more.
    for count in [0, 1, 7, 128, 1024, 2049] {
        check(DataType::F16, &half(1.5), &half(0.25), &half(0.375), count);
        check(DataType::F16, &half(60000.), &half(2.), &half(f32::INFINITY), count);
        check(DataType::Bf16, &brain(3.), &brain(0.5), &brain(1.5), count);
        let (third, product) = (1f32 / 3., (1f32 / 3.) * 7.);
        let f32s = [third, 7., product].map(f32::to_le_bytes);
        check(DataType::F32, &f32s[0], &f32s[1], &f32s[2], count);
        let f64s = [0.1f64, 3., 0.1f64 * 3.].map(f64::to_le_bytes);
        check(DataType::F64, &f64s[0], &f64s[1], &f64s[2], count);
        check(DataType::I8, &[100], &[3], &[44], count);
        check(DataType::U8, &[200], &[2], &[144], count);
        let i32s = [-5i32, 7, -35].map(i32::to_le_bytes);
        check(DataType::I32, &i32s[0], &i32s[1], &i32s[2], count);
        let u32s = [1u32 << 31, 2, 0].map(u32::to_le_bytes);
        check(DataType::U32, &u32s[0], &u32s[1], &u32s[2], count);
        let i64s = [-3i64, i64::MAX, i64::MAX.wrapping_mul(-3)].map(i64::to_le_bytes);
        check(DataType::I64, &i64s[0], &i64s[1], &i64s[2], count);
        let u64s = [u64::MAX, 2, u64::MAX - 1].map(u64::to_le_bytes);
        check(DataType::U64, &u64s[0], &u64s[1], &u64s[2], count);
        // 1.5 times 2 is 3; 448 times 2 saturates.
        check(DataType::F8E4m3, &[0x3C], &[0x40], &[0x44], count);
        check(DataType::F8E4m3, &[0x7E], &[0x40], &[0x7E], count);
        check(DataType::F8E5m2, &[0x3E], &[0x40], &[0x42], count);
    }
}
