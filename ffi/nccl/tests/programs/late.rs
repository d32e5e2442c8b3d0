//! A program whose communicators end with objects of its threads and its own.

use crate::tools::{on_host, program, run};

#[test]
fn destructors_of_threads_and_of_the_program_end_communicators() {
    let Some((program, folder)) = program("late") else { return };
    let out = run(on_host(&program).env("LD_LIBRARY_PATH", &folder));
    assert_eq!(out, "late: ok\n".repeat(3));
}
