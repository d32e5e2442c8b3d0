//! A program whose communicators are made behind its back.

use crate::tools::{on_host, program, run};

#[test]
fn communicators_that_need_not_block_are_made_behind_the_programs_back() {
    let Some((program, folder)) = program("unblocked") else { return };
    let out = run(on_host(&program).env("LD_LIBRARY_PATH", &folder));
    assert!(out.contains("unblocked: ok"), "{out}");
}
