//! The tables: every subject's times, the best peer, and ratios to it and to the floor.

use std::fmt::Write;

use super::job::Place;
use super::probe::Distance;
use super::results::{Key, Results, Times};

/// A column's subject.
#[derive(Clone, Debug)]
pub struct Column {
    /// Its name, as results have it.
    pub name: String,
    /// Whether it counts as a peer.
    pub peer: bool,
}

const FLOOR: &str = "floor";

/// A table per number of ranks, collective and place of what was measured at `distance`.
pub fn tables(results: &Results, columns: &[Column], distance: Distance) -> String {
    let view = View { results, distance };
    let mut text = String::new();
    let has = |c: &Column, key: &Key| view.times(key, &c.name).is_some();
    let keys: Vec<Key> = results.keys().filter(|k| columns.iter().any(|c| has(c, k))).collect();
    for keys in keys.chunk_by(|a, b| Key { bytes: 0, ..*a } == Key { bytes: 0, ..*b }) {
        let Key { ranks, collective, place, .. } = keys[0];
        let columns: Vec<&Column> =
            columns.iter().filter(|c| keys.iter().any(|k| has(c, k))).collect();
        let _ = writeln!(text, "### {collective}, {ranks} ranks, {}\n", of(place));
        text += &table(&view, keys, &columns);
    }
    text
}

fn of(place: Place) -> &'static str {
    match place {
        Place::Out => "out of place",
        Place::In => "in place",
    }
}

struct View<'a> {
    results: &'a Results,
    distance: Distance,
}

impl View<'_> {
    fn times(&self, key: &Key, subject: &str) -> Option<Times> {
        self.results.median(key, subject, self.distance)
    }
}

fn table(view: &View<'_>, keys: &[Key], columns: &[&Column]) -> String {
    let ours: Vec<&str> = columns.iter().filter(|c| !c.peer).map(|c| c.name.as_str()).collect();
    let mut head = vec!["bytes".to_owned(), "n".to_owned()];
    head.extend(columns.iter().map(|c| format!("{} p50 / p99 (with read)", c.name)));
    head.push("best peer".into());
    for name in &ours {
        head.push(format!("{name} ÷ best, p50 (p99)"));
        if *name != FLOOR && ours.contains(&FLOOR) {
            head.push(format!("{name} ÷ floor"));
        }
    }
    let mut text = row(&head);
    text += &row(&vec!["---:".to_owned(); head.len()]);
    for key in keys {
        text += &row(&cells(view, key, columns, &ours));
    }
    text.push('\n');
    text
}

fn cells(view: &View<'_>, key: &Key, columns: &[&Column], ours: &[&str]) -> Vec<String> {
    let times = |name: &str| view.times(key, name);
    let fewest = columns.iter().filter_map(|c| times(&c.name)).map(|t| t.iterations).min();
    let mut cells = vec![size(key.bytes), fewest.unwrap_or(0).to_string()];
    cells.extend(columns.iter().map(|c| times(&c.name).map_or("–".into(), |t| figures(&t))));
    let peers = columns.iter().filter(|c| c.peer).filter_map(|c| Some((c, times(&c.name)?)));
    let peers: Vec<_> = peers.collect();
    let best = peers.iter().min_by_key(|(_, t)| t.p50);
    // Each percentile is held against the peer that is best at it.
    let best_p99 = peers.iter().map(|(_, t)| t.p99).min();
    cells.push(best.map_or("–".into(), |(c, _)| c.name.clone()));
    for name in ours {
        let mine = times(name);
        cells.push(match (mine, best, best_p99) {
            (Some(t), Some((_, b)), Some(p99)) => {
                format!("{} ({})", ratio(t.p50, b.p50), ratio(t.p99, p99))
            }
            _ => "–".into(),
        });
        if *name != FLOOR && ours.contains(&FLOOR) {
            let pair = mine.zip(times(FLOOR));
            cells.push(pair.map_or("–".into(), |(t, f)| ratio(t.p50, f.p50)));
        }
    }
    cells
}

fn row(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

fn figures(times: &Times) -> String {
    let Times { p50, p99, read_p50, .. } = *times;
    format!("{} / {} ({})", micros(p50), micros(p99), micros(read_p50))
}

/// Microseconds with three significant figures, as far as there are any.
fn micros(ns: u64) -> String {
    let us = ns as f64 / 1000.0;
    match us {
        ..10.0 => format!("{us:.2}"),
        10.0..100.0 => format!("{us:.1}"),
        _ => format!("{us:.0}"),
    }
}

fn ratio(mine: u64, other: u64) -> String {
    format!("{:.2}", mine as f64 / other.max(1) as f64)
}

/// A size as people write it.
pub fn size(bytes: usize) -> String {
    for (shift, unit) in [(30, "G"), (20, "M"), (10, "K")] {
        if bytes >= 1 << shift && bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// Reads a size as [`size`] writes it.
pub fn parse_size(text: &str) -> Result<usize, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'G' | b'g') => (&text[..text.len() - 1], 30),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 20),
        Some(b'K' | b'k') => (&text[..text.len() - 1], 10),
        _ => (text, 0),
    };
    let bytes = digits.parse::<usize>().ok().and_then(|n| n.checked_mul(1 << shift));
    match bytes {
        Some(bytes) if bytes > 0 && bytes.is_multiple_of(4) && bytes < 1 << 31 => Ok(bytes),
        _ => Err(format!(
            "cannot use size `{text}`: allowed multiples of 4 below 2G, as 4, 16K or 1M"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::job::Collective;
    use super::*;

    fn results() -> Results {
        let key =
            Key { ranks: 2, collective: Collective::Allreduce, place: Place::Out, bytes: 1024 };
        let times =
            |p50, p99| Times { iterations: 2000, p50, p99, read_p50: p50 + 50, read_p99: p99 };
        let mut results = Results::default();
        results.add(FLOOR, key, times(500, 600), [50; 2]);
        results.add("openmpi", key, times(1000, 4000), [50; 2]);
        results.add("gloo", key, times(60_000, 2000), [50; 2]);
        results.add("antiphon-own", key, times(600, 1000), [50; 2]);
        results
    }

    fn column(name: &str, peer: bool) -> Column {
        Column { name: name.into(), peer }
    }

    #[test]
    fn ratios_are_to_the_best_peer_of_each_percentile() {
        let columns = [
            column(FLOOR, false),
            column("openmpi", true),
            column("mpich", true),
            column("gloo", true),
            column("antiphon-own", false),
        ];
        let text = tables(&results(), &columns, Distance::Near);
        assert!(
            text.starts_with("### allreduce, 2 ranks, out of place\n\n| bytes | n | floor"),
            "{text}"
        );
        assert!(!text.contains("mpich"), "a subject without results has no column: {text}");
        let row = "| 1K | 2000 | 0.50 / 0.60 (0.55) | 1.00 / 4.00 (1.05) | 60.0 / 2.00 (60.0) \
                   | 0.60 / 1.00 (0.65) | openmpi | 0.50 (0.30) | 0.60 (0.50) | 1.20 |";
        assert!(text.contains(row), "{text}");
        assert_eq!(tables(&results(), &columns, Distance::Far), "");
        let widths: Vec<usize> =
            text.lines().filter(|l| l.starts_with('|')).map(|l| l.matches('|').count()).collect();
        assert!(widths.windows(2).all(|w| w[0] == w[1]), "{widths:?}");
    }

    #[test]
    fn without_peers_there_is_no_ratio() {
        let text = tables(&results(), &[column(FLOOR, false)], Distance::Near);
        assert!(text.contains("| 1K | 2000 | 0.50 / 0.60 (0.55) | – | – |"), "{text}");
    }

    #[test]
    fn sizes_are_read_and_written() {
        for (text, bytes) in [("4", 4), ("16K", 16 << 10), ("1M", 1 << 20), ("1G", 1 << 30)] {
            assert_eq!(parse_size(text), Ok(bytes));
            assert_eq!(size(bytes), text);
        }
        for text in ["", "K", "3", "0", "2G", "-4", "99999999999999999999G", "é"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
