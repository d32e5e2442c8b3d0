//! Which way calls go: Antiphon on the host, the real library, or nowhere.

use crate::failure::{Failure, Result};
use crate::library::{open, own_file};
use std::ffi::{CString, OsStr, OsString, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

/// Where the buffers of the program are: `host` says so.
const DEVICE_VARIABLE: &str = "ANTIPHON_DEVICE";
/// Names the real library.
const REAL_VARIABLE: &str = "ANTIPHON_NCCL_LIB_PATH";
/// What a machine has that has a GPU.
const GPUS: [&str; 3] = ["/dev/nvidiactl", "/dev/dxg", "/dev/kfd"];

/// Where calls go, for as long as the process lives: so handles are of one kind, and a group goes one way.
enum Way {
    /// Antiphon, on the host.
    Host,
    /// The real library.
    Real { path: OsString, library: usize },
    /// Nowhere, for this reason.
    None(String),
}

fn way() -> &'static Way {
    static WAY: OnceLock<Way> = OnceLock::new();
    WAY.get_or_init(|| {
        let has_gpu = GPUS.iter().any(|path| Path::new(path).exists());
        choose(std::env::var_os(DEVICE_VARIABLE), std::env::var_os(REAL_VARIABLE), has_gpu)
    })
}

fn choose(device: Option<OsString>, real: Option<OsString>, has_gpu: bool) -> Way {
    let on_host = device.as_deref() == Some(OsStr::new("host"));
    match (device, real) {
        _ if on_host => Way::Host,
        (_, Some(path)) => match load(&path) {
            Ok(library) => Way::Real { path, library },
            Err(why) => Way::None(format!("cannot load the library of {REAL_VARIABLE}: {why}")),
        },
        (Some(device), None) => Way::None(format!(
            "cannot serve buffers of device `{}`: saw no {REAL_VARIABLE} in the environment, allowed {DEVICE_VARIABLE}=host, \
             or the path of a library that serves it",
            device.to_string_lossy()
        )),
        (None, None) if has_gpu => Way::None(format!(
            "cannot serve buffers on GPUs: this machine has one, and {REAL_VARIABLE} is not set; name the library that serves \
             them, or set {DEVICE_VARIABLE}=host if buffers are on the host"
        )),
        (None, None) => Way::Host,
    }
}

/// Loads the real library by itself: its symbols are for itself alone, and it takes none of the same names.
fn load(path: &OsStr) -> std::result::Result<usize, String> {
    let same = |own: OsString| {
        let [own, named] = [own.as_os_str(), path].map(std::fs::canonicalize);
        own.is_ok_and(|own| named.is_ok_and(|named| own == named))
    };
    if own_file().is_some_and(same) {
        return Err(format!("{} is this library itself", path.to_string_lossy()));
    }
    open(path.as_bytes(), libc::RTLD_DEEPBIND).map(|library| library.addr())
}

/// A function of the real library, found once.
pub struct Entry {
    name: &'static str,
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
            Way::Host => Ok(None),
            Way::None(why) => Err(Failure::usage(why.clone())),
            Way::Real { path, library } => {
                let name =
                    CString::new(self.name).map_err(|_| Failure::usage("a name with a zero"))?;
                let name: *const c_char = name.as_ptr();
                // SAFETY: the library is loaded and stays so; the name ends with a zero.
                let at = unsafe {
                    libc::dlsym(std::ptr::with_exposed_provenance_mut::<c_void>(*library), name)
                };
                if at.is_null() {
                    let path = path.to_string_lossy();
                    return Err(Failure::usage(format!("{path} has no {}", self.name)));
                }
                Ok(Some(at.expose_provenance()))
            }
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
            Way::Host => "host".to_owned(),
            Way::Real { .. } => "real".to_owned(),
        };
        for (device, real, gpu, expected) in [
            (None, None, false, "host"),
            (some("host"), None, true, "host"),
            (some("host"), some("/nowhere.so"), true, "host"),
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
