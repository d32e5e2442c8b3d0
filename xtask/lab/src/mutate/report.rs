//! The report: a row for every kind, and every mutant about which the judges disagree.

use super::choose::Mutant;
use super::judge::{Judgement, Replay, Said};
use super::kinds::KINDS;
use antiphon::plan::verify::Fault;
use serde_json::{Value, json};
use std::fmt::Write;

/// The counts of one kind, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Mutants that were run.
    pub mutants: usize,
    /// Changed plans that were refused before.
    pub refused: usize,
    /// Those of which nothing shows a fault.
    pub equivalent: usize,
    /// Those of which some schedule shows a fault.
    pub shown: usize,
    /// Those that the verifier refutes.
    pub flagged: usize,
    /// Flagged ones of which neither a schedule nor a counterexample shows anything.
    pub false_alarms: usize,
    /// Flagged ones whose race happens, without a difference in any byte.
    pub silent_races: usize,
    /// Those that the verifier neither proves nor refutes.
    pub not_proven: usize,
    /// Counterexamples.
    pub refutations: usize,
    /// Counterexamples that show nothing when played.
    pub unconfirmed: usize,
    /// Those that are proven although a schedule shows a fault.
    pub missed: usize,
    /// Those that some schedule shows a fault of, and the verifier neither refutes nor proves.
    pub unnoticed: usize,
    /// Those of which the schedules show a fault between launches, which the verifier notes.
    pub noted: usize,
    /// Those on which a judge broke down.
    pub broken: usize,
}

impl Row {
    fn add(&mut self, judgement: &Judgement) {
        let concluded = judgement.conclusion();
        let (refutations, unconfirmed) = judgement.refutations();
        self.mutants += 1;
        self.refutations += refutations;
        self.unconfirmed += unconfirmed;
        for (count, holds) in [
            (&mut self.equivalent, concluded.equivalent()),
            (&mut self.shown, concluded.shows),
            (&mut self.flagged, concluded.flagged),
            (&mut self.false_alarms, concluded.false_alarm()),
            (&mut self.silent_races, concluded.silent_race()),
            (&mut self.not_proven, concluded.not_proven),
            (&mut self.missed, concluded.missed()),
            (&mut self.unnoticed, concluded.unnoticed() && !concluded.missed()),
            (&mut self.noted, concluded.shows && concluded.noted),
            (&mut self.broken, !judgement.broken.is_empty()),
        ] {
            *count += usize::from(holds);
        }
    }

    fn sum(rows: &[Row]) -> Row {
        let mut sum = Row::default();
        for row in rows {
            let mut row = *row;
            for (total, count) in sum.cells_mut().into_iter().zip(row.cells_mut()) {
                *total += *count;
            }
        }
        sum
    }

    fn cells_mut(&mut self) -> [&mut usize; 14] {
        [
            &mut self.mutants,
            &mut self.refused,
            &mut self.equivalent,
            &mut self.shown,
            &mut self.flagged,
            &mut self.missed,
            &mut self.unnoticed,
            &mut self.noted,
            &mut self.not_proven,
            &mut self.false_alarms,
            &mut self.silent_races,
            &mut self.refutations,
            &mut self.unconfirmed,
            &mut self.broken,
        ]
    }

    /// What keeps this from being a good verifier, in words.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut fault = |count: usize, what: &str| {
            if count > 0 {
                faults.push(format!("{count} {what}"));
            }
        };
        fault(self.missed, "mutants are proven although a schedule shows a fault");
        fault(self.unnoticed, "mutants are not proven although a schedule shows a fault");
        fault(self.false_alarms, "mutants are refuted although nothing shows a fault");
        fault(self.broken, "mutants are too much for a judge");
        if self.unconfirmed * 100 > self.refutations {
            let (of, all) = (self.unconfirmed, self.refutations);
            faults.push(format!("{of} of {all} counterexamples show nothing, allowed 1 in 100"));
        }
        faults
    }
}

/// Titles of the cells, in the order of `Row::cells_mut`, all but the last, which is a fault of the measurement.
const TITLES: [&str; 13] = [
    "mutants",
    "refused",
    "equivalent",
    "shown",
    "flagged",
    "missed",
    "shown, not proven",
    "noted",
    "not proven",
    "false alarms",
    "silent races",
    "counter-examples",
    "show nothing",
];

/// All that was found.
pub struct Summary<'a> {
    /// The mutants.
    pub mutants: &'a [Mutant],
    /// What the judges say of each.
    pub judgements: &'a [Judgement],
    /// Changed plans that were refused, by kind.
    pub refused: &'a [usize],
    /// Kinds that were asked for.
    pub kinds: Vec<usize>,
    /// What the choices were drawn from.
    pub seed: u64,
    /// Schedules of each mutant.
    pub schedules: u32,
    /// Number of plans that mutants were made of.
    pub plans: usize,
}

impl Summary<'_> {
    /// The rows of the kinds that were asked for.
    pub fn rows(&self) -> Vec<(usize, Row)> {
        let mut rows = vec![Row::default(); KINDS.len()];
        for (row, &refused) in rows.iter_mut().zip(self.refused) {
            row.refused = refused;
        }
        for (mutant, judgement) in self.mutants.iter().zip(self.judgements) {
            rows[mutant.kind].add(judgement);
        }
        self.kinds.iter().map(|&kind| (kind, rows[kind])).collect()
    }

    /// All rows together.
    pub fn total(&self) -> Row {
        Row::sum(&self.rows().into_iter().map(|(_, row)| row).collect::<Vec<_>>())
    }

    /// The table, as Markdown.
    pub fn table(&self) -> String {
        let mut text = format!(
            "{} mutants of {} plans, {} schedules each, seed {}:\n\n| kind | what is wrong |",
            self.mutants.len(),
            self.plans,
            self.schedules,
            self.seed
        );
        TITLES.iter().for_each(|title| text += &format!(" {title} |"));
        text += "\n|---|---|";
        TITLES.iter().for_each(|_| text += "---:|");
        text.push('\n');
        let mut line = |name: &str, what: &str, mut row: Row| {
            text += &format!("| {name} | {what} |");
            row.cells_mut()[..TITLES.len()].iter().for_each(|cell| text += &format!(" {cell} |"));
            text.push('\n');
        };
        for (kind, row) in self.rows() {
            line(&format!("`{}`", KINDS[kind].name), KINDS[kind].what, row);
        }
        line("all", "", self.total());
        text
    }

    /// Every mutant about which something is odd, one a line, with how to look at it.
    pub fn oddities(&self) -> Vec<String> {
        let all = self.mutants.iter().zip(self.judgements);
        all.filter_map(|(mutant, judgement)| {
            let odd = oddity(judgement)?;
            let Mutant { kind, number, base, what, .. } = mutant;
            Some(format!("{}:{number} {odd}: {base}: {what}", KINDS[*kind].name))
        })
        .collect()
    }

    /// Counterexamples that show nothing, by what they say goes wrong.
    pub fn unconfirmed(&self) -> String {
        let [mut deadlocks, mut races, mut wrong] = [0; 3];
        for judgement in self.judgements {
            let Said::Refuted(all) = &judgement.said else { continue };
            for (refutation, _) in all.iter().filter(|(_, replay)| *replay == Replay::Nothing) {
                *match refutation.fault {
                    Fault::Deadlock { .. } => &mut deadlocks,
                    Fault::Race { .. } => &mut races,
                    Fault::Wrong { .. } => &mut wrong,
                } += 1;
            }
        }
        format!("show nothing: {deadlocks} deadlocks, {races} races, {wrong} wrong results")
    }

    /// The same as data.
    pub fn json(&self) -> Value {
        let row = |mut row: Row| {
            let names = TITLES.iter().copied().chain(["broken"]);
            let cells = row.cells_mut().map(|cell| *cell);
            names
                .zip(cells)
                .map(|(n, c)| (n.to_owned(), json!(c)))
                .collect::<serde_json::Map<_, _>>()
        };
        let kind = |(kind, counts): (usize, Row)| {
            let mut object = row(counts);
            object.insert("kind".to_owned(), json!(KINDS[kind].name));
            Value::Object(object)
        };
        let kinds: Vec<_> = self.rows().into_iter().map(kind).collect();
        json!({
            "seed": self.seed,
            "schedules": self.schedules,
            "plans": self.plans,
            "kinds": kinds,
            "all": row(self.total()),
            "odd": self.oddities(),
        })
    }
}

/// What is odd about what the judges say, if something is.
fn oddity(judgement: &Judgement) -> Option<String> {
    let concluded = judgement.conclusion();
    let (refutations, unconfirmed) = judgement.refutations();
    let mut odd = String::new();
    let mut say = |holds: bool, what: &str| {
        if holds {
            let comma = if odd.is_empty() { "" } else { ", " };
            let _ = write!(odd, "{comma}{what}");
        }
    };
    say(concluded.missed(), "missed");
    say(concluded.shows && concluded.not_proven, "shown and not proven");
    say(concluded.false_alarm(), "false alarm");
    say(concluded.silent_race(), "silent race");
    say(
        concluded.replay != Replay::Nothing && unconfirmed > 0,
        &format!("{unconfirmed} of {refutations} counterexamples show nothing"),
    );
    say(
        concluded.shows && concluded.flagged && concluded.replay == Replay::Nothing,
        "a schedule shows a fault, the counterexamples none",
    );
    say(!judgement.broken.is_empty(), &judgement.broken.join("; "));
    (!odd.is_empty()).then_some(odd)
}
