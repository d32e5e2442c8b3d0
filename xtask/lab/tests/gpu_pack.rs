//! `cargo xtask gpu-pack`: that a folder is packed, and that its script runs in a bare environment, on the simulated driver, which
//! is no GPU.

use antiphon_tests::harness::text;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn passed(output: &Output) -> String {
    let (printed, said) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{printed}\n{said}");
    printed
}

/// What this workspace has built before, if all that is packed is among it.
fn built() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_BIN_EXE_antiphon-lab")).parent()?;
    let tests = fs::read_dir(folder.join("deps")).ok()?.flatten();
    let names: Vec<String> = tests.map(|file| file.file_name().to_string_lossy().into()).collect();
    let has = |test: &str| names.iter().any(|name| name.starts_with(test));
    let program = |name: &str| folder.join(name).exists();
    let all = program("antiphon") && program("gpu-bench") && has("hal_cuda-") && has("gpu_engine-");
    all.then(|| folder.to_owned())
}

#[test]
fn a_pack_runs_where_there_is_nothing_but_a_driver() {
    let test = "a_pack_runs_where_there_is_nothing_but_a_driver";
    let Some(driver) = antiphon_tests::simulated::environment(test, env!("CARGO_TARGET_TMPDIR"))
    else {
        return;
    };
    let Some(built) = built() else {
        let needed = std::env::var_os("ANTIPHON_NEEDS_SIMULATOR").is_some();
        assert!(!needed, "the command and the tests of GPUs were not built");
        let why = "the command and the tests of GPUs were not built; `cargo test --workspace` does";
        let _ = writeln!(std::io::stderr(), "SKIP {test}: {why}");
        return;
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gpu-pack");
    let mut pack = Command::new(env!("CARGO_BIN_EXE_antiphon-lab"));
    // The simulated driver could not run what the vendor's compiler makes.
    pack.args(["gpu-pack", "--without-code", "--out"]).arg(&folder).arg("--from").arg(built);
    let output = pack.output().unwrap();
    let with_nccl = !text(&output.stderr).contains("no nccl.h");
    let needed = std::env::var_os("ANTIPHON_NEEDS_NCCL_HEADER").is_some();
    assert!(with_nccl || !needed, "{}", text(&output.stderr));
    let output = if with_nccl { output } else { pack.arg("--without-nccl").output().unwrap() };
    let said = passed(&output);
    assert!(said.contains("run.sh"), "{said}");
    // The folder with the simulated driver stands for the loader's path; nothing else is told.
    let libraries =
        driver.iter().find(|(name, _)| *name == "ANTIPHON_CUDA_LIB").unwrap().1.parent().unwrap();
    let log = folder.join("log");
    let script = |arguments: &[&str], devices: &str| {
        let mut script = Command::new(folder.join("run.sh"));
        script.args(arguments).arg(&log).env_clear().current_dir("/");
        script.env("PATH", "/usr/bin:/bin").env("LD_LIBRARY_PATH", libraries);
        // Where the simulated compiler keeps what it makes.
        let kept = driver.iter().filter(|(name, _)| name.starts_with("ANTIPHON_GPUSIM"));
        script.envs(kept.map(|(name, path)| (name, path)));
        script.env("ANTIPHON_GPUSIM_DEVICES", devices);
        script
    };
    let run = |devices| passed(&script(&["--quick"], devices).output().unwrap());
    // Where there is one device, what takes several is passed over by name; the second time it runs.
    let test = "reproducible::a_sum_has_the_same_bits_in_every_message_and_place";
    let passed_over = "SKIP   engine-reproducible: ";
    let said = run("1");
    let line = format!("{passed_over}{test}: it needs 4 devices, and there is 1\n");
    assert!(said.contains("ok     engine-reproducible,") && said.contains(&line), "{said}");
    let said = run("4");
    assert!(!said.contains(passed_over), "{said}");
    for step in [
        "info",
        "engine-reproducible",
        "client-device-threads",
        "client-device-together",
        "client-device-misuse",
        "two_shot_packets_4-generated",
        "two_shot_packets_4-interpreted",
        "bench-allreduce-2-generated",
        "benchmark",
    ] {
        let ok = |line: &str| line.starts_with("ok ") && line.contains(step);
        assert!(said.lines().any(ok), "{step}: {said}");
    }
    assert!(!said.contains("FAILED"), "{said}");
    // Whoever packs says so where there is no header of NCCL's.
    for client in ["client-devices-together", "client-coded"] {
        let outcome =
            if with_nccl { format!("ok     {client},") } else { format!("SKIP   {client}:") };
        assert!(said.contains(&outcome), "{outcome} {said}");
    }
    let summary = fs::read_to_string(log.join("summary.txt")).unwrap();
    assert!(said.starts_with(summary.split("ok     benchmark").next().unwrap()), "{said}");
    benchmark(&log, &said);
    let all = fs::read_to_string(log.join("all.log")).unwrap();
    assert!(all.contains("==> info: status 0") && all.contains("  cuda: 0: "), "{all}");
    // What comes back from a machine that takes few files.
    let mut files: Vec<_> =
        fs::read_dir(&log).unwrap().flatten().map(|file| file.file_name()).collect();
    files.sort();
    assert_eq!(files, ["all.log", "gpu-bench.json", "gpu-bench.md", "summary.txt"]);
    // A step that fails is told, with its end, and so is the whole. Nothing else is run than what is asked for.
    let failing = |script: &mut Command| {
        let output = script.output().unwrap();
        let said = text(&output.stdout);
        assert!(!output.status.success(), "{said}");
        (output.status.code(), said, text(&output.stderr))
    };
    let mut nowhere = script(&["--quick", "--only", "plans,info"], "1");
    let (_, said, _) = failing(nowhere.env("ANTIPHON_CUDA_LIB", "/nowhere"));
    assert!(said.contains("ok     info,") && said.contains("FAILED plan-"), "{said}");
    assert!(
        said.contains("    ") && said.contains("/nowhere") && !said.contains("client-"),
        "{said}"
    );
    // And so are steps for which there is no time left, and parts that there are not.
    let (_, said, _) = failing(script(&["--quick"], "1").env("ANTIPHON_DEADLINE", "1"));
    assert!(said.contains("NOT RUN info: the time is over") && !said.contains("ok  "), "{said}");
    let (code, _, said) = failing(&mut script(&["--only", "info,all"], "1"));
    assert!(code == Some(2) && said.contains("saw all, allowed info benchmark"), "{said}");
    fs::remove_dir_all(&folder).unwrap();
}

/// That the benchmark has measured all of its parts, and says that they are nothing of a GPU.
fn benchmark(log: &Path, said: &str) {
    let page = fs::read_to_string(log.join("gpu-bench.md")).unwrap();
    assert!(said.contains(&page), "the tables are printed");
    assert!(page.contains("THIS IS THE SIMULATED DRIVER, NOT A GPU"), "{page}");
    assert!(!page.contains("not measured"), "{page}");
    let json: Value =
        serde_json::from_str(&fs::read_to_string(log.join("gpu-bench.json")).unwrap()).unwrap();
    assert_eq!(json["simulated"], true);
    let sections = json["sections"].as_array().unwrap();
    let names: Vec<_> = sections.iter().map(|section| section["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["copies", "launches", "forms", "host", "graphs", "compile"]);
    for section in sections {
        for line in section["lines"].as_array().unwrap() {
            for subject in line["subjects"].as_array().unwrap() {
                assert!(subject["p50_ns"].as_u64().is_some_and(|took| took > 0), "{line}");
                assert!(subject["p99_ns"].as_u64() >= subject["p50_ns"].as_u64(), "{line}");
            }
        }
        let mut lines = section["lines"].as_array().unwrap().iter();
        assert!(lines.any(|line| !line["goals"].as_array().unwrap().is_empty()), "{section}");
    }
}
