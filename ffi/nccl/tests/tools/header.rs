//! Where NVIDIA's `nccl.h` is on this machine.

use std::fs;
use std::path::PathBuf;

/// Names the folder of NVIDIA's `nccl.h`.
pub const HEADER: &str = "ANTIPHON_NCCL_INCLUDE";
/// Where NVIDIA's package is in a Python environment.
const IN_PACKAGE: &str = "site-packages/nvidia/nccl/include";

/// The folder of the header: the one that is named, else that of the Python environment which is entered.
pub fn find() -> Option<PathBuf> {
    let named = std::env::var_os(HEADER).map(PathBuf::from);
    let installed = || {
        let environment = PathBuf::from(std::env::var_os("VIRTUAL_ENV")?).join("lib");
        let pythons = fs::read_dir(environment).ok()?.flatten();
        pythons.map(|python| python.path().join(IN_PACKAGE)).find(|folder| folder.exists())
    };
    named.or_else(installed).filter(|folder| folder.join("nccl.h").exists())
}
