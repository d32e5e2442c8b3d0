//! Slurm's `srun`, where no process manager interface was asked for.

use super::environment::{Numbers, Variable};
use super::explicit::meeting;
use super::host_list::{first_host, tasks_of};
use super::{Environment, Found, LauncherError, Meeting, Result, SecretSource, derived_address};
use crate::key::spread;
use crate::tcp::Place;

const LAUNCHER: &str = "Slurm";
const RANK: &str = "SLURM_PROCID";
const WORLD: &str = "SLURM_STEP_NUM_TASKS";
const OLD_WORLD: &str = "SLURM_NTASKS";
const JOB: [&str; 2] = ["SLURM_JOB_ID", "SLURM_JOBID"];
const STEP: [&str; 2] = ["SLURM_STEP_ID", "SLURM_STEPID"];
const NODES: [&str; 2] = ["SLURM_STEP_NUM_NODES", "SLURM_NNODES"];
const LIST: [&str; 2] = ["SLURM_STEP_NODELIST", "SLURM_NODELIST"];
const TASKS: [&str; 2] = ["SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"];
/// Steps of this number and above are scripts and shells, not tasks that belong together.
const FIRST_SPECIAL_STEP: u32 = 0xffff_fff0;
/// Ports that the ranks may meet at: below those that the kernel hands out.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

pub(super) fn find(environment: &Environment) -> Result<Option<Found>> {
    let names = [RANK, WORLD, OLD_WORLD, JOB[0], STEP[0], NODES[0], LIST[0]];
    // A batch script is task 0 of nothing: it has a SLURM_PROCID and no step.
    let Some((step_name, step)) =
        environment.first(&STEP).filter(|_| environment.get(RANK).is_some())
    else {
        return Ok(None);
    };
    match step.parse::<u32>() {
        Ok(step) if step >= FIRST_SPECIAL_STEP => return Ok(None),
        Ok(_) => {}
        Err(_) => return Err(LauncherError::bad(step_name, step, "a step's number")),
    }
    let rank = environment.required(LAUNCHER, RANK, &names)?;
    let (world_name, world) = match environment.number(WORLD)? {
        Some(world) => (WORLD, world),
        None => (OLD_WORLD, environment.required(LAUNCHER, OLD_WORLD, &names)?),
    };
    let local_world = local_world(environment)?;
    let numbers = Numbers {
        rank: Variable { name: RANK, value: rank },
        world: Variable { name: world_name, value: world },
        local_rank: environment.number("SLURM_LOCALID")?,
        local_world,
    };
    let place = match meeting(environment)? {
        Some(named) => named,
        None => place(environment, &names, step)?.into(),
    };
    environment.found(LAUNCHER, numbers, place).map(Some)
}

/// How many tasks run on this task's node.
fn local_world(environment: &Environment) -> Result<Option<u32>> {
    let node = environment.number("SLURM_NODEID")?;
    let (Some(node), Some((name, text))) = (node, environment.first(&TASKS)) else {
        return Ok(None);
    };
    tasks_of(text, node)
        .map(Some)
        .ok_or_else(|| LauncherError::bad(name, text, "tasks of each node, such as 4(x2),1"))
}

fn place(environment: &Environment, names: &[&'static str], step: &str) -> Result<Meeting> {
    let (_, job) =
        environment.first(&JOB).ok_or_else(|| environment.missing(LAUNCHER, JOB[0], names))?;
    let (nodes_name, nodes) =
        environment.first(&NODES).ok_or_else(|| environment.missing(LAUNCHER, NODES[0], names))?;
    let allowed = "a number of nodes, from 1";
    let nodes: u32 = nodes.parse().map_err(|_| LauncherError::bad(nodes_name, nodes, allowed))?;
    if nodes == 1 {
        let cluster = environment.get("SLURM_CLUSTER_NAME").unwrap_or_default();
        let address = derived_address(LAUNCHER, &[cluster, job, step]);
        return Ok(Meeting::Unix { address });
    }
    let (list_name, list) =
        environment.first(&LIST).ok_or_else(|| environment.missing(LAUNCHER, LIST[0], names))?;
    let allowed = "hosts, such as node[01-04,7]";
    let host = first_host(list).ok_or_else(|| LauncherError::bad(list_name, list, allowed))?;
    let hash = spread(format!("{job}.{step}").as_bytes());
    let port = PORTS.start + u16::from_le_bytes([hash[0], hash[1]]) % (PORTS.end - PORTS.start);
    let place = Place::Address { host, port };
    let secret = SecretSource::find(environment, &place)?;
    Ok(Meeting::Tcp { place, secret })
}
