//! `cargo xtask defaults`: which built-in algorithm serves which sizes by the rule, as tables of the manual; and what the
//! rule goes by.

pub mod derived;
pub mod host;
pub mod measured;
mod named;
pub mod predicted;
pub mod presets;

use std::path::Path;

use antiphon::executor::selection::{Devices, Spread, Wish, select};
use antiphon::plan::algorithms::hosts::{self, Place};
use antiphon::plan::algorithms::{Algorithm, Handshake, Shape};
use antiphon::plan::model::Collective;

use crate::bench::report::size;
use crate::{Result, section};

/// Where the tables are.
const DOCUMENT: &str = "docs/algorithms.md";
/// What the marks of the one by collective are named.
const NAME: &str = "defaults";
/// Messages of so many bytes, and any longer, are served alike.
const LARGE: u64 = 1 << 40;

/// Writes the tables into the manual: by collective, and by name.
///
/// # Errors
/// A manual that cannot be read or written.
pub fn run() -> Result<()> {
    section::write(Path::new(DOCUMENT), NAME, &table())?;
    section::write(Path::new(DOCUMENT), named::NAME, &named::tables())
}

/// The ranks that the columns are for.
fn columns() -> [(&'static str, Spread); 8] {
    let own = |ranks, nodes| Spread { ranks, nodes, crowded: false, devices: Devices::Host };
    let shared = |ranks, nodes| Spread { crowded: true, ..own(ranks, nodes) };
    [
        ("2 ranks", own(2, 1)),
        ("4 ranks", own(4, 1)),
        ("8 ranks", own(8, 1)),
        ("4 ranks that share cores", shared(4, 1)),
        ("8 ranks that share cores", shared(8, 1)),
        ("2 nodes of 1 rank", own(2, 2)),
        ("2 nodes of 4 ranks", own(8, 2)),
        ("2 nodes of 2 that share cores", shared(4, 2)),
    ]
}

/// An entry of a table that a choice reads, as source: what it is for, and of each step the largest message and the rest.
fn entry(head: &str, steps: impl IntoIterator<Item = (u64, String)>) -> String {
    /// Characters of a line.
    const WIDTH: usize = 110;
    let (mut text, mut line) = (String::new(), format!("    {head}, &["));
    let mut steps = steps.into_iter().peekable();
    while let Some((up_to, what)) = steps.next() {
        let up_to = if up_to == u64::MAX { "ALL".to_owned() } else { up_to.to_string() };
        let comma = if steps.peek().is_some() { "," } else { "" };
        let step = format!("to({up_to}, {what}){comma}");
        if line.len() + step.len() > WIDTH {
            text.push_str(&format!("{}\n", line.trim_end()));
            line = " ".repeat(7);
        }
        let space = if line.ends_with('[') { "" } else { " " };
        line.push_str(&format!("{space}{step}"));
    }
    text + &format!("{line}]),\n")
}

/// The collectives, in the order of the algorithms.
fn collectives() -> Vec<Collective> {
    let mut all: Vec<Collective> = Vec::new();
    for algorithm in Algorithm::ALL {
        let collective = algorithm.collective();
        if !all.contains(&collective) {
            all.push(collective);
        }
    }
    all
}

/// What is served by plans of [`Rooted`](antiphon::plan::algorithms::Rooted).
const ROOTED: [Collective; 2] = [Collective::Gather, Collective::Scatter];

/// As [`collectives`]; then those that are served by what is beside [`Algorithm`].
fn served() -> Vec<Collective> {
    let mut all = collectives();
    all.extend(ROOTED);
    all.extend([Collective::AllToAllV, Collective::AllGatherV]);
    all
}

/// The table.
fn table() -> String {
    let columns = columns();
    let mut table = String::from("| |");
    columns.iter().for_each(|(name, _)| table.push_str(&format!(" {name} |")));
    table.push_str("\n|---|");
    columns.iter().for_each(|_| table.push_str("---|"));
    for collective in served() {
        table.push_str(&format!("\n| {collective} |"));
        for (_, spread) in columns {
            table.push_str(&format!(" {} |", cell(&collective, spread)));
        }
    }
    table.push('\n');
    table
}

/// Who serves which sizes, from the smallest on, and whether that is but predicted.
fn cell(collective: &Collective, spread: Spread) -> String {
    let steps = steps(collective, spread);
    if steps.is_empty() {
        return "transfers".to_owned();
    }
    let part = |(up_to, serves): &(u64, &str)| match *up_to {
        u64::MAX if steps.len() == 1 => format!("`{serves}`"),
        u64::MAX => format!("then `{serves}`"),
        up_to => format!("to {} `{serves}`", size(up_to as usize)),
    };
    let serves = steps.iter().map(part).collect::<Vec<_>>().join("; ");
    if is_predicted(collective, spread) { format!("*{serves}*") } else { serves }
}

/// Whether the rule for such ranks is but predicted, or that of others that were measured.
fn is_predicted(collective: &Collective, spread: Spread) -> bool {
    let handshake = if spread.crowded { Handshake::Hub } else { Handshake::Everyone };
    let nodes = spread.nodes as usize;
    let place = Place::of(Shape { nodes, handshake, ..Shape::new(spread.ranks as usize) });
    match collective {
        Collective::Gather | Collective::Scatter => {
            let rule = hosts::rule_rooted(collective, place);
            rule.is_none_or(|rule| rule.place != place || hosts::predicted_rooted().contains(rule))
        }
        _ => hosts::rule(collective, place).is_some_and(|rule| hosts::predicted().contains(rule)),
    }
}

/// What serves a call by the rule; none where nothing is built in.
fn serves(collective: &Collective, bytes: u64, spread: Spread) -> Option<&'static str> {
    let wish = Wish { collective, bytes, in_place: false, root: 0 };
    select(spread, wish).ok().map(|selected| selected.name())
}

/// Who serves which sizes, from the smallest on; none where nothing is built in.
fn steps(collective: &Collective, spread: Spread) -> named::Steps {
    let of = |bytes| serves(collective, bytes, spread);
    let mut steps = Vec::new();
    let mut from = Some(0);
    while let Some((bytes, serves)) = from.and_then(|bytes| Some((bytes, of(bytes)?))) {
        let last = last(&of, bytes);
        steps.push((last.unwrap_or(u64::MAX), serves));
        from = last.map(|last| last + 1);
    }
    steps
}

/// The largest message that is served as one of `from` bytes is, if any larger one is not. Sizes that differ by less than
/// twice are taken to be served by two algorithms at most.
fn last(of: &impl Fn(u64) -> Option<&'static str>, from: u64) -> Option<u64> {
    let serves = of(from);
    let (mut same, mut other) = (from, from.max(1));
    while of(other) == serves {
        if other >= LARGE {
            return None;
        }
        same = other;
        other *= 2;
    }
    while same + 1 < other {
        let middle = same + (other - same) / 2;
        if of(middle) == serves { same = middle } else { other = middle }
    }
    Some(same)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_has_the_table() {
        let written = section::read(Path::new(DOCUMENT), NAME).unwrap();
        assert_eq!(written.trim(), table().trim(), "run `cargo xtask defaults`");
    }

    #[test]
    fn an_entry_is_as_many_lines_as_it_takes() {
        let short = entry("of(1, AllReduce", [(16, "A".into()), (u64::MAX, "B".into())]);
        assert_eq!(short, "    of(1, AllReduce, &[to(16, A), to(ALL, B)]),\n");
        let name = "AnAlgorithmWithALongNameThatFillsLines";
        let long = entry("of(1, AllReduce", (1..4).map(|size| (size, name.to_owned())));
        let lines = [
            format!("    of(1, AllReduce, &[to(1, {name}),"),
            format!("        to(2, {name}), to(3, {name})]),\n"),
        ];
        assert_eq!(long, lines.join("\n"));
    }

    #[test]
    fn sizes_are_those_at_which_the_rule_changes() {
        let collective = Collective::AllReduce;
        for (_, spread) in columns() {
            let of = |bytes| serves(&collective, bytes, spread);
            let mut from = 0;
            while let Some(last) = last(&of, from) {
                assert_eq!(of(from), of(last));
                assert_ne!(of(last), of(last + 1), "{last}");
                from = last + 1;
            }
            assert_eq!(of(from), of(LARGE));
        }
    }
}
