//! Where the run-time compiler may be installed, looked up without running anything.

use crate::gpu::packages;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The folders of the wheels in which Python's package index has the compiler, below `site-packages`.
const WHEELS: [&str; 2] = ["nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"];
/// The folders of libraries in an installation of CUDA.
const TOOLKIT: [&str; 4] = ["lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"];

/// The folders that may hold the compiler, those that the user named first. `variable` reads the environment.
pub(super) fn folders(variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let path = |name: &str| set(name).map(PathBuf::from);
    let mut folders = Vec::new();
    for root in ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(path) {
        folders.extend(TOOLKIT.map(|folder| root.join(folder)));
    }
    let wheels = |packages: PathBuf| WHEELS.map(|wheel| packages.join(wheel));
    folders.extend(packages::of_python(&variable).into_iter().flat_map(wheels));
    folders.extend(TOOLKIT.map(|folder| Path::new("/usr/local/cuda").join(folder)));
    packages::those_there(folders)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn toolkits_and_wheels_are_found_in_order() {
        let root = std::env::temp_dir().join(format!("antiphon-places-{}", std::process::id()));
        let toolkit = root.join("cuda/lib64");
        let path = root.join("packages/nvidia/cu13/lib");
        let old = root.join("env/lib/python3.9/site-packages/nvidia/cuda_nvrtc/lib");
        let new = root.join("env/lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib");
        for folder in [&toolkit, &path, &old, &new] {
            fs::create_dir_all(folder).unwrap();
        }
        let variable = |name: &str| match name {
            "CUDA_HOME" => Some(root.join("cuda").into()),
            "VIRTUAL_ENV" => Some(root.join("env").into()),
            "PYTHONPATH" => Some(root.join("packages").into()),
            "CUDA_PATH" => Some(OsString::new()),
            _ => None,
        };
        let found: Vec<_> =
            folders(variable).into_iter().filter(|folder| folder.starts_with(&root)).collect();
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(found, [toolkit, new, old, path]);
    }

    #[test]
    fn nothing_in_the_environment_is_no_error() {
        for folder in folders(|_| None) {
            assert!(folder.is_absolute() && folder.is_dir());
        }
    }
}
