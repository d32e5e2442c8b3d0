//! Tuning tables in communicators: a table that all ranks have decides.

use crate::support::children;
use crate::support::requests::{sum, sum_in_place};
use antiphon_executor::selection::table::{Kind, Machine, Setting, Table, Times};
use antiphon_executor::selection::{Rule, Tuning};
use antiphon_executor::{Collectives, Communicator, DataType, Options, Rendezvous};
use antiphon_hal::host::usable_cores;
use antiphon_plan::model::Collective;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Mutex;

/// The sum of ones over a communicator's ranks, as this rank has it.
fn summed(calls: &Collectives) -> [f32; 1024] {
    let (input, mut output) = ([1.0f32; 1024], [0.0f32; 1024]);
    // SAFETY: both arrays live past the call.
    unsafe { calls.call(&sum(&input, &mut output), None) }.unwrap();
    output
}

#[test]
fn the_table_of_the_options_decides_on_every_rank() {
    let mut table = Table::new(Machine::here());
    let (ranks, nodes, in_place) = (2, 1, false);
    let setting =
        Setting { collective: Collective::AllReduce, ranks, nodes, kind: Kind::Threads, in_place };
    let times = [("allreduce_ring", 5), ("allreduce_zero_copy", 9)];
    let times = Times::new(times.map(|(name, time)| (name.to_owned(), time)));
    table.record(&setting, 4096, times);
    // In place another one is faster: ranks need not agree on that, and so it does not count.
    let times = Times::new([("allreduce_zero_copy".to_owned(), 1)]);
    table.record(&Setting { in_place: true, ..setting }, 4096, times);
    for (tuning, rule) in
        [(Tuning::new(table), Rule::Table), (Tuning::none("of this test"), Rule::Size)]
    {
        let options = Options::default().with_tuning(tuning).with_reproducible(false);
        for communicator in Communicator::in_process(2, &options).unwrap() {
            let calls = Collectives::new(&communicator).unwrap();
            let question = calls.question(&Collective::AllReduce, 4096, DataType::F32);
            let choice = calls.explain(&question).unwrap();
            assert_eq!(choice.rule, rule, "{choice}");
            let ring = choice.candidate.name() == "allreduce_ring";
            assert_eq!(ring, rule == Rule::Table, "{choice}");
        }
        let ranks = Communicator::in_process(2, &options).unwrap();
        std::thread::scope(|scope| {
            for (rank, communicator) in ranks.iter().enumerate() {
                scope.spawn(move || {
                    let calls = Collectives::new(communicator).unwrap();
                    let (mut output, input) = ([1.0f32; 1024], [1.0f32; 1024]);
                    let request = match rank {
                        0 => sum_in_place(&mut output),
                        _ => sum(&input, &mut output),
                    };
                    // SAFETY: both arrays live past the call.
                    unsafe { calls.call(&request, None) }.unwrap();
                    assert_eq!(output, [2.0; 1024]);
                });
            }
        });
    }
}

/// What the ranks are told: the cores that they are bound to, if any, and who decides their calls.
const CORES: &str = "ANTIPHON_TEST_CORES";
const RULE: &str = "ANTIPHON_TEST_RULE";

/// Warnings of this process.
struct Warnings(Mutex<Vec<String>>);

impl log::Log for Warnings {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        self.0.lock().unwrap().push(record.args().to_string());
    }

    fn flush(&self) {}
}

/// A rank of two, whose table is the process's.
fn rank_of_two(place: &Rendezvous) {
    static WARNINGS: Warnings = Warnings(Mutex::new(Vec::new()));
    log::set_logger(&WARNINGS).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
    let (cores, rule) = (std::env::var(CORES).unwrap(), std::env::var(RULE).unwrap());
    if let Some(core) = cores.split_whitespace().nth(place.rank as usize) {
        let mut only = CpuSet::new();
        only.set(core.parse().unwrap());
        sched_setaffinity(None, &only).unwrap();
    }
    let options = Options::default().with_reproducible(false);
    let communicator = Communicator::connect(place, &options).unwrap();
    for _ in 0..2 {
        let calls = Collectives::new(&communicator).unwrap();
        assert!(summed(&calls).iter().all(|sum| *sum == 2.0));
        let question = calls.question(&Collective::AllReduce, 4096, DataType::F32);
        let choice = calls.explain(&question).unwrap();
        assert_eq!(choice.rule.name(), rule, "{choice}");
        let ring = choice.candidate.name() == "allreduce_ring";
        assert_eq!(ring, choice.rule == Rule::Table, "{choice}");
        let why = "with 16 usable cores, and the 2 ranks are on";
        assert_eq!(choice.to_string().contains(why), !ring, "{choice}");
        communicator.barrier().unwrap();
    }
    let warnings = WARNINGS.0.lock().unwrap();
    let expected = usize::from(place.rank == 0 && rule != Rule::Table.name());
    assert_eq!(warnings.len(), expected, "{warnings:?}");
    assert!(warnings.iter().all(|one| one.contains("the 2 ranks are on")), "{warnings:?}");
}

#[test]
fn a_file_decides_for_processes_that_have_a_core_each_however_they_are_bound() {
    let test = a_file_decides_for_processes_that_have_a_core_each_however_they_are_bound;
    if let Some(place) = children::here(2) {
        return rank_of_two(&place);
    }
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("tuned-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut table = Table::new(Machine { cores: 16, ..Machine::here() });
    let setting = Setting {
        collective: Collective::AllReduce,
        ranks: 2,
        nodes: 1,
        kind: Kind::Processes,
        in_place: false,
    };
    let times = [("allreduce_ring", 5), ("allreduce_zero_copy", 9)];
    table.record(&setting, 4096, Times::new(times.map(|(name, time)| (name.to_owned(), time))));
    let file = folder.join("tuning.json");
    std::fs::write(&file, table.to_text()).unwrap();
    let allowed = sched_getaffinity(None).unwrap();
    let allowed: Vec<_> = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).collect();
    let [first, second] = [0, 1].map(|rank| allowed[rank % allowed.len()]);
    // Of a file in the cache folder, and of one that is named.
    for (named, cores, used) in [
        (Path::new(""), String::new(), usable_cores() > 1),
        (file.as_path(), format!("{first} {second}"), allowed.len() > 1),
        (file.as_path(), format!("{first} {first}"), false),
    ] {
        let rule = if used { Rule::Table } else { Rule::Size };
        let variables: [(&str, &OsStr); 4] = [
            ("ANTIPHON_CACHE_DIR", folder.as_ref()),
            ("ANTIPHON_TUNING", named.as_ref()),
            (CORES, cores.as_ref()),
            (RULE, rule.name().as_ref()),
        ];
        let ends = children::run(test, 2, |_| &variables);
        assert!(ends.iter().all(|end| end.success()), "{variables:?}: {ends:?}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
