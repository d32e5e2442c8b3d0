//! Where the ranks of a job meet: what a launcher says, or an id that went from rank 0 to the others.

use super::join::Join;
use super::{Communicator, NO_LIMIT, Options};
use crate::error::ExecutorError;
use antiphon_bootstrap::launcher::{self, LauncherError};
use antiphon_bootstrap::tcp::{self, UniqueId};
use antiphon_bootstrap::{Bootstrap, BootstrapError, DEFAULT_TIMEOUT, in_process_with};
use std::sync::Arc;
use std::time::Duration;

impl Communicator {
    /// This rank's end of the group whose ranks a launcher started (torchrun, `mpirun`, `srun`), or that
    /// `ANTIPHON_RANK`, `ANTIPHON_WORLD` and `ANTIPHON_COMM_ID` describe; for a single rank `ANTIPHON_WORLD=1` is enough. Call it
    /// once a process: see [`launcher`](crate::launcher).
    ///
    /// # Errors
    /// [`Launcher`](ExecutorError::Launcher) where the environment lacks something or says something impossible,
    /// `Argument` where it says nothing; what forming the group reports.
    pub fn from_environment(options: &Options) -> Result<Communicator, ExecutorError> {
        let environment = environment(options);
        Communicator::found(launcher::find(&environment)?, options)
    }

    /// This rank's end of a group whose ranks all name the same place, as `ANTIPHON_COMM_ID` does: `host:port`,
    /// `interface:ip:port`, `file:/path`, a unique id, or an address on this host. What else a meeting takes, such as the
    /// secret, the environment says: see [`launcher`](crate::launcher).
    ///
    /// They wait for each other as long as `ANTIPHON_TIMEOUT` says, else as those of [`from_id`](Self::from_id) do. Who waits
    /// longer than two minutes logs what for.
    ///
    /// # Errors
    /// `Argument` for a place that is none, [`Bootstrap`](ExecutorError::Bootstrap) for a rank outside the world, and
    /// [`Launcher`](ExecutorError::Launcher) for a missing secret; what forming the group reports.
    pub fn from_place(
        place: &str,
        rank: u32,
        world: u32,
        options: &Options,
    ) -> Result<Communicator, ExecutorError> {
        let no_place = |saw| ExecutorError::Argument {
            what: "meet at a place",
            saw,
            allowed: "what ANTIPHON_COMM_ID may be",
        };
        // Where a variable is blank, another one counts.
        if place.trim().is_empty() {
            return Err(no_place("a blank text".to_owned()));
        }
        if rank >= world {
            return Err(BootstrapError::BadShape { rank, world }.into());
        }
        let environment = environment(options)
            .with("ANTIPHON_COMM_ID", place)
            .with("ANTIPHON_RANK", rank.to_string())
            .with("ANTIPHON_WORLD", world.to_string());
        let mut found = launcher::find(&environment).map_err(|error| match error {
            // The caller has set no variable.
            LauncherError::Place { value, problem, .. } => {
                no_place(format!("{value:?} ({problem})"))
            }
            other => other.into(),
        })?;
        if let Some(found) = &mut found {
            found.timeout = limit(&environment, options)?;
        }
        Communicator::found(found, options)
    }

    /// This rank's end of a group whose ranks all pass the same id, which a process made ([`UniqueId::create`]) and told
    /// the others: that of rank 0 or any other, which runs until all ranks have joined.
    ///
    /// They wait for each other as long as calls do ([`Options::timeout`]), but for two minutes at the least, since programs start
    /// less evenly than they call. Who waits longer than that logs what for. Where nobody answers at the id's address they wait no
    /// longer than a minute, or than calls do where that is more.
    ///
    /// The environment has no part in it, `ANTIPHON_INTERFACE` neither: [`Options::with_interface`] names a network interface.
    ///
    /// # Errors
    /// What the bootstrap reports: a rank that did not come in time, a wrong world, a duplicate rank, an id whose process has ended.
    pub fn from_id(
        id: &UniqueId,
        rank: u32,
        world: u32,
        options: &Options,
    ) -> Result<Communicator, ExecutorError> {
        // The id brings the secret that counts.
        let secret = tcp::Secret::open();
        let mut rendezvous = tcp::Rendezvous::new(tcp::Place::Id(id.clone()), rank, world, secret);
        rendezvous.interface = options.interface.clone();
        rendezvous.timeout = patience(options);
        rendezvous.search = search(options);
        Communicator::join_alone(|| Ok(tcp::connect(&rendezvous)?), options)
    }

    /// This rank's end of a group whose ranks `meet` over a bootstrap that nobody else has. The options are checked first: they say
    /// how long ranks wait for each other.
    pub(super) fn join_alone(
        meet: impl FnOnce() -> Result<Arc<dyn Bootstrap>, ExecutorError>,
        options: &Options,
    ) -> Result<Communicator, ExecutorError> {
        options.check()?;
        let join = || {
            let bootstrap = meet()?;
            let device = options.device();
            let begun = device.and_then(|on| Join::begin(Arc::clone(&bootstrap), &on, options));
            let joined = begun.and_then(|begun| begun.in_own_group().come());
            // The peers would wait for this rank in vain, so they are told.
            joined.inspect_err(|error| bootstrap.abort(&error.to_string()))
        };
        join().map_err(|error| options.names(error))
    }

    fn found(
        found: Option<launcher::Found>,
        options: &Options,
    ) -> Result<Communicator, ExecutorError> {
        let Some(found) = found else {
            return Err(ExecutorError::Argument {
                what: "find this rank's place in a job",
                saw: format!("none of {}", launcher::VARIABLES),
                allowed: "ranks that one of these started, or with ANTIPHON_RANK, ANTIPHON_WORLD and ANTIPHON_COMM_ID; a job of one rank \
                          takes ANTIPHON_WORLD=1 alone",
            });
        };
        // Of the wires: the meeting's is what was found.
        let interface = options.interface.clone().or_else(|| found.interface.clone());
        let options = options.clone().with_interface(interface);
        Communicator::join_alone(|| Ok(found.connect()?), &options)
    }
}

/// The ends of ranks that live in this process, for each of `hosts`.
pub(super) fn ends_in_process(
    hosts: &[&str],
    options: &Options,
) -> Result<Vec<Arc<dyn Bootstrap>>, ExecutorError> {
    options.check()?;
    Ok(in_process_with(hosts, options.timeout.unwrap_or(NO_LIMIT))?)
}

/// The environment of this process, with the interface that a program names in the place of the one that it says. Before
/// either goes the place's own, but for the wires: [`Options::interface`] has the rule.
fn environment(options: &Options) -> launcher::Environment {
    let environment = launcher::Environment::of_process();
    match &options.interface {
        Some(named) => environment.with("ANTIPHON_INTERFACE", named),
        None => environment,
    }
}

/// How long ranks wait for each other at a place.
fn limit(environment: &launcher::Environment, options: &Options) -> launcher::Result<Duration> {
    Ok(environment.timeout()?.unwrap_or_else(|| patience(options)))
}

/// How long ranks wait for each other where the environment does not say it, or is not asked.
fn patience(options: &Options) -> Duration {
    options.timeout.map_or(NO_LIMIT, |limit| limit.clamp(DEFAULT_TIMEOUT, NO_LIMIT))
}

/// For how long nobody may answer at an id's address, which somebody does from when the id is made.
fn search(options: &Options) -> Duration {
    options.timeout.map_or(tcp::DEFAULT_SEARCH, |limit| limit.max(tcp::DEFAULT_SEARCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_wait_for_each_other_as_long_as_calls_do_and_two_minutes_at_the_least() {
        let wait = |limit| patience(&Options::default().with_timeout(limit));
        for (limit, expected) in [(5, 120), (120, 120), (1800, 1800)] {
            assert_eq!(wait(Some(Duration::from_secs(limit))), Duration::from_secs(expected));
        }
        assert_eq!([wait(None), wait(Some(Duration::MAX))], [NO_LIMIT; 2]);
    }

    #[test]
    fn who_cannot_come_says_why_to_those_who_wait() {
        let ends = in_process_with(&["this"; 2], Duration::from_secs(60)).unwrap();
        let other = Options::default().with_wire(Some("none of these".to_owned()));
        let ends = ends.into_iter().zip([other, Options::default()]);
        let joining = ends.map(|(end, options)| {
            std::thread::spawn(move || Communicator::join_alone(|| Ok(end), &options).err())
        });
        let joining: Vec<_> = joining.collect();
        let errors = joining.into_iter().map(|rank| rank.join().unwrap().unwrap());
        let [own, told] = errors.collect::<Vec<_>>().try_into().unwrap();
        assert_eq!((own.peer(), told.peer()), (None, Some(0)), "{own}; {told}");
        assert!(told.to_string().contains(&own.to_string()), "{told}");
    }

    #[test]
    fn a_place_that_is_none_is_an_argument_and_no_variable() {
        let meet = |place, rank| {
            let met = Communicator::from_place(place, rank, 2, &Options::default());
            met.err().unwrap()
        };
        for (place, part) in [("", "blank"), (" ", "blank"), ("x", "no port"), ("file:", "no file")]
        {
            let error = meet(place, 0);
            assert!(matches!(error, ExecutorError::Argument { .. }), "{error}");
            assert!(error.to_string().contains(part), "{error}");
        }
        let error = meet("file:/x", 2);
        assert!(matches!(error, ExecutorError::Bootstrap(_)), "{error}");
        assert!(error.to_string().contains("rank 2 of 2"), "{error}");
    }

    #[test]
    fn a_short_limit_lets_nobody_search_for_longer() {
        let search = |limit| search(&Options::default().with_timeout(limit));
        for (limit, expected) in [(5, 60), (60, 60), (1800, 1800)] {
            assert_eq!(search(Some(Duration::from_secs(limit))), Duration::from_secs(expected));
        }
        assert_eq!(search(None), Duration::from_secs(60));
    }

    #[test]
    fn at_a_place_the_environment_says_how_long_ranks_wait_if_it_says_anything() {
        let options = Options::default().with_timeout(Some(Duration::from_secs(1800)));
        for (said, expected) in [("5s", 5), ("", 1800), (" ", 1800)] {
            let environment = [("ANTIPHON_TIMEOUT", said)].into_iter().collect();
            let expected = Duration::from_secs(expected);
            assert_eq!(limit(&environment, &options).unwrap(), expected, "{said:?}");
        }
        assert!(limit(&[("ANTIPHON_TIMEOUT", "soon")].into_iter().collect(), &options).is_err());
    }
}
