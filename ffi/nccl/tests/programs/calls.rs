//! The built library: its symbols, and a program against NVIDIA's header that makes every call.

use crate::tools::table::{Column, Row, SHOWN, Shown, rows, unshown};
use crate::tools::{build, header, libraries, library, link, on_host, run};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

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
    let rows = rows();
    let listed: BTreeSet<String> = rows.iter().map(|row| row.symbol.clone()).collect();
    assert_eq!(listed.len(), rows.len(), "a symbol has two rows");
    let mut both: BTreeSet<String> =
        listed.iter().flat_map(|name| [name.clone(), format!("p{name}")]).collect();
    // As in NVIDIA's library.
    assert!(both.remove("pncclResetDebugInitInternal"));
    assert_eq!(symbols(&libraries().join("libantiphon_nccl.so")), both);
    let Some(folder) = header() else { return };
    if let Some(library) = library(&folder) {
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
fn what_no_call_shows_is_found() {
    let row = |cell: &str| {
        let cells = [cell, "works, `somewhere`", cell].map(str::to_owned);
        vec![Row { symbol: "ncclSend".to_owned(), cells }]
    };
    for (cell, column, calls, is_shown) in [
        ("works, `one`", Column::Host, &["works ncclSend one"][..], true),
        ("works, `one`", Column::Host, &["works ncclSend other"], false),
        ("works, `one`", Column::Host, &["works ncclRecv one"], false),
        ("works, `one`", Column::Host, &["refuses ncclSend one"], false),
        ("works, `one`", Column::Host, &[], false),
        ("works, `one`", Column::Devices, &["works ncclSend one"], false),
        ("refuses, `one`", Column::Host, &["refuses ncclSend one"], true),
        ("refuses, `one`", Column::Host, &["refuses ncclSend one", "works ncclSend other"], false),
        ("forwards, `one`", Column::Beside, &["works ncclSend one"], false),
        ("forwards, `one`", Column::Beside, &["forwards ncclSend real"], false),
        (
            "forwards, `one`",
            Column::Beside,
            &["works ncclSend one", "forwards ncclSend real"],
            true,
        ),
        ("", Column::Beside, &["works ncclSend one"], true),
        ("", Column::Beside, &["forwards ncclSend real"], false),
        ("", Column::Host, &[], false),
        ("tries, `one`", Column::Host, &["tries ncclSend one"], false),
    ] {
        let shown = Shown::at(Path::new(env!("CARGO_TARGET_TMPDIR")));
        fs::write(shown.path(), calls.join("\n")).expect("a file");
        let found = unshown(&row(cell), column, &shown.read());
        assert_eq!(found.is_empty(), is_shown, "{cell} {calls:?}: {found:?}");
    }
}

#[test]
fn every_call_of_the_header_does_what_the_page_says() {
    let Some(header) = header() else { return };
    let folder = &Path::new(env!("CARGO_TARGET_TMPDIR")).join("calls");
    fs::create_dir_all(folder).expect("a folder");
    let library = link(folder, &["libnccl.so.2"], "libantiphon_nccl.so");
    let program = folder.join("nccl-calls");
    run(build(&header, "calls.cpp", &program).arg(library));
    let own = libraries().join("libantiphon_nccl.so");
    let shown = Shown::at(folder);
    for world in ["0", "2", "4"] {
        // In the place of NCCL, and before it.
        for preloaded in [false, true] {
            if preloaded && world == "4" {
                continue;
            }
            let mut command = on_host(&program);
            command.arg(world).env(SHOWN, shown.path());
            command
                .env("LD_LIBRARY_PATH", if preloaded { Path::new("/") } else { folder.as_path() });
            if preloaded {
                command.env("LD_PRELOAD", &own);
            }
            let out = run(&mut command);
            assert!(out.contains("calls: ok"), "{out}");
        }
    }
    assert_eq!(unshown(&rows(), Column::Host, &shown.read()), [""; 0]);

    // Who asks for it sees the failures, by function and with their reasons.
    let mut command = on_host(&program);
    command.arg("2").env("LD_LIBRARY_PATH", folder).env("NCCL_DEBUG", "WARN");
    let output = command.output().expect("it ran before");
    let told = String::from_utf8_lossy(&output.stderr);
    let line = " WARN ncclAllReduce: cannot use a reduction: saw 65536, ";
    assert!(told.lines().any(|told| told.contains(line)), "{told}");
}
