//! Where the secret of a meeting over TCP comes from.

use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use super::{Environment, LauncherError, Result};
use crate::tcp::{Place, Secret};

/// Fewer bytes than this can be tried out by whoever recorded one handshake.
const SHORTEST: usize = 16;
/// A secret's file is a line, not a book.
const LONGEST: u64 = 4096;

/// A secret's text. It is not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Passphrase(String);

impl std::fmt::Debug for Passphrase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Passphrase(..)")
    }
}

/// Where a secret comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// The place is a unique id, which holds it.
    Place,
    /// `ANTIPHON_SECRET`.
    Text(Passphrase),
    /// `ANTIPHON_SECRET_FILE`.
    File(PathBuf),
    /// `ANTIPHON_INSECURE=1`: nobody proves anything.
    Waived,
}

impl SecretSource {
    /// What the environment gives for a meeting at `place`.
    pub(super) fn find(environment: &Environment, place: &Place) -> Result<SecretSource> {
        if let Some(text) = environment.get("ANTIPHON_SECRET") {
            if text.len() < SHORTEST {
                return Err(LauncherError::ShortSecret { length: text.len(), least: SHORTEST });
            }
            return Ok(SecretSource::Text(Passphrase(text.to_owned())));
        }
        if let Some(path) = environment.get("ANTIPHON_SECRET_FILE") {
            return Ok(SecretSource::File(path.into()));
        }
        match environment.get("ANTIPHON_INSECURE") {
            Some("1") => Ok(SecretSource::Waived),
            Some("0") | None => Err(LauncherError::NoSecret { place: place.to_string() }),
            Some(other) => Err(LauncherError::bad("ANTIPHON_INSECURE", other, "0 or 1")),
        }
    }

    /// The secret.
    ///
    /// # Errors
    /// `SecretFile` for a file that cannot be read, that others than its owner may read, or that holds no secret.
    pub fn read(&self) -> Result<Secret> {
        match self {
            SecretSource::Text(Passphrase(text)) => Ok(Secret::passphrase(text)?),
            // The one of a place counts before this one.
            SecretSource::Place => Ok(Secret::random()?),
            SecretSource::Waived => Ok(Secret::open()),
            SecretSource::File(path) => {
                let fail =
                    |problem: String| LauncherError::SecretFile { path: path.clone(), problem };
                let failed = |error: std::io::Error| {
                    fail(format!("{error}; give a file that this user can read"))
                };
                // Non-blocking: a named pipe without a writer must not hold this rank up.
                let mut options = std::fs::OpenOptions::new();
                options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
                let file = options.open(path).map_err(failed)?;
                let about = file.metadata().map_err(failed)?;
                if !about.is_file() {
                    return Err(fail("it is not a file; give a plain file".into()));
                }
                let mode = about.mode() & 0o777;
                if mode & 0o077 != 0 {
                    let problem = format!("others may use it (mode {mode:03o}); chmod 600 it");
                    return Err(fail(problem));
                }
                let mut text = String::new();
                file.take(LONGEST + 1).read_to_string(&mut text).map_err(failed)?;
                let secret = text.trim();
                if secret.len() < SHORTEST || text.len() as u64 > LONGEST {
                    let problem = format!(
                        "it holds {} bytes; write {SHORTEST} to {LONGEST}, for example of `openssl rand -hex 32`",
                        secret.len()
                    );
                    return Err(fail(problem));
                }
                Ok(Secret::passphrase(secret)?)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn files_are_read_unless_others_may_or_they_hold_none() {
        let folder = std::env::temp_dir().join(format!("antiphon-secret-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let good = "0123456789abcdef\n";
        let cases = [
            ("good", good, 0o600, Ok("0123456789abcdef")),
            ("readable", good, 0o644, Err("mode 644")),
            ("group", good, 0o640, Err("chmod 600")),
            ("short", "secret", 0o600, Err("holds 6 bytes")),
            ("long", &"x".repeat(5000), 0o600, Err("write 16 to 4096")),
        ];
        for (name, text, mode, expected) in cases {
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            match (SecretSource::File(path).read(), expected) {
                (Ok(secret), Ok(expected)) => {
                    assert_eq!(secret, Secret::passphrase(expected).unwrap());
                }
                (Err(error), Err(part)) => {
                    let error = error.to_string();
                    assert!(error.contains(part) && !error.contains("0123"), "{name}: {error}");
                }
                (other, _) => panic!("{name}: {other:?}"),
            }
        }
        for path in [folder.clone(), folder.join("none")] {
            let error = SecretSource::File(path).read().unwrap_err().to_string();
            assert!(error.contains("ANTIPHON_SECRET_FILE"), "{error}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn secrets_are_not_printed() {
        let shown = format!("{:?}", SecretSource::Text(Passphrase("hush".into())));
        assert!(!shown.contains("hush"), "{shown}");
    }
}
