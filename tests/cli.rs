//! The `antiphon` command from outside: what it prints and how it exits.

use antiphon::plan::algorithms::{self, Algorithm, Shape};
use antiphon::plan::builder::ProgramBuilder;
use antiphon::plan::model::{ChannelTable, Collective, Plan};
use antiphon_tests::harness::plans::{deadlocking, json};
use antiphon_tests::harness::text;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A folder for one test's files.
fn folder(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn save(test: &str, name: &str, plan: &Plan) -> String {
    let path = folder(test).join(name);
    std::fs::write(&path, json(plan)).unwrap();
    path.to_str().unwrap().to_owned()
}

fn antiphon(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
    // Whatever was tuned and installed on this machine is not what is tested.
    command.env("ANTIPHON_TUNING", "off").env("ANTIPHON_INSTALLED", "off");
    command.args(arguments).output().unwrap()
}

/// Standard output of a command that must succeed.
fn succeeds(arguments: &[&str]) -> String {
    let output = antiphon(arguments);
    let (said, printed) = (text(&output.stderr), text(&output.stdout));
    assert!(output.status.success(), "{arguments:?}: {}\n{said}\n{printed}", output.status);
    printed
}

/// Standard error of a command that must exit with `status`.
fn fails(arguments: &[&str], status: i32) -> String {
    let output = antiphon(arguments);
    let (said, printed) = (text(&output.stderr), text(&output.stdout));
    assert_eq!(output.status.code(), Some(status), "{arguments:?}:\n{said}\n{printed}");
    assert!(!said.contains("panicked"), "{arguments:?}: {said}");
    said
}

/// Plans with runtime sizes: alltoallv and allgatherv, and one that promises nothing.
fn runtime_sizes() -> Vec<(&'static str, Plan)> {
    use antiphon::plan::algorithms::{Handshake, allgatherv, alltoallv};
    let other =
        ProgramBuilder::new("half", Collective::Other("half".into()), 2).runtime_blocks(2, 1);
    let channel = other.channel(0, 1);
    for me in 0..2 {
        let block = other.block(me);
        block.signal(&[channel]);
        block.wait(&[channel]);
        block.put(other.input(me).chunk(me), other.output(1 - me).chunk(0));
        block.signal(&[channel]);
        block.wait(&[channel]);
    }
    vec![
        ("alltoallv", alltoallv::zero_copy(Shape { blocks: 2, ..Shape::new(3) }).unwrap()),
        ("allgatherv", allgatherv::zero_copy(Shape::new(3)).unwrap()),
        (
            "allgatherv_in_place",
            allgatherv::zero_copy(Shape {
                in_place: true,
                handshake: Handshake::Hub,
                ..Shape::new(3)
            })
            .unwrap(),
        ),
        ("other", other.build().unwrap()),
    ]
}

#[test]
fn plans_with_runtime_sizes_run_with_counts_of_any_kind() {
    for (name, plan) in runtime_sizes() {
        let path = save("runtime_sizes", &format!("{name}.json"), &plan);
        succeeds(&["plan", "check", &path]);
        let shown = succeeds(&["plan", "show", &path]);
        assert!(shown.contains("vput"), "{shown}");
        for (mode, counts) in [
            ("--threads", "uneven"),
            ("--processes", "uneven"),
            ("--threads", "even"),
            ("--threads", "random:3"),
        ] {
            let printed = succeeds(&[
                "run", &path, mode, "--counts", counts, "-b", "12", "-e", "12K", "-f", "32", "-n",
                "2", "-w", "1", "--dtype", "bf16", "--json",
            ]);
            let json: Value = serde_json::from_str(&printed).unwrap();
            assert_eq!(json["counts"], counts, "{name}: {printed}");
            let rows = json["rows"].as_array().unwrap();
            assert_eq!(rows.len(), 3, "{name}: {printed}");
            for row in rows {
                assert_eq!(row["wrong"], 0, "{name} {mode} {counts}: {row}");
                let sums = |side: &str| -> Vec<u64> {
                    let ranks = row[side].as_array().unwrap().iter();
                    let sum = |rank: &Value| {
                        rank.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum()
                    };
                    ranks.map(sum).collect()
                };
                let largest =
                    sums("send_counts").into_iter().chain(sums("receive_counts")).max().unwrap();
                assert_eq!(row["bytes"], 2 * largest, "{name}: {row}");
            }
        }
    }
}

#[test]
fn counts_are_printed_and_taken_from_the_command_line_and_files() {
    let plans = runtime_sizes();
    let path = save("counts", "alltoallv.json", &plans[0].1);
    let run = ["run", &path, "-n", "1", "-w", "0", "--threads"];
    fn joined<'a>(first: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
        [first, more].concat()
    }
    let with = |more: &[&'static str]| joined(&run, more);
    let printed = succeeds(&with(&[]));
    assert!(printed.contains(", counts uneven"), "{printed}");
    assert!(printed.contains("# counts at ") && printed.contains("rank 1 sends 0 "), "{printed}");
    assert!(printed.contains("# wrong elements: 0 OK"), "{printed}");
    let printed = succeeds(&with(&["--counts", "0,5,100:1,0,0:0,0,70000"]));
    let expected = "# counts at 280400 bytes: rank 0 sends 0 5 100, rank 1 sends 1 0 0, rank 2 sends 0 0 70000";
    assert!(printed.contains(expected), "{printed}");
    let file = folder("counts").join("counts.txt");
    std::fs::write(&file, "# from 0, 1 and 2\n0 0 0\n0 0 0\n9 0 0\n").unwrap();
    let printed = succeeds(&joined(&run, &["--counts", file.to_str().unwrap(), "--json"]));
    let json: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(
        (&json["counts"], &json["rows"][0]["wrong"]),
        (&"as given".into(), &0.into()),
        "{json}"
    );
    let sent = serde_json::json!([[0, 0, 0], [0, 0, 0], [9, 0, 0]]);
    assert_eq!(json["rows"][0]["send_counts"], sent);
    // Nothing at all.
    succeeds(&with(&["--size", "0"]));

    let allreduce =
        save("counts", "plan.json", &Algorithm::AllReduceZeroCopy.plan(Shape::new(2)).unwrap());
    let gathers = save("counts", "allgatherv.json", &plans[1].1);
    for (arguments, word) in [
        (with(&["--counts", "1,2:3,4"]), "a row for each of 3 ranks"),
        (with(&["--counts", "0,0,0:0,0,0:0,0,0", "--size", "1K"]), "leave one out"),
        (with(&["--in-place"]), "leave --in-place out"),
        (vec!["run", &gathers, "--in-place"], "an input and an output of their own"),
        (vec!["run", &allreduce, "--counts", "even"], "use --size"),
    ] {
        let said = fails(&arguments, 2);
        assert!(said.contains(word), "{arguments:?}: {said}");
    }
    let said = fails(&with(&["--counts", "no/such/file"]), 1);
    assert!(said.contains("no/such/file"), "{said}");
}

/// An alltoallv whose ranks 0 and 1 get each other's blocks of rank 2: the command must see it by itself.
#[test]
fn blocks_that_end_elsewhere_are_wrong() {
    let mut plan = runtime_sizes().swap_remove(0).1;
    for op in plan.gpus[2].threadblocks.iter_mut().flat_map(|block| &mut block.ops) {
        for chunk in &mut op.src {
            chunk.index = [1, 0, 2][chunk.index as usize];
        }
    }
    let path = save("counts", "swapped.json", &plan);
    let said = fails(&["run", &path, "--counts", "even", "-n", "1", "--threads", "--no-verify"], 1);
    assert!(said.contains("wrong result") && said.contains("expected"), "{said}");
}

#[test]
fn run_checks_every_example_in_both_modes() {
    for (name, plan) in algorithms::examples().unwrap() {
        let path = save("run", name, &plan);
        for mode in ["--threads", "--processes"] {
            let arguments = [
                "run", &path, mode, "-b", "60", "-e", "20K", "-f", "64", "-n", "3", "-w", "1",
                "--json",
            ];
            let printed = succeeds(&arguments);
            let json: Value = serde_json::from_str(&printed).unwrap();
            let ranks = plan.gpus.len();
            assert_eq!(json["ranks"], ranks, "{name}");
            let pids = json["pids"].as_array().unwrap();
            let pids: BTreeSet<u64> = pids.iter().map(|pid| pid.as_u64().unwrap()).collect();
            let expected = if mode == "--threads" { 1 } else { ranks };
            assert_eq!(pids.len(), expected, "{name} {mode}: {pids:?}");
            let rows = json["rows"].as_array().unwrap();
            assert_eq!(rows.len(), 2, "{name}: {printed}");
            for row in rows {
                assert_eq!(row["wrong"], 0, "{name} {mode}: {row}");
                let (p50, p99) = (row["p50_us"].as_f64().unwrap(), row["p99_us"].as_f64().unwrap());
                assert!(p50 > 0.0 && p99 >= p50, "{name}: {row}");
                assert!(row["bytes"].as_u64().unwrap() > 0, "{name}: {row}");
            }
        }
    }
}

/// Nobody reads what they print, as with `| head` that has seen enough.
#[test]
fn examples_end_quietly_when_nobody_reads_on() {
    let test = "examples_end_quietly_when_nobody_reads_on";
    // Beside the command, where cargo builds them for the tests of the whole package.
    let examples = Path::new(env!("CARGO_BIN_EXE_antiphon")).with_file_name("examples");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let changed = |file: &Path| file.metadata().and_then(|data| data.modified()).ok();
    for name in ["all_reduce", "registry", "ring_allreduce"] {
        let example = examples.join(name);
        if changed(&example) < changed(&sources.join(name).with_extension("rs")) {
            let why = "the examples are not built, or were before they changed; `cargo test` does";
            antiphon_tests::simulated::pass_over(test, why);
            return;
        }
        let mut command = Command::new(example);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        let output = output.wait_with_output().unwrap();
        let said = text(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{name}: {}: {said}", output.status);
    }
}

#[test]
fn run_prints_the_table_that_nccl_tests_users_know() {
    let plan = Algorithm::AllReduceZeroCopy.plan(Shape::new(2)).unwrap();
    let path = save("table", "plan.json", &plan);
    let printed =
        succeeds(&["run", &path, "--size", "4K", "-n", "2", "--dtype", "bf16", "--op", "max"]);
    for word in
        ["size", "count", "redop", "time p50", "algbw", "busbw", "#wrong", "4096", "bf16", "max"]
    {
        assert!(printed.contains(word), "no `{word}` in:\n{printed}");
    }
    assert!(printed.contains("# wrong elements: 0 OK"), "{printed}");
    let printed = succeeds(&["run", &path, "--size", "4K", "-n", "2", "-c", "0", "--no-verify"]);
    assert!(printed.contains("# results were not checked"), "{printed}");
    let printed = succeeds(&["run", &path, "--size", "4K", "-n", "2", "--in-place", "--threads"]);
    assert!(printed.contains("in place") && !printed.contains("out of place"), "{printed}");
}

#[test]
fn bench_needs_no_plan() {
    for collective in [
        "allreduce",
        "allgather",
        "reducescatter",
        "alltoall",
        "broadcast",
        "reduce",
        "sendrecv",
        "alltoallv",
        "allgatherv",
        "gather",
        "scatter",
    ] {
        let printed = succeeds(&[
            "bench", collective, "--ranks", "3", "-b", "24", "-e", "24K", "-f", "32", "-n", "3",
            "--json",
        ]);
        let json: Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(json["rows"].as_array().unwrap().len(), 3, "{collective}: {printed}");
        for row in json["rows"].as_array().unwrap() {
            assert_eq!(row["wrong"], 0, "{collective}: {row}");
        }
    }
}

#[test]
fn a_deadlock_ends_at_the_time_limit_with_who_waits_for_whom() {
    let path = save("deadlock", "plan.json", &deadlocking());
    for mode in ["--threads", "--processes"] {
        let start = Instant::now();
        let arguments = ["run", &path, mode, "--timeout", "3s", "--size", "1K", "--no-verify"];
        let said = fails(&arguments, 1);
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        for word in ["made no progress for 3s", "rank 0 block 0 waits at op", "from rank 1"] {
            assert!(said.contains(word), "{mode}: no `{word}` in:\n{said}");
        }
    }
}

#[test]
fn a_plan_runs_or_is_refused_as_plan_verify_says() {
    let right = Algorithm::AllReduceZeroCopy.plan(Shape::new(2)).unwrap();
    // In more orders than the verifier looks at.
    let program = ProgramBuilder::new("contended", Collective::SendRecv, 2);
    program.block(1).copy(program.input(1).all(), program.output(1).all());
    let semaphore = program.semaphore(0, 4);
    for _ in 0..8 {
        let block = program.block(0);
        (0..8).for_each(|_| {
            block.acquire(&[semaphore]);
            block.release(&[semaphore]);
        });
    }
    let contended = program.build().unwrap();
    let plans = [
        ("right.json", right, "proven"),
        ("deadlock.json", deadlocking(), "refuted"),
        ("contended.json", contended, "not_proven"),
    ];
    for (name, plan, expected) in plans {
        let path = save("verify", name, &plan);
        let output = antiphon(&["plan", "verify", "--json", &path]);
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        let entry = &json["plans"][0];
        let verdict = entry["verdict"].as_str().unwrap();
        assert_eq!(verdict, expected);
        let status = output.status.code().unwrap();
        assert_eq!(json["status"], status);
        assert_eq!(entry["name"], plan.name);
        let printed = text(&antiphon(&["plan", "verify", &path]).stdout);
        assert!(
            printed.starts_with(&format!("{path}: {}", verdict.replace('_', " "))),
            "{printed}"
        );
        // Only what cannot end reaches it.
        let limit = if expected == "refuted" { "3s" } else { "30s" };
        for mode in ["--threads", "--processes"] {
            let run = ["run", &path, mode, "--timeout", limit, "--size", "1K", "-n", "1"];
            let output = antiphon(&run);
            let said = text(&output.stderr);
            let warnings = said.matches("is not proven correct").count();
            match (verdict, status) {
                ("proven", 0) => assert!(output.status.success() && warnings == 0, "{said}"),
                ("refuted", 1) => {
                    assert_eq!(output.status.code(), Some(1), "{said}");
                    let fault = entry["faults"][0]["text"].as_str().unwrap();
                    for word in ["is refuted", "--no-verify", fault.lines().next().unwrap()] {
                        assert!(said.contains(word), "{mode}: no `{word}` in:\n{said}");
                    }
                    assert!(!said.contains("made no progress"), "{mode}: it ran:\n{said}");
                    assert_eq!(text(&output.stdout), "", "{mode}");
                }
                ("not_proven", 2) => {
                    assert_eq!(warnings, 1, "{mode}: {said}");
                    let reason = entry["reasons"][0].as_str().unwrap();
                    assert!(said.contains(&plan.name) && said.contains(reason), "{said}");
                }
                other => panic!("{other:?}"),
            }
            let mut unverified = run.to_vec();
            unverified.push("--no-verify");
            let said = text(&antiphon(&unverified).stderr);
            assert!(!said.contains("proven") && !said.contains("refuted"), "{mode}: {said}");
        }
    }
}

#[test]
fn verify_says_which_files_cannot_be_verified() {
    let right = Algorithm::AllReduceZeroCopy.plan(Shape::new(2)).unwrap();
    let mut faulty = right.clone();
    faulty.gpus[0].threadblocks[0].ops[1].channel_ids = vec![99];
    let right = save("unreadable", "right.json", &right);
    let faulty = save("unreadable", "faulty.json", &faulty);
    let garbage = folder("unreadable").join("garbage.json");
    std::fs::write(&garbage, b"{").unwrap();
    let garbage = garbage.to_str().unwrap();
    for (file, word) in [
        ("/nowhere/plan.json", "/nowhere/plan.json"),
        (garbage, "cannot read a plan"),
        (&faulty, "gpus[0].threadblocks[0].ops[1]"),
    ] {
        let said = fails(&["plan", "verify", file], 3);
        assert!(said.contains(word), "{file}: no `{word}` in:\n{said}");
        // What can be verified is, and the worst status counts.
        let output = antiphon(&["plan", "verify", "--json", file, &right]);
        assert_eq!(output.status.code(), Some(3), "{file}");
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        let (first, second) = (&json["plans"][0], &json["plans"][1]);
        assert_eq!((&first["verdict"], &first["status"]), (&"unreadable".into(), &3.into()));
        assert!(first["error"].as_str().unwrap().contains(word), "{first}");
        assert_ne!(second["verdict"], "unreadable", "{second}");
        assert!(second["error"].is_null(), "{second}");
    }
}

#[test]
fn check_lists_every_fault_with_its_place() {
    let mut plan = Algorithm::AllReduceZeroCopy.plan(Shape::new(2)).unwrap();
    let path = save("check", "right.json", &plan);
    assert_eq!(succeeds(&["plan", "check", &path]).trim(), "OK");
    plan.gpus[0].threadblocks[0].ops[1].channel_ids = vec![99];
    let last = plan.gpus[1].threadblocks[0].ops.len() - 1;
    plan.gpus[1].threadblocks[0].ops[last].channel_ids = vec![98];
    for table in &mut plan.gpus[1].channels {
        if let ChannelTable::Peers { connected_to, .. } = table {
            connected_to[0] = 7;
        }
    }
    let path = save("check", "wrong.json", &plan);
    let output = antiphon(&["plan", "check", &path]);
    assert_eq!(output.status.code(), Some(1));
    let all = text(&output.stdout) + &text(&output.stderr);
    for place in [
        "gpus[0].threadblocks[0].ops[1]",
        &format!("gpus[1].threadblocks[0].ops[{last}]"),
        "gpus[1].channels[0]",
    ] {
        assert!(all.contains(place), "no `{place}` in:\n{all}");
    }
    // And such a plan does not run.
    let said = fails(&["run", &path], 1);
    assert!(said.contains("gpus[0].threadblocks[0].ops[1]"), "{said}");
}

#[test]
fn show_draws_pages_and_figures() {
    let plan = algorithms::sendrecv::zero_copy(Shape::new(2)).unwrap();
    let path = save("drawn", "sendrecv.json", &plan);
    let (page, figure) = (folder("drawn").join("out.html"), folder("drawn").join("out.svg"));
    let (html, svg) = (page.to_str().unwrap(), figure.to_str().unwrap());
    let said = succeeds(&["plan", "show", &path, "--html", html, "--svg", svg, "--size", "64K"]);
    assert!(said.contains(&format!("wrote {html}")) && said.contains(&format!("wrote {svg}")));
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.starts_with("<!doctype html>") && text.contains(r#""clock":"h100x8""#));
    assert!(text.contains(r#""input":65536"#) && text.contains(r#""verdict":"proven""#));
    assert!(std::fs::read_to_string(&figure).unwrap().starts_with("<svg "));
    // Nothing is left of the drafts.
    let files: BTreeSet<_> = std::fs::read_dir(folder("drawn"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(files, ["out.html", "out.svg", "sendrecv.json"].map(str::to_owned).into());
    assert!(succeeds(&["plan", "show", &path, "--svg", "-"]).starts_with("<svg "));

    let message = fails(&["plan", "show", &path, "--topology", "h100x8"], 2);
    assert!(message.contains("--html"), "{message}");
    let message = fails(&["plan", "show", &path, "--html", html, "--topology", "moon"], 2);
    assert!(message.contains("moon") && message.contains("h100x8"), "{message}");
    let missing = folder("drawn").join("none").join("out.html");
    let message = fails(&["plan", "show", &path, "--html", missing.to_str().unwrap()], 1);
    assert!(message.contains("cannot write"), "{message}");
}

#[test]
fn show_summarises_and_lists() {
    let plan = Algorithm::AllReduceZeroCopy.plan(Shape::new(3)).unwrap();
    let path = save("show", "plan.json", &plan);
    let printed = succeeds(&["plan", "show", &path]);
    for word in ["allreduce_zero_copy_3", "allreduce", "rank", "memory"] {
        assert!(printed.contains(word), "no `{word}` in:\n{printed}");
    }
    let listed = succeeds(&["plan", "show", &path, "--rank", "2"]);
    let ops: usize = plan.gpus[2].threadblocks.iter().map(|block| block.ops.len()).sum();
    assert!(listed.contains("rank 2") && listed.lines().count() > ops, "{listed}");
    let output = antiphon(&["plan", "show", &path, "--rank", "3"]);
    assert!(!output.status.success(), "there is no rank 3");
}

/// The oldest dialect: an exchange of one chunk between two ranks.
const LEGACY: &str = r#"{
  "name": "exchange", "collective": "allgather", "protocol": "Simple", "inplace": false,
  "gpus": [
    {"id": 0, "inputChunks": 1, "outputChunks": 2, "scratchChunks": 0, "chunkGroups": 1,
     "threadblocks": [{"id": 0, "ops": [
        {"name": "copy", "i_buff": {"src": "i", "dst": "o"}, "i_cids": [], "o_buff": {"src": "i", "dst": "o"}, "o_cids": [],
         "src": 0, "srcbuff": "i", "srcoff": 0, "dst": 0, "dstbuff": "o", "dstoff": 0, "ctype": "none", "cnt": 1}
     ], "channels": []}],
     "channels": []},
    {"id": 1, "inputChunks": 1, "outputChunks": 2, "scratchChunks": 0, "chunkGroups": 1,
     "threadblocks": [{"id": 0, "ops": [], "channels": []}],
     "channels": []}
  ]
}"#;

#[test]
fn convert_writes_the_current_format() {
    let folder = folder("convert");
    let legacy = folder.join("legacy.json");
    std::fs::write(&legacy, LEGACY).unwrap();
    let converted = folder.join("current.json");
    let (from, to) = (legacy.to_str().unwrap(), converted.to_str().unwrap());
    succeeds(&["plan", "convert", from, "-o", to, "--pretty"]);
    let json: Value = serde_json::from_slice(&std::fs::read(&converted).unwrap()).unwrap();
    assert_eq!(json["gpus"][0]["input_chunks"], 1);
    assert_eq!(json["gpus"][0]["output_chunks"], 2);
    assert_eq!(json["gpus"][0]["threadblocks"][0]["ops"][0]["name"], "copy");
    // What was current stays what it was, and standard output takes it, too.
    let again = succeeds(&["plan", "convert", to, "--pretty"]);
    assert_eq!(serde_json::from_str::<Value>(&again).unwrap(), json);
}

#[test]
fn info_says_what_there_is() {
    let printed = succeeds(&["info"]);
    for word in ["host", "memory", "cores"] {
        assert!(printed.contains(word), "no `{word}` in:\n{printed}");
    }
}

#[test]
fn a_choice_is_explained() {
    let printed =
        succeeds(&["explain", "allreduce", "--ranks", "8", "--size", "1M", "--op", "max"]);
    for word in [
        "allreduce of 1048576 bytes of f32 (max) on 8 ranks",
        "chosen: ",
        "rule by size",
        "allreduce_ring",
    ] {
        assert!(printed.contains(word), "no `{word}` in:\n{printed}");
    }
    let printed = succeeds(&["explain", "alltoall", "--ranks", "4", "--nodes", "2", "--json"]);
    let json: Value = serde_json::from_str(&printed).unwrap();
    assert!(json["chosen"]["name"].as_str().unwrap().contains("hierarchical"), "{json}");
    let printed = succeeds(&["explain", "allreduce", "--ranks", "8", "--topology", "h100x8"]);
    for word in
        ["chosen: allreduce_switch", "as the simulator predicts for `h100x8`", "thread block"]
    {
        assert!(printed.contains(word), "no `{word}` in:\n{printed}");
    }
    let said = fails(&["explain", "allreduce", "--topology", "toaster"], 2);
    assert!(said.contains("h100x8, a100x8, mi300x8"), "{said}");
    let said = fails(&["explain", "allreduce", "--ranks", "4", "--nodes", "3"], 2);
    assert!(said.contains("evenly"), "{said}");
    let said = fails(&["explain", "broadcast", "--ranks", "4", "--root", "4"], 2);
    assert!(said.contains("allowed ranks below 4"), "{said}");
}

#[test]
fn mistakes_have_a_status_and_a_remedy() {
    let folder = folder("mistakes");
    let garbage = folder.join("garbage.json");
    std::fs::write(&garbage, &json(&deadlocking())[..200]).unwrap();
    let plan =
        save("mistakes", "plan.json", &Algorithm::AllReduceZeroCopy.plan(Shape::new(2)).unwrap());
    let cases: [(&[&str], i32, &str); 7] = [
        (&["run", "/nowhere/plan.json"], 1, "/nowhere/plan.json"),
        (&["run", garbage.to_str().unwrap()], 1, "cannot read a plan"),
        (&["bench", "allreduce", "--threads", "--device", "host:1"], 1, "saw number 1"),
        (&["run", &plan, "--ranks", "3"], 2, "leave --ranks out"),
        (&["run", &plan, "--dtype", "f31"], 2, "f32"),
        (&["bench", "gossip"], 2, "allreduce"),
        (&["rank"], 2, "antiphon run"),
    ];
    for (arguments, status, word) in cases {
        let said = fails(arguments, status);
        assert!(said.contains(word), "{arguments:?}: no `{word}` in:\n{said}");
    }
    assert_eq!(antiphon(&["--version"]).status.code(), Some(0));
}
