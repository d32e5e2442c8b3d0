//! A program whose communicators are made behind its back.

mod tools;

use std::path::Path;
use tools::{build, header, link, on_host, run};

#[test]
fn communicators_that_need_not_block_are_made_behind_the_programs_back() {
    let Some(header) = header() else { return };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("unblocked");
    std::fs::create_dir_all(&folder).expect("a folder");
    let program = folder.join("program");
    let library = link(&folder, &["libnccl.so.2"], "libantiphon_nccl.so");
    run(build(&header, "unblocked.cpp", &program).arg(library));
    let out = run(on_host(&program).env("LD_LIBRARY_PATH", &folder));
    assert!(out.contains("unblocked: ok"), "{out}");
}
