//! `cargo xtask defaults --from TABLE...`: what `antiphon tune` measured on hosts, kept in the repository, and the rules that
//! are derived from it, as the table that the choice reads.

use std::fs;
use std::path::{Path, PathBuf};

use antiphon::executor::selection::table::{Kind, Setting, Table, Times};
use antiphon::plan::algorithms::Algorithm;
use antiphon::plan::algorithms::hosts::{Place, Step, Timed, derive, measured};
use antiphon::plan::model::Collective;

use crate::{Error, Result, repo};

/// Where the table is that the choice reads.
const SOURCE: &str = "plan/src/algorithms/hosts/table.rs";
/// Where the measurements are that it is derived from, a file for each machine.
const MEASURED: &str = "plan/src/algorithms/hosts/measured";

/// Keeps these measurements, each in the place of those of a machine with as many cores, and writes the table of all that are
/// kept.
///
/// # Errors
/// A file that is no tuning table, or of which nothing can be derived; two machines on which the same was measured; what cannot
/// be written.
pub fn run(paths: &[PathBuf]) -> Result<()> {
    let mut tables = tables()?;
    for path in paths {
        let table = kept(&super::measured::read(path)?);
        if table.iter().next().is_none() {
            return Err(Error::message(format!(
                "cannot derive rules from {}: saw no times of built-in algorithms for processes out of place, on one node or two; \
                 measure with `antiphon tune -o FILE`",
                path.display()
            )));
        }
        let name = PathBuf::from(format!("{}-cores.json", table.machine().cores));
        tables.retain(|(kept, _)| kept != &name);
        tables.push((name, table));
    }
    tables.sort_by(|(one, _), (other, _)| one.cmp(other));
    let rules = rules(&tables)?;
    for (place, collective, steps) in &rules {
        let is = |rule: &&_| key(rule) == (*place, collective);
        let before = measured().iter().find(is).map_or(&[][..], |rule| rule.steps);
        if before != &steps[..] {
            println!("{place:?} {collective}: {steps:?}, before {before:?}");
        }
    }
    for rule in measured() {
        if !rules.iter().any(|(place, collective, _)| key(rule) == (*place, collective)) {
            println!("{:?} {}: none, before {:?}", rule.place, rule.collective, rule.steps);
        }
    }
    for (name, table) in &tables {
        write(&repo::root().join(MEASURED).join(name), &text(table))?;
    }
    write(&repo::root().join(SOURCE), &source(&tables, &rules))?;
    println!("{SOURCE} is written: `cargo xtask defaults` writes the manual's table");
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(Error::io(format!("write {}", path.display())))
}

/// The measurements that are kept, by the names of their files.
fn tables() -> Result<Vec<(PathBuf, Table)>> {
    let folder = repo::root().join(MEASURED);
    let files = repo::files(&folder)?;
    let json = files.into_iter().filter(|path| path.extension().is_some_and(|e| e == "json"));
    json.map(|path| Ok((path.clone(), super::measured::read(&folder.join(path))?))).collect()
}

/// What rules are derived from.
fn kept(table: &Table) -> Table {
    let mut kept = Table::new(table.machine().clone());
    for (setting, sizes) in table.iter() {
        if place(setting, table.machine().cores).is_none() {
            continue;
        }
        for (&bytes, times) in sizes {
            // What is installed or given is nothing that a rule could choose.
            let built_in = times.iter().filter(|(name, _)| name.parse::<Algorithm>().is_ok());
            let times: Vec<_> = built_in.map(|(name, time)| (name.to_owned(), time)).collect();
            if !times.is_empty() {
                kept.record(setting, bytes, Times::new(times));
            }
        }
    }
    kept
}

/// A table as text, a line for each size.
fn text(table: &Table) -> String {
    let value: serde_json::Value =
        serde_json::from_str(&table.to_text()).expect("a table's text is JSON");
    let lines = ["{\"collective\"", "{\"bytes\""];
    let text =
        lines.iter().fold(value.to_string(), |text, line| text.replace(line, &format!("\n{line}")));
    text + "\n"
}

/// The ranks that were measured; none where that says nothing of any others.
fn place(setting: &Setting, cores: u32) -> Option<Place> {
    let Setting { ranks, nodes, kind: Kind::Processes, in_place: false, .. } = *setting else {
        return None;
    };
    let (crowded, alone) = (ranks > cores, nodes > 1 && ranks == nodes);
    // What is alone on its node has its cores, which those that share this machine have not.
    let real = ranks > 1 && nodes <= 2 && !(crowded && alone);
    let (nodes, per_node) = (nodes as usize, (ranks / nodes) as usize);
    real.then_some(Place { crowded, nodes, per_node })
}

/// A rule.
type Derived = (Place, Collective, Vec<Step>);

fn key(rule: &antiphon::plan::algorithms::hosts::Rule) -> (Place, &Collective) {
    (rule.place, &rule.collective)
}

/// The rules, by place and collective.
fn rules(tables: &[(PathBuf, Table)]) -> Result<Vec<Derived>> {
    let mut all: Vec<(Derived, &Path)> = Vec::new();
    for (path, table) in tables {
        for (setting, sizes) in table.iter() {
            let Some(place) = place(setting, table.machine().cores) else { continue };
            let collective = setting.collective.clone();
            let known = all.iter().find(|((at, of, _), _)| (*at, of) == (place, &collective));
            if let Some((_, other)) = known {
                return Err(Error::message(format!(
                    "cannot derive rules: saw times of {collective} for {place:?} in {} and {}, allowed one of them; \
                     take those times out of the file of one machine",
                    other.display(),
                    path.display()
                )));
            }
            let sizes: Vec<Timed> =
                sizes.iter().map(|(&bytes, times)| timed(bytes, times)).collect();
            all.push(((place, collective, derive(&sizes)), path));
        }
    }
    let order = super::collectives();
    let mut rules: Vec<Derived> = all.into_iter().map(|(rule, _)| rule).collect();
    rules.sort_by_key(|(place, collective, _)| {
        (*place, order.iter().position(|known| known == collective))
    });
    rules.retain(|(.., steps)| !steps.is_empty());
    Ok(rules)
}

fn timed(bytes: u64, times: &Times) -> Timed {
    let times = times.iter().filter_map(|(name, time)| Some((name.parse().ok()?, time)));
    Timed { bytes, times: times.collect() }
}

/// The table that the choice reads, as source.
fn source(tables: &[(PathBuf, Table)], rules: &[Derived]) -> String {
    let machines: Vec<String> =
        tables.iter().map(|(_, table)| table.machine().to_string()).collect();
    let mut text = format!(
        "//! What was measured on hosts. Written by `cargo xtask defaults --from`; a test holds it against the measurements.\n\n\
         use super::{{Place, Rule, Step}};\n\
         use crate::algorithms::Algorithm::{{self, *}};\n\
         use crate::model::Collective::{{self, *}};\n\n\
         /// A rule.\n\
         const fn of(\n    crowded: bool,\n    nodes: usize,\n    per_node: usize,\n    collective: Collective,\n    \
         steps: &'static [Step],\n) -> Rule {{\n    Rule {{ place: Place {{ crowded, nodes, per_node }}, collective, steps }}\n}}\n\n\
         /// A step.\n\
         const fn to(up_to: u64, algorithm: Algorithm) -> Step {{\n    Step {{ up_to, algorithm }}\n}}\n\n\
         /// For all messages that are left.\n\
         const ALL: u64 = u64::MAX;\n\n\
         /// The machines.\n\
         #[rustfmt::skip]\n\
         pub(super) const MEASURED_ON: &[&str] = &{machines:?};\n\n\
         /// By whether cores are shared, nodes, ranks of a node, and collective.\n\
         #[rustfmt::skip]\n\
         pub(super) const RULES: &[Rule] = &[\n",
    );
    for (Place { crowded, nodes, per_node }, collective, steps) in rules {
        let steps =
            steps.iter().map(|Step { up_to, algorithm }| (*up_to, format!("{algorithm:?}")));
        let head = format!("of({crowded}, {nodes}, {per_node}, {collective:?}");
        text.push_str(&super::entry(&head, steps));
    }
    text + "];\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon::executor::selection::table::Machine;

    #[test]
    fn the_table_is_what_was_measured() {
        let tables = tables().unwrap();
        let written = fs::read_to_string(repo::root().join(SOURCE)).unwrap();
        let expected = source(&tables, &rules(&tables).unwrap());
        assert_eq!(written, expected, "run `cargo xtask defaults --from TABLE`");
        for (path, table) in &tables {
            let path = repo::root().join(MEASURED).join(path);
            assert_eq!(fs::read_to_string(&path).unwrap(), text(&kept(table)), "{path:?}");
        }
        assert!(!tables.is_empty());
    }

    fn setting(collective: Collective, ranks: u32, nodes: u32) -> Setting {
        Setting { collective, ranks, nodes, kind: Kind::Processes, in_place: false }
    }

    /// A table of a machine with so many cores, in which packets are the fastest up to 1 KiB.
    fn table(cores: u32, settings: &[Setting]) -> (PathBuf, Table) {
        let mut table = Table::new(Machine { cpu: "an abacus".into(), cores });
        for setting in settings {
            let far = if setting.nodes > 1 { "_hierarchical" } else { "" };
            for bytes in [64, 1024, 4096, 16384] {
                let packets = (format!("{}{far}_packets", setting.collective), 10 + bytes / 64);
                let copies = (format!("{}{far}_zero_copy", setting.collective), 50);
                let mine = ("mine".to_owned(), 1);
                table.record(setting, bytes, Times::new([packets, copies, mine]));
            }
        }
        (format!("{cores}.json").into(), table)
    }

    #[test]
    fn what_was_measured_of_such_ranks_becomes_a_rule() {
        use Collective::{AllGather, AllToAll};
        let threads = Setting { kind: Kind::Threads, ..setting(AllGather, 3, 1) };
        let in_place = Setting { in_place: true, ..setting(AllGather, 2, 1) };
        let settings = [
            setting(AllToAll, 2, 1),
            setting(AllGather, 2, 1),
            setting(AllGather, 4, 1),
            setting(AllGather, 4, 2),
            setting(AllGather, 2, 2),
            // Of these nothing follows: three nodes, who is alone on a node but shares cores, one rank.
            setting(AllGather, 6, 3),
            setting(AllGather, 4, 4),
            setting(AllGather, 1, 1),
            threads,
            in_place,
        ];
        let (path, all) = table(2, &settings);
        let kept = kept(&all);
        assert_eq!(kept.iter().count(), 5);
        assert!(kept.iter().all(|(_, sizes)| sizes.values().all(|one| one.of("mine").is_none())));
        assert_eq!(Table::parse(&text(&kept)).unwrap(), kept);
        assert_eq!(text(&kept).lines().count(), 1 + 5 + 5 * 4);
        let place = |crowded, nodes, per_node| Place { crowded, nodes, per_node };
        let steps = |packets, copies| {
            let up_to = |up_to, algorithm| Step { up_to, algorithm };
            vec![up_to(1024, packets), up_to(u64::MAX, copies)]
        };
        let near = steps(Algorithm::AllGatherPackets, Algorithm::AllGatherZeroCopy);
        let far = steps(
            Algorithm::AllGatherHierarchicalPackets,
            Algorithm::AllGatherHierarchicalZeroCopy,
        );
        let other = steps(Algorithm::AllToAllPackets, Algorithm::AllToAllZeroCopy);
        let expected = [
            (place(false, 1, 2), AllGather, near.clone()),
            (place(false, 1, 2), AllToAll, other),
            (place(false, 2, 1), AllGather, far.clone()),
            (place(true, 1, 4), AllGather, near),
            (place(true, 2, 2), AllGather, far),
        ];
        let saw = rules(&[(path.clone(), kept.clone())]).unwrap();
        assert_eq!(saw, expected);
        let source = source(&[(path, kept)], &saw);
        for line in [
            "MEASURED_ON: &[&str] = &[\"an abacus with 2 usable cores\"];",
            "    of(true, 1, 4, AllGather, &[to(1024, AllGatherPackets), to(ALL, AllGatherZeroCopy)]),",
        ] {
            assert!(source.contains(line), "{line}: {source}");
        }
    }

    #[test]
    fn what_two_machines_say_is_refused() {
        let same = setting(Collective::AllGather, 2, 1);
        let both = [2, 3].map(|cores| table(cores, std::slice::from_ref(&same)));
        let error = rules(&both).unwrap_err().to_string();
        assert!(error.contains("2.json and 3.json") && error.contains("allgather"), "{error}");
        // Where one has fewer cores, they are other ranks.
        let both = [1, 2].map(|cores| table(cores, std::slice::from_ref(&same)));
        assert_eq!(rules(&both).unwrap().len(), 2);
    }
}
