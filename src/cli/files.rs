//! Files that this command keeps for the next one: where they are, and how they are replaced.

use super::CliError;
use antiphon::executor::hal;
use std::fs;
use std::path::{Path, PathBuf};

/// Antiphon's cache folder, which need not exist.
pub fn cache_folder() -> Result<PathBuf, CliError> {
    hal::cache_folder().ok_or_else(|| {
        CliError::Usage(
            "cannot find the cache folder: saw neither ANTIPHON_CACHE_DIR nor an absolute path in HOME; set one, or name \
             the file with -o"
                .to_owned(),
        )
    })
}

/// Writes a file, whole or not at all for whoever reads it meanwhile. Its folder is made if need be.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), CliError> {
    let failed = |source| CliError::Write { what: path.display().to_string(), source };
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}.draft", std::process::id()));
    let draft = PathBuf::from(draft);
    fs::write(&draft, bytes).and_then(|()| fs::rename(&draft, path)).map_err(|source| {
        // Not there if it could not be made.
        let _ = fs::remove_file(&draft);
        failed(source)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_replaced_and_drafts_do_not_stay() {
        let folder = std::env::temp_dir().join(format!("antiphon-files-{}", std::process::id()));
        let path = folder.join("deep").join("file");
        for text in ["one", "two"] {
            replace(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        // A folder cannot be replaced by a file.
        let error = replace(path.parent().unwrap(), b"three").unwrap_err().to_string();
        assert!(error.starts_with("cannot write "), "{error}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }
}
