//! The command line of the benchmark: what a person asks for, and what the driver tells a rank.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::antiphon::Load;
use super::job::{Collective, Place};
use super::report::{parse_size, size};

/// What is measured, and how long.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Collectives
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "allreduce,allgather,alltoall,reducescatter"
    )]
    pub collectives: Vec<Collective>,
    /// Sizes in bytes, as 4, 16K or 1M [default: 4 to 64M]
    #[arg(long, value_delimiter = ',', value_parser = parse_size)]
    sizes: Option<Vec<usize>>,
    /// Numbers of ranks
    #[arg(long, value_delimiter = ',', default_value = "2,8", value_parser = parse_ranks)]
    pub ranks: Vec<usize>,
    /// Subjects, see --list [default: all]
    #[arg(long, value_delimiter = ',')]
    pub subjects: Option<Vec<String>>,
    /// Separate buffers (out), one buffer (in), or both
    #[arg(long, value_delimiter = ',', default_value = "out,in")]
    pub places: Vec<Place>,
    /// Rounds, each of which runs all subjects in turn [default: 3, or 1 with --quick]
    #[arg(long)]
    rounds: Option<usize>,
    /// Timed iterations of a row up to 1 MiB [default: 2000, or 300 with --quick]
    #[arg(long)]
    iters: Option<usize>,
    /// Timed iterations of a row above 1 MiB [default: 200, or 40 with --quick]
    #[arg(long)]
    iters_large: Option<usize>,
    /// Seconds after which a row ends early [default: 10, with more ranks than cores 2; 1 with --quick]
    #[arg(long)]
    budget: Option<u64>,
    /// A short run for a first look: few sizes, iterations and rounds
    #[arg(long)]
    quick: bool,
    /// Skip peers that are not installed rather than install them
    #[arg(long)]
    pub no_install: bool,
    /// Write the tables into the marked section of this document, relative to the repository
    #[arg(long, value_name = "PATH")]
    pub write: Option<PathBuf>,
    /// Measure nothing: make the tables of what earlier runs printed, whose rounds add up
    #[arg(long, value_name = "FILES", value_delimiter = ',')]
    pub from: Vec<PathBuf>,
    /// List the subjects
    #[arg(long)]
    pub list: bool,
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn parse_ranks(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(ranks @ 2..=16) => Ok(ranks),
        _ => Err(format!("cannot run `{text}` ranks: allowed 2 to 16")),
    }
}

impl Options {
    /// The sizes of the rows.
    pub fn sizes(&self) -> Vec<usize> {
        let default: &[usize] = if self.quick {
            &[4, KIB, 16 * KIB, 256 * KIB, 4 * MIB]
        } else {
            &[4, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB]
        };
        self.sizes.clone().unwrap_or_else(|| default.to_vec())
    }

    /// How often all subjects run.
    pub fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.quick { 1 } else { 3 }).max(1)
    }

    /// Timed iterations up to 1 MiB.
    pub fn iterations(&self) -> usize {
        self.iters.unwrap_or(if self.quick { 300 } else { 2000 }).max(1)
    }

    /// Timed iterations above 1 MiB.
    pub fn iterations_large(&self) -> usize {
        self.iters_large.unwrap_or(if self.quick { 40 } else { 200 }).max(1)
    }

    /// The time after which a row ends early; `crowded`: more ranks than cores.
    pub fn budget(&self, crowded: bool) -> Duration {
        let default = match (self.quick, crowded) {
            (true, _) => 1,
            (false, true) => 2,
            (false, false) => 10,
        };
        Duration::from_secs(self.budget.unwrap_or(default).max(1))
    }

    /// The command that measures the same again, without what does not change the numbers.
    pub fn command_line(&self) -> String {
        let mut words = vec!["cargo xtask bench-peers".to_owned()];
        let mut add = |name: &str, value: Option<String>| {
            words.extend(value.map(|value| format!("--{name} {value}")));
        };
        let collectives: Vec<&str> = self.collectives.iter().map(|c| c.name()).collect();
        let all = self.collectives == Collective::ALL;
        add("collectives", (!all).then(|| collectives.join(",")));
        let list =
            |sizes: &Vec<usize>| sizes.iter().copied().map(size).collect::<Vec<_>>().join(",");
        add("sizes", self.sizes.as_ref().map(list));
        let ranks: Vec<String> = self.ranks.iter().map(usize::to_string).collect();
        add("ranks", (self.ranks != [2, 8]).then(|| ranks.join(",")));
        add("subjects", self.subjects.as_ref().map(|s| s.join(",")));
        let places: Vec<&str> = self.places.iter().map(|p| p.name()).collect();
        add("places", (self.places != Place::ALL).then(|| places.join(",")));
        add("rounds", self.rounds.map(|n| n.to_string()));
        add("iters", self.iters.map(|n| n.to_string()));
        add("iters-large", self.iters_large.map(|n| n.to_string()));
        add("budget", self.budget.map(|n| n.to_string()));
        if self.quick {
            words.push("--quick".into());
        }
        words.join(" ")
    }
}

/// What the driver tells one process of a group of Antiphon ranks; nobody types this.
#[derive(Args, Clone, Debug)]
#[allow(missing_docs, reason = "each is the field of Load or Seat of the same name")]
pub struct RankOptions {
    #[arg(long)]
    pub subject: String,
    #[arg(long)]
    pub ranks: usize,
    #[arg(long)]
    pub participant: usize,
    #[arg(long)]
    pub rendezvous: PathBuf,
    #[arg(long)]
    pub control: PathBuf,
    #[arg(long)]
    pub collective: Collective,
    #[arg(long, value_delimiter = ',')]
    pub sizes: Vec<usize>,
    #[arg(long, value_delimiter = ',')]
    pub places: Vec<Place>,
    #[arg(long)]
    pub iters: usize,
    #[arg(long)]
    pub iters_large: usize,
    #[arg(long)]
    pub budget_ms: u64,
    #[arg(long = "yield")]
    pub yields: u8,
}

impl RankOptions {
    /// The load as the loop takes it.
    pub fn load(&self) -> Load {
        Load {
            collective: self.collective,
            sizes: self.sizes.clone(),
            places: self.places.clone(),
            iterations: self.iters,
            iterations_large: self.iters_large,
            budget: Duration::from_millis(self.budget_ms),
            yields: self.yields != 0,
        }
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

    #[test]
    fn the_printed_command_asks_for_the_same() {
        for line in [
            "",
            "--quick",
            "--sizes 4,16K,1M --ranks 4 --places in --rounds 5",
            "--collectives alltoall,allreduce --subjects floor,gloo --iters 9 --iters-large 8 --budget 7",
        ] {
            let words = ["xtask"].into_iter().chain(line.split_whitespace());
            let options = Line::try_parse_from(words).expect("a valid line").options;
            assert_eq!(
                options.command_line(),
                format!("cargo xtask bench-peers {line}").trim_end()
            );
        }
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        for line in
            ["--ranks 1", "--ranks 17", "--sizes 3", "--collectives gather", "--places over"]
        {
            let words = ["xtask"].into_iter().chain(line.split_whitespace());
            assert!(Line::try_parse_from(words).is_err(), "{line}");
        }
    }
}
