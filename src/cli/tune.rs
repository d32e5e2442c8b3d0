//! `tune`: measures the candidates for each call on this machine, installed plans among them, and writes the table that
//! the choice of an algorithm reads.

mod boundaries;
mod cells;
mod contest;
mod moments;
pub mod rounds;
mod turn;

use super::error::print_line;
use super::files::{no_cache_folder, replace};
use super::job::{Job, Settings};
use super::launch::{Mode, launch, warn_if_off};
use super::progress::{Pace, Progress};
use super::table::{microseconds, percentile};
use super::{BuiltIn, CliError, TuneArgs, plans, size};
use antiphon::executor::hal::{Backend, DeviceName};
use antiphon::executor::selection::table::{Kind, Machine, Setting, Table, Times};
use antiphon::executor::selection::{SelectionError, Spread, Tuning};
use antiphon::executor::{Installed, RegisteredPlan};
use antiphon::plan::model::Collective;
use antiphon::{DataType, Registry, Terms};
use cells::{Candidate, Cells};
use rounds::Rounds;
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use turn::Turn;

/// The collectives whose calls go by a table; all are measured unless some are named.
const COLLECTIVES: [BuiltIn; 8] = [
    BuiltIn::AllReduce,
    BuiltIn::AllGather,
    BuiltIn::ReduceScatter,
    BuiltIn::AllToAll,
    BuiltIn::Broadcast,
    BuiltIn::Reduce,
    BuiltIn::Gather,
    BuiltIn::Scatter,
];

/// Measured if it is named: no call goes by its times, but the built-in rule by size is made of them.
const NAMED: BuiltIn = BuiltIn::SendRecv;

/// The sizes that are measured unless others are named: these, and the powers between them.
const SIZES: (u64, u64, u64) = (16, 64 << 20, 4);

/// The type of the elements. Which algorithm is the fastest hangs on the bytes, hardly on what they are.
const DTYPE: DataType = DataType::F32;

/// Which sizes are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sizes {
    /// Those asked for.
    Asked,
    /// Those between them that tell where one candidate takes over from another.
    Between,
    /// Those whose candidates are close: once more, all together, so that it is some time since each was measured.
    Close,
}

/// Measures what is not in the table yet, and writes it after each size.
pub fn tune(args: &TuneArgs) -> Result<ExitCode, CliError> {
    let path = match &args.output {
        Some(path) => path.clone(),
        None => Tuning::file().ok_or_else(no_cache_folder)?,
    };
    let _turn = Turn::take(&path)?;
    let machine = Machine::here();
    let mut table = begin(&path, machine, args.again)?;
    let others = others(&args.plans, &Installed::of_process())?;
    let (job, cells) = self::job(args, &table, &others, Sizes::Asked)?;
    let (asked, skipped) = (cells.len(), cells.skipped);
    for (name, why) in cells.idle() {
        print_line(&format!("# `{name}` serves none of these calls: it {why}"))?;
    }
    let mut next = match asked {
        0 => further(args, &table, &others)?,
        _ => Some((Sizes::Asked, job, cells)),
    };
    if next.is_none() {
        print_line(&format!(
            "nothing to measure: {} has all {skipped} cells; --again measures them again",
            path.display()
        ))?;
        return Ok(ExitCode::SUCCESS);
    }
    let kind = kind(args);
    print_line(&format!(
        "# antiphon {}: tuning for {} ranks as {kind}, {} on {}: {asked} cells{}",
        env!("CARGO_PKG_VERSION"),
        args.ranks,
        if args.in_place { "in place" } else { "out of place" },
        table.machine(),
        if skipped == 0 { String::new() } else { format!(", {skipped} are there already") },
    ))?;
    while let Some((which, job, cells)) = next {
        let count = cells.len();
        match which {
            Sizes::Asked => {}
            Sizes::Between => {
                print_line(&format!("# {count} cells between sizes with different fastest"))?;
            }
            Sizes::Close => {
                print_line(&format!("# {count} cells again, whose candidates are close"))?
            }
        }
        measure(args, job, &cells, which, (&path, &mut table))?;
        next = further(args, &table, &others)?;
    }
    print_line(&format!("# wrote {}", path.display()))?;
    warn_if_off("ANTIPHON_TUNING", "no call goes by a table");
    Ok(ExitCode::SUCCESS)
}

/// What the table still asks for when it has the sizes that the user asked for, if anything.
fn further(
    args: &TuneArgs,
    table: &Table,
    others: &[Arc<RegisteredPlan>],
) -> Result<Option<(Sizes, Job, Cells)>, CliError> {
    for which in [Sizes::Between, Sizes::Close] {
        let (job, cells) = job(args, table, others, which)?;
        if !cells.is_empty() {
            return Ok(Some((which, job, cells)));
        }
    }
    Ok(None)
}

/// Measures these cells, and writes each into the table, and that to its file.
fn measure(
    args: &TuneArgs,
    job: Job,
    cells: &Cells,
    which: Sizes,
    (path, table): (&Path, &mut Table),
) -> Result<(), CliError> {
    let progress = Progress::new(job.settings.items.len() as u64, Pace::Even);
    let mode = if args.threads { Mode::Threads } else { Mode::Processes };
    let mut open: Vec<(String, u64)> = Vec::new();
    launch(job, mode, &progress, |finished| {
        let cell = cells.of(finished.item);
        let mut times = finished.times;
        times.sort_unstable();
        open.push((cells.name(finished.item).to_owned(), percentile(&times, 50)));
        // Items come in order: those of a cell together.
        if open.len() < cell.candidates {
            return Ok(());
        }
        let times = Times::new(open.drain(..));
        let known = table.at(&cell.setting, cell.bytes).filter(|_| which == Sizes::Close);
        let times = known.map(|known| known.and(&times)).unwrap_or(times);
        let line = line(&cell.setting.collective, cell.bytes, &times, |name| cells.shown(name));
        table.record(&cell.setting, cell.bytes, times);
        replace(path, (table.to_text() + "\n").as_bytes())?;
        progress.aside(|| print_line(&line))
    })?;
    Ok(())
}

/// What there is already: the table of a run before, or an empty one.
fn begin(path: &Path, machine: Machine, again: bool) -> Result<Table, CliError> {
    let refused = |why: String| {
        CliError::Usage(format!(
            "cannot go on with {}: {why}; --again begins anew, -o names another file",
            path.display()
        ))
    };
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Table::new(machine)),
        Err(source) => return Err(refused(source.to_string())),
    };
    // What is no text at all is no table either, and the table's reader says so.
    match Table::parse(&String::from_utf8_lossy(&bytes)) {
        Ok(table) if *table.machine() == machine && table.stale().is_none() => Ok(table),
        _ if again => Ok(Table::new(machine)),
        Ok(table) => Err(refused(table.stale().unwrap_or_else(|| {
            format!("its times are of {}, and this is {machine}", table.machine())
        }))),
        Err(error) => Err(refused(error.to_string())),
    }
}

fn kind(args: &TuneArgs) -> Kind {
    if args.threads { Kind::Threads } else { Kind::Processes }
}

/// Plans to be measured beside what is built in: those of files, and those installed.
fn others(files: &[PathBuf], installed: &Installed) -> Result<Vec<Arc<RegisteredPlan>>, CliError> {
    // Its names are given once, and those of built-in algorithms never.
    let registry = Registry::new();
    for file in files {
        let plan = plans::load(file)?.plan;
        // As what is built in is measured.
        let terms = Terms { root: plan.collective.has_root().then_some(0), ..Terms::default() };
        registry.register(plan, terms).map_err(|error| CliError::Usage(error.to_string()))?;
    }
    let mut all = registry.plans();
    // As in the choice: what the user names now goes before what is installed by that name.
    let known: Vec<String> = all.iter().map(|plan| plan.name().to_owned()).collect();
    let further =
        installed.plans().iter().filter(|plan| !known.iter().any(|name| name == plan.name()));
    all.extend(further.cloned());
    Ok(all)
}

/// The job of what is to be measured: built-in algorithms, and these plans as far as they serve, at sizes that are asked for
/// or that the table asks for.
fn job(
    args: &TuneArgs,
    table: &Table,
    others: &[Arc<RegisteredPlan>],
    which: Sizes,
) -> Result<(Job, Cells), CliError> {
    let spread = Spread::here(args.ranks, args.nodes);
    if !args.ranks.is_multiple_of(args.nodes) {
        let Spread { ranks, nodes, .. } = spread;
        return Err(CliError::Usage(SelectionError::Uneven { ranks, nodes }.to_string()));
    }
    let named = if args.collectives.is_empty() { &COLLECTIVES } else { &args.collectives[..] };
    let is_tuned = |one: &BuiltIn| COLLECTIVES.contains(one) || *one == NAMED;
    if let Some(other) = named.iter().find(|one| !is_tuned(one)) {
        let names = COLLECTIVES.map(|one| one.collective().to_string());
        return Err(CliError::Usage(format!(
            "cannot tune {}: no table decides what serves such calls; allowed are {} and {}",
            other.collective(),
            names.join(", "),
            NAMED.collective()
        )));
    }
    let (begin, end, factor) = SIZES;
    let last = args.end.unwrap_or(args.begin.unwrap_or(end));
    let (begin, factor) = (args.begin.unwrap_or(begin), args.factor.unwrap_or(factor));
    let sizes =
        size::sizes(args.size, args.size.is_none().then_some(begin), Some(last), Some(factor))?;
    let mut cells = Cells::default();
    let mut settings = Vec::new();
    for collective in named.iter().map(|one| one.collective()) {
        let (ranks, nodes) = (spread.ranks, spread.nodes);
        let setting =
            Setting { collective, ranks, nodes, kind: kind(args), in_place: args.in_place };
        let candidates = plans::candidates(&setting.collective, spread, args.in_place)?;
        let built_in = candidates.into_iter();
        let built_in = built_in.map(|(name, plan)| Candidate { name, plan, registered: None });
        let others = others.iter().filter(|plan| plan.plan().collective == setting.collective);
        let others = others.map(|one| Candidate {
            name: one.measured_as(),
            plan: one.plan().clone(),
            registered: Some(Arc::clone(one)),
        });
        let candidates = built_in.chain(others).collect();
        settings.push((setting, cells.add_plans(candidates)));
    }
    let within = sizes.first().copied().unwrap_or(0)..=sizes.last().copied().unwrap_or(0);
    for (setting, plans) in &settings {
        let again = args.again && which == Sizes::Asked;
        let sizes = match which {
            Sizes::Between => boundaries::between(table, setting, within.clone()),
            Sizes::Close => moments::close(table, setting, within.clone(), args.moments),
            // What was measured between them before is as old as they are.
            Sizes::Asked if again => {
                let known = table.iter().filter(|(known, _)| *known == setting);
                let known = known.flat_map(|(_, times)| times.range(within.clone()));
                let all = known.map(|(&bytes, _)| bytes).chain(sizes.iter().copied());
                all.collect::<BTreeSet<_>>().into_iter().collect()
            }
            Sizes::Asked => sizes.clone(),
        };
        for bytes in sizes {
            let anew = again || which == Sizes::Close;
            let known = table.at(setting, bytes).filter(|_| !anew);
            cells.add(setting, bytes, plans.clone(), known, DTYPE)?;
        }
    }
    let settings = Settings {
        world: args.ranks,
        nodes: args.nodes,
        items: cells.items.clone(),
        dtype: DTYPE,
        op: None,
        reduces: None,
        in_place: args.in_place,
        iters: 0,
        warmup: 0,
        check: false,
        rounds: Some(Rounds::within(args.time)),
        timeout: args.timeout()?,
        verify: true,
        device: DeviceName { backend: Backend::Host, index: None },
        block_threads: None,
        kernels: Default::default(),
        wire: None,
        seed: 0,
        counts: None,
    };
    Ok((Job { settings, plans: cells.plans() }, cells))
}

/// A cell as a line of output, the fastest candidate first; `shown` is what people call one.
fn line<'a>(
    collective: &Collective,
    bytes: u64,
    times: &'a Times,
    shown: impl Fn(&'a str) -> &'a str,
) -> String {
    let times: Vec<String> = times
        .iter()
        .map(|(name, ns)| format!("{} {} us", shown(name), microseconds(ns as f64 / 1e3)))
        .collect();
    format!("{collective:>13} {bytes:>12} B  {}", times.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use antiphon::plan::algorithms::{Algorithm, Rooted, Shape};
    use clap::Parser;

    fn args(options: &str) -> TuneArgs {
        let line = format!("antiphon tune {options}");
        let Command::Tune(args) = Cli::try_parse_from(line.split_whitespace()).unwrap().command
        else {
            panic!("not a tuning")
        };
        args
    }

    fn empty() -> Table {
        Table::new(Machine { cpu: "an abacus".into(), cores: 2 })
    }

    #[test]
    fn by_default_eight_collectives_are_measured_at_twelve_sizes() {
        let cells = |options: &str| job(&args(options), &empty(), &[], Sizes::Asked).unwrap().1;
        assert_eq!(cells("--nodes 2").len(), 96);
        let (job, cells) = job(&args(""), &empty(), &[], Sizes::Asked).unwrap();
        assert_eq!((cells.len(), cells.skipped), (96, 0));
        assert_eq!(job.settings.world, 2);
        // Each candidate has a plan of its own, which all sizes share.
        let allreduce = job.plans.iter().filter(|plan| plan.collective == Collective::AllReduce);
        assert!(allreduce.count() >= 5);
        assert!(job.settings.items.len() >= 12 * (5 + 5 * 2 + 2 * 3));
    }

    #[test]
    fn a_sendrecv_is_measured_where_it_is_named() {
        let (job, cells) =
            job(&args("sendrecv -b 1K -e 4K -f 4"), &empty(), &[], Sizes::Asked).unwrap();
        assert_eq!(cells.len(), 2);
        assert!(job.plans.len() > 1);
        assert!(job.plans.iter().all(|plan| plan.collective == Collective::SendRecv));
    }

    #[test]
    fn a_gather_is_measured_as_its_blocks_and_by_plans_of_its_own() {
        // What each of three ranks sends to each, in elements.
        type Case<'a> = (&'a str, [[u64; 3]; 3], [[u64; 2]; 2]);
        let cases: [Case<'_>; 4] = [
            ("gather --size 120", [[10, 0, 0], [10, 0, 0], [10, 0, 0]], [[40, 120], [40, 0]]),
            ("scatter --size 121", [[10, 10, 10], [0; 3], [0; 3]], [[120, 40], [0, 40]]),
            ("gather --size 8 --in-place", [[0; 3], [1, 0, 0], [1, 0, 0]], [[0, 8], [4, 0]]),
            ("scatter --size 8 --in-place", [[0, 1, 1], [0; 3], [0; 3]], [[8, 0], [0, 4]]),
        ];
        for (options, sent, [root, other]) in cases {
            let (job, cells) =
                job(&args(&format!("{options} --ranks 3")), &empty(), &[], Sizes::Asked).unwrap();
            assert_eq!((cells.len(), job.settings.items.len()), (1, 3), "{options}");
            let items = job.settings.items.iter();
            let (by_blocks, own): (Vec<_>, Vec<_>) = items.partition(|item| item.blocks.is_some());
            let [by_blocks] = by_blocks[..] else { panic!("{options}") };
            let blocks = by_blocks.blocks.as_ref().unwrap();
            assert_eq!(blocks.send, sent, "{options}");
            for (rank, [input, output]) in [(0, root), (1, other), (2, other)] {
                let shape = by_blocks.shape_of(rank, 4);
                assert_eq!([shape.input, shape.output], [input, output], "{options}");
                // Whose plans take the whole on every rank, so that there is room for the blocks.
                for item in &own {
                    let whole = item.shape_of(rank, 4);
                    assert!(whole.input >= input && whole.output >= output, "{options}");
                    assert_eq!(item.cell, by_blocks.cell, "{options}");
                }
            }
        }
    }

    #[test]
    fn what_is_in_the_table_is_skipped_unless_asked_for_again() {
        let options = "allgather broadcast -b 1K -e 4K -f 4";
        let (_, cells) = job(&args(options), &empty(), &[], Sizes::Asked).unwrap();
        assert_eq!(cells.len(), 4);
        let mut table = empty();
        let cell = cells.of(0);
        let names: Vec<String> =
            (0..cell.candidates).map(|item| cells.name(item).to_owned()).collect();
        let times = |names: &[String]| Times::new(names.iter().map(|name| (name.clone(), 1)));
        table.record(&cell.setting, cell.bytes, times(&names));
        let left = |options: &str, table: &Table| {
            let (_, cells) = job(&args(options), table, &[], Sizes::Asked).unwrap();
            (cells.len(), cells.skipped)
        };
        assert_eq!(left(options, &table), (3, 1));
        assert_eq!(left(&format!("{options} --again"), &table), (4, 0));
        assert_eq!(left(&format!("{options} --threads"), &table), (4, 0), "other ranks");
        // A candidate that has come since.
        table.record(&cell.setting, cell.bytes, times(&names[1..]));
        assert_eq!(left(options, &table), (4, 0));
    }

    #[test]
    fn sizes_between_are_measured_where_another_takes_over() {
        let mut table = empty();
        let (_, cells) =
            job(&args("allreduce -b 256 -e 4K -f 4"), &table, &[], Sizes::Asked).unwrap();
        let (setting, count) = (cells.of(0).setting.clone(), cells.of(0).candidates);
        let names: Vec<String> = (0..count).map(|item| cells.name(item).to_owned()).collect();
        // The first of them is the fastest below 1 KiB, the last one above.
        for bytes in [256, 1024, 4096] {
            let times = names.iter().enumerate().map(|(position, name)| {
                let rank = if bytes < 1024 { position } else { count - position };
                (name.clone(), 100 * (rank as u64 + 1))
            });
            table.record(&setting, bytes, Times::new(times));
        }
        let sizes = |options: &str, table: &Table, which| {
            let (job, cells) = job(&args(options), table, &[], which).unwrap();
            let mut sizes: Vec<u64> =
                (0..job.settings.items.len()).map(|item| cells.of(item).bytes).collect();
            sizes.dedup();
            sizes
        };
        let options = "allreduce -b 256 -e 4K -f 4";
        assert!(sizes(options, &table, Sizes::Asked).is_empty());
        assert_eq!(sizes(options, &table, Sizes::Between), [512]);
        // Only within what is asked for.
        for options in ["allreduce --size 256", "allreduce -b 1K -e 4K -f 4", "allgather"] {
            assert!(sizes(options, &table, Sizes::Between).is_empty(), "{options}");
        }
        // Once measured, they grow as old as the others.
        let times = table.at(&setting, 256).unwrap().clone();
        table.record(&setting, 512, times);
        assert_eq!(sizes(options, &table, Sizes::Between), [768]);
        let again = format!("{options} --again");
        assert_eq!(sizes(&again, &table, Sizes::Asked), [256, 512, 1024, 4096]);
        assert_eq!(sizes(&again, &table, Sizes::Between), [768]);
        // The second is twice as slow: close, until that was found three times.
        let close = |table: &Table| sizes(options, table, Sizes::Close);
        assert_eq!(close(&table), [256, 512, 1024, 4096]);
        let once = table.at(&setting, 256).unwrap().clone();
        table.record(&setting, 512, once.and(&once));
        table.record(&setting, 256, once.and(&once).and(&once));
        assert_eq!(close(&table), [512, 1024, 4096]);
        assert_eq!(sizes("allreduce -b 1K -e 4K -f 4", &table, Sizes::Close), [1024, 4096]);
        assert_eq!(further(&args(options), &table, &[]).unwrap().unwrap().0, Sizes::Between);
        assert!(further(&args("allgather"), &table, &[]).unwrap().is_none());
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        for (options, word) in [
            ("--ranks 3 --nodes 2", "evenly"),
            ("allreduce alltoallv", "cannot tune alltoallv"),
            ("alltoallv", "cannot tune alltoallv"),
            ("allgatherv --nodes 2", "cannot tune allgatherv"),
            ("scatter allgatherv", "broadcast, reduce, gather, scatter and sendrecv"),
        ] {
            let error = job(&args(options), &empty(), &[], Sizes::Asked).err().unwrap().to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn what_is_installed_or_given_is_measured_where_it_fits() {
        let registry = Registry::new();
        let named = |name: &str| Terms { name: Some(name.to_owned()), ..Terms::default() };
        let plan = |algorithm: Algorithm, ranks| algorithm.plan(Shape::new(ranks)).unwrap();
        let narrow = Terms { max_bytes: 1024, ..named("narrow") };
        let rooted = |name, root| Terms { root: Some(root), ..named(name) };
        for (plan, terms) in [
            (plan(Algorithm::AllReduceRing, 2), narrow),
            (plan(Algorithm::AllReduceRing, 4), named("of four")),
            (plan(Algorithm::BroadcastZeroCopy, 2), rooted("from 0", 0)),
            (plan(Algorithm::ReducePackets, 2), named("of no root")),
            (Rooted::GatherPackets.plan(Shape::new(2)).unwrap(), rooted("to 0", 0)),
        ] {
            registry.register(plan, terms).unwrap();
        }
        let options = args("allreduce broadcast reduce gather -b 1K -e 4K -f 4");
        let (_, cells) = job(&options, &empty(), &registry.plans(), Sizes::Asked).unwrap();
        let measured: Vec<(u64, &str)> = (0..cells.items.len())
            .map(|item| (cells.of(item).bytes, cells.shown(cells.name(item))))
            .filter(|(_, name)| {
                ["narrow", "of four", "from 0", "of no root", "to 0"].contains(name)
            })
            .collect();
        let broadcasts = [(1024, "from 0"), (4096, "from 0")];
        assert_eq!(
            measured,
            [&[(1024, "narrow")], &broadcasts[..], &[(1024, "to 0"), (4096, "to 0")]].concat()
        );
        let idle: Vec<_> = cells.idle().collect();
        assert_eq!(idle, [("of four", "is for 4 ranks"), ("of no root", "has no root said")]);
    }

    #[test]
    fn a_file_of_another_machine_or_library_is_kept() {
        let folder = std::env::temp_dir().join(format!("antiphon-tune-{}", std::process::id()));
        let path = folder.join("tuning.json");
        replace(&path, empty().to_text().as_bytes()).unwrap();
        let here = Machine { cpu: "another".into(), cores: 2 };
        let error = begin(&path, here.clone(), false).unwrap_err().to_string();
        for word in ["an abacus", "another with 2 usable cores", "--again", "-o"] {
            assert!(error.contains(word), "no {word}: {error}");
        }
        assert_eq!(begin(&path, here.clone(), true).unwrap().machine(), &here);
        let early = Table::new(here.clone()).to_text().replace("library\": \"", "library\": \"0.");
        replace(&path, early.as_bytes()).unwrap();
        let error = begin(&path, here.clone(), false).unwrap_err().to_string();
        assert!(error.contains("of version 0.") && error.contains("--again"), "{error}");
        assert_eq!(begin(&path, here.clone(), true).unwrap(), Table::new(here.clone()));
        for no_table in [&b"{"[..], b"\xff\xfe"] {
            replace(&path, no_table).unwrap();
            let error = begin(&path, here.clone(), false).unwrap_err().to_string();
            assert!(error.contains("cannot read a tuning table"), "{error}");
            assert_eq!(begin(&path, here.clone(), true).unwrap(), Table::new(here.clone()));
        }
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(begin(&path, here.clone(), false).unwrap(), Table::new(here));
    }

    #[test]
    fn a_cell_is_a_line_the_fastest_first() {
        let times = Times::new([("slow".to_owned(), 12_345), ("fast".to_owned(), 1_500)]);
        let line = line(&Collective::AllGather, 4096, &times, |name| name);
        assert_eq!(line, "    allgather         4096 B  fast 1.500 us, slow 12.35 us");
    }
}
