//! Where plugins are looked for.

use std::collections::HashSet;
use std::env;
use std::ffi::{CStr, OsStr};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The environment variable that names plugins: paths, separated by colons.
pub const PATHS: &str = "ANTIPHON_WIRE_PLUGINS";

const BEGIN: &str = "libantiphon_wire_";
const END: &str = ".so";
const FOLDER: &str = "antiphon-wires";

/// The plugin files of this machine, in the order in which they count: what [`PATHS`] names, whether or not it is there,
/// then files `libantiphon_wire_*.so` beside the executable and the library that this code is in, and in folders
/// `antiphon-wires` there. Each once.
pub fn search() -> Vec<PathBuf> {
    let executable = env::current_exe().ok();
    let places = executable.into_iter().chain(this_library());
    let folders = places.filter_map(|file| file.parent().map(Path::to_owned));
    found(env::var_os(PATHS).as_deref(), folders)
}

/// Whether [`PATHS`] names the plugin file of a wire.
pub fn is_named(wire: &str) -> bool {
    names(env::var_os(PATHS).as_deref()).iter().any(|path| wire_of(path) == wire)
}

/// The files that a value of [`PATHS`] names.
fn names(value: Option<&OsStr>) -> Vec<PathBuf> {
    let paths = value.map(env::split_paths).into_iter().flatten();
    paths.filter(|path| !path.as_os_str().is_empty()).collect()
}

fn found(named: Option<&OsStr>, folders: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut paths = names(named);
    for folder in folders {
        for place in [folder.join(FOLDER), folder] {
            let entries = fs::read_dir(place).into_iter().flatten().flatten();
            let mut here: Vec<_> =
                entries.map(|entry| entry.path()).filter(|path| is_plugin(path)).collect();
            here.sort();
            paths.extend(here);
        }
    }
    let mut seen = HashSet::new();
    paths.retain(|path| seen.insert(fs::canonicalize(path).unwrap_or_else(|_| path.clone())));
    paths
}

fn is_plugin(path: &Path) -> bool {
    let name = path.file_name().map(OsStr::to_string_lossy).unwrap_or_default();
    name.len() > BEGIN.len() + END.len() && name.starts_with(BEGIN) && name.ends_with(END)
}

/// What the wire of a plugin file is called until the plugin says so itself.
pub(super) fn wire_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let stem = name.strip_suffix(END).unwrap_or(&name);
    stem.strip_prefix(BEGIN).unwrap_or(stem).to_owned()
}

/// The file that this code was loaded from.
fn this_library() -> Option<PathBuf> {
    // SAFETY: all zero is a value of this struct of pointers.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    let here = (this_library as fn() -> Option<PathBuf> as *const ()).cast();
    // SAFETY: an address, of which nothing is read, and room for the answer.
    if unsafe { libc::dladdr(here, &raw mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: a text of the loader's, which lasts as long as the library.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    fs::canonicalize(OsStr::from_bytes(name.to_bytes())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugins_are_found_by_their_names_once_each() {
        let root = env::temp_dir().join(format!("antiphon-find-{}", std::process::id()));
        let (folder, inner) = (root.join("bin"), root.join("bin").join(FOLDER));
        fs::create_dir_all(&inner).unwrap();
        let beside = folder.join("libantiphon_wire_b.so");
        let inside = inner.join("libantiphon_wire_a.so");
        let others = ["libantiphon_wire_.so", "libantiphon_wire_c.so.1", "libother.so", "x.so"];
        for file in [&beside, &inside].into_iter().cloned().chain(others.map(|o| folder.join(o))) {
            fs::write(file, "").unwrap();
        }
        let missing = root.join("missing.so");
        let named = env::join_paths([&missing, &beside]).unwrap();
        let folders = [folder.clone(), folder, root.join("nowhere")];
        let paths = found(Some(&named), folders.into_iter());
        assert_eq!(paths, [missing, beside, inside]);
        assert_eq!(found(Some(OsStr::new("")), std::iter::empty()), Vec::<PathBuf>::new());
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn files_tell_their_wires() {
        for (file, wire) in [
            ("/lib/libantiphon_wire_rdma.so", "rdma"),
            ("mine.so", "mine"),
            ("libantiphon_wire_x", "x"),
            ("", ""),
        ] {
            assert_eq!(wire_of(Path::new(file)), wire);
        }
    }

    #[test]
    fn this_code_is_in_the_test_program() {
        let library = this_library().unwrap();
        assert_eq!(library, fs::canonicalize(env::current_exe().unwrap()).unwrap());
    }
}
