//! Where Python keeps its packages, which bring vendor libraries along; looked up without running anything.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// The folders that may hold Python packages, those that the user named first. `variable` reads the environment.
pub(crate) fn of_python(variable: &impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let path = |name: &str| set(name).map(PathBuf::from);
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
    packages
}

/// Those of `folders` that exist, each once.
pub(crate) fn those_there(mut folders: Vec<PathBuf>) -> Vec<PathBuf> {
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
