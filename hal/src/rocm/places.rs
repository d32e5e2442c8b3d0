//! Where ROCm may be installed, looked up without running anything.

use crate::gpu::packages;
use std::ffi::OsString;
use std::path::PathBuf;

/// The folders of Python packages that bring ROCm along, below `site-packages`.
const WHEELS: [&str; 2] = ["_rocm_sdk_core/lib", "torch/lib"];

/// The folders that may hold ROCm's libraries, those that the user named first. `variable` reads the environment.
pub(super) fn folders(variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let path = |name: &str| set(name).map(PathBuf::from);
    let mut folders: Vec<_> = ["ROCM_PATH", "HIP_PATH", "ROCM_HOME"]
        .into_iter()
        .filter_map(path)
        .map(|root| root.join("lib"))
        .collect();
    let wheels = |packages: PathBuf| WHEELS.map(|wheel| packages.join(wheel));
    folders.extend(packages::of_python(&variable).into_iter().flat_map(wheels));
    folders.extend(["/opt/rocm/lib", "/opt/rocm/hip/lib"].map(PathBuf::from));
    folders.extend(["/usr/lib64", "/usr/lib/x86_64-linux-gnu"].map(PathBuf::from));
    packages::those_there(folders)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn installations_and_wheels_are_found_in_order() {
        let root = std::env::temp_dir().join(format!("antiphon-rocm-{}", std::process::id()));
        let (rocm, hip) = (root.join("rocm/lib"), root.join("hip/lib"));
        let wheel = root.join("env/lib/python3.11/site-packages/_rocm_sdk_core/lib");
        let torch = root.join("env/lib/python3.11/site-packages/torch/lib");
        for folder in [&rocm, &hip, &wheel, &torch] {
            fs::create_dir_all(folder).unwrap();
        }
        let variable = |name: &str| match name {
            "ROCM_PATH" => Some(root.join("rocm").into()),
            "HIP_PATH" => Some(root.join("hip").into()),
            "VIRTUAL_ENV" => Some(root.join("env").into()),
            "ROCM_HOME" => Some(OsString::new()),
            _ => None,
        };
        let found: Vec<_> =
            folders(variable).into_iter().filter(|folder| folder.starts_with(&root)).collect();
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(found, [rocm, hip, wheel, torch]);
    }

    #[test]
    fn nothing_in_the_environment_is_no_error() {
        for folder in folders(|_| None) {
            assert!(folder.is_absolute() && folder.is_dir());
        }
    }
}
