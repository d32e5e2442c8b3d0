//! The command line of `bench-hosts`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::super::job::Place;
use super::super::report::{parse_size, size};

/// What is measured, and how long.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Sizes in bytes, as 16, 16K or 1M [default: 16 to 16M, each four times the one before]
    #[arg(long, value_delimiter = ',', value_parser = parse_size)]
    sizes: Option<Vec<usize>>,
    /// Subjects: openmpi (a waiting rank yields), openmpi-spin, antiphon-hosts, antiphon-hosts-plain
    #[arg(long, value_delimiter = ',', default_value = "openmpi,antiphon-hosts")]
    pub subjects: Vec<String>,
    /// Separate buffers (out), one buffer (in), or both (out,in)
    #[arg(long, value_delimiter = ',', default_value = "out")]
    pub places: Vec<Place>,
    /// Rounds, each of which runs all subjects in turn
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Timed iterations of a row up to 1 MiB
    #[arg(long, default_value_t = 1000)]
    iters: usize,
    /// Timed iterations of a row above 1 MiB
    #[arg(long, default_value_t = 60)]
    iters_large: usize,
    /// Seconds after which a row ends early, though never before 20 iterations
    #[arg(long, default_value_t = 4)]
    budget: u64,
    /// Rounds of the wire beside plain sockets
    #[arg(long, default_value_t = 40)]
    pub wire_rounds: usize,
    /// Leave out the numbers of the wire, the FIFO and the bootstrap
    #[arg(long)]
    pub no_wires: bool,
    /// Skip Open MPI where it is not installed rather than install it
    #[arg(long)]
    pub no_install: bool,
    /// Write the tables into the marked section of this document, relative to the repository
    #[arg(long, value_name = "PATH")]
    pub write: Option<PathBuf>,
}

impl Options {
    /// The sizes of the rows.
    pub fn sizes(&self) -> Vec<usize> {
        let default = || (4..=24).step_by(2).map(|shift| 1 << shift).collect();
        self.sizes.clone().unwrap_or_else(default)
    }

    /// How often all subjects run.
    pub fn rounds(&self) -> usize {
        self.rounds.max(1)
    }

    /// Timed iterations up to 1 MiB.
    pub fn iterations(&self) -> usize {
        self.iters.max(1)
    }

    /// Timed iterations above 1 MiB.
    pub fn iterations_large(&self) -> usize {
        self.iters_large.max(1)
    }

    /// The time after which a row ends early.
    pub fn budget(&self) -> Duration {
        Duration::from_secs(self.budget.max(1))
    }

    /// The command that measures the same again, all numbers named.
    pub fn command_line(&self) -> String {
        let sizes: Vec<String> = self.sizes().into_iter().map(size).collect();
        let places: Vec<&str> = self.places.iter().map(|place| place.name()).collect();
        let mut line = format!(
            "cargo xtask bench-hosts --sizes {} --subjects {} --places {} --rounds {} --iters {} --iters-large {} --budget {}",
            sizes.join(","),
            self.subjects.join(","),
            places.join(","),
            self.rounds(),
            self.iterations(),
            self.iterations_large(),
            self.budget().as_secs(),
        );
        line += &if self.no_wires {
            " --no-wires".to_owned()
        } else {
            format!(" --wire-rounds {}", self.wire_rounds)
        };
        line
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn parse(line: &str) -> Options {
        let words = ["xtask"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words).expect("a valid line").options
    }

    #[test]
    fn the_printed_command_asks_for_the_same() {
        for line in ["", "--sizes 16,1M --rounds 2 --iters 9 --no-wires", "--places in --budget 1"]
        {
            let printed = parse(line).command_line();
            let words = printed.strip_prefix("cargo xtask bench-hosts").expect("the task");
            assert_eq!(parse(words).command_line(), printed);
        }
        let default = parse("").sizes();
        assert_eq!((default[0], default[1], default[10], default.len()), (16, 64, 16 << 20, 11));
    }
}
