//! A program in C.

use super::tools::run;
use super::{Machine, repository};

fn does(mode: &str) {
    let Some(machine) = Machine::of(&format!("c-{mode}")) else { return };
    let program = machine.folder.join("device");
    let source = repository().join("tests/c/device.c");
    let mut build = machine.compiler("gcc", &source, &program);
    build.arg("-std=gnu11").arg("-I").arg(repository().join("ffi/include"));
    run(build.arg("-L").arg(&machine.folder).arg("-lantiphon"));
    let out = run(machine.command(&program).arg(mode));
    assert!(out.contains("device: ok"), "{out}");
}

#[test]
fn ranks_are_threads() {
    does("threads");
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
fn code_of_the_program_serves_calls_on_devices() {
    does("coded");
}

#[test]
fn what_there_is_not_is_refused() {
    does("misuse");
}
