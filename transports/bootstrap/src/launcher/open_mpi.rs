//! Open MPI's `mpirun`.
//!
//! Its environment says how many ranks there are, and on one host whose; across hosts the addresses are known only to
//! its process manager (PMIx), which is not asked here: then `ANTIPHON_COMM_ID` has to name the meeting place.

use super::environment::{Numbers, Variable};
use super::explicit::meeting;
use super::{Environment, Found, LauncherError, Meeting, Result, derived_address};

const LAUNCHER: &str = "Open MPI";
const RANK: &str = "OMPI_COMM_WORLD_RANK";
const WORLD: &str = "OMPI_COMM_WORLD_SIZE";
const LOCAL_RANK: &str = "OMPI_COMM_WORLD_LOCAL_RANK";
const LOCAL_WORLD: &str = "OMPI_COMM_WORLD_LOCAL_SIZE";
/// What tells one job from another: the process manager's name for it, of version 5 and before.
const JOB: [&str; 2] = ["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"];
/// 128 random bits of the job, in versions that set it: nobody else can take the address before the ranks do.
const UNGUESSABLE: &str = "OMPI_MCA_orte_precondition_transports";

pub(super) fn find(environment: &Environment) -> Result<Option<Found>> {
    let names = [RANK, WORLD, LOCAL_RANK, LOCAL_WORLD, JOB[0], JOB[1]];
    if environment.first(&[RANK, WORLD]).is_none() {
        return Ok(None);
    }
    let rank = environment.required(LAUNCHER, RANK, &names)?;
    let world = environment.required(LAUNCHER, WORLD, &names)?;
    let numbers = Numbers {
        rank: Variable { name: RANK, value: rank },
        world: Variable { name: WORLD, value: world },
        local_rank: environment.number(LOCAL_RANK)?,
        local_world: environment.number(LOCAL_WORLD)?,
    };
    let place = match meeting(environment)? {
        Some(named) => named,
        None if numbers.local_world == Some(world) => {
            let (_, job) = environment
                .first(&JOB)
                .ok_or_else(|| environment.missing(LAUNCHER, JOB[0], &names))?;
            let more = environment.get(UNGUESSABLE).unwrap_or_default();
            Meeting::Unix { address: derived_address(LAUNCHER, &[job, more]) }.into()
        }
        None => {
            let seen = format!("{RANK}={rank}, {WORLD}={world}");
            return Err(LauncherError::NoAddress { launcher: LAUNCHER, seen });
        }
    };
    environment.found(LAUNCHER, numbers, place).map(Some)
}
