//! Calls that go to the library that `ANTIPHON_NCCL_LIB_PATH` names, which is a stand-in here.

mod tools;

use std::path::Path;
use std::process::Command;
use tools::{header, libraries, on_host, package, run};

#[test]
fn what_is_not_served_goes_to_the_real_library_whole_or_not_at_all() {
    let Some(header) = header() else { return };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("forwards");
    std::fs::create_dir_all(&folder).expect("a folder");
    let build = |source: &str, output: &Path| {
        let mut build = Command::new("g++");
        build.args(["-std=c++17", "-g", "-Wall", "-Wextra", "-Werror", "-isystem"]).arg(&header);
        build.arg("-isystem").arg(package().join("tests/cuda"));
        build.arg(package().join("tests").join(source)).arg("-o").arg(output);
        build
    };
    let (real, program) = (folder.join("libreal.so"), folder.join("program"));
    run(build("real.cpp", &real).args(["-shared", "-fPIC"]));
    let own = libraries().join("libantiphon_nccl.so");
    let link = folder.join("libnccl.so.2");
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(&own, &link).expect("a link");
    run(build("forwards.cpp", &program).arg(&link));
    for way in ["beside", "broken", "missing", "instead"] {
        let mut command = on_host(&program);
        command.arg(way).env("LD_LIBRARY_PATH", &folder);
        let named = if way == "missing" { Path::new("/nowhere.so") } else { &real };
        // Either name will do.
        let variable =
            if way == "broken" { "MSCCLPP_NCCL_LIB_PATH" } else { "ANTIPHON_NCCL_LIB_PATH" };
        command.env(variable, named);
        if way == "broken" {
            command.env("REAL_FAILS_ON", "1");
        }
        if way == "instead" {
            command.env_remove("ANTIPHON_DEVICE");
        }
        let out = run(&mut command);
        assert!(out.contains("forwards: ok"), "{way}: {out}");
    }
}
