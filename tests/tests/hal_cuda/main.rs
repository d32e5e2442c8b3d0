//! The conformance suite on the CUDA backend: on the simulated driver everywhere, each case in a process of its own, and
//! on the machine's driver where it has one; and what is promised of this backend alone.

mod graphs;
mod green;
mod loading;
mod peers;
mod sharing;

use antiphon_hal::{Backend, Device, HalError, KernelCode, KernelSource, driver};
use antiphon_tests::hal::support::{assert_passed, myself};
use antiphon_tests::{Folder, name_of};
use std::io::Write;
use std::sync::Arc;

/// A device of the process's driver.
fn open(index: u32) -> Arc<dyn Device> {
    driver(Backend::Cuda).unwrap().open(index).unwrap()
}

/// The machine's device; `None` and a line where it has no driver.
fn real(test: &str) -> Option<Arc<dyn Device>> {
    match driver(Backend::Cuda).unwrap().open(0) {
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
    ([] $($module:ident::$case:ident)*) => {
        $(
            #[test]
            fn $case() {
                let test = concat!("simulated::", stringify!($case));
                if crate::on_simulator(test, &[]).is_some() {
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

mod simulated {
    antiphon_tests::hal_cases! { simulated_cases }
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
    let cuda = driver(Backend::Cuda).unwrap();
    let devices = cuda.devices().unwrap();
    assert_eq!(devices.iter().map(|device| device.index).collect::<Vec<_>>(), [0, 1, 2]);
    let (first, again) = (open(2), open(2));
    assert!(Arc::ptr_eq(&first, &again));
    assert_eq!((first.index(), first.backend()), (2, Backend::Cuda));
    assert_eq!(first.name(), devices[2].name);
    assert!(matches!(cuda.open(3), Err(HalError::Invalid { .. })));
}

#[test]
fn a_device_that_the_compiler_does_not_know_has_none() {
    let test = name_of(a_device_that_the_compiler_does_not_know_has_none);
    let unknown = [("ANTIPHON_GPUSIM_UNKNOWN", "sm_90")];
    let Some(_) = on_simulator(test, &unknown) else { return };
    // Of no other test: what is compiled once is on disk.
    let text = "extern \"C\" __global__ void unknown() {}";
    let source = KernelSource { entry: "unknown", code: KernelCode::Source(text), options: &[] };
    let error = open(0).load(source).unwrap_err();
    assert!(matches!(error, HalError::Unavailable { .. }), "{error:?}");
    for part in ["libnvrtc.so.12", "sm_90", "invalid value", "ANTIPHON_NVRTC_LIB"] {
        assert!(error.to_string().contains(part), "{error}");
    }
}

/// The suite's kernels are what CUDA's own compiler takes, which needs no GPU, and not only what the simulated one does.
#[test]
fn nvrtc_compiles_the_kernels_of_the_suite() {
    const INSIDE: &str = "ANTIPHON_TEST_OWN_CACHE";
    let test = name_of(nvrtc_compiles_the_kernels_of_the_suite);
    if std::env::var_os(INSIDE).is_none() {
        // In a process with a cache of its own: what is on disk is not compiled.
        let folder = Folder::new(env!("CARGO_TARGET_TMPDIR"), "nvrtc").unwrap();
        let mut command = myself(test, INSIDE, "1");
        let output = command.env("ANTIPHON_CACHE_DIR", folder.path()).output().unwrap();
        for line in String::from_utf8_lossy(&output.stderr).lines() {
            if line.starts_with("SKIP") {
                let _ = writeln!(std::io::stderr(), "{line}");
            }
        }
        return assert_passed(&output);
    }
    let compiler = match antiphon_hal::cuda::compiler(None) {
        Ok(compiler) => compiler,
        Err(error) => {
            assert!(std::env::var_os("ANTIPHON_NEEDS_NVRTC").is_none(), "{error}");
            let _ = writeln!(std::io::stderr(), "SKIP {test}: {error}");
            return;
        }
    };
    assert!(compiler.version() >= (12, 0), "{compiler:?}");
    for architecture in ["sm_80", "sm_90", "sm_100"] {
        let code = compiler.compile(antiphon_tests::hal::kernel::SOURCE, architecture, &[]);
        assert!(code.unwrap().starts_with(b"\x7fELF"), "{architecture}");
    }
    let unknown = compiler.compile(antiphon_tests::hal::kernel::SOURCE, "sm_999", &[]).unwrap_err();
    assert!(matches!(unknown, HalError::Unavailable { .. }), "{unknown:?}");
}

/// The simulated driver has every function that the backend can use, or its paths are not tested.
#[test]
fn the_simulated_driver_has_all_functions() {
    let test = name_of(the_simulated_driver_has_all_functions);
    let Some(simulated) = on_simulator(test, &[]) else { return };
    let application = antiphon_tests::application::Application::new(&simulated);
    let (required, optional) = antiphon_hal::cuda::symbol_names();
    for name in required.into_iter().chain(optional) {
        assert!(application.has(name), "{name}");
    }
}
