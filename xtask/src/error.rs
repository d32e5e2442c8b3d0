//! The one error type of the tasks: a sentence for the person at the terminal.

use std::io;

/// What every task returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a task stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused something.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried, to follow "cannot".
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// A program that a task needs ended badly.
    #[error("cannot {what}: `{command}` ended with {status}{detail}")]
    Command {
        /// What was tried, to follow "cannot".
        what: String,
        /// The command line.
        command: String,
        /// The exit status as the system words it.
        status: String,
        /// The end of what it wrote to stderr, from a line break on; empty when there was nothing.
        detail: String,
    },
    /// Anything else, as a whole sentence.
    #[error("{0}")]
    Message(String),
}

impl Error {
    /// Puts "cannot `what`" before what the system said.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// An error that is a sentence of its own.
    pub fn message(text: impl Into<String>) -> Self {
        Self::Message(text.into())
    }
}
