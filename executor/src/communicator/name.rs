//! The name of a communicator: in its errors, and in the lines of the log about it.

use super::Communicator;
use crate::error::ExecutorError;
use std::fmt;
use std::sync::Arc;

/// The most bytes of a name.
const LONGEST: usize = 128;

/// Checks a name that somebody gives.
pub(super) fn check(name: &str) -> Result<(), ExecutorError> {
    let saw = if name.is_empty() {
        "no text".to_owned()
    } else if name.len() > LONGEST {
        format!("{} bytes", name.len())
    } else if name.chars().any(char::is_control) {
        format!("{name:?}, which has control characters")
    } else {
        return Ok(());
    };
    const { assert!(LONGEST == 128, "the text below says so") };
    let allowed = "1 to 128 bytes of text without control characters";
    Err(ExecutorError::Argument { what: "name a communicator", saw, allowed })
}

/// The name of a group that a split of a communicator of this name makes by a color: `name/color`, of which the color stays whole.
pub(super) fn of_split(name: &str, color: u32) -> String {
    let ending = format!("/{color}");
    let mut kept = name.len().min(LONGEST - ending.len());
    while !name.is_char_boundary(kept) {
        kept -= 1;
    }
    name[..kept].to_owned() + &ending
}

/// What a communicator without ranks yet is called.
pub(super) fn called(name: &str) -> Arc<str> {
    format!("communicator `{name}`").into()
}

/// A communicator and its rank here, as errors and the log name them.
#[derive(Clone, Debug)]
pub(crate) struct Whose {
    rank: u32,
    called: Option<Arc<str>>,
    /// A pair's errors are told by the communicator whose transfers go through it.
    tells_errors: bool,
}

impl Whose {
    /// Of a communicator that may have a name.
    pub fn of(name: Option<&str>, rank: u32, world: u32) -> Self {
        let called = name.map(|name| format!("{} rank {rank} of {world}", called(name)).into());
        Whose { rank, called, tells_errors: true }
    }

    /// Of the pair of this rank and a peer, where this one is `rank`: the log calls it by the communicator whose transfers go
    /// through it.
    pub(super) fn pair_with(&self, peer: u32, rank: u32) -> Self {
        let called = self.called.as_ref();
        let called = called.map(|called| format!("{called}, with rank {peer}").into());
        Whose { rank, called, tells_errors: false }
    }

    /// The rank's number in it.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// An error as the caller of this communicator gets it.
    pub fn names(&self, error: ExecutorError) -> ExecutorError {
        match &self.called {
            Some(called) if self.tells_errors => error.named(called),
            _ => error,
        }
    }

    /// A line of the log about a communicator, which itself names the rank.
    pub fn says(&self, line: impl fmt::Display) -> String {
        match &self.called {
            Some(called) => format!("{called}: {line}"),
            None => line.to_string(),
        }
    }
}

/// Who says a line of the log that does not name the rank otherwise.
impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.called {
            Some(called) => f.write_str(called),
            None => write!(f, "rank {}", self.rank),
        }
    }
}

impl Communicator {
    /// What it is called, if it has a name: that of its [`Options`](crate::Options), or the one that it was split or made with.
    pub fn name(&self) -> Option<&str> {
        self.shared.options.name.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_and_keeps_to_its_line() {
        let longest = "n".repeat(LONGEST);
        for name in ["dp", "tensor parallel/2", "\u{fc}ber", &longest] {
            check(name).unwrap();
        }
        for (name, part) in [
            ("", "no text"),
            (&*format!("{longest}n"), "129 bytes"),
            ("a\nb", "\"a\\nb\""),
            ("\u{1b}[31m", "control"),
            ("a\u{85}", "control"),
        ] {
            let text = check(name).unwrap_err().to_string();
            let start = "cannot name a communicator: saw ";
            assert!(text.starts_with(start) && text.contains(part), "{text}");
        }
    }

    #[test]
    fn a_split_has_its_parents_name_and_the_color_in_what_a_name_may_have() {
        assert_eq!(of_split("dp", 7), "dp/7");
        // Two bytes each, so that one would be cut in two.
        let long = "\u{fc}".repeat(LONGEST / 2);
        for color in [0, 12, 4_294_967_295] {
            let name = of_split(&long, color);
            check(&name).unwrap();
            assert!(name.starts_with('\u{fc}') && name.ends_with(&format!("/{color}")), "{name}");
        }
    }
}
