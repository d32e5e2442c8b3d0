//! A program in C++ against NVIDIA's own header.

use super::tools::{header, libraries, run};
use super::{Machine, repository};

fn does(way: &str) {
    let (Some(machine), Some(header)) = (Machine::of(&format!("nccl-{way}")), header()) else {
        return;
    };
    let tests = repository().join("ffi/nccl/tests");
    let build = |source: &str, output: &str| {
        let mut build = machine.compiler("g++", &tests.join(source), &machine.folder.join(output));
        build.args(["-std=c++17", "-Wno-pedantic", "-isystem"]).arg(&header);
        build.arg("-isystem").arg(tests.join("cuda"));
        build
    };
    let program = machine.folder.join("devices");
    run(build("devices.cpp", "devices").arg(machine.folder.join("libnccl.so.2")));
    let mut command = machine.command(&program);
    command.arg(way).env("ANTIPHON_DEVICE", "cuda");
    if way == "beside" {
        let real = machine.folder.join("libreal.so");
        run(build("real.cpp", "libreal.so").args(["-shared", "-fPIC", "-DREAL_ON_DEVICES"]));
        command.env("ANTIPHON_NCCL_LIB_PATH", real);
    }
    let out = run(command.env("ANTIPHON_LIB_PATH", libraries().join("libantiphon_c.so")));
    assert!(out.contains("devices: ok"), "{out}");
}

#[test]
fn ranks_are_processes() {
    does("processes");
}

#[test]
fn one_thread_drives_all_ranks() {
    does("together");
}

#[test]
fn what_is_not_served_goes_to_the_real_library() {
    does("beside");
}
