//! `cargo xtask defaults`: which built-in algorithm serves which sizes by the rule, as a table of the manual; and what the
//! rule goes by.

pub mod measured;
pub mod predicted;

use std::path::Path;

use antiphon::plan::algorithms::{Algorithm, Handshake, Shape, select};
use antiphon::plan::model::Collective;

use crate::bench::report::size;
use crate::{Result, section};

/// Where the table is.
const DOCUMENT: &str = "docs/algorithms.md";
/// What its marks are named.
const NAME: &str = "defaults";
/// Messages of so many bytes, and any longer, are served alike.
const LARGE: u64 = 1 << 40;

/// Writes the table into the manual.
///
/// # Errors
/// A manual that cannot be read or written.
pub fn run() -> Result<()> {
    section::write(Path::new(DOCUMENT), NAME, &table())
}

/// The ranks that the columns are for.
fn columns() -> [(&'static str, Shape); 5] {
    let shared = |shape| Shape { handshake: Handshake::Hub, ..shape };
    let nodes = Shape { nodes: 2, ..Shape::new(8) };
    [
        ("2 ranks", Shape::new(2)),
        ("8 ranks", Shape::new(8)),
        ("8 ranks that share cores", shared(Shape::new(8))),
        ("2 nodes of 4 ranks", nodes),
        ("2 nodes of 4 that share cores", shared(nodes)),
    ]
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

/// The table.
fn table() -> String {
    let columns = columns();
    let mut table = String::from("| |");
    columns.iter().for_each(|(name, _)| table.push_str(&format!(" {name} |")));
    table.push_str("\n|---|");
    columns.iter().for_each(|_| table.push_str("---|"));
    for collective in collectives() {
        table.push_str(&format!("\n| {collective} |"));
        for (_, shape) in columns {
            table.push_str(&format!(" {} |", cell(&collective, shape)));
        }
    }
    table.push('\n');
    table
}

/// Who serves which sizes, from the smallest on.
fn cell(collective: &Collective, shape: Shape) -> String {
    let of = |bytes| select(collective, bytes, shape).map(|choice| choice.algorithm);
    let Some(mut serves) = of(0) else { return "none".to_owned() };
    let mut parts = Vec::new();
    let mut from = 0;
    while let Some(last) = last(&of, from) {
        parts.push(format!("to {} `{serves}`", size(last as usize)));
        from = last + 1;
        let Some(next) = of(from) else { break };
        serves = next;
    }
    parts.push(if parts.is_empty() { format!("`{serves}`") } else { format!("then `{serves}`") });
    parts.join("; ")
}

/// The largest message that is served as one of `from` bytes is, if any larger one is not. Sizes that differ by less than
/// twice are taken to be served by two algorithms at most.
fn last(of: &impl Fn(u64) -> Option<Algorithm>, from: u64) -> Option<u64> {
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
    fn sizes_are_those_at_which_the_rule_changes() {
        let collective = Collective::AllReduce;
        for (_, shape) in columns() {
            let of = |bytes| select(&collective, bytes, shape).map(|choice| choice.algorithm);
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
