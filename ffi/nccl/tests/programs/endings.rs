//! A program whose waits end by an abort, a revocation, a shrinking or a death.

use crate::tools::{on_host, program, run};

#[test]
fn waits_end_before_what_they_wait_for_comes() {
    let Some((program, folder)) = program("endings") else { return };
    for way in [
        "aborted",
        "revoked",
        "shrunk",
        "left",
        "died",
        "destroyed",
        "stuck",
        "late",
        "differ",
        "through",
        "gathered",
    ] {
        let out = run(on_host(&program).arg(way).env("LD_LIBRARY_PATH", &folder));
        assert!(out.contains("endings: ok"), "{way}: {out}");
    }
}
