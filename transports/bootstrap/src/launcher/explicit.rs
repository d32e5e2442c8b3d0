//! What a person or a script sets by hand, and what replaces any launcher's meeting place.

use super::environment::{Numbers, Variable};
use super::{Environment, Found, LauncherError, Meeting, Result, SecretSource};
use crate::BootstrapError;
use crate::tcp::Place;

const RANK: &str = "ANTIPHON_RANK";
const WORLD: &str = "ANTIPHON_WORLD";
const LOCAL: [&str; 2] = ["ANTIPHON_LOCAL_RANK", "ANTIPHON_LOCAL_WORLD"];

pub(super) fn find(environment: &Environment) -> Result<Option<Found>> {
    let names = [RANK, WORLD];
    if names.iter().all(|name| environment.get(name).is_none()) {
        return Ok(None);
    }
    let world = environment.required(RANK, WORLD, &names)?;
    let rank = match environment.number(RANK)? {
        // The only one there is.
        None if world == 1 => 0,
        Some(rank) => rank,
        None => return Err(environment.missing(RANK, RANK, &names)),
    };
    let numbers = Numbers {
        rank: Variable { name: RANK, value: rank },
        world: Variable { name: WORLD, value: world },
        local_rank: environment.number(LOCAL[0])?,
        local_world: environment.number(LOCAL[1])?,
    };
    let meeting = match meeting(environment)? {
        Some(meeting) => meeting,
        None if world == 1 => Meeting::Alone.into(),
        None => return Err(environment.missing(RANK, "ANTIPHON_COMM_ID", &names)),
    };
    environment.found(RANK, numbers, meeting).map(Some)
}

/// A meeting place, and the interface that was named with it.
pub(super) struct NamedMeeting {
    pub meeting: Meeting,
    pub interface: Option<String>,
}

impl From<Meeting> for NamedMeeting {
    fn from(meeting: Meeting) -> Self {
        NamedMeeting { meeting, interface: None }
    }
}

/// How an address on this host begins.
const UNIX: &str = "antiphon-";

/// The meeting place that `ANTIPHON_COMM_ID` names.
pub(super) fn meeting(environment: &Environment) -> Result<Option<NamedMeeting>> {
    let names = ["ANTIPHON_COMM_ID", "MSCCLPP_COMM_ID"];
    let Some((name, value)) = environment.first(&names) else { return Ok(None) };
    if is_unix(value) {
        return Ok(Some(Meeting::Unix { address: value.to_owned() }.into()));
    }
    if value.starts_with(UNIX) && !value.contains([':', '/']) {
        let problem =
            format!("write `{UNIX}` and 32 hexadecimal digits, the same for all ranks of a host");
        let error = BootstrapError::BadPlace { text: value.to_owned(), problem };
        return Err(LauncherError::place(name, value, error));
    }
    let (place, interface) =
        Place::parse(value).map_err(|error| LauncherError::place(name, value, error))?;
    let secret = match &place {
        Place::Id(_) => SecretSource::Place,
        _ => SecretSource::find(environment, &place)?,
    };
    Ok(Some(NamedMeeting { meeting: Meeting::Tcp { place, secret }, interface }))
}

/// What `unix::Rendezvous::unique` makes.
fn is_unix(text: &str) -> bool {
    text.strip_prefix(UNIX)
        .is_some_and(|rest| rest.len() == 32 && rest.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// A name that may stand for a host, or a dotted address.
pub(super) fn is_host_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    (1..=253).contains(&text.len()) && text.bytes().all(allowed) && !text.starts_with(['-', '.'])
}
