//! A program whose waits end by an abort, a revocation, a shrinking or a death.

mod tools;

use std::path::Path;
use tools::{build, header, link, on_host, run};

#[test]
fn waits_end_before_what_they_wait_for_comes() {
    let Some(header) = header() else { return };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("endings");
    std::fs::create_dir_all(&folder).expect("a folder");
    let program = folder.join("program");
    let library = link(&folder, &["libnccl.so.2"], "libantiphon_nccl.so");
    run(build(&header, "endings.cpp", &program).arg(library));
    for way in ["aborted", "revoked", "shrunk", "died", "destroyed", "stuck", "through"] {
        let out = run(on_host(&program).arg(way).env("LD_LIBRARY_PATH", &folder));
        assert!(out.contains("endings: ok"), "{way}: {out}");
    }
}
