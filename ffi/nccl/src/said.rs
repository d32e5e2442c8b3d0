//! Says failures on standard error, since many clients show no more of a failure than the text of its result.

#[path = "../../../hal/src/log_line.rs"]
mod log_line;

use log_line::log_line;
use std::io::Write;

/// NCCL's variable that says what to tell there.
const NCCL_VARIABLE: &str = "NCCL_DEBUG";
/// Antiphon's variable: its plain levels count here, and its filters for this library.
const LOG_VARIABLE: &str = "ANTIPHON_LOG";
/// The name of this library in a filter.
const NAME: &str = "antiphon_nccl";

/// The level at which a failure is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Warn,
    Debug,
}

impl Level {
    /// The level by the two variables. Without them a failure is an answer like any other, and nothing is said.
    fn of(nccl: &str, log: &str) -> Option<Self> {
        let is_asked =
            ["WARN", "INFO", "TRACE"].iter().any(|level| level.eq_ignore_ascii_case(nccl));
        if is_asked {
            return Some(Level::Warn);
        }
        let own = |part: &str| {
            part.split_once('=').map_or(Some(part.to_owned()), |(name, level)| {
                (name == NAME).then(|| level.to_owned())
            })
        };
        // The last one that is about this library.
        let level = log.split(',').filter_map(|part| own(part.trim())).next_back()?;
        let is_loud = ["debug", "trace"].iter().any(|loud| loud.eq_ignore_ascii_case(&level));
        is_loud.then_some(Level::Debug)
    }

    fn name(self) -> &'static str {
        match self {
            Level::Warn => "WARN",
            Level::Debug => "DEBUG",
        }
    }
}

/// Says that a function has failed, and why, if the program's environment asks for that.
#[cold]
pub fn say(function: &str, text: &str) {
    let variable = |name| std::env::var(name).unwrap_or_default();
    if let Some(level) = Level::of(&variable(NCCL_VARIABLE), &variable(LOG_VARIABLE)) {
        // At once: other processes may write there, too.
        let line = log_line(level.name(), format_args!("{function}: {text}"));
        // If the write fails, nobody reads this, and nobody could be told.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::Level;

    #[test]
    fn failures_are_told_to_who_asks() {
        for (nccl, log, expected) in [
            ("", "", None),
            ("VERSION", "warn", None),
            ("", "antiphon_executor=debug", None),
            ("", "debug,antiphon_nccl=off", None),
            ("WARN", "", Some(Level::Warn)),
            ("info", "off", Some(Level::Warn)),
            ("TRACE", "debug", Some(Level::Warn)),
            ("", "debug", Some(Level::Debug)),
            ("", "warn, antiphon_nccl=trace", Some(Level::Debug)),
        ] {
            assert_eq!(Level::of(nccl, log), expected, "{nccl} {log}");
        }
    }
}
