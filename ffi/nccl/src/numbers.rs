//! NCCL's numbers of types and reductions, as those of `antiphon.h`.

use crate::failure::{Failure, Result};
use std::ffi::c_int;

/// By NCCL's number: the type's number, and bytes of an element.
const TYPES: [(i32, usize); 12] = [
    (4, 1),
    (5, 1),
    (6, 4),
    (7, 4),
    (8, 8),
    (9, 8),
    (0, 2),
    (2, 4),
    (3, 8),
    (1, 2),
    (10, 1),
    (11, 1),
];
/// By NCCL's number: sum, product, greatest, least, average.
const OPS: [i32; 5] = [0, 1, 3, 2, 4];
/// The first number that `antiphon.h` gives to reductions that a program made; NCCL leaves all numbers from 5 on to those.
pub const MADE: i32 = 1 << 16;

/// The type that a caller means.
#[inline]
pub fn data_type(number: c_int) -> Result<i32> {
    let known = usize::try_from(number).ok().and_then(|number| TYPES.get(number));
    known.map(|&(own, _)| own).ok_or_else(|| {
        Failure::argument(format!("cannot use a data type: saw {number}, allowed 0 to 11"))
            .unserved()
    })
}

/// The reduction that a caller means.
#[inline]
pub fn operation(number: c_int) -> Result<i32> {
    if number >= MADE {
        return Ok(number);
    }
    let known = usize::try_from(number).ok().and_then(|number| OPS.get(number));
    known.copied().ok_or_else(|| {
        Failure::argument(format!(
            "cannot use a reduction: saw {number}, allowed 0 to 4 and those of ncclRedOpCreatePreMulSum"
        ))
        .unserved()
    })
}

/// Bytes of an element of the type with this number; 0 if there is no such type.
pub fn element(number: c_int) -> usize {
    let known = usize::try_from(number).ok().and_then(|number| TYPES.get(number));
    known.map_or(0, |&(_, bytes)| bytes)
}

/// A rank, which NCCL says as a signed number.
pub fn rank(number: c_int, what: &str) -> Result<u32> {
    u32::try_from(number).map_err(|_| {
        Failure::argument(format!("cannot use {what}: saw {number}, allowed ranks, from 0 on"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_reductions_are_those_of_the_agreed_names() {
        let agreed = include_str!("../../abi/antiphon.txt");
        let number = |kind: &str, name: &str| {
            let start = format!("enum antiphon_{}: ANTIPHON_{kind}_{name} = ", kind.to_lowercase());
            let line = agreed.lines().find_map(|line| line.strip_prefix(&start));
            line.unwrap_or_else(|| panic!("no {start}")).parse::<i32>().unwrap()
        };
        let types = [
            "I8", "U8", "I32", "U32", "I64", "U64", "F16", "F32", "F64", "BF16", "F8E4M3", "F8E5M2",
        ];
        for (at, name) in (0..).zip(types) {
            assert_eq!(data_type(at).unwrap(), number("DTYPE", name), "{name}");
        }
        for (at, name) in (0..).zip(["SUM", "PROD", "MAX", "MIN", "AVG"]) {
            assert_eq!(operation(at).unwrap(), number("OP", name), "{name}");
        }
        for bad in [-1, 12, c_int::MAX] {
            assert!(data_type(bad).is_err());
        }
        for bad in [-1, 5, MADE - 1] {
            assert!(operation(bad).is_err());
        }
        assert_eq!(operation(MADE).unwrap(), MADE);
        assert!(rank(-1, "a root").is_err());
    }
}
