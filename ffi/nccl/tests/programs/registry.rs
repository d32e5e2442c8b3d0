//! What a program registers through `antiphon.h` serves its calls of NCCL.

use crate::tools::{build, header, link, on_host, package, run, stand_in};
use std::fs;
use std::path::Path;

#[test]
fn plans_and_code_of_the_program_serve_its_nccl_calls() {
    let Some(header) = header() else { return };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("registry");
    fs::create_dir_all(&folder).expect("a folder");
    link(&folder, &["libnccl.so", "libnccl.so.2"], "libantiphon_nccl.so");
    link(&folder, &["libantiphon.so", "libantiphon.so.1"], "libantiphon_c.so");
    let program = folder.join("nccl-registry");
    let mut building = build(&header, "registry.cpp", &program);
    building.arg("-I").arg(package().join("../include"));
    building.arg("-L").arg(&folder).args(["-lnccl", "-lantiphon"]);
    run(&mut building);
    let real = stand_in(&header, &folder);
    for beside in [None, Some(&real)] {
        let mut command = on_host(&program);
        command.env("LD_LIBRARY_PATH", &folder);
        command.envs(beside.map(|real| ("ANTIPHON_NCCL_LIB_PATH", real)));
        let out = run(&mut command);
        assert!(out.contains("registry: ok"), "{beside:?}: {out}");
    }
}
