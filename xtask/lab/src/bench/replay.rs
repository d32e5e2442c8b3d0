//! Tables of runs that were made before, from what they printed: their rounds add up, as if one run had made them.
//!
//! A whole table of eight ranks on two cores takes hours. It can be measured in parts, and rows that lack rounds can be
//! measured again, as long as each part runs all the subjects that are compared in turn.

use std::fs;
use std::path::PathBuf;

use super::report::Column;
use super::results::{self, Results};
use super::{alike, page, peers};
use crate::{Error, Result};

/// What several runs measured.
#[derive(Debug)]
struct Replay {
    results: Results,
    /// Their commands, each with the load of the machine when it began.
    runs: Vec<String>,
    /// What they ran on.
    machine: Vec<String>,
    /// What they ran, each once.
    subjects: Vec<String>,
}

/// The section of the page that one run would have written.
///
/// # Errors
/// A file that cannot be read, or that is not the output of a finished run on the same machine as the others.
pub fn section(paths: &[PathBuf]) -> Result<String> {
    let mut replay = Replay::new();
    for path in paths {
        let name = path.display().to_string();
        let text = fs::read_to_string(path).map_err(Error::io(format!("read {name}")))?;
        replay.add(&name, &text)?;
    }
    Ok(replay.section())
}

impl Replay {
    fn new() -> Self {
        let (runs, machine, subjects) = (Vec::new(), Vec::new(), Vec::new());
        Replay { results: Results::with(alike()), runs, machine, subjects }
    }

    fn add(&mut self, name: &str, text: &str) -> Result<()> {
        let refuse = |saw: &str| {
            Err(Error::message(format!(
                "cannot make tables of {name}: saw {saw}; allowed is what finished runs of bench-peers on one machine printed"
            )))
        };
        let Some((rows, made)) = text.split_once("\nMade by `") else {
            return refuse("no end of a run");
        };
        let Some((command, facts)) = made.split_once("`.\n\n") else {
            return refuse("no command");
        };
        let facts: Vec<&str> = facts.lines().map_while(|line| line.strip_prefix("- ")).collect();
        let Some(load) = facts.iter().position(|fact| fact.starts_with(LOAD)) else {
            return refuse("no load average");
        };
        let machine: Vec<String> = facts[..load].iter().map(|&fact| fact.to_owned()).collect();
        if !self.runs.is_empty() && machine != self.machine {
            return refuse(&format!("{machine:?} beside {:?}", self.machine));
        }
        self.machine = machine;
        self.runs.push(format!("`{command}` ({})", facts[load]));
        let known = |fact: &str| peers::all().iter().any(|s| of(fact) == s.name());
        for fact in facts[load + 1..].iter().filter(|fact| known(fact)) {
            if !self.subjects.iter().any(|seen| seen == fact) {
                self.subjects.push((*fact).to_owned());
            }
        }
        self.rows(rows);
        Ok(())
    }

    /// Takes the rows of every group that was probed before and after.
    fn rows(&mut self, lines: &str) {
        let mut pending = Vec::new();
        for line in lines.lines() {
            let mut words = line.splitn(3, ' ');
            let round = words.next().and_then(|word| word.strip_prefix("round="));
            let subject = words.next().and_then(|word| word.strip_prefix("subject="));
            let (Some(_), Some(subject), Some(rest)) = (round, subject, words.next()) else {
                continue;
            };
            if let Some(row) = results::parse(rest) {
                pending.push(row);
            } else if let Some(line) = probes(rest) {
                for (key, times) in pending.drain(..) {
                    self.results.add(subject, key, times, line);
                }
            }
        }
    }

    fn section(&self) -> String {
        let made = format!("Made by {}.", self.runs.join(", "));
        let all = peers::all();
        let ran = all.iter().filter(|s| self.subjects.iter().any(|fact| of(fact) == s.name()));
        let columns: Vec<Column> =
            ran.map(|s| Column { name: s.name().into(), peer: s.is_peer() }).collect();
        let facts: Vec<String> = self.machine.iter().chain(&self.subjects).cloned().collect();
        page::section(&self.results, &columns, &made, &facts)
    }
}

const LOAD: &str = "load average at the start: ";

/// The subject that a fact is about.
fn of(fact: &str) -> &str {
    fact.split(':').next().unwrap_or_default()
}

/// How far apart the cores were before and after a group, in nanoseconds.
fn probes(text: &str) -> Option<[u64; 2]> {
    let (before, after) = text.strip_prefix("LINE before_ns=")?.split_once(" after_ns=")?;
    Some([before.parse().ok()?, after.parse().ok()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(
        command: &str,
        machine: &str,
        subjects: &[&str],
        rows: &[(&str, u64, [u64; 2])],
    ) -> String {
        let mut text = String::new();
        for (subject, p50, [before, after]) in rows {
            let of = format!("round=1 subject={subject}");
            text += &format!(
                "{of} RESULT collective=allgather place=in bytes=4096 ranks=2 iters=100 p50_ns={p50} p99_ns=9000 \
                 read_p50_ns=9000 read_p99_ns=9000\n{of} LINE before_ns={before} after_ns={after}\n"
            );
        }
        text += &format!(
            "SKIP something\n\nMade by `{command}`.\n\n- processor: {machine}\n- {LOAD}0.1\n"
        );
        for subject in subjects {
            text += &format!("- {subject}: {subject} 5\n");
        }
        text + "- a cache line between two cores: 22 to 23 ns\n\nTimes in µs\n"
    }

    #[test]
    fn rounds_of_several_runs_add_up() {
        let near = [22, 23];
        let first =
            run("a", "x", &["floor", "openmpi"], &[("floor", 1000, near), ("openmpi", 4000, near)]);
        let rows = [("floor", 3000, near), ("gloo", 5000, near), ("gloo", 1, [22, 200])];
        let second = run("b", "x", &["floor", "gloo"], &rows);
        let mut replay = Replay::new();
        replay.add("1", &first).unwrap();
        replay.add("2", &second).unwrap();
        let text = replay.section();
        for part in [
            "Made by `a` (load average at the start: 0.1), `b` (load average at the start: 0.1).",
            "- processor: x\n- floor: floor 5\n- openmpi: openmpi 5\n- gloo: gloo 5\n- a cache line",
            // Two rounds of the floor, one of each peer; the round during which the cores moved is none.
            "| 4K | 100 | 2.00 / 9.00 (9.00) | 4.00 / 9.00 (9.00) | 5.00 / 9.00 (9.00) | openmpi |",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
    }

    #[test]
    fn what_is_no_finished_run_of_this_machine_is_refused() {
        let whole = run("a", "x", &["floor"], &[("floor", 1000, [22, 22])]);
        let mut replay = Replay::new();
        replay.add("1", &whole).unwrap();
        let half = &whole[..whole.find("Made by").unwrap()];
        let other = run("a", "y", &["floor"], &[]);
        for (text, saw) in [("", "no end"), (half, "no end"), (&other, "processor: y")] {
            let error = replay.add("2", text).unwrap_err().to_string();
            assert!(error.contains("tables of 2") && error.contains(saw), "{error}");
        }
    }
}
