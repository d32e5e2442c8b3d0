//! The turn to write a table: one tuning at a time, since each writes the whole.

use crate::cli::CliError;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A turn, given up when it is dropped, or with its process.
#[derive(Debug)]
pub struct Turn {
    /// Locked; its text is the process that has the turn.
    file: File,
    path: PathBuf,
}

impl Turn {
    /// Takes the turn to write `table`, by a file beside it. The folder is made if need be.
    ///
    /// # Errors
    /// Where another process has it, or the file cannot be made.
    pub fn take(table: &Path) -> Result<Turn, CliError> {
        let mut path = table.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        loop {
            let opened = open(&path);
            let mut file = opened.map_err(|source| unwritten(&path, source))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(taken(table, &path)),
                // A file system without locks.
                Err(TryLockError::Error(_)) => return Ok(Turn { file, path }),
            }
            // Else whoever had the turn has removed the file meanwhile.
            if is_at(&file, &path) {
                let process = std::process::id().to_string();
                let written = file.set_len(0).and_then(|()| file.write_all(process.as_bytes()));
                written.map_err(|source| unwritten(&path, source))?;
                return Ok(Turn { file, path });
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if is_at(&self.file, &self.path) {
            // While it is locked, so that it is nobody else's.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder)?;
    }
    OpenOptions::new().create(true).truncate(false).write(true).open(path)
}

/// Whether an open file is the one at `path`.
fn is_at(file: &File, path: &Path) -> bool {
    let place = |found: fs::Metadata| (found.dev(), found.ino());
    let (own, there) = (file.metadata().map(place), fs::metadata(path).map(place));
    matches!((own, there), (Ok(own), Ok(there)) if own == there)
}

fn taken(table: &Path, path: &Path) -> CliError {
    let process: Option<u32> = fs::read_to_string(path).ok().and_then(|text| text.parse().ok());
    let who = process.map_or("another process".to_owned(), |process| format!("process {process}"));
    CliError::Usage(format!(
        "cannot tune into {}: {who} does; wait until it has ended, or name another file with -o",
        table.display()
    ))
}

fn unwritten(path: &Path, source: io::Error) -> CliError {
    CliError::Write { what: path.display().to_string(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_the_turn_at_a_time_and_nothing_of_it_stays() {
        let folder = std::env::temp_dir().join(format!("antiphon-turn-{}", std::process::id()));
        let table = folder.join("deep").join("tuning.json");
        let turn = Turn::take(&table).unwrap();
        let error = Turn::take(&table).unwrap_err().to_string();
        let holder = format!("process {} does", std::process::id());
        assert!(error.contains(&holder) && error.contains("-o"), "{error}");
        // Of another table.
        drop(Turn::take(&folder.join("other.json")).unwrap());
        drop(turn);
        assert_eq!(fs::read_dir(table.parent().unwrap()).unwrap().count(), 0);
        // What a process that was killed has left.
        fs::write(table.with_extension("json.lock"), "4294967295000").unwrap();
        drop(Turn::take(&table).unwrap());
        fs::remove_dir_all(&folder).unwrap();
    }
}
