//! What was measured, as tables for people and as JSON for programs.

use super::machine::Machine;
use super::times::{Measured, Times};
use crate::{Error, Result};
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::Duration;

/// What a line should show. Subjects are named by their place in the line.
#[derive(Clone, Copy, Debug)]
pub enum Goal {
    /// The median of one is at most so many times another's.
    Ratio {
        /// The one.
        of: usize,
        /// The other.
        over: usize,
        /// How many times.
        most: f64,
    },
    /// The least median of all others is at most so many times one's.
    Best {
        /// The one.
        over: usize,
        /// How many times.
        most: f64,
    },
    /// The median of one is at most another's and a third's together.
    Sum {
        /// The one.
        of: usize,
        /// The others.
        over: [usize; 2],
    },
    /// The median of one is at most so long.
    Time {
        /// The one.
        of: usize,
        /// How long.
        most: Duration,
    },
}

impl Goal {
    /// What is compared, what of it was seen (as a number and in words), and the most that is allowed; `None` where a subject
    /// has no figures.
    fn seen(&self, line: &Line) -> Option<(String, f64, f64)> {
        let of = |at: usize| {
            let one = line.measured.get(at)?;
            one.times.as_ref().ok().map(|times| (one.name.as_str(), times.p50 as f64))
        };
        Some(match *self {
            Goal::Ratio { of: one, over, most } => {
                let ((one, mine), (other, theirs)) = (of(one)?, of(over)?);
                (format!("{one} ÷ {other}"), mine / theirs.max(1.0), most)
            }
            Goal::Best { over, most } => {
                let others = (0..line.measured.len()).filter(|&at| at != over).filter_map(of);
                let (one, mine) = others.min_by(|a, b| a.1.total_cmp(&b.1))?;
                let (other, theirs) = of(over)?;
                (format!("{one} ÷ {other}"), mine / theirs.max(1.0), most)
            }
            Goal::Sum { of: one, over: [first, second] } => {
                let ((one, mine), (first, a), (second, b)) = (of(one)?, of(first)?, of(second)?);
                (format!("{one} ÷ ({first} + {second})"), mine / (a + b).max(1.0), 1.0)
            }
            Goal::Time { of: one, most } => {
                let (one, mine) = of(one)?;
                (format!("{one}, µs"), mine / 1e3, most.as_secs_f64() * 1e6)
            }
        })
    }
}

/// A line of a table: things that took turns.
pub struct Line {
    /// What was done.
    pub what: String,
    /// Bytes that each round moves, where they are the same for all subjects.
    pub moved: Option<u64>,
    /// The subjects' figures.
    pub measured: Vec<Measured>,
    /// What they should show.
    pub goals: Vec<Goal>,
}

/// What a line says: the subjects' figures, and what they should show.
pub type Said = (Vec<Measured>, Vec<Goal>);

impl Line {
    /// A line, also where nothing could be measured: then it says why.
    pub fn new(what: String, moved: Option<u64>, said: Result<Said>) -> Self {
        let none = |why: Error| {
            let times = Err(why.to_string());
            (vec![Measured { name: "all".to_owned(), times }], Vec::new())
        };
        let (measured, goals) = said.unwrap_or_else(none);
        Line { what, moved, measured, goals }
    }

    /// Whether some subject has figures.
    pub fn has_figures(&self) -> bool {
        self.measured.iter().any(|one| one.times.is_ok())
    }

    fn cells(&self) -> String {
        let mut cells = String::new();
        for one in &self.measured {
            let cell = match &one.times {
                Ok(times) => figures(times, self.moved),
                Err(why) => format!("not measured: {}", why.replace('|', "/").replace('\n', " ")),
            };
            let _ = write!(cells, " {cell} |");
        }
        let seen = self.goals.iter().filter_map(|goal| goal.seen(self));
        let seen: Vec<String> = seen
            .map(|(what, saw, most)| {
                let met = if saw <= most { "met" } else { "missed" };
                format!("{what} {saw:.2}, at most {most:.2}: {met}")
            })
            .collect();
        let _ = write!(cells, " {} |", seen.join("; "));
        cells
    }

    fn json(&self) -> Value {
        let subject = |one: &Measured| match &one.times {
            Ok(Times { rounds, p50, p99 }) => {
                json!({"name": one.name, "rounds": rounds, "p50_ns": p50, "p99_ns": p99})
            }
            Err(why) => json!({"name": one.name, "why_not": why}),
        };
        let goal = |goal: &Goal| {
            let (what, saw, most) = goal.seen(self)?;
            Some(json!({"what": what, "saw": saw, "most": most, "met": saw <= most}))
        };
        json!({
            "what": self.what,
            "moved_bytes": self.moved,
            "subjects": self.measured.iter().map(subject).collect::<Vec<_>>(),
            "goals": self.goals.iter().filter_map(goal).collect::<Vec<_>>(),
        })
    }
}

/// Median and 99th percentile in microseconds; with the bytes moved, gigabytes (10⁹) a second by the median.
fn figures(times: &Times, moved: Option<u64>) -> String {
    let rate = moved.map(|bytes| format!(", {:.1} GB/s", bytes as f64 / times.p50.max(1) as f64));
    let micros = |nanoseconds: u64| format!("{:.2}", nanoseconds as f64 / 1e3);
    format!("{} / {}{}", micros(times.p50), micros(times.p99), rate.unwrap_or_default())
}

/// A part of the benchmark.
pub struct Section {
    /// Its name for options and programs.
    pub name: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// What the numbers are.
    pub about: &'static str,
    /// Its lines.
    pub lines: Vec<Line>,
}

impl Section {
    /// Tables: one for each run of lines with the same subjects.
    pub fn markdown(&self) -> String {
        let mut text = format!("## {}\n\n{}\n", self.title, self.about);
        let names = |line: &Line| -> Vec<String> {
            line.measured.iter().map(|one| one.name.clone()).collect()
        };
        for lines in self.lines.chunk_by(|a, b| names(a) == names(b)) {
            let heads = names(&lines[0]);
            let _ = writeln!(text, "\n| what | {} | goal |", heads.join(" | "));
            let _ = writeln!(text, "|---|{}---|", "---:|".repeat(heads.len()));
            for line in lines {
                let _ = writeln!(text, "| {} |{}", line.what, line.cells());
            }
        }
        text.push('\n');
        text
    }
}

/// All that was measured.
pub struct Page {
    device: String,
    backend: &'static str,
    simulated: bool,
    block_threads: u32,
    /// The parts.
    pub sections: Vec<Section>,
}

impl Page {
    /// Nothing yet, of a machine.
    pub fn new(machine: &Machine) -> Self {
        Page {
            device: machine.device.name().to_owned(),
            backend: machine.device.backend().name(),
            simulated: machine.simulated,
            block_threads: machine.threads,
            sections: Vec::new(),
        }
    }

    /// What stands above the tables.
    pub fn head(&self) -> String {
        let Page { device, backend, block_threads, .. } = self;
        let mut text = format!(
            "# Antiphon {} on one GPU\n\n- device: {device} ({backend})\n- threads of each block: {block_threads}\n- times in \
             µs: median / 99th percentile; what stands side by side took turns\n",
            env!("CARGO_PKG_VERSION")
        );
        if self.simulated {
            text.push_str("- THIS IS THE SIMULATED DRIVER, NOT A GPU: these times say nothing\n");
        }
        text.push('\n');
        text
    }

    /// The whole page.
    pub fn markdown(&self) -> String {
        let sections = self.sections.iter().map(Section::markdown);
        std::iter::once(self.head()).chain(sections).collect()
    }

    /// The same for programs.
    pub fn json(&self) -> String {
        let section = |section: &Section| {
            let lines: Vec<Value> = section.lines.iter().map(Line::json).collect();
            json!({"name": section.name, "lines": lines})
        };
        let page = json!({
            "antiphon": env!("CARGO_PKG_VERSION"),
            "device": self.device,
            "backend": self.backend,
            "simulated": self.simulated,
            "block_threads": self.block_threads,
            "sections": self.sections.iter().map(section).collect::<Vec<_>>(),
        });
        format!("{page:#}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(p50s: &[u64], goals: Vec<Goal>) -> Line {
        let measured = |(at, &p50): (usize, &u64)| Measured {
            name: ["one", "two", "three"][at].to_owned(),
            times: match p50 {
                0 => Err("no | such\nthing".to_owned()),
                p50 => Ok(Times { rounds: 1, p50, p99: p50 }),
            },
        };
        let measured = p50s.iter().enumerate().map(measured).collect();
        Line::new("it".into(), Some(4000), Ok((measured, goals)))
    }

    #[test]
    fn a_line_that_nothing_was_measured_of_says_why() {
        let line = Line::new("it".into(), None, Err(Error::message("no such device")));
        assert!(!line.has_figures() && self::line(&[0, 1], vec![]).has_figures());
        assert_eq!(line.cells(), " not measured: no such device |  |");
    }

    #[test]
    fn goals_are_judged_by_medians_and_need_all_their_subjects() {
        let ratio = Goal::Ratio { of: 0, over: 1, most: 1.5 };
        let sum = Goal::Sum { of: 2, over: [0, 1] };
        let time = Goal::Time { of: 0, most: Duration::from_micros(3) };
        let cells = line(&[2000, 1000, 3001], vec![ratio, sum, time]).cells();
        for part in [
            "2.00 / 2.00, 2.0 GB/s",
            "one ÷ two 2.00, at most 1.50: missed",
            "three ÷ (one + two) 1.00, at most 1.00: missed",
            "one, µs 2.00, at most 3.00: met",
        ] {
            assert!(cells.contains(part), "{part}: {cells}");
        }
        let best = Goal::Best { over: 0, most: 0.5 };
        let cells = line(&[2000, 0, 1000], vec![best]).cells();
        assert!(cells.contains("three ÷ one 0.50, at most 0.50: met"), "{cells}");
        let cells = line(&[2000, 0], vec![ratio, time]).cells();
        assert!(cells.contains("not measured: no / such thing"), "{cells}");
        assert!(!cells.contains('÷') && cells.contains("3.00: met"), "{cells}");
        let json = line(&[2000, 0], vec![ratio]).json();
        assert_eq!(json["goals"].as_array().map(Vec::len), Some(0));
        assert_eq!(json["subjects"][1]["why_not"], "no | such\nthing");
        assert_eq!(json["subjects"][0]["p50_ns"], 2000);
    }

    #[test]
    fn lines_of_other_subjects_are_another_table() {
        let lines = vec![line(&[1], vec![]), line(&[2], vec![]), line(&[1, 2], vec![])];
        let section = Section { name: "n", title: "T", about: "About.", lines };
        let text = section.markdown();
        assert_eq!(text.matches("| what |").count(), 2, "{text}");
        assert!(text.starts_with("## T\n\nAbout.\n\n| what | one | goal |\n|---|---:|---|\n"));
    }
}
