//! What a command can fail with, and the exit status that tells.

use std::io;
use std::path::PathBuf;

/// Why a command did not do its job.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// A file could not be read.
    #[error("cannot read {}: {source}; give the path of a plan file, or `-` for standard input", path.display())]
    ReadFile {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The numbers of `--counts` could not be read.
    #[error("cannot read counts from {}: {source}; give even, uneven, random, numbers or a file", path.display())]
    ReadCounts {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A program did not become a plan.
    #[error("cannot compile {}: {message}", path.display())]
    Compile {
        /// The program.
        path: PathBuf,
        /// Why.
        message: String,
    },
    /// A file or standard output could not be written.
    #[error("cannot write {what}: {source}")]
    Write {
        /// The file.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// A file holds no plan.
    #[error("cannot read a plan from {path}: {message}")]
    ReadPlan {
        /// The file.
        path: String,
        /// What the reader said.
        message: String,
    },
    /// A plan has faults.
    #[error("cannot run plan `{name}`: it has {}", list(faults))]
    InvalidPlan {
        /// The plan's name.
        name: String,
        /// The faults, one a line.
        faults: Vec<String>,
    },
    /// Options that contradict the plan or each other.
    #[error("{0}")]
    Usage(String),
    /// The ranks could not be started.
    #[error("cannot start the ranks: {what}: {source}")]
    Start {
        /// What failed.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// One or more ranks failed.
    #[error("{0}")]
    Rank(String),
    /// The executor, in words.
    #[error("{0}")]
    Executor(String),
    /// Ctrl-C or another request to end.
    #[error("interrupted by {name}; all ranks have been stopped")]
    Interrupted {
        /// The signal's name.
        name: &'static str,
        /// The signal's number.
        number: u8,
    },
}

/// The faults of a plan, with their number before them.
pub(super) fn list(faults: &[String]) -> String {
    let plural = if faults.len() == 1 { "" } else { "s" };
    let all: String = faults.iter().map(|fault| format!("\n  {fault}")).collect();
    format!("{} fault{plural}:{all}", faults.len())
}

impl CliError {
    /// The system gives no thread.
    pub fn no_thread(source: io::Error) -> Self {
        let what = "cannot start a thread; raise the limit on threads (`ulimit -u`)";
        CliError::Start { what, source }
    }

    /// 2 for usage errors, as clap's own; 128 + signal after an interrupt, as shells do; else 1.
    pub fn exit_status(&self) -> u8 {
        match self {
            CliError::Usage(_) => 2,
            CliError::Interrupted { number, .. } => 128 + number,
            _ => 1,
        }
    }
}

/// Writes a line to standard output; a closed pipe ends the process quietly, as for any filter.
pub fn print_line(text: &str) -> Result<(), CliError> {
    use io::Write;
    match writeln!(io::stdout().lock(), "{text}") {
        Err(source) if source.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(source) => Err(CliError::Write { what: "standard output".into(), source }),
        Ok(()) => Ok(()),
    }
}
