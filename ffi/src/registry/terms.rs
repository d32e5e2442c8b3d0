//! The terms on which C registers a plan or code.

use crate::entry::{Structure, list, structure, text, texts};
use crate::result::Failure;
use crate::types::{data_type, reduce_op, switch};
use antiphon_executor::Terms;
use std::ffi::c_char;
use std::ptr;

/// The calls for which a plan or code is registered. What is left open limits nothing. Begin with ANTIPHON_TERMS_INIT, which
/// sets the size and leaves all else open; later versions of the library add fields at the end.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct antiphon_terms {
    /// sizeof(antiphon_terms), as the program was compiled.
    pub struct_size: u64,
    /// What selectors and messages call it; null for the plan's or the code's own name.
    pub name: *const c_char,
    /// Tags.
    pub tags: *const *const c_char,
    /// How many there are.
    pub tag_count: u64,
    /// Smallest message, in bytes.
    pub min_bytes: u64,
    /// Largest message, in bytes, not less than the smallest; 0 for no limit.
    pub max_bytes: u64,
    /// Element types, numbers of antiphon_dtype; an empty list is all.
    pub dtypes: *const i32,
    /// How many there are.
    pub dtype_count: u64,
    /// Reductions, numbers of antiphon_op. Those that are listed take the place of what the plan says; if none is listed, a
    /// plan that names no reduction serves all, and a plan that names one serves only that one.
    pub ops: *const i32,
    /// How many there are.
    pub op_count: u64,
    /// Number of ranks, 0 for any. A plan has its own number, which this must equal.
    pub world: u32,
    /// Ranks on each node, 0 for any.
    pub ranks_per_node: u32,
    /// Whether input and output are the same memory: an antiphon_switch. A plan says it itself, and this must agree. Ranks that
    /// differ in it are served differently and get MISMATCH.
    pub in_place: i32,
    /// 1 if `root` counts, 0 if not. A plan of broadcast, reduce, gather or scatter serves no call unless its root is given.
    pub has_root: i32,
    /// The root, for collectives that have one.
    pub root: u32,
    /// 0.
    pub reserved: u32,
}

const NOTHING: antiphon_terms = antiphon_terms {
    struct_size: size_of::<antiphon_terms>() as u64,
    name: ptr::null(),
    tags: ptr::null(),
    tag_count: 0,
    min_bytes: 0,
    max_bytes: 0,
    dtypes: ptr::null(),
    dtype_count: 0,
    ops: ptr::null(),
    op_count: 0,
    world: 0,
    ranks_per_node: 0,
    in_place: 0,
    has_root: 0,
    root: 0,
    reserved: 0,
};

impl Structure for antiphon_terms {
    const NAME: &'static str = "terms";
    const INIT: &'static str = "ANTIPHON_TERMS_INIT";
    const FIRST: u64 = 104;
}

const _: () = assert!(size_of::<antiphon_terms>() == 104);

/// The terms that a caller means.
///
/// # Errors
/// As [`structure`], and for values that are not allowed.
///
/// # Safety
/// The structure is null or as long as it says, and what it points to is there.
pub(super) unsafe fn terms_of(terms: *const antiphon_terms) -> Result<Terms, Failure> {
    if terms.is_null() {
        return Ok(Terms::default());
    }
    // SAFETY: as this function's.
    let said = unsafe { structure(terms, NOTHING)? };
    let has_root = match said.has_root {
        0 => false,
        1 => true,
        saw => {
            let text = format!("cannot use `terms.has_root`: saw {saw}, allowed 0 and 1");
            return Err(Failure::argument(text));
        }
    };
    if said.reserved != 0 {
        let text = format!("cannot use `terms.reserved`: saw {}, allowed 0", said.reserved);
        return Err(Failure::argument(text));
    }
    let name = match said.name.is_null() {
        true => None,
        // SAFETY: as this function's.
        false => Some(unsafe { text(said.name, "terms.name")? }.to_owned()),
    };
    // SAFETY: as this function's.
    let tags = unsafe { texts(said.tags, said.tag_count, "terms.tags")? };
    // SAFETY: as this function's.
    let dtypes = unsafe { list(said.dtypes, said.dtype_count, "terms.dtypes")? };
    // SAFETY: as this function's.
    let ops = unsafe { list(said.ops, said.op_count, "terms.ops")? };
    let some = |number: u32| Some(number).filter(|&number| number > 0);
    Ok(Terms {
        name,
        tags: tags.into_iter().collect(),
        world: some(said.world),
        ranks_per_node: some(said.ranks_per_node),
        in_place: switch(said.in_place)?,
        min_bytes: said.min_bytes,
        max_bytes: if said.max_bytes == 0 { u64::MAX } else { said.max_bytes },
        dtypes: dtypes.iter().map(|&dtype| data_type(dtype)).collect::<Result<_, _>>()?,
        ops: ops.iter().map(|&op| reduce_op(op)).collect::<Result<_, _>>()?,
        root: has_root.then_some(said.root),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_executor::{DataType, ReduceOp};

    fn read(terms: &antiphon_terms) -> Result<Terms, String> {
        // SAFETY: as long as it says, and so are its lists.
        unsafe { terms_of(terms) }.map_err(|failure| failure.text)
    }

    #[test]
    fn terms_are_what_is_said_of_them() {
        assert_eq!(read(&NOTHING), Ok(Terms::default()));
        let (tags, dtypes, ops) = ([c"a".as_ptr(), c"b".as_ptr()], [2, 3], [3]);
        let said = antiphon_terms {
            name: c"mine".as_ptr(),
            tags: tags.as_ptr(),
            tag_count: 2,
            min_bytes: 1,
            max_bytes: 9,
            dtypes: dtypes.as_ptr(),
            dtype_count: 2,
            ops: ops.as_ptr(),
            op_count: 1,
            world: 4,
            ranks_per_node: 2,
            in_place: 2,
            has_root: 1,
            root: 3,
            ..NOTHING
        };
        let expected = Terms {
            name: Some("mine".into()),
            tags: ["a".into(), "b".into()].into(),
            world: Some(4),
            ranks_per_node: Some(2),
            in_place: Some(false),
            min_bytes: 1,
            max_bytes: 9,
            dtypes: vec![DataType::F32, DataType::F64],
            ops: vec![ReduceOp::Max],
            root: Some(3),
        };
        assert_eq!(read(&said), Ok(expected));
    }

    #[test]
    fn terms_that_are_none_are_refused() {
        let wrong = [99];
        let cases = [
            (antiphon_terms { struct_size: 8, ..NOTHING }, "ANTIPHON_TERMS_INIT"),
            (antiphon_terms { tag_count: 1, ..NOTHING }, "terms.tags"),
            (antiphon_terms { dtypes: wrong.as_ptr(), dtype_count: 1, ..NOTHING }, "99"),
            (antiphon_terms { ops: wrong.as_ptr(), op_count: 1, ..NOTHING }, "99"),
            (antiphon_terms { in_place: 3, ..NOTHING }, "antiphon_switch"),
            (antiphon_terms { has_root: 2, ..NOTHING }, "terms.has_root"),
            (antiphon_terms { reserved: 1, ..NOTHING }, "terms.reserved"),
        ];
        for (terms, part) in cases {
            let text = read(&terms).unwrap_err();
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
