//! Where calls go: to Antiphon, on the host or on devices, with or without a real library for what it does not serve; to the
//! real library; or nowhere.

use crate::failure::{Failure, Result};
use crate::library::{file_of, library, open, own_file};
use crate::place::Place;
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
/// Device files that show that a machine has a GPU, each with the backend of that GPU.
const GPUS: [(&str, &str); 3] =
    [("/dev/nvidiactl", "cuda"), ("/dev/dxg", "cuda"), ("/dev/kfd", "rocm")];

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

/// Where calls go. It never changes while the process lives, so all handles are of one kind.
enum Way {
    /// Antiphon. What it does not serve goes to the real library, if one is named; it may not have loaded.
    Own(Place, Option<std::result::Result<Real, String>>),
    /// The real library.
    Real(Real),
    /// Nowhere, for this reason.
    None(String),
}

fn way() -> &'static Way {
    static WAY: OnceLock<Way> = OnceLock::new();
    WAY.get_or_init(|| {
        // Files, and no driver: a program may still fork when it asks for the version.
        let gpu = GPUS.iter().find(|(path, _)| Path::new(path).exists()).map(|(_, whose)| *whose);
        let set = |name| std::env::var_os(name).filter(|path| !path.is_empty());
        let real = [REAL_VARIABLE, OTHER_REAL_VARIABLE].into_iter().find_map(set);
        choose(set(DEVICE_VARIABLE), real, gpu, is_built)
    })
}

/// Whether `libantiphon.so` has a backend.
fn is_built(backend: &str) -> Result<bool> {
    let (library, mut built) = (library()?, 0);
    let backend = CString::new(backend).map_err(|_| Failure::usage("a name with a zero"))?;
    // SAFETY: the name ends with a zero, and the place is writable.
    let code = unsafe { (library.antiphon_backend_is_built)(backend.as_ptr(), &mut built) };
    library.outcome(code)?;
    Ok(built != 0)
}

fn choose(
    device: Option<OsString>,
    real: Option<OsString>,
    gpu: Option<&str>,
    is_built: impl Fn(&str) -> Result<bool>,
) -> Way {
    let named = |path: OsString| match load(&path) {
        Ok(library) => Ok(Real { path, library }),
        Err(why) => Err(format!(
            "cannot load the library of {REAL_VARIABLE}, or {OTHER_REAL_VARIABLE}: {why}"
        )),
    };
    let name = device.as_deref().map(OsStr::to_string_lossy);
    let name = name.as_deref().or(gpu);
    let place = name.map_or(Some(Place::Host), Place::named);
    let why = match (place, real) {
        (Some(Place::Host), real) => return Way::Own(Place::Host, real.map(named)),
        (Some(Place::Device { backend, index }), real) => match (is_built(&backend), real) {
            (Ok(true), real) => {
                return Way::Own(Place::Device { backend, index }, real.map(named));
            }
            (_, Some(path)) => return named(path).map_or_else(Way::None, Way::Real),
            (Ok(false), None) => format!("libantiphon.so was built without the backend {backend}"),
            (Err(why), None) => why.text,
        },
        (_, Some(path)) => return named(path).map_or_else(Way::None, Way::Real),
        (None, None) => "it is none, allowed are such as host, cuda and cuda:1".to_owned(),
    };
    Way::None(format!(
        "cannot serve buffers of device `{}`: {why}; name a library that serves them by {REAL_VARIABLE}, or set \
         {DEVICE_VARIABLE}=host if buffers are on the host",
        name.unwrap_or("host")
    ))
}

/// Loads the real library apart from the program: only the library itself sees its symbols, and it takes no others of
/// the same names.
fn load(path: &OsStr) -> std::result::Result<usize, String> {
    let library = open(path.as_bytes(), libc::RTLD_DEEPBIND)?;
    // A bare name may lead to this library as well as a path may. `ncclGetVersion` tells, since this library has it, too.
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

/// The real library for what Antiphon does not serve, or why it could not be loaded; none if none is named.
pub fn beside() -> Option<&'static std::result::Result<Real, String>> {
    match way() {
        Way::Own(_, real) => real.as_ref(),
        _ => None,
    }
}

/// Where the buffers are that Antiphon serves.
pub fn place() -> &'static Place {
    match way() {
        Way::Own(place, _) => place,
        _ => &Place::Host,
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
            Way::Own(..) => Ok(None),
            Way::None(why) => Err(Failure::usage(why.clone())),
            Way::Real(real) => real.find(self.name).map(Some),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_go_to_antiphon_unless_somebody_else_has_the_buffers() {
        let some = |text: &str| Some(OsString::from(text));
        let why = |way| match way {
            Way::None(why) => why,
            Way::Real(_) => "real".to_owned(),
            Way::Own(place, real) => {
                let place = match place {
                    Place::Host => "host".to_owned(),
                    Place::Device { backend, index } => format!("{backend} {index:?}"),
                };
                match real {
                    None => place,
                    Some(Ok(_)) => format!("{place}, and beside it"),
                    Some(Err(why)) => format!("{place}; {why}"),
                }
            }
        };
        let only_cuda = |backend: &str| Ok(backend == "cuda");
        for (device, real, gpu, expected) in [
            (None, None, None, "host"),
            (some("host"), None, Some("cuda"), "host"),
            (some("host"), some("/nowhere.so"), Some("cuda"), "host; cannot load"),
            (some("host"), some("libc.so.6"), Some("cuda"), "host, and beside it"),
            (None, None, Some("cuda"), "cuda None"),
            (None, some("libc.so.6"), Some("cuda"), "cuda None, and beside it"),
            (some("cuda:2"), some("/nowhere.so"), None, "cuda Some(2); cannot load"),
            (some("cuda:1"), None, None, "cuda Some(1)"),
            (some("cuda:x"), None, None, "`cuda:x`"),
            (None, None, Some("rocm"), "without the backend rocm"),
            (some("rocm"), some("libc.so.6"), None, "real"),
            (None, some("/nowhere.so"), None, "host; cannot load"),
            (None, some("libc.so.6"), None, "host, and beside it"),
            (some("none"), some("libc.so.6"), None, "real"),
            (some("none"), some("/nowhere.so"), None, "/nowhere.so"),
        ] {
            let found = why(choose(device.clone(), real, gpu, only_cuda));
            assert!(found.contains(expected), "{device:?} {gpu:?}: {found}");
        }
    }
}
