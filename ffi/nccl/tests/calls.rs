//! The built library: its symbols, and a program against NVIDIA's header that makes every call.

mod tools;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use tools::{build, header, libraries, link, on_host, package, run};

/// Names of functions in a text, that begin like one of NCCL's and have `after` behind them.
fn functions(text: &str, after: char) -> BTreeSet<String> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let starts = text.match_indices("nccl").map(|(at, _)| &text[at..]);
    let names = starts.map(|rest| rest.split_at(rest.find(|c| !word(c)).unwrap_or(rest.len())));
    let called = names.filter(|(_, rest)| rest.starts_with(after));
    called.map(|(name, _)| name.to_owned()).collect()
}

/// The symbols of a library.
fn symbols(library: &Path) -> BTreeSet<String> {
    let listed =
        run(Command::new("nm").args(["-D", "--defined-only", "--format=posix"]).arg(library));
    listed.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn the_page_lists_every_symbol_and_no_other() {
    let page = fs::read_to_string(package().join("../../docs/nccl.md")).expect("the page");
    let rows = page.lines().filter(|line| line.starts_with("| `nccl"));
    let listed: BTreeSet<String> = rows
        .map(|row| row.trim_start_matches("| `").split('`').next().unwrap_or_default().to_owned())
        .collect();
    let mut both: BTreeSet<String> =
        listed.iter().flat_map(|name| [name.clone(), format!("p{name}")]).collect();
    // As in NVIDIA's library.
    assert!(both.remove("pncclResetDebugInitInternal"));
    assert_eq!(symbols(&libraries().join("libantiphon_nccl.so")), both);
    let Some(folder) = header() else { return };
    let library = folder.join("../lib/libnccl.so.2");
    if library.exists() {
        let theirs = symbols(&library);
        let lacking: Vec<_> =
            theirs.difference(&both).filter(|name| name.contains("nccl")).collect();
        assert!(lacking.is_empty() && theirs.len() > 100, "{lacking:?} of {}", theirs.len());
    }
    let text = fs::read_to_string(folder.join("nccl.h")).expect("the header");
    let code: String = {
        let mut parts = text.split("/*");
        let first = parts.next().unwrap_or_default().to_owned();
        first
            + &parts
                .filter_map(|part| part.split_once("*/").map(|(_, code)| code))
                .collect::<String>()
    };
    let lines = code.lines().map(|line| line.split("//").next().unwrap_or_default());
    let lines = lines.filter(|line| !line.trim_start().starts_with('#'));
    let declared = functions(&lines.collect::<Vec<_>>().join("\n"), '(');
    let missing: Vec<_> = declared.difference(&listed).collect();
    assert!(missing.is_empty() && declared.len() > 70, "{missing:?} of {}", declared.len());
}

#[test]
fn what_the_page_says_of_a_symbol_is_shown_by_a_call() {
    let read = |file: &str| fs::read_to_string(package().join(file)).expect("a file");
    let (page, program) = (read("../../docs/nccl.md"), read("tests/calls.cpp"));
    // A refusal is expected by a macro, which may begin a line before the call.
    let (mut refused, mut working) = (String::new(), String::new());
    let lines = program.lines().map(|line| line.split("//").next().unwrap_or_default());
    for statement in lines.collect::<Vec<_>>().join("\n").split(';') {
        let statement = statement.rsplit(['{', '}']).next().unwrap_or_default();
        // A declaration calls nothing.
        if statement.trim_start().starts_with("ncclResult_t nccl") {
            continue;
        }
        let part = if statement.contains("FAILS(") { &mut refused } else { &mut working };
        part.push_str(statement);
    }
    let (refused, working) = (functions(&refused, '('), functions(&working, '('));
    let mut rows = 0;
    for row in page.lines().filter(|line| line.starts_with("| `nccl")) {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let name = cells[1].trim_matches('`');
        let shown = match cells[2] {
            "works" => working.contains(name),
            "refuses" => refused.contains(name) && !working.contains(name),
            other => panic!("{name}: `{other}` is no state"),
        };
        assert!(shown, "{name} {}: no call in calls.cpp shows it", cells[2]);
        rows += 1;
    }
    assert!(rows > 70, "{rows} rows");
}

#[test]
fn every_call_of_the_header_does_what_it_should() {
    let Some(header) = header() else { return };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let library = link(folder, &["libnccl.so.2"], "libantiphon_nccl.so");
    let program = folder.join("nccl-calls");
    run(build(&header, "calls.cpp", &program).arg(library));
    let own = libraries().join("libantiphon_nccl.so");
    for world in ["0", "2", "4"] {
        // In the place of NCCL, and before it.
        for preloaded in [false, true] {
            if preloaded && world == "4" {
                continue;
            }
            let mut command = on_host(&program);
            command.arg(world);
            command.env("LD_LIBRARY_PATH", if preloaded { Path::new("/") } else { folder });
            if preloaded {
                command.env("LD_PRELOAD", &own);
            }
            let out = run(&mut command);
            assert!(out.contains("calls: ok"), "{out}");
        }
    }
}
