//! A snapshot of environment variables.

use std::collections::BTreeMap;
use std::time::Duration;

use super::explicit::NamedMeeting;
use super::{Found, LauncherError, Meeting, Result};
use crate::DEFAULT_TIMEOUT;

/// A number that a launcher's variable holds.
#[derive(Clone, Copy)]
pub(super) struct Variable {
    pub name: &'static str,
    pub value: u32,
}

/// What a launcher says of a rank's number and of how many there are, among all ranks and among those of its host.
#[derive(Clone, Copy)]
pub(super) struct Numbers {
    pub rank: Variable,
    pub world: Variable,
    pub local_rank: Option<u32>,
    pub local_world: Option<u32>,
}

/// Environment variables, as they were at one time. A variable that is set but empty counts as unset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment(BTreeMap<String, String>);

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        Environment(pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }
}

impl Environment {
    /// Those of this process. What is not UTF-8 is replaced as [`String::from_utf8_lossy`] does.
    pub fn of_process() -> Self {
        std::env::vars_os()
            .map(|(key, value)| {
                (key.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())
            })
            .collect()
    }

    /// These variables with another value for one.
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.0.insert(name.to_owned(), value.into());
        self
    }

    /// A variable's value.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    /// The first of some variables that is set, with its name.
    pub(super) fn first<'a>(&self, names: &[&'a str]) -> Option<(&'a str, &str)> {
        names.iter().find_map(|name| self.get(name).map(|value| (*name, value)))
    }

    /// What `read` makes of a variable, where it is set.
    ///
    /// # Errors
    /// `Bad`, which says what is `allowed`, for a value of which it makes nothing.
    pub fn read<T>(
        &self,
        name: &'static str,
        allowed: &'static str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| LauncherError::bad(name, value, allowed))
    }

    /// A number, where the variable is set.
    pub(super) fn number(&self, name: &'static str) -> Result<Option<u32>> {
        self.read(name, "a whole number below 4294967296", |value| value.parse().ok())
    }

    /// A number that has to be there because others of the launcher's variables are.
    pub(super) fn required(
        &self,
        launcher: &'static str,
        name: &'static str,
        seen: &[&'static str],
    ) -> Result<u32> {
        self.number(name)?.ok_or_else(|| self.missing(launcher, name, seen))
    }

    /// The error for a variable that should be there, with those of `others` that are.
    pub(super) fn missing(
        &self,
        launcher: &'static str,
        missing: &'static str,
        others: &[&'static str],
    ) -> LauncherError {
        let seen = others.iter().copied().filter(|name| self.get(name).is_some()).collect();
        LauncherError::Missing { launcher, seen, missing }
    }

    /// How long ranks are to wait for each other, where `ANTIPHON_TIMEOUT` says it.
    ///
    /// # Errors
    /// `Bad` for what is no time.
    pub fn timeout(&self) -> Result<Option<Duration>> {
        self.read("ANTIPHON_TIMEOUT", "a time such as 500ms, 60s, 2m or 60 (seconds)", read_time)
    }

    /// Puts together what was found, once the numbers are checked against each other.
    ///
    /// # Errors
    /// `Shape` for a rank outside its world, and those of [`interface`](Self::interface) and [`timeout`](Self::timeout).
    pub(super) fn found(
        &self,
        launcher: &'static str,
        numbers: Numbers,
        place: NamedMeeting,
    ) -> Result<Found> {
        let Numbers { rank, world, local_rank, local_world } = numbers;
        let Variable { name: rank_name, value: rank } = rank;
        let Variable { name: world_name, value: world } = world;
        if rank >= world {
            return Err(LauncherError::Shape { launcher, rank_name, rank, world_name, world });
        }
        let NamedMeeting { meeting: rendezvous, interface } = place;
        let (interface, listen_everywhere) = match interface {
            // With the place: that is where the others look.
            Some(named) => (Some(named), false),
            // Ranks of one host need no network, so what is meant for NCCL on other machines must not refuse them.
            None if matches!(rendezvous, Meeting::Unix { .. } | Meeting::Alone) => {
                (self.own_interface(), false)
            }
            // By what this rank is to be reached. The name of rank 0's host may lead the others elsewhere.
            None => (self.interface()?, true),
        };
        let timeout = self.timeout()?.unwrap_or(DEFAULT_TIMEOUT);
        Ok(Found {
            launcher,
            rank,
            world,
            local_rank,
            local_world,
            interface,
            listen_everywhere,
            rendezvous,
            timeout,
        })
    }
}

/// The time that a variable's value says: a whole number with `ms`, `s` or `m`, or of seconds; 1 ms to a year.
pub fn read_time(value: &str) -> Option<Duration> {
    let digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let (number, unit) = value.split_at(digits);
    let milliseconds = match unit {
        "ms" => 1,
        "" | "s" => 1000,
        "m" => 60_000,
        _ => return None,
    };
    let total = number.parse::<u64>().ok()?.checked_mul(milliseconds)?;
    // A year: what is longer cannot be added to a clock safely everywhere.
    (1..=31_536_000_000).contains(&total).then(|| Duration::from_millis(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_takes_the_place_of_another() {
        let environment: Environment = [("A", "1"), ("B", "2")].into_iter().collect();
        let changed = environment.with("A", "3").with("C", "4");
        let read = ["A", "B", "C"].map(|name| changed.get(name));
        assert_eq!(read, [Some("3"), Some("2"), Some("4")]);
    }

    #[test]
    fn times_are_read_with_and_without_units() {
        for blank in ["", " "] {
            let unset: Environment = [("ANTIPHON_TIMEOUT", blank)].into_iter().collect();
            assert_eq!(unset.timeout().unwrap(), None);
        }
        // NCCL's interface reads the same variable and keeps to the same table.
        let table = include_str!("../../../../tests/limits.txt");
        for line in table.lines().filter(|line| !line.starts_with('#')) {
            let (text, expected) = line[1..].split_once("` ").unwrap();
            let milliseconds = (expected != "-").then(|| expected.parse().unwrap());
            let environment: Environment = [("ANTIPHON_TIMEOUT", text)].into_iter().collect();
            let expected = milliseconds.map(Duration::from_millis);
            assert_eq!(environment.timeout().ok(), expected.map(Some), "{text:?}");
        }
    }
}
