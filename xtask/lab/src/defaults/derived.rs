//! `cargo xtask defaults --from TABLE...`: what `antiphon tune` measured on hosts, kept in the repository, and the rules that
//! are derived from it, as the table that the choice reads.

use std::fs;
use std::path::{Path, PathBuf};

use antiphon::executor::selection::table::{Kind, Machine, Setting, Table, Times};
use antiphon::plan::algorithms::hosts::{
    Place, Rule, Step, Timed, derive, derive_rooted, measured, measured_rooted,
};
use antiphon::plan::algorithms::{Algorithm, Rooted};
use antiphon::plan::model::Collective;

use crate::{Error, Result, repo};

/// Where the table is that the choice reads.
const SOURCE: &str = "plan/src/algorithms/hosts/table.rs";
/// Where the measurements are that it is derived from, a file for each machine.
const MEASURED: &str = "plan/src/algorithms/hosts/measured";

/// Keeps these measurements, each in the place of those of the same calls on machines with as many cores, and writes the table of
/// all that are kept.
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
        tables = with(tables, table);
    }
    tables.sort_by(|(one, _), (other, _)| one.cmp(other));
    let rules = rules(&tables)?;
    let before = written();
    let find = |all: &[Derived], rule: &Derived| {
        all.iter().find(|other| key(other) == key(rule)).map(|(.., steps)| steps.clone())
    };
    for rule @ (place, collective, steps) in &rules {
        let before = find(&before, rule).unwrap_or_default();
        if before != *steps {
            println!("{place:?} {collective}: {steps:?}, before {before:?}");
        }
    }
    for rule @ (place, collective, steps) in &before {
        if find(&rules, rule).is_none() {
            println!("{place:?} {collective}: none, before {steps:?}");
        }
    }
    let folder = repo::root().join(MEASURED);
    for (name, table) in &tables {
        write(&folder.join(name), &text(table))?;
    }
    for left in self::tables()?.iter().map(|(name, _)| name) {
        if !tables.iter().any(|(name, _)| name == left) {
            let path = folder.join(left);
            fs::remove_file(&path).map_err(Error::io(format!("remove {}", path.display())))?;
        }
    }
    write(&repo::root().join(SOURCE), &source(&tables, &rules))?;
    println!("{SOURCE} is written: `cargo xtask defaults` writes the manual's table");
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(Error::io(format!("write {}", path.display())))
}

/// The measurements that are kept, by the names of their files.
pub(super) fn tables() -> Result<Vec<(PathBuf, Table)>> {
    let folder = repo::root().join(MEASURED);
    let files = repo::files(&folder)?;
    let json = files.into_iter().filter(|path| path.extension().is_some_and(|e| e == "json"));
    json.map(|path| Ok((path.clone(), super::measured::read(&folder.join(path))?))).collect()
}

/// What is kept, with what was measured anew: on as many cores ranks are in the same places, so of each call that goes in the place
/// of what there was, and other calls stay.
fn with(tables: Vec<(PathBuf, Table)>, mut new: Table) -> Vec<(PathBuf, Table)> {
    let calls: Vec<Setting> = new.iter().map(|(setting, _)| setting.clone()).collect();
    let mut all = Vec::new();
    for (path, old) in tables {
        if old.machine().cores != new.machine().cores {
            all.push((path, old));
            continue;
        }
        let same = old.machine() == new.machine();
        let mut rest = old.emptied();
        let into = if same { &mut new } else { &mut rest };
        for (setting, sizes) in old.iter().filter(|(setting, _)| !calls.contains(setting)) {
            sizes.iter().for_each(|(&bytes, times)| into.record(setting, bytes, times.clone()));
        }
        if rest.iter().next().is_some() {
            all.push((path, rest));
        }
    }
    all.push((file(new.machine()), new));
    all
}

/// The file of a machine.
fn file(machine: &Machine) -> PathBuf {
    let lower = machine.cpu.to_lowercase();
    let words = lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let words: Vec<&str> = words.collect();
    format!("{}-{}-cores.json", words.join("-"), machine.cores).into()
}

/// What rules are derived from.
fn kept(table: &Table) -> Table {
    let mut kept = table.emptied();
    for (setting, sizes) in table.iter() {
        if place(setting, table.machine().cores).is_none() {
            continue;
        }
        for (&bytes, times) in sizes {
            // What is installed or given is nothing that a rule could choose.
            let times = times.iter().filter(|(name, _)| is_known(&setting.collective, name));
            let times: Vec<_> = times.map(|(name, time)| (name.to_owned(), time)).collect();
            if !times.is_empty() {
                kept.record(setting, bytes, Times::new(times));
            }
        }
    }
    kept
}

fn is_rooted(collective: &Collective) -> bool {
    matches!(collective, Collective::Gather | Collective::Scatter)
}

/// Whether a name is that of a built-in algorithm of a collective.
fn is_known(collective: &Collective, name: &str) -> bool {
    if is_rooted(collective) { rooted(name).is_some() } else { name.parse::<Algorithm>().is_ok() }
}

/// What serves a gather or a scatter by a name: `Some(None)` its blocks.
fn rooted(name: &str) -> Option<Option<Rooted>> {
    let own = Rooted::ALL.into_iter().find(|one| one.name() == name);
    (own.is_some() || name == super::named::BLOCKS).then_some(own)
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

/// A rule, with its steps as source: the largest message, and what serves it.
pub(super) type Derived = (Place, Collective, Vec<(u64, String)>);

fn key((place, collective, _): &Derived) -> (Place, &Collective) {
    (*place, collective)
}

/// Steps as source.
pub(super) fn as_source<A: Copy>(
    steps: &[Step<A>],
    name: impl Fn(A) -> String,
) -> Vec<(u64, String)> {
    steps.iter().map(|step| (step.up_to, name(step.algorithm))).collect()
}

pub(super) fn sized_source(algorithm: Algorithm) -> String {
    format!("{algorithm:?}")
}

pub(super) fn rooted_source(algorithm: Option<Rooted>) -> String {
    algorithm.map_or("None".to_owned(), |own| format!("Some(Rooted::{own:?})"))
}

/// The rules that the choice reads now.
fn written() -> Vec<Derived> {
    in_source(measured(), measured_rooted())
}

/// Rules with their steps as source: first those of all but gather and scatter.
pub(super) fn in_source(sized: &[Rule], rooted: &[Rule<Option<Rooted>>]) -> Vec<Derived> {
    fn of<A: Copy>(rules: &[Rule<A>], name: fn(A) -> String) -> impl Iterator<Item = Derived> {
        rules.iter().map(move |Rule { place, collective, steps }| {
            (*place, collective.clone(), as_source(steps, name))
        })
    }
    of(sized, sized_source).chain(of(rooted, rooted_source)).collect()
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
            let sizes = sizes.iter();
            let steps = if is_rooted(&collective) {
                let sizes: Vec<_> =
                    sizes.map(|(&bytes, times)| timed(bytes, times, rooted)).collect();
                as_source(&derive_rooted(&sizes), rooted_source)
            } else {
                let name = |name: &str| name.parse().ok();
                let sizes: Vec<_> =
                    sizes.map(|(&bytes, times)| timed(bytes, times, name)).collect();
                as_source(&derive(&sizes), sized_source)
            };
            all.push(((place, collective, steps), path));
        }
    }
    let order = super::served();
    let mut rules: Vec<Derived> = all.into_iter().map(|(rule, _)| rule).collect();
    rules.sort_by_key(|(place, collective, _)| {
        (*place, order.iter().position(|known| known == collective))
    });
    rules.retain(|(.., steps)| !steps.is_empty());
    Ok(rules)
}

/// What was measured at a size, by what names stand for.
fn timed<A>(bytes: u64, times: &Times, named: impl Fn(&str) -> Option<A>) -> Timed<A> {
    let times = times.iter().filter_map(|(name, time)| Some((named(name)?, time)));
    Timed { bytes, times: times.collect() }
}

/// The table that the choice reads, as source.
fn source(tables: &[(PathBuf, Table)], rules: &[Derived]) -> String {
    let machines: Vec<String> =
        tables.iter().map(|(_, table)| table.machine().to_string()).collect();
    let doc = "What was measured on hosts. Written by `cargo xtask defaults --from`; a test holds it against the measurements.";
    let machines = format!(
        "\n/// The machines.\n#[rustfmt::skip]\npub(super) const MEASURED_ON: &[&str] = &{machines:?};\n"
    );
    head(doc) + &machines + &arrays(rules)
}

/// The beginning of a file of rules.
pub(super) fn head(doc: &str) -> String {
    format!(
        "//! {doc}\n\n\
         use super::{{ALL, Rule, of, to}};\n\
         use crate::algorithms::Algorithm::{{self, *}};\n\
         use crate::algorithms::Rooted;\n\
         use crate::model::Collective::*;\n",
    )
}

/// The rules, as source.
pub(super) fn arrays(rules: &[Derived]) -> String {
    let mut text = String::new();
    let (own, sized): (Vec<_>, Vec<_>) =
        rules.iter().partition(|(_, collective, _)| is_rooted(collective));
    for (doc, name, kind, rules) in [
        (
            "By whether cores are shared, nodes, ranks of a node, and collective.",
            "RULES",
            "Algorithm",
            sized,
        ),
        ("Likewise of gather and scatter.", "ROOTED", "Option<Rooted>", own),
    ] {
        text.push_str(&format!(
            "\n/// {doc}\n#[rustfmt::skip]\npub(super) const {name}: &[Rule<{kind}>] = &[\n"
        ));
        for (Place { crowded, nodes, per_node }, collective, steps) in rules {
            let head = format!("of({crowded}, {nodes}, {per_node}, {collective:?}");
            text.push_str(&super::entry(&head, steps.iter().cloned()));
        }
        text.push_str("];\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_what_was_measured() {
        let tables = tables().unwrap();
        let written = fs::read_to_string(repo::root().join(SOURCE)).unwrap();
        let expected = source(&tables, &rules(&tables).unwrap());
        assert_eq!(written, expected, "run `cargo xtask defaults --from TABLE`");
        for (path, table) in &tables {
            assert_eq!(path, &file(table.machine()));
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
        let steps = |packets: Algorithm, copies: Algorithm| {
            vec![(1024, format!("{packets:?}")), (u64::MAX, format!("{copies:?}"))]
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
    fn what_was_measured_of_a_gather_and_a_scatter_becomes_a_rule() {
        let (gather, scatter) = (Collective::Gather, Collective::Scatter);
        let mut all = Table::new(Machine { cpu: "an abacus".into(), cores: 2 });
        for at in [
            setting(gather.clone(), 2, 1),
            setting(scatter.clone(), 4, 1),
            setting(gather.clone(), 2, 2),
        ] {
            for bytes in [64, 1024, 4096, 16384] {
                let (far, blocks) = match at.nodes {
                    1 => ("", "alltoallv_zero_copy"),
                    _ => ("_hierarchical", "another"),
                };
                let times = [
                    (format!("{}{far}_packets", at.collective), 10 + bytes / 64),
                    (format!("{}{far}_zero_copy", at.collective), 50),
                    (blocks.to_owned(), 40),
                    ("mine".to_owned(), 1),
                ];
                all.record(&at, bytes, Times::new(times));
            }
        }
        let kept = kept(&all);
        assert_eq!(kept.iter().count(), 3);
        assert!(kept.iter().all(|(_, sizes)| sizes.values().all(|one| one.of("mine").is_none())));
        let place = |crowded, nodes, per_node| Place { crowded, nodes, per_node };
        let own = |own: &str| format!("Some(Rooted::{own})");
        let steps = |small: &str| vec![(1024, own(small)), (u64::MAX, "None".to_owned())];
        let far = ["GatherHierarchicalPackets", "GatherHierarchicalZeroCopy"].map(own);
        let [small, large] = far;
        let tables = [("2.json".into(), kept)];
        let saw = rules(&tables).unwrap();
        let expected = [
            (place(false, 1, 2), gather.clone(), steps("GatherPackets")),
            (place(false, 2, 1), gather, vec![(1024, small), (u64::MAX, large)]),
            (place(true, 1, 4), scatter, steps("ScatterPackets")),
        ];
        assert_eq!(saw, expected);
        let source = source(&tables, &saw);
        let end =
            source.split_once("pub(super) const ROOTED: &[Rule<Option<Rooted>>] = &[\n").unwrap().1;
        let lines = [
            "    of(false, 1, 2, Gather, &[to(1024, Some(Rooted::GatherPackets)), to(ALL, None)]),",
            "    of(false, 2, 1, Gather, &[to(1024, Some(Rooted::GatherHierarchicalPackets)),",
            "        to(ALL, Some(Rooted::GatherHierarchicalZeroCopy))]),",
            "    of(true, 1, 4, Scatter, &[to(1024, Some(Rooted::ScatterPackets)), to(ALL, None)]),",
            "];",
        ];
        assert_eq!(end.lines().collect::<Vec<_>>(), lines);
    }

    #[test]
    fn what_is_measured_anew_takes_the_place_of_the_same_calls_on_as_many_cores() {
        let [one, two] = [Collective::AllGather, Collective::AllToAll].map(|of| setting(of, 2, 1));
        let of = |cpu: &str, cores, calls: &[&Setting]| {
            let mut table = Table::new(Machine { cpu: cpu.into(), cores });
            for call in calls {
                table.record(call, 64, Times::new([("a".to_owned(), u64::from(cores))]));
            }
            (file(table.machine()), table)
        };
        let (old, other) = (of("An Old (R) CPU", 2, &[&one, &two]), of("another", 3, &[&one]));
        assert_eq!(old.0, Path::new("an-old-r-cpu-2-cores.json"));
        let all = || vec![old.clone(), other.clone()];
        let new = of("new", 2, &[&two]);
        let rest = of("An Old (R) CPU", 2, &[&one]);
        assert_eq!(with(all(), new.1.clone()), [rest.clone(), other.clone(), new.clone()]);
        let again = of("new", 2, &[&one]);
        let both = of("new", 2, &[&one, &two]);
        assert_eq!(with(vec![rest, new], again.1), std::slice::from_ref(&both));
        assert_eq!(with(all(), both.1.clone()), [other.clone(), both]);
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
