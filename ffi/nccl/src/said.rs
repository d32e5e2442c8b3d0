//! What failures say on standard error: many clients show of one no more than the text of its number.

use std::io::Write;

/// NCCL's variable that says what to tell there.
const NCCL_VARIABLE: &str = "NCCL_DEBUG";
/// Antiphon's, of which the levels count here, and a filter for this library.
const LOG_VARIABLE: &str = "ANTIPHON_LOG";
/// What this library is in a filter.
const NAME: &str = "antiphon_nccl";

/// As what a failure is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Warn,
    Debug,
}

impl Level {
    /// By what the variables say: a failure is an answer like others, unless somebody asks.
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
        let line = format!("[{} {NAME}] {function}: {text}\n", level.name());
        // Where nobody reads it, there is nobody to tell.
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
