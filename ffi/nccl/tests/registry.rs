//! What a program registers through `antiphon.h` serves its calls of NCCL.

mod tools;

use std::fs;
use std::path::Path;
use tools::{build, header, libraries, on_host, package, run, stand_in};

#[test]
fn plans_and_code_of_the_program_serve_its_nccl_calls() {
    let Some(header) = header() else { return };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("registry");
    fs::create_dir_all(&folder).expect("a folder");
    let links = [
        ("libnccl.so", "libantiphon_nccl.so"),
        ("libnccl.so.2", "libantiphon_nccl.so"),
        ("libantiphon.so", "libantiphon_c.so"),
        ("libantiphon.so.1", "libantiphon_c.so"),
    ];
    for (name, target) in links {
        let link = folder.join(name);
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(libraries().join(target), link).expect("a link");
    }
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
