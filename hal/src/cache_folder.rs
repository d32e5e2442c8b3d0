//! The folder of what is kept from run to run: compiled kernels, plans, what was measured of this machine. One rule for all,
//! also for how files there are replaced.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, io};

/// Antiphon's cache folder, as the environment says: `$ANTIPHON_CACHE_DIR`, else `$MSCCLPP_CACHE_DIR/antiphon`, else
/// `$XDG_CACHE_HOME/antiphon`, else `~/.cache/antiphon`. It need not exist. None where not even `HOME` is set.
pub fn cache_folder() -> Option<PathBuf> {
    folder(|name| std::env::var_os(name))
}

/// The same; `variable` reads the environment.
fn folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // By the rule of the XDG folders, relative ones do not count.
    let standard = |name: &str| set(name).filter(|path| path.is_absolute());
    set("ANTIPHON_CACHE_DIR")
        .or_else(|| set("MSCCLPP_CACHE_DIR").map(|folder| folder.join("antiphon")))
        .or_else(|| standard("XDG_CACHE_HOME").map(|folder| folder.join("antiphon")))
        .or_else(|| standard("HOME").map(|folder| folder.join(".cache").join("antiphon")))
}

/// Writes a file, whole or not at all for whoever reads it meanwhile. Its folder is made if need be.
///
/// # Errors
/// What the system says; then the file is what it was.
pub fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder)?;
    }
    let (mut file, draft) = new_draft(path)?;
    file.write_all(bytes).and_then(|()| fs::rename(&draft, path)).inspect_err(|_| {
        let _ = fs::remove_file(&draft);
    })
}

/// A new file beside `path`, which nobody else writes.
fn new_draft(path: &Path) -> io::Result<(File, PathBuf)> {
    static DRAFTS: AtomicU64 = AtomicU64::new(0);
    loop {
        let mut draft = path.as_os_str().to_owned();
        let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
        draft.push(format!(".{}-{number}.draft", std::process::id()));
        let draft = PathBuf::from(draft);
        match File::options().write(true).create_new(true).open(&draft) {
            Ok(file) => return Ok((file, draft)),
            // Processes of two containers that share the folder may have the same number, as may one that was killed in here.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_replaced_and_drafts_do_not_stay() {
        let folder = std::env::temp_dir().join(format!("antiphon-files-{}", std::process::id()));
        let path = folder.join("deep").join("file");
        for text in ["one", "two"] {
            replace_file(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        // A folder cannot be replaced by a file.
        replace_file(path.parent().unwrap(), b"three").unwrap_err();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_draft_of_somebody_else_is_left_to_him() {
        let folder = std::env::temp_dir().join(format!("antiphon-drafts-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("file");
        // Those that this process would write next, whatever other tests write meanwhile.
        let others = (0..1000)
            .map(|number| folder.join(format!("file.{}-{number}.draft", std::process::id())));
        let others: Vec<_> = others.collect();
        others.iter().for_each(|other| fs::write(other, "theirs").unwrap());
        replace_file(&path, b"mine").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
        for other in others {
            assert_eq!(fs::read_to_string(other).unwrap(), "theirs");
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_first_variable_that_is_set_says() {
        let names = ["ANTIPHON_CACHE_DIR", "MSCCLPP_CACHE_DIR", "XDG_CACHE_HOME", "HOME"];
        for (values, expected) in [
            (["/a", "/m", "/x", "/h"], Some("/a")),
            (["", "/m", "/x", "/h"], Some("/m/antiphon")),
            (["", "", "/x", "/h"], Some("/x/antiphon")),
            (["", "", "x", "/h"], Some("/h/.cache/antiphon")),
            (["here", "", "", ""], Some("here")),
            (["", "", "", "h"], None),
            ([""; 4], None),
        ] {
            let found = folder(|name| {
                let position = names.iter().position(|known| *known == name)?;
                Some(values[position].into())
            });
            assert_eq!(found, expected.map(PathBuf::from), "{values:?}");
        }
    }
}
