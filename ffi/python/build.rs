//! Refuses a wheel without the library: maturin by itself packs what is in the package's folder, and does not build it.

use std::path::Path;

/// Set by maturin, and not where cargo alone builds the workspace.
const FOR_A_WHEEL: &str = "PYO3_ENVIRONMENT_SIGNATURE";
const LIBRARY: &str = "antiphon/lib/libantiphon.so.1";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={FOR_A_WHEEL}");
    if std::env::var_os(FOR_A_WHEEL).is_some() && !Path::new(LIBRARY).exists() {
        println!(
            "cargo::error=cannot build a wheel: saw no ffi/python/{LIBRARY}, which maturin does not build; \
             build by `pip wheel ./ffi/python`, or `python -m build --wheel ffi/python`"
        );
    }
}
