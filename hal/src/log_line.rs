//! The line that a report is on standard error, alike from the command and all libraries. It needs nothing else of this crate,
//! so that libraries which depend on no other one take this file as it is.

use std::fmt::{Display, Write};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A report as one line, `2026-11-30T12:34:56.789Z host pid LEVEL text`, with its end: the time is UTC, and lines of several hosts
/// sort by it. In one piece, since other processes write to the same file.
pub fn log_line(level: impl Display, text: impl Display) -> String {
    line(SystemTime::now(), host(), std::process::id(), level, text)
}

fn line(at: SystemTime, host: &str, pid: u32, level: impl Display, text: impl Display) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut line = utc(since);
    // Writing to a string does not fail.
    let _ = writeln!(line, " {host} {pid} {level} {text}");
    line
}

/// The kernel's name of this host, which has no spaces; `-` where it is not told.
fn host() -> &'static str {
    static HOST: OnceLock<String> = OnceLock::new();
    HOST.get_or_init(|| {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let name: String = name.split_whitespace().collect();
        if name.is_empty() { "-".to_owned() } else { name }
    })
}

/// A time since 1970 as RFC 3339 writes it, to the millisecond.
fn utc(since: Duration) -> String {
    const DAY: u64 = 24 * 60 * 60;
    let (days, second) = (since.as_secs() / DAY, since.as_secs() % DAY);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let milliseconds = since.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milliseconds:03}Z")
}

/// Year, month and day of the Gregorian calendar, so many days after the first one of 1970.
fn date(days: u64) -> (u64, u64, u64) {
    // The calendar repeats every 400 years. Counted from March on, a leap day is the last day of its year.
    const ERA: u64 = 146_097;
    const FROM_MARCH_OF_YEAR_0: u64 = 719_468;
    let days = days + FROM_MARCH_OF_YEAR_0;
    let (era, day) = (days / ERA, days % ERA);
    let year = (day - day / 1_460 + day / 36_524 - day / (ERA - 1)) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // Five months from March on have 153 days, and so have the next five.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (400 * era + year + later, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_when_where_who_and_what() {
        let at = UNIX_EPOCH + Duration::from_millis(1_796_042_096_789);
        let line = line(at, "node1", 4711, "WARN", "rank 3: all is late");
        assert_eq!(line, "2026-11-30T12:34:56.789Z node1 4711 WARN rank 3: all is late\n");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (951_868_800, "2000-03-01T00:00:00.000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000Z"),
            (1_740_787_200, "2025-03-01T00:00:00.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(utc(Duration::from_secs(seconds)), expected);
        }
    }

    #[test]
    fn this_process_is_named() {
        let line = log_line("INFO", "so");
        let words: Vec<&str> = line.split_whitespace().collect();
        let pid = std::process::id().to_string();
        assert_eq!(words[2..], [pid.as_str(), "INFO", "so"]);
        assert!(!words[1].is_empty() && line.ends_with(" so\n"), "{line}");
    }
}
