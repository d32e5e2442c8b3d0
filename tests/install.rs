//! `antiphon install` from outside: what it writes, and what serves calls from then on.

use antiphon::plan::algorithms::{Algorithm, Shape};
use antiphon::plan::model::{Collective, Plan};
use antiphon_tests::Folder;
use antiphon_tests::harness::plans::{deadlocking, json};
use antiphon_tests::harness::text;
use serde_json::Value;
use std::process::Command;

fn save(folder: &Folder, name: &str, plan: &Plan) -> String {
    let path = folder.join(name);
    std::fs::write(&path, json(plan)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn an_installed_plan_serves_calls_and_is_measured_beside_what_is_built_in() {
    let folder = Folder::new(env!("CARGO_TARGET_TMPDIR"), "install").unwrap();
    let cache = folder.join("cache");
    let ring = Algorithm::AllReduceRing.plan(Shape::new(2)).unwrap();
    let pull = Algorithm::AllReduceZeroCopy.plan(Shape::new(2)).unwrap();
    let path = save(&folder, "mine.json", &Plan { name: "mine".into(), ..ring.clone() });
    let run = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
        command.env("ANTIPHON_CACHE_DIR", &cache);
        // Set to nothing is not set.
        command.env("ANTIPHON_TUNING", "").env("ANTIPHON_INSTALLED", "");
        let output = command.envs(variables.iter().copied()).args(arguments).output().unwrap();
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    let (status, said) = run(&["install", "--list"], &[]);
    assert!(status == Some(0) && said.is_empty(), "{said}");
    let file = cache.join("installed").join("mine.json");
    for _ in 0..2 {
        let (status, said) = run(&["install", &path, "--max", "64K"], &[]);
        let expected = format!("installed mine: {}", file.display());
        assert!(status == Some(0) && said.trim() == expected, "{said}");
    }
    // The file is a plan like any other.
    let (status, said) = run(&["plan", "check", file.to_str().unwrap()], &[]);
    assert!(status == Some(0) && said.contains("OK"), "{said}");
    let explain = |variables: &[(&str, &str)]| {
        let asks = ["explain", "allreduce", "--ranks", "2", "--size", "64", "--threads", "--json"];
        let (status, said) = run(&asks, variables);
        assert_eq!(status, Some(0), "{said}");
        let line = said.lines().find(|line| line.starts_with('{')).unwrap();
        let json: Value = serde_json::from_str(line).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&json["chosen"]["name"]), text(&json["rule"]), json)
    };
    let is = |(name, rule, json): (String, String, Value), wanted: (&str, &str)| {
        assert_eq!((name.as_str(), rule.as_str()), wanted, "{json}");
    };
    is(explain(&[]), ("mine", "installed plan"));
    let off = explain(&[("ANTIPHON_INSTALLED", "off")]);
    assert_eq!(off.1, "rule by size", "{}", off.2);
    // Measured like the others, it serves where it is the fastest.
    let other = save(&folder, "other.json", &Plan { name: "other".into(), ..pull });
    let tune =
        ["tune", "allreduce", "--size", "64", "--threads", "--time", "1ms", "--plan", &other];
    let (status, said) = run(&tune, &[]);
    assert_eq!(status, Some(0), "{said}");
    let table = cache.join("tuning.json");
    let mut times: Value = serde_json::from_slice(&std::fs::read(&table).unwrap()).unwrap();
    // Plans are told apart by what they do, whatever they are called.
    let measured = times["settings"][0]["sizes"][0]["times_ns"].as_object().unwrap();
    let plans: Vec<String> =
        measured.keys().filter(|name| name.starts_with("plan ")).cloned().collect();
    assert!(plans.len() == 2 && measured["allreduce_hub"].is_u64(), "{times}");
    for (time, rule) in [(1_u64, "tuning table"), (1 << 40, "tuning table")] {
        for plan in &plans {
            times["settings"][0]["sizes"][0]["times_ns"][plan] = time.into();
        }
        std::fs::write(&table, times.to_string()).unwrap();
        let (name, decided, json) = explain(&[]);
        assert_eq!((name == "mine", decided.as_str()), (time == 1, rule), "{json}");
    }
    // Another plan by the name has no times, until it is measured.
    let hub = Algorithm::AllReduceHub.plan(Shape::new(2)).unwrap();
    let replacing = save(&folder, "replacing.json", &Plan { name: "mine".into(), ..hub });
    assert_eq!(run(&["install", &replacing], &[]).0, Some(0));
    is(explain(&[]), ("mine", "installed plan"));
    assert_eq!(run(&["install", &path, "--max", "64K"], &[]).0, Some(0));
    assert_eq!(explain(&[]).1, "tuning table");
    std::fs::remove_file(&table).unwrap();
    // What is no installed plan breaks nothing.
    let bad = cache.join("installed").join("bad.json");
    std::fs::write(&bad, "{").unwrap();
    let found = explain(&[]);
    assert!(found.2["left_out"][0].as_str().unwrap().contains("bad.json"), "{}", found.2);
    is(found, ("mine", "installed plan"));
    let (status, said) = run(&["install", "--list"], &[]);
    assert_eq!(status, Some(0));
    for part in [
        "installed mine: allreduce on 2 ranks, out of place, 0 to 65536 bytes",
        "bad.json: it cannot",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let wrong = save(&folder, "wrong.json", &Plan { name: "wrong".into(), ..deadlocking() });
    for (arguments, status, part) in [
        (vec!["install", wrong.as_str()], 1, "it is refuted"),
        (vec!["install", &path, "--name", "allreduce_hub"], 2, "a built-in algorithm"),
        (vec!["install", &path, &wrong, "--name", "x"], 2, "--name"),
        (vec!["install", &path, "--min", "64K", "--max", "4K"], 2, "4096"),
        (vec!["install", &path, "--tag", "a,b"], 2, "texts without commas"),
        (vec!["install", &path, "--root", "1"], 2, "it is for allreduce, which has none"),
        (vec!["install", &path, "--ranks-per-node", "3"], 2, "allowed what divides them"),
        (vec!["install", "--ranks", "3", "--nodes", "2"], 2, "evenly"),
        (vec!["install", "--ranks", "4294967295"], 2, "up to 1024"),
        (vec!["install", "--remove", "mine", "--remove", "other"], 1, "removed mine"),
        (vec!["install", "--remove", "mine"], 1, "no plan of that name"),
    ] {
        let (found, said) = run(&arguments, &[]);
        assert!(found == Some(status) && said.contains(part), "{arguments:?}: {found:?} {said}");
    }
    let test = Plan { name: "test".into(), collective: Collective::Test, ..ring };
    let test = save(&folder, "test.json", &test);
    let (status, said) = run(&["install", &test], &[]);
    assert!(status == Some(0) && said.contains("`test` serves nothing"), "{said}");
    assert_eq!(explain(&[]).1, "rule by size");
    // The default plans are files for whoever runs plans; they serve nothing by themselves.
    let (status, said) = run(&["install", "--ranks", "2"], &[]);
    let written: Vec<&str> = said.lines().collect();
    assert!(status == Some(0) && written.len() >= Algorithm::ALL.len() / 2, "{said}");
    let hub = written.iter().find(|path| path.contains("allreduce_hub_2ranks")).unwrap();
    assert!(hub.starts_with(cache.join("default").to_str().unwrap()));
    let (status, said) = run(&["run", hub, "--threads", "--size", "64", "-n", "1"], &[]);
    assert_eq!(status, Some(0), "{said}");
    assert_eq!(explain(&[]).1, "rule by size");
}
