//! Folders that go when they are dropped, whatever became of the test that made them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A fresh folder. Dropping it takes it away with all that is in it.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes one in `parent`, which is made too; its name begins with `prefix`.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(parent: impl AsRef<Path>, prefix: &str) -> io::Result<Folder> {
        let parent = parent.as_ref();
        fs::create_dir_all(parent)?;
        let mut number = 0;
        loop {
            let path = parent.join(format!("{prefix}-{}-{number}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Folder(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A place in it.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be taken away does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_goes_with_what_is_in_it_also_when_its_user_panics() {
        let outcome = std::panic::catch_unwind(|| {
            let folders = ["a", "a"].map(|name| Folder::new(std::env::temp_dir(), name).unwrap());
            assert_ne!(folders[0].path(), folders[1].path());
            fs::write(folders[0].join("file"), "text").unwrap();
            std::panic::panic_any(folders.each_ref().map(|folder| folder.path().to_owned()));
        });
        let paths = outcome.unwrap_err().downcast::<[PathBuf; 2]>().unwrap();
        assert!(paths.iter().all(|path| !path.exists()), "{paths:?}");
    }
}
