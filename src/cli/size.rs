//! Sizes and durations as people write them.

use super::{CliError, Timeout};
use clap::Args;
use std::time::Duration;

/// Reads a size in bytes: digits, then K, M or G (powers of 1024, either case), then perhaps B or iB.
pub fn parse(text: &str) -> Result<u64, String> {
    let refused = |why: &str| {
        format!(
            "cannot read a size: saw `{text}` ({why}); give bytes, with K, M or G for powers of 1024, e.g. 64K"
        )
    };
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(refused("no digits"));
    }
    let unit = unit.to_ascii_lowercase();
    let unit = unit.strip_suffix("ib").or_else(|| unit.strip_suffix('b')).unwrap_or(&unit);
    let shift = match unit {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        _ => return Err(refused("unknown unit")),
    };
    let number: u64 = number.parse().map_err(|_| refused("beyond 64 bits"))?;
    number.checked_mul(1 << shift).ok_or_else(|| refused("beyond 64 bits"))
}

/// Reads the longest wait: a duration, or `off`. But for that, `ANTIPHON_TIMEOUT` says it so, too.
pub(super) fn parse_timeout(text: &str) -> Result<Timeout, String> {
    match text {
        "off" => Ok(Timeout(None)),
        other => {
            let duration = parse_duration(other);
            duration
                .map(|limit| Timeout(Some(limit)))
                .map_err(|refused| format!("{refused}, or off for none"))
        }
    }
}

/// Reads a duration: a whole number of seconds, or with `ms`, `s` or `m`; not 0.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let refused = || {
        format!(
            "cannot read a duration: saw `{text}`; give 1ms or more, e.g. 500ms, 60s, 2m or 60 (seconds)"
        )
    };
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| refused())?;
    let milliseconds = match unit {
        "ms" => Some(number),
        "" | "s" => number.checked_mul(1_000),
        "m" => number.checked_mul(60_000),
        _ => None,
    };
    match milliseconds {
        Some(0) | None => Err(refused()),
        Some(milliseconds) => Ok(Duration::from_millis(milliseconds)),
    }
}

/// The options that say how large the messages are.
#[derive(Debug, PartialEq, Eq, Args)]
pub(super) struct Sweep {
    /// Message size in bytes, with K, M or G for powers of 1024 [default: 1M]
    #[arg(long, value_parser = parse, conflicts_with_all = ["begin", "end", "factor"])]
    size: Option<u64>,
    /// First size of a sweep
    #[arg(short = 'b', long, value_parser = parse)]
    begin: Option<u64>,
    /// Last size of a sweep [default: the first]
    #[arg(short = 'e', long, value_parser = parse, requires = "begin")]
    end: Option<u64>,
    /// Factor between the sizes of a sweep [default: 2]
    #[arg(short = 'f', long, requires = "begin", value_parser = clap::value_parser!(u64).range(2..))]
    factor: Option<u64>,
}

impl Sweep {
    /// Whether any size was asked for.
    pub fn is_given(&self) -> bool {
        self.size.is_some() || self.begin.is_some()
    }

    /// The message sizes asked for, in bytes, ascending.
    pub fn sizes(&self) -> Result<Vec<u64>, CliError> {
        sizes(self.size, self.begin, self.end, self.factor)
    }
}

/// The sizes that these options ask for, in bytes, ascending.
pub(super) fn sizes(
    size: Option<u64>,
    begin: Option<u64>,
    end: Option<u64>,
    factor: Option<u64>,
) -> Result<Vec<u64>, CliError> {
    let Some(begin) = begin else {
        return Ok(vec![size.unwrap_or(1 << 20)]);
    };
    let end = end.unwrap_or(begin);
    let factor = factor.unwrap_or(2);
    if end < begin {
        return Err(CliError::Usage(format!(
            "cannot sweep from {begin} to {end} bytes: --end must be at least --begin"
        )));
    }
    if begin == 0 && end > 0 {
        return Err(CliError::Usage(
            "cannot sweep from 0 bytes by factors: --begin must be at least 1".into(),
        ));
    }
    let next = |size: &u64| size.checked_mul(factor).filter(|&size| size <= end && size > 0);
    Ok(std::iter::successors(Some(begin), next).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    #[test]
    fn sizes_are_powers_of_1024() {
        let cases = [
            ("0", 0),
            ("4", 4),
            ("1K", 1024),
            ("64k", 65536),
            ("1M", 1 << 20),
            ("3MiB", 3 << 20),
            ("2GB", 2 << 30),
            ("18446744073709551615", u64::MAX),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn wrong_sizes_say_what_is_wrong() {
        let cases = [
            ("", "no digits"),
            ("M", "no digits"),
            ("-1", "no digits"),
            ("1T", "unknown unit"),
            ("1.5M", "unknown unit"),
            ("1 M", "unknown unit"),
            ("18446744073709551616", "beyond 64 bits"),
            ("99999999999G", "beyond 64 bits"),
        ];
        for (text, why) in cases {
            let message = parse(text).unwrap_err();
            assert!(message.contains(why) && message.contains(text), "`{text}`: {message}");
        }
    }

    #[test]
    fn timeouts_have_units() {
        let millis = |ms| Ok(Timeout(Some(Duration::from_millis(ms))));
        assert_eq!(parse_timeout("500ms"), millis(500));
        assert_eq!(parse_timeout("60s"), millis(60_000));
        assert_eq!(parse_timeout("60"), millis(60_000));
        assert_eq!(parse_timeout("2m"), millis(120_000));
        assert_eq!(parse_timeout("off"), Ok(Timeout(None)));
        for text in ["60x", "s", "0s", "0", "-1s", "1h", "", "99999999999999999999s"] {
            let said = parse_timeout(text).unwrap_err();
            assert!(said.ends_with(", or off for none"), "{text}: {said}");
        }
    }

    #[test]
    fn a_duration_that_must_end_is_not_offered_to_be_off() {
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        for text in ["off", "0", "1h"] {
            let said = parse_duration(text).unwrap_err();
            assert!(said.contains("1ms or more") && !said.contains("or off"), "{text}: {said}");
        }
    }

    fn swept(options: &str) -> Result<Vec<u64>, String> {
        let line = format!("antiphon run p.json {options}");
        let Command::Run(args) = Cli::try_parse_from(line.split_whitespace()).unwrap().command
        else {
            panic!("not a run")
        };
        args.measure.sweep.sizes().map_err(|error| error.to_string())
    }

    #[test]
    fn sweeps_multiply() {
        assert_eq!(swept(""), Ok(vec![1 << 20]));
        assert_eq!(swept("--size 12"), Ok(vec![12]));
        assert_eq!(swept("-b 1K"), Ok(vec![1024]));
        assert_eq!(swept("-b 1K -e 5K"), Ok(vec![1024, 2048, 4096]));
        assert_eq!(swept("-b 1K -e 64K -f 8"), Ok(vec![1024, 8192, 65536]));
        assert_eq!(swept("-b 16G -e 18446744073709551615 -f 4294967296"), Ok(vec![16 << 30]));
        assert!(swept("-b 2K -e 1K").unwrap_err().contains("at least --begin"));
        assert!(swept("-b 0 -e 1K").unwrap_err().contains("at least 1"));
        assert_eq!(swept("-b 0"), Ok(vec![0]));
    }
}
