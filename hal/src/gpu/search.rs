//! Finding vendor libraries: one that is already in the process, one that a variable names, one in a known place.

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::ffi::OsString;
use std::path::PathBuf;

/// Where a library may be.
#[derive(Debug)]
pub(crate) struct Search {
    /// The only path to try, where the user named one.
    pub(crate) named: Option<OsString>,
    /// File names, the preferred first. The system's loader is asked for them before any folder.
    pub(crate) names: &'static [&'static str],
    /// Folders that the system's loader may not know.
    pub(crate) folders: Vec<PathBuf>,
}

/// A library that was found.
#[derive(Debug)]
pub(crate) struct Found {
    /// The library. Vendor libraries keep threads and hooks: whoever has it never closes it.
    pub(crate) library: Library,
    /// The name by which it was opened.
    pub(crate) name: String,
}

impl Search {
    /// The first that loads, or why none did.
    pub(crate) fn open(&self) -> Result<Found, String> {
        if let Some(path) = &self.named {
            let name = path.to_string_lossy().into_owned();
            return match open(path.clone(), 0) {
                Ok(library) => Ok(Found { library, name }),
                Err(why) => Err(format!("{name} does not load ({why})")),
            };
        }
        for &name in self.names {
            if let Ok(library) = open(name.into(), libc::RTLD_NOLOAD) {
                return Ok(Found { library, name: name.to_owned() });
            }
        }
        let mut broken = Vec::new();
        for &name in self.names {
            match open(name.into(), 0) {
                Ok(library) => return Ok(Found { library, name: name.to_owned() }),
                Err(why) if is_missing(name, &why) => {}
                Err(why) => broken.push(why),
            }
        }
        for folder in &self.folders {
            for &name in self.names {
                let path = folder.join(name);
                if !path.exists() {
                    continue;
                }
                match open(path.clone().into(), 0) {
                    Ok(library) => {
                        return Ok(Found { library, name: path.to_string_lossy().into_owned() });
                    }
                    Err(why) => broken.push(why),
                }
            }
        }
        Err(self.reason(&broken))
    }

    /// The places, and what was wrong with those that had something.
    fn reason(&self, broken: &[String]) -> String {
        let mut places = vec!["the system's library path".to_owned()];
        places.extend(self.folders.iter().map(|folder| folder.to_string_lossy().into_owned()));
        let names = self.names.join(" or ");
        let mut reason = format!("no {names} in {}", places.join(", "));
        if !broken.is_empty() {
            reason.push_str("; what is there does not load: ");
            reason.push_str(&broken.join("; "));
        }
        reason
    }
}

/// Whether the loader's words say that there is no file `name`. They begin with the file that is missing: another one is a
/// library that this one needs; one that is there has its path there.
fn is_missing(name: &str, why: &str) -> bool {
    why.strip_prefix(name).is_some_and(|rest| rest.starts_with(':'))
}

/// Opens `name` with `flags` in addition to the usual ones.
fn open(name: OsString, flags: i32) -> Result<Library, String> {
    // SAFETY: the library's initialisers run, as they do in any program that uses it; it is one that the vendor
    // made to be loaded so, or one that the user named for it.
    unsafe { Library::open(Some(name.as_os_str()), RTLD_NOW | RTLD_LOCAL | flags) }.map_err(
        |error| {
            // The system's words, with the file's name, are in what it comes from.
            let source = std::error::Error::source(&error);
            source.map_or_else(|| error.to_string(), ToString::to_string)
        },
    )
}

/// The function `name` of `library`.
///
/// # Safety
///
/// `F` must be the type of a pointer to that function, and the library must stay loaded while it is used.
pub(crate) unsafe fn function<F: Copy>(library: &Library, name: &str) -> Option<F> {
    // SAFETY: the caller vouches for the type.
    let symbol = unsafe { library.get::<F>(name) };
    symbol.ok().map(|symbol| *symbol)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(named: Option<&str>, names: &'static [&'static str], folders: &[&str]) -> Search {
        let folders = folders.iter().map(PathBuf::from).collect();
        Search { named: named.map(OsString::from), names, folders }
    }

    #[test]
    fn a_missing_library_is_told_with_every_place() {
        let missing = search(None, &["libnowhere.so.1"], &["/first", "/second"]);
        let why = missing.open().unwrap_err();
        assert!(why.starts_with("no libnowhere.so.1 in "), "{why}");
        assert!(!why.contains("does not load"), "{why}");
        assert!(why.contains("/first") && why.contains("/second"), "{why}");
    }

    #[test]
    fn a_library_that_another_one_needs_is_told() {
        let why =
            "libnvrtc-builtins.so.13: cannot open shared object file: No such file or directory";
        assert!(is_missing("libnvrtc-builtins.so.13", why));
        assert!(!is_missing("libnvrtc.so.13", why));
        assert!(!is_missing("libnvrtc.so.13", "/lib/libnvrtc.so.13: file too short"));
        let loader = open("libnowhere.so.1".into(), 0).unwrap_err();
        assert!(is_missing("libnowhere.so.1", &loader), "{loader}");
    }

    #[test]
    fn a_named_library_is_the_only_one_tried() {
        let why = search(Some("/nowhere/libc.so.6"), &["libc.so.6"], &[]).open().unwrap_err();
        assert!(why.contains("/nowhere/libc.so.6 does not load"), "{why}");
    }

    #[test]
    fn what_is_no_library_is_told_apart_from_what_is_not_there() {
        let folder = std::env::temp_dir().join(format!("antiphon-search-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("libbroken.so.1"), "no library").unwrap();
        let why =
            search(None, &["libbroken.so.1"], &[&folder.to_string_lossy()]).open().unwrap_err();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(why.contains("what is there does not load"), "{why}");
        assert!(why.contains("libbroken.so.1: file too short"), "{why}");
    }

    #[test]
    fn a_library_of_the_process_is_found_with_its_functions() {
        let found = search(None, &["libnowhere.so.1", "libc.so.6"], &[]).open().unwrap();
        assert_eq!(found.name, "libc.so.6");
        // SAFETY: `getpid` takes nothing and returns an int; the C library is never unloaded.
        let getpid: extern "C" fn() -> i32 =
            unsafe { function(&found.library, "getpid") }.expect("the C library has getpid");
        assert_eq!(getpid() as u32, std::process::id());
        // SAFETY: nothing is called.
        let none = unsafe { function::<extern "C" fn()>(&found.library, "antiphon_has_no_such") };
        assert!(none.is_none());
        std::mem::forget(found.library);
    }
}
