//! The conformance suite on the ROCm backend: on the simulated driver everywhere, with memory as newer releases of HIP have
//! it and as older ones do, each case in a process of its own; on the machine's driver where it has one; and what is
//! promised of this backend alone.

mod application;
mod graphs;
mod sharing;

use antiphon_hal::{Backend, Device, HalError, KernelCode, KernelSource, MemoryHandle, driver};
use antiphon_tests::name_of;
use antiphon_tests::simulated::{INSIDE, compiler, pass_over};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

/// The release whose memory is allocated by the run-time library and passed on by IPC handles.
const OLDER: (&str, &str) = ("ANTIPHON_GPUSIM_HIP", "6.3");

/// A device of the process's driver.
fn open(index: u32) -> Arc<dyn Device> {
    driver(Backend::Rocm).unwrap().open(index).unwrap()
}

/// The machine's device; `None` and a line where it has no driver.
fn real(test: &str) -> Option<Arc<dyn Device>> {
    match driver(Backend::Rocm).unwrap().open(0) {
        Ok(device) => Some(device),
        Err(error @ (HalError::Unavailable { .. } | HalError::Invalid { .. })) => {
            let needed = std::env::var_os("ANTIPHON_NEEDS_GPU").is_some();
            assert!(!needed, "{test}: ANTIPHON_NEEDS_GPU is set, but {error}");
            // Once, and not for each case. Written past the harness's capture.
            static TOLD: std::sync::Once = std::sync::Once::new();
            TOLD.call_once(|| {
                let _ = writeln!(std::io::stderr(), "SKIP {test} and all others on a GPU: {error}");
            });
            None
        }
        Err(error) => panic!("{error}"),
    }
}

macro_rules! simulated_cases {
    ([$suite:literal $environment:expr] $($module:ident::$case:ident)*) => {
        $(
            #[test]
            fn $case() {
                let test = concat!($suite, "::", stringify!($case));
                if crate::on_simulator(test, $environment).is_some() {
                    let device = crate::open(0);
                    antiphon_tests::hal::$module::$case(&antiphon_tests::hal::Subject { device, test });
                }
            }
        )*
    };
}

macro_rules! real_cases {
    ([] $($module:ident::$case:ident)*) => {
        $(
            #[test]
            fn $case() {
                let test = concat!("gpu::", stringify!($case));
                if let Some(device) = crate::real(test) {
                    antiphon_tests::hal::$module::$case(&antiphon_tests::hal::Subject { device, test });
                }
            }
        )*
    };
}

mod newer {
    antiphon_tests::hal_cases! { simulated_cases, "newer", (&[]) }
}

mod older {
    antiphon_tests::hal_cases! { simulated_cases, "older", (&[crate::OLDER]) }
}

mod gpu {
    antiphon_tests::hal_cases! { real_cases }
}

/// Whether this process is the one, with the simulated driver, that the test's body is for.
fn on_simulator(
    test: &str,
    environment: &[(&str, &str)],
) -> Option<antiphon_tests::simulated::Simulated> {
    antiphon_tests::simulated::enter(test, env!("CARGO_TARGET_TMPDIR"), environment)
}

#[test]
fn the_devices_are_those_of_the_driver() {
    let environment = [("ANTIPHON_GPUSIM_DEVICES", "3")];
    let Some(_) = on_simulator(name_of(the_devices_are_those_of_the_driver), &environment) else {
        return;
    };
    let rocm = driver(Backend::Rocm).unwrap();
    let devices = rocm.devices().unwrap();
    assert_eq!(devices.iter().map(|device| device.index).collect::<Vec<_>>(), [0, 1, 2]);
    let (first, again) = (open(2), open(2));
    assert!(Arc::ptr_eq(&first, &again));
    assert_eq!((first.index(), first.backend()), (2, Backend::Rocm));
    assert_eq!(first.name(), devices[2].name);
    assert!(matches!(rocm.open(3), Err(HalError::Invalid { .. })));
    let device = open(1);
    let peers = &device.caps().peers;
    assert_eq!(
        peers.iter().map(|peer| (peer.index, peer.access)).collect::<Vec<_>>(),
        [(0, true), (2, true)]
    );
    assert_eq!(device.caps().pci, "0000:11:00.0".parse().ok());
}

/// A run-time compiler that is found first, and compiles nothing.
const IGNORANT: &str = r#"
typedef void *P; typedef const char *T; typedef const T *L; typedef unsigned long *N;
int hiprtcVersion(int *a, int *b) { *a = 9; *b = 9; return 0; }
T hiprtcGetErrorString(int c) { return c ? "HIPRTC_ERROR_COMPILATION" : "HIPRTC_SUCCESS"; }
int hiprtcCreateProgram(P *p, T s, T n, int c, L h, L i) { *p = p; return 0; }
int hiprtcDestroyProgram(P *p) { return 0; }
int hiprtcCompileProgram(P p, int n, L o) { return 6; }
int hiprtcGetProgramLogSize(P p, N n) { *n = 0; return 0; }
int hiprtcGetProgramLog(P p, char *t) { return 0; }
int hiprtcGetCodeSize(P p, N n) { return 4; }
int hiprtcGetCode(P p, char *c) { return 4; }
"#;

#[test]
fn where_a_compiler_does_not_know_the_device_another_one_is_taken() {
    let test = name_of(where_a_compiler_does_not_know_the_device_another_one_is_taken);
    let folder = PathBuf::from(format!("{}/{test}", env!("CARGO_TARGET_TMPDIR")));
    // Not by name: a library that is named is the only one.
    let path =
        format!("{}:{}", folder.display(), std::env::var("LD_LIBRARY_PATH").unwrap_or_default());
    let environment = [("ANTIPHON_HIPRTC_LIB", ""), ("LD_LIBRARY_PATH", &*path)];
    if std::env::var_os(INSIDE).is_none() {
        std::fs::create_dir_all(&folder).unwrap();
        let source = folder.join("ignorant.c");
        std::fs::write(&source, IGNORANT).unwrap();
        let library = folder.join("libhiprtc.so.7");
        let mut command = std::process::Command::new(compiler());
        command.args(["-xc", "-shared", "-fPIC", "-o"]).arg(library).arg(source);
        if !command.status().is_ok_and(|status| status.success()) {
            let needed = std::env::var_os("ANTIPHON_NEEDS_SIMULATOR").is_some();
            assert!(!needed, "{test}: no compiler");
            return pass_over(test, "it takes a compiler of C");
        }
    }
    let Some(simulated) = on_simulator(test, &environment) else { return };
    let other = folder.join("libhiprtc.so.6");
    let _ = std::fs::remove_file(&other);
    std::os::unix::fs::symlink(&simulated.driver, other).unwrap();
    // Of no other test: what is compiled once is on disk.
    let text = "extern \"C\" __global__ void another() {}";
    let source = KernelSource { entry: "another", code: KernelCode::Source(text), options: &[] };
    open(0).load(source).unwrap();
}

/// The simulated driver has every function that the backend can use, or its paths are not tested.
#[test]
fn the_simulated_driver_has_all_functions() {
    let test = name_of(the_simulated_driver_has_all_functions);
    let Some(simulated) = on_simulator(test, &[]) else { return };
    let application = application::Application::new(&simulated);
    let (required, optional) = antiphon_hal::rocm::symbol_names();
    for name in required.into_iter().chain(optional) {
        assert!(application.has(name), "{name}");
    }
}

/// A handle that the driver refuses.
fn gone() -> MemoryHandle {
    let handle = [7; 64];
    MemoryHandle::Ipc { backend: Backend::Rocm, handle, process: 1, number: 4096, bytes: 4096 }
}

/// An application that asks for its own last error does not find one of ours, and its device stays current.
#[test]
fn the_applications_state_is_left_alone() {
    let test = name_of(the_applications_state_is_left_alone);
    let Some(simulated) = on_simulator(test, &[OLDER]) else { return };
    let application = application::Application::new(&simulated);
    application.set_device(1);
    let device = open(0);
    let local = 0u64;
    assert!(device.find((&raw const local).cast(), 8).is_none());
    assert!(device.import(&gone()).is_err());
    let stream = device.stream().unwrap();
    let _ = (stream.query().unwrap(), device.allocate(4096).unwrap());
    assert_eq!((application.last_error(), application.device()), (0, 1));
    application.fail();
    let failed = application.last_error();
    assert_ne!(failed, 0);
    application.fail();
    assert!(device.find((&raw const local).cast(), 8).is_none());
    assert_ne!(application.last_error(), 0, "the application's own error is still there");
}
