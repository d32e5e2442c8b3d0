//! What only the ranks of a job know.

use std::fmt;
use std::io::Write;
use std::sync::Once;

use antiphon_hal::log_line;

use crate::error::{BootstrapError, Result};
use crate::key::{keyed, spread};
use crate::sync::random;

/// Fewest bytes of a passphrase: shorter ones are guessed.
const SHORTEST: usize = 8;

/// What only the ranks of a job know, 256 bits. It never crosses the wire; connections are authenticated by it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    bits: [u8; 32],
    open: bool,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.open { "Secret(open)" } else { "Secret(..)" })
    }
}

impl Secret {
    /// A secret of 256 random bits.
    pub fn new(bits: [u8; 32]) -> Secret {
        Secret { bits, open: false }
    }

    /// A fresh secret from the kernel's generator.
    ///
    /// # Errors
    /// `Os` where the kernel gives no random bits.
    pub fn random() -> Result<Secret> {
        nonce().map(Secret::new)
    }

    /// A secret from a passphrase. White space around it does not count, so that a file may end in a new line.
    /// Whoever connects to a rank in the place of another may try guesses at home afterwards: let it be long.
    ///
    /// # Errors
    /// `BadPlace` where it has fewer than 8 bytes.
    pub fn passphrase(text: &str) -> Result<Secret> {
        let text = text.trim();
        if text.len() < SHORTEST {
            return Err(BootstrapError::BadPlace {
                text: "a secret".to_owned(),
                problem: format!("it has {} bytes; give {SHORTEST} or more", text.len()),
            });
        }
        Ok(Secret { bits: keyed(&spread(text.as_bytes()), &[b"antiphon passphrase"]), open: false })
    }

    /// No secret: anybody who reaches the ports may take part in the job, and in effect run code in it. Joining a job
    /// so says a warning on stderr, once a process.
    pub fn open() -> Secret {
        Secret { bits: [0; 32], open: true }
    }

    /// Whether this is [`Secret::open`].
    pub fn is_open(&self) -> bool {
        self.open
    }

    pub(super) fn warn_if_open(&self) {
        static WARNED: Once = Once::new();
        if self.open {
            WARNED.call_once(|| {
                let line = log_line(
                    "WARN",
                    "this job has no secret: whoever reaches its ports can join it and control it",
                );
                // If the write fails, nobody reads this.
                let _ = std::io::stderr().write_all(line.as_bytes());
            });
        }
    }

    /// The key for one purpose.
    pub(super) fn derive(&self, purpose: &[u8], parts: &[u8]) -> [u8; 32] {
        keyed(&self.bits, &[b"antiphon tcp", &[u8::from(self.open)], purpose, parts])
    }

    pub(super) fn bits(&self) -> &[u8; 32] {
        &self.bits
    }
}

/// 256 random bits.
pub(super) fn nonce() -> Result<[u8; 32]> {
    let halves = [random()?, random()?];
    Ok(std::array::from_fn(|at| halves[at / 16][at % 16]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown_and_differ() {
        let phrase = |text| Secret::passphrase(text).unwrap();
        assert_eq!(phrase("correct horse\n"), phrase(" correct horse"));
        let all = [
            phrase("correct horse"),
            phrase("battery staple"),
            Secret::open(),
            Secret::new([0; 32]),
        ];
        for (at, secret) in all.iter().enumerate() {
            let derived = |secret: &Secret| secret.derive(b"x", b"y");
            assert!(all[..at].iter().all(|other| derived(other) != derived(secret)));
            assert!(!format!("{secret:?}").contains(char::is_numeric));
        }
        let error = Secret::passphrase("short\n").unwrap_err().to_string();
        assert!(error.contains("5 bytes") && !error.contains("short\n"), "{error}");
    }
}
