//! The rule by size held against a tuning table: where another algorithm than the rule's is faster, and how much.

use std::fs;
use std::path::Path;

use antiphon::executor::selection::table::{Setting, Table, Times};
use antiphon::plan::algorithms::{Handshake, Shape, select};

use crate::bench::report::size;
use crate::{Error, Result, section};

/// Where the result is.
const DOCUMENT: &str = "docs/algorithms.md";
/// What its marks are named.
const NAME: &str = "measured defaults";
/// How many times as long as the fastest the rule's choice may take, and count as right.
const ENOUGH: f64 = 1.1;

/// Writes into the manual how the rule does by a table of `antiphon tune`.
///
/// # Errors
/// A table or manual that cannot be read, or written.
pub fn run(path: &Path) -> Result<()> {
    let text = fs::read_to_string(path).map_err(Error::io(format!("read {}", path.display())))?;
    let table = Table::parse(&text).map_err(|error| Error::message(error.to_string()))?;
    section::write(Path::new(DOCUMENT), NAME, &page(&table))
}

/// The result, as text of the manual.
fn page(table: &Table) -> String {
    let cores = table.machine().cores;
    let mut page = format!("By `antiphon tune` on {}.\n\n", table.machine());
    page.push_str("| calls | sizes | right | where another is faster |\n|---|---|---|---|");
    for (setting, sizes) in table.iter() {
        let Setting { collective, ranks, nodes, kind, in_place } = setting;
        let place = if *in_place { "in place" } else { "out of place" };
        let judged: Vec<_> = sizes
            .iter()
            .filter_map(|(&bytes, times)| Some((bytes, judge(setting, cores, bytes, times)?)))
            .collect();
        if judged.is_empty() {
            continue;
        }
        let slow: Vec<String> = judged
            .iter()
            .filter(|(_, (ratio, _))| *ratio > ENOUGH)
            .map(|(bytes, (ratio, best))| {
                format!("{}: `{best}`, {ratio:.2}", size(*bytes as usize))
            })
            .collect();
        let (all, right) = (judged.len(), judged.len() - slow.len());
        let slow = slow.join("; ");
        page.push_str(&format!(
            "\n| {collective}, {ranks} ranks, {nodes} nodes, {kind}, {place} | {all} | {right} | {slow} |"
        ));
    }
    page.push('\n');
    page
}

/// How many times as long as the fastest the rule's choice takes, and who is the fastest; none where the rule's was not
/// measured, or there is no rule.
fn judge(setting: &Setting, cores: u32, bytes: u64, times: &Times) -> Option<(f64, String)> {
    let handshake = if setting.ranks > cores { Handshake::Hub } else { Handshake::Everyone };
    let shape =
        Shape { nodes: setting.nodes as usize, handshake, ..Shape::new(setting.ranks as usize) };
    let chosen = select(&setting.collective, bytes, shape)?;
    let taken = times.of(chosen.algorithm.name())?;
    // What is installed or given is nothing that the rule could choose.
    let built_in = |name: &str| name.parse::<antiphon::plan::algorithms::Algorithm>().is_ok();
    let best = times.best(built_in)?;
    let least = times.of(best)?;
    Some((taken as f64 / least.max(1) as f64, best.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon::executor::selection::table::{Kind, Machine};
    use antiphon::plan::model::Collective;

    #[test]
    fn sizes_at_which_another_is_faster_are_told_with_the_ratio() {
        let mut table = Table::new(Machine { cpu: "an abacus".into(), cores: 2 });
        let setting = |collective| Setting {
            collective,
            ranks: 2,
            nodes: 1,
            kind: Kind::Processes,
            in_place: false,
        };
        let times = |all: &[(&str, u64)]| {
            Times::new(all.iter().map(|&(name, time)| (name.to_owned(), time)))
        };
        let (zero_copy, packets) = ("allgather_zero_copy", "allgather_packets");
        let all_gather = setting(Collective::AllGather);
        for (bytes, times) in [
            (1024, times(&[(packets, 10), (zero_copy, 20)])),
            (4096, times(&[(packets, 30), (zero_copy, 20), ("mine", 1)])),
            (1 << 20, times(&[(packets, 20), (zero_copy, 21)])),
            // Of what the rule takes nothing is known.
            (1 << 24, times(&[(packets, 20)])),
        ] {
            table.record(&all_gather, bytes, times);
        }
        table.record(&setting(Collective::AllToAllV), 64, times(&[("alltoallv_zero_copy", 1)]));
        let page = page(&table);
        assert!(page.starts_with("By `antiphon tune` on an abacus with 2 usable cores."), "{page}");
        let row = "| allgather, 2 ranks, 1 nodes, processes, out of place | 3 | 2 | 4K: `allgather_zero_copy`, 1.50 |";
        assert_eq!(page.lines().skip(4).collect::<Vec<_>>(), [row], "{page}");
    }
}
