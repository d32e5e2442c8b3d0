//! Where the run-time compiler may be installed, looked up without running anything.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
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
    let mut packages = Vec::new();
    packages.extend(["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(path).flat_map(python));
    if let Some(list) = set("PYTHONPATH") {
        packages.extend(std::env::split_paths(&list));
    }
    if let Some(list) = set("PATH") {
        packages.extend(std::env::split_paths(&list).flat_map(|folder| of_program(&folder)));
    }
    packages.extend(path("HOME").map(|home| home.join(".local")).into_iter().flat_map(python));
    packages.extend(["/usr/local", "/usr"].map(PathBuf::from).into_iter().flat_map(python));
    let wheels = |packages: PathBuf| WHEELS.map(|wheel| packages.join(wheel));
    folders.extend(packages.into_iter().flat_map(wheels));
    folders.extend(TOOLKIT.map(|folder| Path::new("/usr/local/cuda").join(folder)));
    let mut seen = HashSet::new();
    folders.retain(|folder| folder.is_dir() && seen.insert(folder.clone()));
    folders
}

/// The packages of the Python that `folder` (one of `PATH`) has, also where that is a link to it.
fn of_program(folder: &Path) -> Vec<PathBuf> {
    let program = folder.join("python3");
    let real = fs::canonicalize(&program).ok();
    let programs = [Some(program), real];
    let roots = programs.iter().flatten().filter(|program| program.exists());
    roots
        .filter_map(|program| program.parent()?.parent().map(Path::to_owned))
        .flat_map(python)
        .collect()
}

/// The folders of packages below the prefix `root` of one or several Pythons, the newest first.
fn python(root: PathBuf) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(root.join("lib")) else { return Vec::new() };
    let mut versions: Vec<_> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with("python3"))
        .collect();
    versions.sort_by_key(|name| {
        let minor = name.rsplit('.').next().and_then(|minor| minor.parse::<u32>().ok());
        (std::cmp::Reverse(minor), name.clone())
    });
    let packages = |version: &String| {
        ["site-packages", "dist-packages"].map(|name| root.join("lib").join(version).join(name))
    };
    versions.iter().flat_map(packages).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
