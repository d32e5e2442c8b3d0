//! A program in C: plain, and, where `ANTIPHON_NEEDS_C_TOOLS` is set, under valgrind and with the sanitizers of addresses and of
//! undefined behaviour. Valgrind looks into the simulated device and its kernels too, the sanitizers into the program alone.

use super::tools::run;
use super::watched::{LEAKS, NEEDS, SANITIZERS, WATCH};
use super::{Machine, repository};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Each thread of a simulated block has a stack of its own, all of them in one mapping. Valgrind takes a step from one to the next
/// for one stack that grew or shrank, and what lies between for memory of nobody, unless the step is longer than this: half of such
/// a stack, which no thread fills so far.
const STEP: usize = antiphon_gpusim::STACK / 2;

/// Builds the program and runs it in a mode: plain, and, where they are asked for, under valgrind and with the sanitizers.
fn does(mode: &str) {
    let Some(machine) = Machine::of(&format!("c-{mode}")) else { return };
    let plain = build(&machine, "device", &[]);
    passes(machine.command(&plain), mode);
    if std::env::var_os(NEEDS).is_none() {
        return println!("SKIP: nothing is run under valgrind and with sanitizers; set {NEEDS}=1");
    }
    let mut watched = machine.command(Path::new("valgrind"));
    watched.args(WATCH).arg(format!("--max-stackframe={STEP}")).arg(&plain);
    passes(watched, mode);
    let sanitized = build(&machine, "device-sanitized", &SANITIZERS);
    let mut command = machine.command(&sanitized);
    command.env(LEAKS.0, LEAKS.1);
    passes(command, mode);
}

fn build(machine: &Machine, name: &str, options: &[&str]) -> PathBuf {
    let program = machine.folder.join(name);
    let source = repository().join("tests/c/device.c");
    let mut build = machine.compiler("gcc", &source, &program);
    build.arg("-std=gnu11").args(options).arg("-I").arg(repository().join("ffi/include"));
    run(build.arg("-L").arg(&machine.folder).arg("-lantiphon"));
    program
}

fn passes(mut command: Command, mode: &str) {
    let out = run(command.arg(mode));
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
