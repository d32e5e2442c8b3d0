//! Choices held against a tuning table: where another algorithm than the chosen one is faster, and how much. Of the rule by size,
//! and of another table, made at another time or at sizes between.

use std::fs;
use std::path::{Path, PathBuf};

use antiphon::executor::selection::table::{Setting, Table, Times};
use antiphon::executor::selection::{Devices, Spread, Wish, candidates};

use crate::bench::report::size;
use crate::{Error, Result, section};

/// Where the result for the rule is, and what its marks are named.
const RULE: (&str, &str) = ("docs/algorithms.md", "measured defaults");
/// The same for a table.
const TUNED: (&str, &str) = ("docs/performance.md", "tuned choices");
/// How many times as long as the fastest a choice may take, and count as right.
const ENOUGH: f64 = 1.1;

/// Writes into the manual how the rule does by tables of `antiphon tune`, or, where `tuned` names one, how that table's choices
/// do.
///
/// # Errors
/// A table or manual that cannot be read, or written.
pub fn run(paths: &[PathBuf], tuned: Option<&Path>) -> Result<()> {
    let tuned = tuned.map(read).transpose()?;
    let mut pages = Vec::new();
    for path in paths {
        let table = read(path)?;
        pages.push(match &tuned {
            Some(tuned) => page(&table, by_table(tuned)),
            None => page(&table, by_rule(table.machine().cores)),
        });
    }
    let (document, name) = if tuned.is_some() { TUNED } else { RULE };
    section::write(Path::new(document), name, &pages.join("\n"))
}

/// Reads a table of `antiphon tune`.
pub(super) fn read(path: &Path) -> Result<Table> {
    let text = fs::read_to_string(path).map_err(Error::io(format!("read {}", path.display())))?;
    Table::parse(&text).map_err(|error| Error::message(error.to_string()))
}

/// What the rule by size chooses.
fn by_rule(cores: u32) -> impl Fn(&Setting, u64, &Times) -> Option<Judged> {
    move |setting, bytes, times| {
        let Setting { ref collective, ranks, nodes, .. } = *setting;
        let spread = Spread { ranks, nodes, crowded: ranks > cores, devices: Devices::Host };
        let wish = Wish { collective, bytes, in_place: false, root: 0 };
        // What is installed or given is nothing that the rule could choose.
        let built_in = candidates(spread, wish).ok()?;
        let chosen = built_in.first()?.name();
        judge(chosen, times, |name| built_in.iter().any(|one| one.name() == name))
    }
}

/// What a table chooses.
fn by_table(table: &Table) -> impl Fn(&Setting, u64, &Times) -> Option<Judged> {
    move |setting, bytes, times| {
        let near = table.near(setting, bytes, &[])?;
        judge(near.times.best(|name| times.of(name).is_some())?, times, |_| true)
    }
}

/// How many times as long as the fastest a choice takes, and who is the fastest.
type Judged = (f64, String);

/// None where the choice was not measured.
fn judge(chosen: &str, times: &Times, allowed: impl Fn(&str) -> bool) -> Option<Judged> {
    let taken = times.of(chosen)?;
    let best = times.best(allowed)?;
    let least = times.of(best)?;
    Some((taken as f64 / least.max(1) as f64, best.to_owned()))
}

/// The result, as text of the manual.
fn page(table: &Table, judge: impl Fn(&Setting, u64, &Times) -> Option<Judged>) -> String {
    let mut page = format!("By `antiphon tune` on {}.\n\n", table.machine());
    page.push_str("| calls | sizes | right | where another is faster |\n|---|---|---|---|");
    for (setting, sizes) in table.iter() {
        let Setting { collective, ranks, nodes, kind, in_place } = setting;
        let place = if *in_place { "in place" } else { "out of place" };
        let judged: Vec<_> = sizes
            .iter()
            .filter_map(|(&bytes, times)| Some((bytes, judge(setting, bytes, times)?)))
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
        let spread = if *nodes == 1 { "1 node".to_owned() } else { format!("{nodes} nodes") };
        page.push_str(&format!(
            "\n| {collective}, {ranks} ranks, {spread}, {kind}, {place} | {all} | {right} | {slow} |"
        ));
    }
    page.push('\n');
    page
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
        // By size, whom the rule takes, and the other one.
        let of = |bytes| {
            let all = ["allgather_zero_copy", "allgather_packets"];
            let spread = Spread { ranks: 2, nodes: 1, crowded: false, devices: Devices::Host };
            let chosen = crate::defaults::serves(&Collective::AllGather, bytes, spread).unwrap();
            (chosen, all.into_iter().find(|name| *name != chosen).unwrap())
        };
        let [(small, large), (taken, faster), (last, late)] = [1024, 4096, 1 << 20].map(of);
        let all_gather = setting(Collective::AllGather);
        for (bytes, times) in [
            (1024, times(&[(small, 10), (large, 20)])),
            (4096, times(&[(taken, 30), (faster, 20), ("mine", 1)])),
            (1 << 20, times(&[(last, 21), (late, 20)])),
            // Of what the rule takes nothing is known.
            (1 << 24, times(&[(of(1 << 24).1, 20)])),
        ] {
            table.record(&all_gather, bytes, times);
        }
        // Over nodes they are transfers.
        let far = Setting { nodes: 2, ..setting(Collective::AllToAllV) };
        table.record(&far, 64, times(&[("alltoallv_zero_copy", 1)]));
        let page = super::page(&table, by_rule(2));
        assert!(page.starts_with("By `antiphon tune` on an abacus with 2 usable cores."), "{page}");
        let row = format!(
            "| allgather, 2 ranks, 1 node, processes, out of place | 3 | 2 | 4K: `{faster}`, 1.50 |"
        );
        assert_eq!(page.lines().skip(4).collect::<Vec<_>>(), [row], "{page}");
        // A table that knows of 1 KiB and of 16 KiB takes the same at 4 KiB.
        let mut tuned = table.emptied();
        tuned.record(&all_gather, 1024, times(&[(small, 10), (large, 20)]));
        tuned.record(&all_gather, 16384, times(&[(taken, 28), (faster, 1000)]));
        let page = super::page(&table, by_table(&tuned));
        let row =
            "| allgather, 2 ranks, 1 node, processes, out of place | 2 | 1 | 4K: `mine`, 30.00 |";
        assert_eq!(page.lines().skip(4).collect::<Vec<_>>(), [row], "{page}");
    }
}
