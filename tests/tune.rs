//! `antiphon tune` from outside: what it measures, and what its table is for.

use antiphon_tests::Folder;
use antiphon_tests::harness::text;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn what_was_measured_stays_and_decides() {
    let folder = Folder::new(env!("CARGO_TARGET_TMPDIR"), "tune").unwrap();
    let cache = folder.join("cache");
    let tune = |options: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
        command.env("ANTIPHON_CACHE_DIR", &cache).arg("tune").args(options);
        let output = command.args(["--time", "1ms"]).output().unwrap();
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    let table = cache.join("tuning.json");
    let read = || -> Value { serde_json::from_slice(&std::fs::read(&table).unwrap()).unwrap() };
    let (status, said) = tune(&["allreduce", "reducescatter", "--size", "64", "--threads"]);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("2 cells") && said.contains("allreduce_hub"), "{said}");
    // As cargo sets it in this repository.
    let off = std::env::var("ANTIPHON_TUNING").is_ok_and(|value| value == "off");
    assert_eq!(said.contains("warning: ANTIPHON_TUNING is off"), off, "{said}");
    let first = read();
    let settings = first["settings"].as_array().unwrap();
    assert_eq!(settings.len(), 2, "{first}");
    assert_eq!((&settings[0]["kind"], &settings[0]["ranks"]), (&"threads".into(), &2.into()));
    let times = settings[0]["sizes"][0]["times_ns"].as_object().unwrap();
    assert!(times.len() >= 5 && times.values().all(|time| time.as_u64().unwrap() > 0), "{first}");
    // What is there stays.
    let (status, said) = tune(&["allreduce", "-b", "64", "-e", "256", "-f", "4", "--threads"]);
    assert!(status == Some(0) && said.contains("1 cells, 1 are there already"), "{said}");
    let second = read();
    assert_eq!(second["settings"][0]["sizes"][0], first["settings"][0]["sizes"][0]);
    // These two, and what it took to tell between them who is the fastest.
    let sizes = second["settings"][0]["sizes"].as_array().unwrap();
    assert!((2..=12).contains(&sizes.len()) && sizes.last().unwrap()["bytes"] == 256, "{second}");
    let (status, said) = tune(&["allreduce", "-b", "64", "-e", "256", "-f", "4", "--threads"]);
    assert!(status == Some(0) && said.contains("nothing to measure"), "{said}");
    let (status, said) = tune(&["allreduce", "--size", "64", "--threads"]);
    assert!(status == Some(0) && said.contains("nothing to measure"), "{said}");
    assert_eq!(read(), second);
    // Ranks as processes, in place, and over two nodes.
    let (status, said) = tune(&["allgather", "--size", "64", "--in-place"]);
    assert_eq!(status, Some(0), "{said}");
    let nodes = ["--size", "64", "--threads", "--ranks", "4", "--nodes", "2"];
    let (status, said) = tune(&nodes);
    assert!(status == Some(0) && said.contains("8 cells"), "{said}");
    let (status, said) = tune(&["alltoall", "--size", "64", "--threads", "--nodes", "2"]);
    assert!(status == Some(0) && said.contains("hierarchical"), "{said}");
    assert_eq!(read()["settings"].as_array().unwrap().len(), 12);
    // A gather and a scatter, by their blocks and by plans of their own, with ranks as processes; and all eight.
    let (status, said) = tune(&["gather", "scatter", "--size", "64"]);
    assert!(status == Some(0) && said.contains("2 cells"), "{said}");
    for name in ["alltoallv_zero_copy", "gather_packets", "scatter_zero_copy"] {
        assert!(said.contains(name), "{name}: {said}");
    }
    let (status, said) = tune(&["--size", "64", "--threads"]);
    assert!(status == Some(0) && said.contains("6 cells, 2 are there already"), "{said}");
    let all = read();
    let gathers = all["settings"].as_array().unwrap().iter();
    let gathers = gathers.filter(|one| one["collective"] == "gather").count();
    assert_eq!((all["settings"].as_array().unwrap().len(), gathers), (20, 3), "{all}");
    // And it decides.
    let explain_of = |collective: &str, tuning: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
        command.env("ANTIPHON_TUNING", tuning).args(["explain", collective, "--ranks", "2"]);
        let output = command.args(["--size", "64", "--json"]).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let explain = |tuning: &Path| explain_of("allreduce", tuning);
    assert_eq!(explain_of("gather", &table)["rule"], "tuning table");
    assert_eq!(explain_of("scatter", Path::new("off"))["rule"], "rule by size");
    let decided = explain(&table);
    let times = first["settings"][0]["sizes"][0]["times_ns"].as_object().unwrap();
    let best = times.iter().min_by_key(|(name, time)| (time.as_u64(), (*name).clone())).unwrap().0;
    assert_eq!(decided["rule"], "tuning table", "{decided}");
    assert_eq!(decided["chosen"]["name"].as_str(), Some(best.as_str()), "{decided}");
    let off = explain(Path::new("off"));
    assert_eq!(off["rule"], "rule by size", "{off}");
    // A file that is no table is not written over, unless that was asked for.
    std::fs::write(&table, "{").unwrap();
    let (status, said) = tune(&["allgather", "--size", "64"]);
    assert!(status == Some(2) && said.contains("tuning.json"), "{said}");
    assert_eq!(std::fs::read(&table).unwrap(), b"{");
    assert_eq!(std::fs::read_dir(&cache).unwrap().count(), 1);
}

/// The calls that a table has, by collective and size, with their times.
fn calls(table: &Path) -> BTreeMap<(String, u64), Value> {
    let json: Value = serde_json::from_slice(&std::fs::read(table).unwrap()).unwrap();
    let settings = json["settings"].as_array().unwrap().iter();
    let sizes = settings.flat_map(|setting| {
        let collective = setting["collective"].as_str().unwrap();
        let sizes = setting["sizes"].as_array().unwrap().iter();
        sizes.map(move |size| ((collective.to_owned(), size["bytes"].as_u64().unwrap()), size))
    });
    sizes.map(|(call, size)| (call, size.clone())).collect()
}

#[test]
fn one_tuning_at_a_time_writes_a_table() {
    let folder = Folder::new(env!("CARGO_TARGET_TMPDIR"), "turns").unwrap();
    let tune = |table: &str, time: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
        command.env("ANTIPHON_INSTALLED", "off").args(["tune", "--threads", "--time", time, "-o"]);
        command.arg(folder.join(table)).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let further = |table: &str| {
        let output = tune(table, "1ms").args(["allgather", "--size", "64"]).output().unwrap();
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    let mut first = tune("one.json", "600s").stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(first.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    let (status, said) = further("one.json");
    let holder = format!("one.json: process {} does", first.id());
    assert!(status == Some(2) && said.contains(&holder), "{said}");
    assert_eq!(further("two.json").0, Some(0));
    first.kill().unwrap();
    first.wait().unwrap();
    let (status, said) = further("one.json");
    assert_eq!(status, Some(0), "{said}");
    for table in ["one.json", "two.json"] {
        assert!(folder.join(table).exists() && !folder.join(format!("{table}.lock")).exists());
    }
}

#[test]
fn a_tuning_that_was_killed_goes_on_where_it_was() {
    let folder = Folder::new(env!("CARGO_TARGET_TMPDIR"), "killed").unwrap();
    let table = folder.join("tuning.json");
    // What it announces, and the first call that it has a line for: then it is killed.
    let killed = || -> (String, (String, u64)) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
        command.env("ANTIPHON_INSTALLED", "off").args(["tune", "--threads", "--time", "20ms"]);
        command.arg("-o").arg(&table).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let announced = lines.next().unwrap();
        let call = lines.next().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let count = announced.rsplit(": ").next().unwrap().to_owned();
        let words: Vec<&str> = call.split_whitespace().collect();
        (count, (words[0].to_owned(), words[1].parse().unwrap()))
    };
    let (count, measured) = killed();
    assert_eq!(count, "96 cells");
    let known = calls(&table);
    assert!(known.contains_key(&measured), "{measured:?} was said, and not written: {known:?}");
    let (count, next) = killed();
    let left = 96 - known.len();
    assert_eq!(count, format!("{left} cells, {} are there already", known.len()));
    assert!(!known.contains_key(&next), "{next:?} was measured again");
    let further = calls(&table);
    assert!(further.contains_key(&next), "{next:?}: {further:?}");
    assert!(known.iter().all(|(call, times)| further.get(call) == Some(times)), "{further:?}");
}

/// The command says what it warns of as the libraries do: with the time, the host and the process in front.
#[test]
fn a_warning_says_when_and_in_which_process() {
    let folder = Folder::new(env!("CARGO_TARGET_TMPDIR"), "warning").unwrap();
    let table = folder.join("tuning.json");
    std::fs::write(&table, "no table").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
    command.args(["explain", "allreduce", "--ranks", "2", "--size", "16K"]);
    command
        .env("ANTIPHON_TUNING", &table)
        .env("ANTIPHON_INSTALLED", "off")
        .env_remove("ANTIPHON_LOG");
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id().to_string();
    let said = text(&child.wait_with_output().unwrap().stderr);
    let line = said.lines().find(|line| line.contains("cannot read a tuning table"));
    let words: Vec<&str> = line.unwrap_or_else(|| panic!("{said}")).splitn(5, ' ').collect();
    let form = words[0].replace(|c: char| c.is_ascii_digit(), "0");
    assert_eq!(form, "0000-00-00T00:00:00.000Z", "{said}");
    assert_eq!(words[2..4], [pid.as_str(), "WARN"], "{said}");
    assert!(words[4].starts_with(&table.display().to_string()), "{said}");
}
