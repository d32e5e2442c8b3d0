//! Calls that go to the library that `ANTIPHON_NCCL_LIB_PATH` names: a stand-in, and NVIDIA's own, which gets no further than that there
//! is no GPU.

use crate::tools::table::{Column, SHOWN, Shown, rows, unshown};
use crate::tools::{build, gpu, header, libraries, library, link, on_host, program, run, stand_in};
use std::path::Path;

#[test]
fn what_is_not_served_goes_to_the_real_library_whole_or_not_at_all() {
    let Some(header) = header() else { return };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("forwards");
    std::fs::create_dir_all(&folder).expect("a folder");
    let (real, program) = (stand_in(&header, &folder), folder.join("program"));
    let of_rccl = folder.join("libofrccl.so");
    let options = ["-shared", "-fPIC", "-DREAL_IS_RCCL"];
    run(build(&header, "real.cpp", &of_rccl).args(options));
    let link = link(&folder, &["libnccl.so.2"], "libantiphon_nccl.so");
    run(build(&header, "forwards.cpp", &program).arg(link));
    let shown = Shown::at(&folder);
    let ways = ["all", "beside", "scattered", "aborted", "broken", "uneven", "missing", "instead"];
    // The first also preloaded, in front of all libraries: what the real one calls of its own must not come back.
    let ways = ways.map(|way| (way, false, true)).into_iter().chain([("all", true, true)]);
    // And where nobody says so, on a machine without a GPU.
    let unsaid = gpu().is_none().then_some(("beside", false, false));
    for (way, preloaded, said) in ways.chain(unsaid) {
        let mut command = on_host(&program);
        if !said {
            command.env_remove("ANTIPHON_DEVICE");
        }
        command.arg(way);
        if preloaded {
            command.env("LD_PRELOAD", libraries().join("libantiphon_nccl.so"));
        } else {
            command.env("LD_LIBRARY_PATH", &folder);
        }
        let named = match way {
            "all" => of_rccl.as_path(),
            "missing" => Path::new("/nowhere.so"),
            _ => &real,
        };
        // Either name will do.
        let variable =
            if way == "broken" { "MSCCLPP_NCCL_LIB_PATH" } else { "ANTIPHON_NCCL_LIB_PATH" };
        command.env(variable, named);
        if way == "all" {
            command.env(SHOWN, shown.path());
        }
        if way == "broken" {
            command.env("REAL_FAILS_ON", "1");
        }
        if way == "instead" {
            command.env("ANTIPHON_DEVICE", "none");
        }
        let out = run(&mut command);
        assert!(out.contains("forwards: ok"), "{way}, preloaded {preloaded}, said {said}: {out}");
    }
    assert_eq!(unshown(&rows(), Column::Beside, &shown.read()), [""; 0]);
}

#[test]
fn nvidias_library_is_loaded_and_says_itself_that_it_has_no_gpu() {
    if let Some(gpu) = gpu() {
        return println!("SKIP: {gpu} is there, so that NVIDIA's library may have its GPU");
    }
    let Some((program, folder)) = program("nvidia") else { return };
    let Some(theirs) = header().and_then(|header| library(&header)) else { return };
    let made = |device: &str| {
        let mut command = on_host(&program);
        command.env("LD_LIBRARY_PATH", &folder).env("ANTIPHON_NCCL_LIB_PATH", &theirs);
        run(command.env("ANTIPHON_DEVICE", device))
    };
    // Beside it, Antiphon makes the communicator, and NVIDIA's goes without.
    assert_eq!(made("host"), "made: 0, \n");
    // ncclUnhandledCudaError, in the words of the CUDA runtime that their library has built in.
    let failed = made("none");
    assert!(failed.starts_with("made: 1, ") && failed.contains("CUDA driver version"), "{failed}");
}
