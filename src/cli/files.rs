//! Files that this command keeps for the next one: where they are, and how they are replaced.

use super::CliError;
use antiphon::executor::hal;
use std::path::{Path, PathBuf};

/// Antiphon's cache folder, which need not exist.
pub fn cache_folder() -> Result<PathBuf, CliError> {
    hal::cache_folder().ok_or_else(no_cache_folder)
}

/// That there is none.
pub fn no_cache_folder() -> CliError {
    CliError::Usage(
        "cannot find the cache folder: saw none of ANTIPHON_CACHE_DIR and MSCCLPP_CACHE_DIR, and no absolute path in \
         XDG_CACHE_HOME or HOME; set one"
            .to_owned(),
    )
}

/// Writes a file, whole or not at all for whoever reads it meanwhile. Its folder is made if need be.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), CliError> {
    hal::replace_file(path, bytes)
        .map_err(|source| CliError::Write { what: path.display().to_string(), source })
}
