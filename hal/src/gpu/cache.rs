//! Compiled kernels on disk, shared by all processes of a user.
//!
//! An entry is named by a digest of everything that the result depends on, and starts with a digest of the rest, so
//! that one which was cut short or changed is not used. It comes under its name complete or not at all. Of several
//! processes that want the same entry at once, one compiles and the others wait for it, up to a limit. A cache that
//! cannot be read or written is no error: the kernel is compiled then.

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The layout of an entry: this, the digest, the code.
const MAGIC: &[u8; 8] = b"AMKC\x01\0\0\0";
const DIGEST_BYTES: usize = 32;
/// How long another process's compilation is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long between two looks at it.
const NAP: Duration = Duration::from_millis(5);

/// A folder of compiled kernels, or none.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    folder: Option<PathBuf>,
}

/// The name of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key(String);

impl Key {
    /// The name for a result that depends on `parts` and their order.
    pub(crate) fn new<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut digest = Sha256::new();
        for part in parts {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        Key(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

impl Cache {
    /// The user's cache: `kernels` in the [cache folder](crate::cache_folder).
    pub(crate) fn of_user() -> Self {
        Cache { folder: crate::cache_folder().map(|folder| folder.join("kernels")) }
    }

    /// A cache in `folder`.
    #[cfg(test)]
    pub(crate) fn at(folder: PathBuf) -> Self {
        Cache { folder: Some(folder) }
    }

    /// The entry `key`; where there is none, what `compile` makes becomes it.
    pub(crate) fn get_or<E>(
        &self,
        key: &Key,
        compile: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<Vec<u8>, E> {
        let Some(folder) = &self.folder else { return compile() };
        let path = folder.join(&key.0);
        if let Some(code) = read(&path) {
            return Ok(code);
        }
        let turn = Turn::wait(folder, key, &path);
        // Whoever had the turn before has left the result.
        if turn.waited
            && let Some(code) = read(&path)
        {
            return Ok(code);
        }
        let code = compile()?;
        let _ = write(folder, &path, key, &code);
        Ok(code)
    }
}

/// The turn to compile an entry, given up when dropped.
struct Turn {
    /// The lock's file; `None` where the cache has no locks, or another process took too long.
    lock: Option<(File, PathBuf)>,
    /// Whether somebody else had the turn.
    waited: bool,
}

impl Turn {
    /// Waits until nobody else compiles `key`, or `path` is there, or the patience ends.
    fn wait(folder: &Path, key: &Key, path: &Path) -> Self {
        let mut turn = Turn { lock: None, waited: false };
        // Readable for its owner alone: who can write it decides what the GPU runs.
        let _ = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        let lock = folder.join(format!(".{}.lock", key.0));
        let open =
            OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&lock);
        let Ok(file) = open else { return turn };
        let start = Instant::now();
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    turn.lock = Some((file, lock));
                    return turn;
                }
                Err(Errno::WOULDBLOCK | Errno::INTR) => {
                    turn.waited = true;
                    if start.elapsed() > PATIENCE || path.exists() {
                        return turn;
                    }
                    thread::sleep(NAP);
                }
                // A file system without locks.
                Err(_) => return turn,
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some((file, path)) = self.lock.take() {
            // While it is still held: a process that has the removed file open can only compile once more.
            let _ = fs::remove_file(path);
            drop(file);
        }
    }
}

/// The code of the entry at `path`, if it is whole.
fn read(path: &Path) -> Option<Vec<u8>> {
    let mut entry = fs::read(path).ok()?;
    let body = entry.strip_prefix(MAGIC)?;
    let (digest, code) = body.split_at_checked(DIGEST_BYTES)?;
    let whole = !code.is_empty() && Sha256::digest(code).as_slice() == digest;
    whole.then(|| entry.split_off(MAGIC.len() + DIGEST_BYTES))
}

/// Puts the entry in place: written under another name, and renamed when it is whole.
fn write(folder: &Path, path: &Path, key: &Key, code: &[u8]) -> std::io::Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // Processes of several machines may share the folder, and have the same number.
    let chance = crate::home::process_number();
    let temporary = folder.join(format!(".{}.{chance:016x}.{number}", key.0));
    let result = (|| {
        let mut file =
            OpenOptions::new().create_new(true).write(true).mode(0o600).open(&temporary)?;
        file.write_all(MAGIC)?;
        file.write_all(&Sha256::digest(code))?;
        file.write_all(code)?;
        fs::rename(&temporary, path)
    })();
    if result.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::sync::atomic::AtomicU32;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("antiphon-cache-{name}-{}", std::process::id());
            Folder(std::env::temp_dir().join(name))
        }

        fn entries(&self) -> Vec<PathBuf> {
            let entries = fs::read_dir(&self.0).unwrap();
            entries.map(|entry| entry.unwrap().path()).collect()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn get(cache: &Cache, key: &Key, compiled: &AtomicU32) -> Vec<u8> {
        let compile = || {
            compiled.fetch_add(1, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(20));
            Ok::<_, Infallible>(b"the code".to_vec())
        };
        let Ok(code) = cache.get_or(key, compile);
        code
    }

    #[test]
    fn keys_tell_parts_apart() {
        let keys = [vec!["ab", "c"], vec!["a", "bc"], vec!["abc"], vec!["abc", ""], vec![]]
            .map(|parts| Key::new(parts.into_iter().map(str::as_bytes)));
        for (at, key) in keys.iter().enumerate() {
            assert_eq!(key.0.len(), 64);
            assert!(keys[..at].iter().all(|other| other != key));
        }
    }

    #[test]
    fn what_is_there_whole_is_used_and_nothing_else() {
        let folder = Folder::new("whole");
        let (cache, compiled) = (Cache::at(folder.0.clone()), AtomicU32::new(0));
        let key = Key::new([b"source".as_slice()]);
        for _ in 0..3 {
            assert_eq!(get(&cache, &key, &compiled), b"the code");
        }
        assert_eq!(compiled.load(Ordering::Relaxed), 1);
        let [path] = folder.entries().try_into().expect("one entry and nothing beside it");
        let entry = fs::read(&path).unwrap();
        for length in 0..entry.len() {
            fs::write(&path, &entry[..length]).unwrap();
            assert!(read(&path).is_none(), "{length} bytes");
        }
        for at in 0..entry.len() {
            let mut changed = entry.clone();
            changed[at] ^= 1;
            fs::write(&path, &changed).unwrap();
            assert!(read(&path).is_none(), "byte {at}");
        }
        assert_eq!(get(&cache, &key, &compiled), b"the code");
        assert_eq!(compiled.load(Ordering::Relaxed), 2);
        assert_eq!(fs::read(&path).unwrap(), entry);
    }

    #[test]
    fn many_at_once_all_get_the_code_and_leave_one_entry() {
        let folder = Folder::new("many");
        let (cache, compiled) = (Cache::at(folder.0.clone()), AtomicU32::new(0));
        let key = Key::new([b"source".as_slice()]);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| assert_eq!(get(&cache, &key, &compiled), b"the code"));
            }
        });
        let visible: Vec<_> = folder.entries();
        assert!(visible.iter().any(|path| path.ends_with(&key.0)), "{visible:?}");
        assert!((1..8).contains(&compiled.load(Ordering::Relaxed)), "{compiled:?}");
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_no_error() {
        let compiled = AtomicU32::new(0);
        let key = Key::new([b"source".as_slice()]);
        for cache in [Cache::at("/dev/null/cache".into()), Cache { folder: None }] {
            assert_eq!(get(&cache, &key, &compiled), b"the code");
        }
        assert_eq!(compiled.load(Ordering::Relaxed), 2);
    }
}
