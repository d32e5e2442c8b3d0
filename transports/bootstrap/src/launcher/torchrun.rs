//! torchrun, and every starter that sets the variables it does.
//!
//! The agent's Store listens on `MASTER_PORT` for as long as the job runs. Without a secret in the environment rank 0 says
//! through it where the ranks meet and what they prove; with one, ranks meet at the port after it.

use super::environment::{Numbers, Variable};
use super::explicit::{is_host_name, meeting};
use super::{Environment, Found, LauncherError, Meeting, Result, SecretSource, derived_address};
use crate::key::spread;
use crate::sync::hex;
use crate::tcp::Place;

const LAUNCHER: &str = "torchrun";
const ADDRESS: &str = "MASTER_ADDR";
const PORT: &str = "MASTER_PORT";
const OWN_ADDRESS: &str = "MSCCLPP_MASTER_ADDR";
const OWN_PORT: &str = "MSCCLPP_MASTER_PORT";
const RUN: &str = "TORCHELASTIC_RUN_ID";

pub(super) fn find(environment: &Environment) -> Result<Option<Found>> {
    let names = ["RANK", "WORLD_SIZE", ADDRESS, OWN_ADDRESS];
    // `RANK` alone is a name that anything may use.
    let seen = |name: &str| environment.get(name).is_some();
    let places = seen(ADDRESS) || seen(OWN_ADDRESS);
    if !(seen("RANK") && (seen("WORLD_SIZE") || places)) {
        return Ok(None);
    }
    let rank = environment.required(LAUNCHER, "RANK", &names)?;
    let world = environment.required(LAUNCHER, "WORLD_SIZE", &names)?;
    let numbers = Numbers {
        rank: Variable { name: "RANK", value: rank },
        world: Variable { name: "WORLD_SIZE", value: world },
        local_rank: environment.number("LOCAL_RANK")?,
        local_world: environment.number("LOCAL_WORLD_SIZE")?,
    };
    let place = match meeting(environment)? {
        Some(named) => named,
        None if numbers.local_world == Some(world) => {
            let job = [ADDRESS, PORT, OWN_ADDRESS, OWN_PORT, RUN, "TORCHELASTIC_RESTART_COUNT"]
                .map(|name| environment.get(name).unwrap_or_default());
            Meeting::Unix { address: derived_address(LAUNCHER, &job) }.into()
        }
        None => across_hosts(environment, world)?.into(),
    };
    environment.found(LAUNCHER, numbers, place).map(Some)
}

fn across_hosts(environment: &Environment, world: u32) -> Result<Meeting> {
    let names = ["RANK", "WORLD_SIZE", ADDRESS, PORT, OWN_ADDRESS, OWN_PORT];
    let (name, host) = environment
        .first(&[OWN_ADDRESS, ADDRESS])
        .ok_or_else(|| environment.missing(LAUNCHER, ADDRESS, &names))?;
    if host.parse::<std::net::Ipv6Addr>().is_err() && !is_host_name(host) {
        return Err(LauncherError::bad(name, host, "a host's name or address"));
    }
    let (store, port) = match environment.first(&[OWN_PORT]) {
        Some((name, value)) => (None, port(name, value)?),
        None => {
            let value =
                environment.get(PORT).ok_or_else(|| environment.missing(LAUNCHER, PORT, &names))?;
            let taken = port(PORT, value)?;
            // Another address than the Store's was asked for where one is named.
            let store = (name == ADDRESS).then_some(taken);
            (store, taken.checked_add(1).unwrap_or(taken - 1))
        }
    };
    let place = Place::Address { host: host.to_owned(), port };
    match (SecretSource::find(environment, &place), store) {
        (Err(LauncherError::NoSecret { .. }), Some(port)) => {
            // The restart count is left out: each agent counts for itself.
            let run = environment.get(RUN).unwrap_or_default();
            let job = format!("{run}\0{world}");
            let job = format!("antiphon/{}", hex(&spread(job.as_bytes())[..16]));
            Ok(Meeting::Store { host: host.to_owned(), port, job })
        }
        (secret, _) => Ok(Meeting::Tcp { place, secret: secret? }),
    }
}

fn port(name: &'static str, value: &str) -> Result<u16> {
    match value.parse() {
        Ok(port @ 1..) => Ok(port),
        _ => Err(LauncherError::bad(name, value, "a port, 1 to 65535")),
    }
}
