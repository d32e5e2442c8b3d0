//! What a launcher's environment can lack.

use std::path::PathBuf;

use crate::BootstrapError;

/// Why this process cannot find its place in a job, or reach it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LauncherError {
    /// Some of a launcher's variables are set, and one that belongs to them is not.
    #[error(
        "cannot find this rank's place under {launcher}: {missing} is not set, although {} {}; set it, or start the ranks by the launcher", seen.join(", "), if seen.len() == 1 { "is" } else { "are" }
    )]
    Missing {
        /// The launcher.
        launcher: &'static str,
        /// The variables that are set.
        seen: Vec<&'static str>,
        /// The one that is not.
        missing: &'static str,
    },
    /// A variable holds what it cannot.
    #[error("cannot use {variable}: saw {value:?}, allowed {allowed}; correct it")]
    Bad {
        /// The variable.
        variable: &'static str,
        /// Its value, shortened.
        value: String,
        /// What it may hold.
        allowed: &'static str,
    },
    /// A secret that is too short. It is not shown: errors end up in logs.
    #[error(
        "cannot use ANTIPHON_SECRET: it has {length} bytes; write {least} or more, as of `openssl rand -hex 32`"
    )]
    ShortSecret {
        /// Its length.
        length: usize,
        /// The fewest that it may have.
        least: usize,
    },
    /// A meeting place that is none.
    #[error("cannot use {variable}: saw {value:?}: {problem}")]
    Place {
        /// The variable.
        variable: &'static str,
        /// Its value, shortened.
        value: String,
        /// What is wrong, and what to write instead.
        problem: String,
    },
    /// A rank outside its world.
    #[error(
        "cannot find this rank's place under {launcher}: {rank_name} is {rank} and {world_name} is {world}; ranks run from 0 to the world size - 1"
    )]
    Shape {
        /// The launcher.
        launcher: &'static str,
        /// The variable that holds the rank.
        rank_name: &'static str,
        /// The rank.
        rank: u32,
        /// The variable that holds the world size.
        world_name: &'static str,
        /// The world size.
        world: u32,
    },
    /// The launcher gives no meeting place.
    #[error(
        "cannot find where the ranks meet: {launcher} gives {seen} but no address across hosts; set ANTIPHON_COMM_ID to a unique id, or, together with ANTIPHON_SECRET, to host:port of rank 0's host or to file:/PATH on a file system that all hosts share"
    )]
    NoAddress {
        /// The launcher.
        launcher: &'static str,
        /// What it does give, by variables.
        seen: String,
    },
    /// A meeting over TCP without a secret.
    #[error(
        "cannot meet at {place} over TCP without a secret: set ANTIPHON_SECRET to the same text on all ranks (for example of `openssl rand -hex 32`), or ANTIPHON_SECRET_FILE to a file that holds it; ANTIPHON_INSECURE=1 goes without, on a network where every process can be trusted"
    )]
    NoSecret {
        /// The place.
        place: String,
    },
    /// A secret's file that cannot be used.
    #[error("cannot take the secret from {} (ANTIPHON_SECRET_FILE): {problem}", path.display())]
    SecretFile {
        /// The file.
        path: PathBuf,
        /// What is wrong, and the cure.
        problem: String,
    },
    /// The process manager cannot be spoken to, or says what it should not.
    #[error(
        "cannot {doing} through PMI (PMI_FD={descriptor}): {problem}; start the ranks by mpiexec, or set ANTIPHON_COMM_ID to go without PMI"
    )]
    Pmi {
        /// What was tried.
        doing: &'static str,
        /// The number of the connection's descriptor.
        descriptor: i32,
        /// What went wrong.
        problem: String,
    },
    /// torchrun's Store is not there, or says what it should not.
    #[error(
        "cannot {doing} through torchrun's Store at {address} (MASTER_ADDR, MASTER_PORT): {problem}; set ANTIPHON_SECRET to the same text on all ranks (for example of `openssl rand -hex 32`), or ANTIPHON_SECRET_FILE to a file that holds it, to go without the Store"
    )]
    Store {
        /// What was tried.
        doing: &'static str,
        /// Where the Store should be.
        address: String,
        /// What went wrong.
        problem: String,
    },
    /// The ranks did not come together.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
}

impl LauncherError {
    /// For a variable's bad value.
    pub(super) fn bad(variable: &'static str, value: &str, allowed: &'static str) -> Self {
        LauncherError::Bad { variable, value: shortened(value), allowed }
    }

    /// For what is no meeting place.
    pub(super) fn place(variable: &'static str, value: &str, error: BootstrapError) -> Self {
        let value = shortened(value);
        match error {
            BootstrapError::BadPlace { problem, .. } => {
                LauncherError::Place { variable, value, problem }
            }
            other => other.into(),
        }
    }
}

/// Of a long value, which may be a garbled id that holds a secret, only the beginning is kept.
fn shortened(value: &str) -> String {
    const LONG: usize = 64;
    const KEPT: usize = 16;
    let length = value.chars().count();
    match length {
        0..=LONG => value.to_owned(),
        _ => format!("{}… ({length} characters)", value.chars().take(KEPT).collect::<String>()),
    }
}
