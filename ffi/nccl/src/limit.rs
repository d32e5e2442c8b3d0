//! How long calls may make no progress.

use crate::failure::{Failure, Result};
use std::time::Duration;

/// Says how long a call may make no progress, such as `500ms`, `60s` or `2m`, or in seconds, and a year at most; without it,
/// for ever, as NCCL does it.
const TIMEOUT_VARIABLE: &str = "ANTIPHON_TIMEOUT";

/// How long a call may make no progress; for ever, if nothing is said.
pub fn limit() -> Result<Option<Duration>> {
    match std::env::var(TIMEOUT_VARIABLE) {
        Ok(text) if !text.trim().is_empty() => read_limit(&text).map(Some),
        _ => Ok(None),
    }
}

/// A time as the rendezvous takes it from the same variable: `tests/limits.txt` has what both take.
fn read_limit(text: &str) -> Result<Duration> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "ms" => Some(1),
        "" | "s" => Some(1000),
        "m" => Some(60_000),
        _ => None,
    };
    let total = unit.and_then(|unit| number.parse::<u64>().ok()?.checked_mul(unit));
    // A year: what is longer cannot be added to a clock safely everywhere.
    let limit = total.filter(|total| (1..=31_536_000_000).contains(total));
    limit.map(Duration::from_millis).ok_or_else(|| {
        Failure::usage(format!(
            "cannot read {TIMEOUT_VARIABLE}: saw `{text}`, allowed a time such as 500ms, 60s, 2m or 60 (seconds)"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_the_rendezvous_reads_them() {
        let table = include_str!("../../../tests/limits.txt");
        for line in table.lines().filter(|line| !line.starts_with('#')) {
            let (text, expected) = line[1..].split_once("` ").unwrap();
            let milliseconds = (expected != "-").then(|| expected.parse().unwrap());
            assert_eq!(read_limit(text).ok(), milliseconds.map(Duration::from_millis), "{text:?}");
        }
    }
}
