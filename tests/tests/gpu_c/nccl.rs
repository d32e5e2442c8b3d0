//! Programs in C++ against NVIDIA's own header.

use super::tools::table::{Column, SHOWN, Shown, rows, unshown};
use super::tools::{header, libraries, run};
use super::{Machine, repository};
use std::path::PathBuf;
use std::process::Command;

/// The programs, built in a folder of the test's own.
struct Devices {
    machine: Machine,
    header: PathBuf,
}

impl Devices {
    /// With the program `devices`; `None` where the simulator cannot work, or there is no header.
    fn of(test: &str) -> Option<Self> {
        let devices = Devices::without_programs(test)?;
        run(devices.build("devices.cpp", "devices").arg(devices.library()));
        Some(devices)
    }

    fn without_programs(test: &str) -> Option<Self> {
        let machine = Machine::of(&format!("nccl-on-devices-{test}"))?;
        Some(Devices { machine, header: header()? })
    }

    /// What programs are linked with.
    fn library(&self) -> PathBuf {
        self.machine.folder.join("libnccl.so.2")
    }

    fn build(&self, source: &str, output: &str) -> Command {
        let tests = repository().join("ffi/nccl/tests");
        let (source, output) = (tests.join(source), self.machine.folder.join(output));
        let mut build = self.machine.compiler("g++", &source, &output);
        build.args(["-std=c++17", "-Wno-pedantic", "-isystem"]).arg(&self.header);
        build.arg("-isystem").arg(tests.join("cuda")).arg("-I").arg(repository().join("tests/c"));
        build
    }

    /// The stand-in for the real library, which has RCCL's functions, too.
    fn real(&self) -> PathBuf {
        let options = ["-shared", "-fPIC", "-DREAL_ON_DEVICES", "-DREAL_IS_RCCL"];
        run(self.build("real.cpp", "libreal.so").args(options));
        self.machine.folder.join("libreal.so")
    }

    fn command(&self, way: &str) -> Command {
        let mut command = self.program("devices");
        command.arg(way);
        command
    }

    fn program(&self, name: &str) -> Command {
        let mut command = self.machine.command(&self.machine.folder.join(name));
        command.env("ANTIPHON_DEVICE", "cuda");
        command.env("ANTIPHON_LIB_PATH", libraries().join("libantiphon_c.so"));
        command
    }

    fn shown(&self) -> Shown {
        Shown::at(&self.machine.folder)
    }
}

fn does(command: &mut Command) {
    let out = run(command);
    assert!(out.contains("devices: ok"), "{out}");
}

#[test]
fn every_call_does_on_devices_what_the_page_says() {
    let Some(devices) = Devices::of("calls") else { return };
    let shown = devices.shown();
    for way in ["processes", "together"] {
        does(devices.command(way).env(SHOWN, shown.path()));
    }
    assert_eq!(unshown(&rows(), Column::Devices, &shown.read()), [""; 0]);
}

#[test]
fn what_is_not_served_goes_to_the_real_library() {
    let Some(devices) = Devices::of("beside") else { return };
    let (real, shown) = (devices.real(), devices.shown());
    let mut command = devices.command("beside");
    does(command.env(SHOWN, shown.path()).env("ANTIPHON_NCCL_LIB_PATH", real));
    assert_eq!(unshown(&rows(), Column::Beside, &shown.read()), [""; 0]);
}

#[test]
fn devices_that_do_not_reach_each_other_are_served_over_a_wire() {
    let Some(devices) = Devices::of("apart") else { return };
    let real = devices.real();
    for (way, named) in [("processes", None), ("beside", Some(&real))] {
        let mut command = devices.command(way);
        command.env("ANTIPHON_GPUSIM_PEERS", "0");
        does(command.envs(named.map(|real| ("ANTIPHON_NCCL_LIB_PATH", real))));
    }
}

#[test]
fn code_of_the_program_serves_nccl_calls_on_devices() {
    let Some(devices) = Devices::without_programs("coded") else { return };
    let mut build = devices.build("coded.cpp", "coded");
    build.arg("-I").arg(repository().join("ffi/include")).arg(devices.library());
    run(build.arg("-L").arg(&devices.machine.folder).arg("-lantiphon"));
    let out = run(&mut devices.program("coded"));
    assert!(out.contains("coded: ok"), "{out}");
}
