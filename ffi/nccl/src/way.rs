//! Which way calls go: Antiphon on the host, with or without a real library for what it does not serve; the real library; or
//! nowhere.

use crate::failure::{Failure, Result};
use crate::library::{file_of, open, own_file};
use std::ffi::{CString, OsStr, OsString, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

/// Where the buffers of the program are: `host` says so.
const DEVICE_VARIABLE: &str = "ANTIPHON_DEVICE";
/// Names the real library.
const REAL_VARIABLE: &str = "ANTIPHON_NCCL_LIB_PATH";
/// The same, where that is not set.
const OTHER_REAL_VARIABLE: &str = "MSCCLPP_NCCL_LIB_PATH";
/// What a machine has that has a GPU.
const GPUS: [&str; 3] = ["/dev/nvidiactl", "/dev/dxg", "/dev/kfd"];

/// The real library, loaded.
pub struct Real {
    pub path: OsString,
    library: usize,
}

impl Real {
    /// The address of a function.
    pub fn find(&self, name: &str) -> Result<usize> {
        let text = CString::new(name).map_err(|_| Failure::usage("a name with a zero"))?;
        let name: *const c_char = text.as_ptr();
        // SAFETY: the library is loaded and stays so; the name ends with a zero.
        let at = unsafe {
            libc::dlsym(std::ptr::with_exposed_provenance_mut::<c_void>(self.library), name)
        };
        if at.is_null() {
            let (path, name) = (self.path.to_string_lossy(), text.to_string_lossy());
            return Err(Failure::usage(format!(
                "cannot call {name}: {path} has none; name a later version of it by {REAL_VARIABLE}, or do without the call"
            )));
        }
        Ok(at.expose_provenance())
    }
}

/// Where calls go, for as long as the process lives: so handles are of one kind.
enum Way {
    /// Antiphon, on the host. What it does not serve goes to the real library, if one is named; it may not have loaded.
    Host(Option<std::result::Result<Real, String>>),
    /// The real library.
    Real(Real),
    /// Nowhere, for this reason.
    None(String),
}

fn way() -> &'static Way {
    static WAY: OnceLock<Way> = OnceLock::new();
    WAY.get_or_init(|| {
        let has_gpu = GPUS.iter().any(|path| Path::new(path).exists());
        let set = |name| std::env::var_os(name).filter(|path| !path.is_empty());
        let real = [REAL_VARIABLE, OTHER_REAL_VARIABLE].into_iter().find_map(set);
        choose(std::env::var_os(DEVICE_VARIABLE), real, has_gpu)
    })
}

fn choose(device: Option<OsString>, real: Option<OsString>, has_gpu: bool) -> Way {
    let on_host = device.as_deref() == Some(OsStr::new("host"));
    let named = |path: OsString| match load(&path) {
        Ok(library) => Ok(Real { path, library }),
        Err(why) => Err(format!(
            "cannot load the library of {REAL_VARIABLE}, or {OTHER_REAL_VARIABLE}: {why}"
        )),
    };
    match (device, real) {
        (_, real) if on_host => Way::Host(real.map(named)),
        (_, Some(path)) => named(path).map_or_else(Way::None, Way::Real),
        (Some(device), None) => Way::None(format!(
            "cannot serve buffers of device `{}`: saw no {REAL_VARIABLE} in the environment, allowed {DEVICE_VARIABLE}=host, \
             or the path of a library that serves it",
            device.to_string_lossy()
        )),
        (None, None) if has_gpu => Way::None(format!(
            "cannot serve buffers on GPUs: this machine has one, and {REAL_VARIABLE} is not set; name the library that serves \
             them, or set {DEVICE_VARIABLE}=host if buffers are on the host"
        )),
        (None, None) => Way::Host(None),
    }
}

/// Loads the real library by itself: its symbols are for itself alone, and it takes none of the same names.
fn load(path: &OsStr) -> std::result::Result<usize, String> {
    let library = open(path.as_bytes(), libc::RTLD_DEEPBIND)?;
    // A bare name may lead here as well as a path. The version is a function of ours, too.
    let real = Real { path: path.to_owned(), library: library.expose_provenance() };
    let itself = || {
        let version = real.find("ncclGetVersion").ok()?;
        let there = file_of(std::ptr::with_exposed_provenance(version))?;
        let [there, here] = [there, own_file()?].map(std::fs::canonicalize);
        Some(there.ok()? == here.ok()?)
    };
    match itself() {
        Some(true) => Err(format!("{} is this library itself", path.to_string_lossy())),
        _ => Ok(real.library),
    }
}

/// The real library for what Antiphon does not serve on the host, or why it could not be loaded; none if none is named.
pub fn beside() -> Option<&'static std::result::Result<Real, String>> {
    match way() {
        Way::Host(real) => real.as_ref(),
        _ => None,
    }
}

/// A function of the real library, found once.
pub struct Entry {
    pub name: &'static str,
    at: OnceLock<Result<Option<usize>>>,
}

impl Entry {
    /// The function of this name.
    pub const fn new(name: &'static str) -> Self {
        Entry { name, at: OnceLock::new() }
    }

    /// Where calls of it go: its address in the real library, or none for Antiphon.
    ///
    /// # Errors
    /// If they go nowhere, or the real library lacks it.
    pub fn real(&'static self) -> &'static Result<Option<usize>> {
        self.at.get_or_init(|| match way() {
            Way::Host(_) => Ok(None),
            Way::None(why) => Err(Failure::usage(why.clone())),
            Way::Real(real) => real.find(self.name).map(Some),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_go_to_the_host_unless_somebody_else_has_the_buffers() {
        let some = |text: &str| Some(OsString::from(text));
        let why = |way| match way {
            Way::None(why) => why,
            Way::Host(None) => "host".to_owned(),
            Way::Host(Some(Ok(_))) => "host, and beside it".to_owned(),
            Way::Host(Some(Err(why))) => format!("host; {why}"),
            Way::Real(_) => "real".to_owned(),
        };
        for (device, real, gpu, expected) in [
            (None, None, false, "host"),
            (some("host"), None, true, "host"),
            (some("host"), some("/nowhere.so"), true, "host; cannot load"),
            (some("host"), some("libc.so.6"), true, "host, and beside it"),
            (None, None, true, "on GPUs"),
            (some("cuda"), None, false, "`cuda`"),
            (None, some("/nowhere.so"), false, "/nowhere.so"),
            (None, some("libc.so.6"), false, "real"),
        ] {
            let found = why(choose(device.clone(), real, gpu));
            assert!(found.contains(expected), "{device:?} {gpu}: {found}");
        }
    }
}
