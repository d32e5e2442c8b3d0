//! Launchers that speak PMI: MPICH's and Intel's `mpiexec` (Hydra), and `srun --mpi=pmi2`.

use super::environment::{Numbers, Variable};
use super::explicit::meeting;
use super::{Environment, Found, LauncherError, Meeting, Result};

const LAUNCHER: &str = "PMI";
const RANK: &str = "PMI_RANK";
const WORLD: &str = "PMI_SIZE";
const DESCRIPTOR: &str = "PMI_FD";

pub(super) fn find(environment: &Environment) -> Result<Option<Found>> {
    let names = [RANK, WORLD, DESCRIPTOR, "PMI_PORT", "PMI_ID"];
    if environment.first(&[RANK, DESCRIPTOR, "PMI_PORT"]).is_none() {
        return Ok(None);
    }
    let rank = environment.required(LAUNCHER, RANK, &names)?;
    let world = environment.required(LAUNCHER, WORLD, &names)?;
    let local_world = environment.number("MPI_LOCALNRANKS")?;
    let local_rank = match environment.number("MPI_LOCALRANKID")? {
        Some(rank) => Some(rank),
        None => environment.number("SLURM_LOCALID")?,
    };
    let numbers = Numbers {
        rank: Variable { name: RANK, value: rank },
        world: Variable { name: WORLD, value: world },
        local_rank,
        local_world,
    };
    let place = match meeting(environment)? {
        Some(named) => named,
        None => {
            let text = environment
                .get(DESCRIPTOR)
                .ok_or_else(|| environment.missing(LAUNCHER, DESCRIPTOR, &names))?;
            let descriptor = match text.parse() {
                Ok(descriptor @ 0..) => descriptor,
                _ => {
                    return Err(LauncherError::bad(DESCRIPTOR, text, "the number of a descriptor"));
                }
            };
            let one_host = local_world == Some(world)
                || environment.number("SLURM_STEP_NUM_NODES")? == Some(1);
            Meeting::Pmi { descriptor, one_host }.into()
        }
    };
    environment.found(LAUNCHER, numbers, place).map(Some)
}
