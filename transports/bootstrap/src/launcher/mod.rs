//! Which rank this process is, of how many, and where the ranks meet, by what a launcher left in the environment.
//!
//! [`find`] is a function of an [`Environment`], and of this host's interfaces where `NCCL_SOCKET_IFNAME` asks for one. [`Found::connect`] goes to the meeting place, and to
//! get there speaks to the launcher or reads a file where that is what the environment points at.
//!
//! | launcher | seen by | the ranks meet |
//! |---|---|---|
//! | `ANTIPHON_RANK` | `ANTIPHON_RANK`, `ANTIPHON_WORLD` | at `ANTIPHON_COMM_ID`; a world of 1 needs none, and no rank |
//! | torchrun | `RANK`, `WORLD_SIZE`, `MASTER_ADDR` | one host: a Unix socket; else where rank 0 says through the agent's Store, or with a secret at `MASTER_ADDR`, port `MASTER_PORT` + 1 |
//! | Open MPI | `OMPI_COMM_WORLD_RANK`, `…_SIZE` | one host: a Unix socket; else at `ANTIPHON_COMM_ID` |
//! | PMI (MPICH, Hydra, `srun --mpi=pmi2`) | `PMI_RANK`, `PMI_SIZE`, `PMI_FD` | where rank 0 says through PMI |
//! | Slurm | `SLURM_PROCID`, `SLURM_STEP_ID` | one host: a Unix socket; else at the step's first host, a port made from job and step |
//!
//! The first of the table that is seen counts: `mpirun` and `torchrun` may themselves have been started by `srun`.
//! `ANTIPHON_COMM_ID` (or `MSCCLPP_COMM_ID`) replaces the meeting place of every launcher.
//!
//! torchrun's agent runs PyTorch's TCPStore at `MASTER_PORT`, hence the port after it (65534 after 65535).
//! `MSCCLPP_MASTER_ADDR` and `MSCCLPP_MASTER_PORT` replace either half and are used as they are, with a secret and without
//! the Store.
//!
//! # Secrets
//! Over TCP ranks prove to each other that they know a secret. A unique id holds one, and PMI carries a unique id that rank
//! 0 makes; otherwise it is the text of `ANTIPHON_SECRET`, or of the file `ANTIPHON_SECRET_FILE`. Where none is given,
//! torchrun's Store carries a unique id that rank 0 makes, until all have met; whoever can reach the Store meanwhile can
//! read it. Everywhere else a meeting over TCP is refused without a secret, unless `ANTIPHON_INSECURE=1` says that the
//! network can be trusted. On one host the kernel says which user a peer is, and no secret is needed.
//!
//! # Once a process
//! A launcher starts one job: connect once, and make further groups from the communicator. A process that speaks
//! PMI itself (`MPI_Init`) cannot leave the same PMI connection to this module: give it `ANTIPHON_COMM_ID`.

mod connect;
mod environment;
mod error;
mod explicit;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod host_list;
mod interface;
mod local;
mod open_mpi;
mod pmi;
mod pmi_wire;
mod secret;
mod slurm;
mod store;
#[cfg(test)]
mod store_tests;
mod store_wire;
#[cfg(test)]
mod tests;
mod torchrun;

use std::time::Duration;

use crate::key::spread;
use crate::sync::hex;
use crate::tcp::Place;

pub use environment::{Environment, read_time};
pub use error::LauncherError;
pub use local::local_rank;
pub use secret::{Passphrase, SecretSource};

/// The variables by which [`find`] sees that ranks were started, and by whom, as an error names them that saw none.
pub const VARIABLES: &str = "the variables of torchrun (RANK with WORLD_SIZE or MASTER_ADDR), Open MPI (OMPI_COMM_WORLD_RANK), PMI (PMI_RANK) \
     and Slurm (SLURM_PROCID with SLURM_STEP_ID)";

/// The result of this module's functions.
pub type Result<T> = std::result::Result<T, LauncherError>;

/// What a launcher told this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Who started the ranks, in words: `torchrun`, `Open MPI`, `PMI`, `Slurm` or `ANTIPHON_RANK`.
    pub launcher: &'static str,
    /// This process's rank, in `0..world`.
    pub rank: u32,
    /// The number of ranks.
    pub world: u32,
    /// This rank's number among those of its host, where the launcher says.
    pub local_rank: Option<u32>,
    /// The number of ranks of its host, where the launcher says.
    pub local_world: Option<u32>,
    /// Where the ranks meet.
    pub rendezvous: Meeting,
    /// The network interface, or address, to listen at and to go out by, where the environment
    /// [names one](Environment::interface).
    pub interface: Option<String>,
    /// Whether that interface only concerns the address that this rank itself shows to others, as [`listen_everywhere`] means it.
    /// Over TCP it does unless the place names the interface: where the others look for rank 0 is not what the other variables
    /// say.
    ///
    /// [`listen_everywhere`]: crate::tcp::Rendezvous::listen_everywhere
    pub listen_everywhere: bool,
    /// How long a rank waits for the others: `ANTIPHON_TIMEOUT`, else [`DEFAULT_TIMEOUT`](crate::DEFAULT_TIMEOUT).
    pub timeout: Duration,
}

/// Where ranks meet, and how they prove that they belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// On one host, at an address of [`unix`](crate::unix): the kernel vouches for the user.
    Unix {
        /// The address.
        address: String,
    },
    /// At a place of [`tcp`](crate::tcp).
    Tcp {
        /// The place.
        place: Place,
        /// What they prove to know.
        secret: SecretSource,
    },
    /// Nowhere: the rank is the only one.
    Alone,
    /// Where rank 0 says through the launcher's process manager.
    Pmi {
        /// The descriptor of the connection to it.
        descriptor: i32,
        /// All ranks are on one host.
        one_host: bool,
    },
    /// Where rank 0 says through the TCPStore that torchrun's agent runs.
    Store {
        /// An IP address or a host name.
        host: String,
        /// The port.
        port: u16,
        /// What tells this job from others that used the Store.
        job: String,
    },
}

/// What the environment says; `None` where no launcher left anything.
///
/// # Errors
/// A launcher that was seen but left something out or garbled: the error names the variables, seen and missing.
pub fn find(environment: &Environment) -> Result<Option<Found>> {
    let readers = [explicit::find, torchrun::find, open_mpi::find, pmi::find, slurm::find];
    for reader in readers {
        if let Some(found) = reader(environment)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The address of a meeting on one host, the same for all who pass the same launcher and job. Whoever knows the job
/// can compute it; the kernel's word on the user is what keeps strangers out.
fn derived_address(launcher: &str, job: &[&str]) -> String {
    let mut text = format!("{launcher}\0{}", rustix::process::getuid().as_raw());
    for part in job {
        text.push('\0');
        text.push_str(part);
    }
    format!("antiphon-{}", hex(&spread(text.as_bytes())[..16]))
}
