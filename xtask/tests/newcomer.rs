//! From an empty project: the README's lines in Rust, in a package of their own that depends on this one by its path.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use xtask::repo;

/// Set where it is to be run: it builds the library once more, as a newcomer's package does.
const NEEDS: &str = "ANTIPHON_NEEDS_NEWCOMER";
/// How the README's programs begin.
const FENCE: &str = "```rs\n";

/// The README's programs in Rust, in their order: over threads, and over processes.
fn programs(readme: &str) -> Vec<String> {
    let blocks = readme.split(FENCE).skip(1);
    blocks.filter_map(|rest| rest.split_once("```")).map(|(text, _)| text.to_owned()).collect()
}

/// A package whose programs these are.
fn write_package(folder: &Path, programs: &[String]) {
    let manifest = format!(
        "[package]\nname = \"newcomer\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[dependencies]\n\
         antiphon = {{ path = \"{}\" }}\n\n[workspace]\n",
        repo::root().display()
    );
    fs::create_dir_all(folder.join("src/bin")).expect("a folder");
    fs::write(folder.join("Cargo.toml"), manifest).expect("the manifest");
    // The versions that are there: nothing is asked of a network.
    fs::copy(repo::root().join("Cargo.lock"), folder.join("Cargo.lock")).expect("the versions");
    for (name, text) in ["threads", "processes"].iter().zip(programs) {
        fs::write(folder.join(format!("src/bin/{name}.rs")), text).expect("a program");
    }
}

fn cargo(folder: &Path, target: &Path, arguments: &[&str]) -> Command {
    let mut command = repo::cargo();
    command.current_dir(folder).args(arguments).env("CARGO_TARGET_DIR", target);
    command
}

fn succeeded(what: &str, output: &Output) -> String {
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (said(&output.stdout), said(&output.stderr));
    assert!(output.status.success(), "{what}: {}\n{out}\n{err}", output.status);
    out
}

#[test]
fn the_readmes_programs_run_in_an_empty_project() {
    let readme = fs::read_to_string(repo::root().join("README.md")).expect("the README");
    let programs = programs(&readme);
    assert_eq!(programs.len(), 2, "programs over threads and over processes");
    assert!(programs[0].contains("in_process") && programs[1].contains("from_environment"));
    if std::env::var_os(NEEDS).is_none() {
        println!("SKIP: it builds the library once more; set {NEEDS}=1");
        return;
    }
    // Kept: what is built of the library serves the next time.
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("newcomer");
    let target = folder.join("target");
    write_package(&folder, &programs);

    let threads = ["run", "--offline", "-q", "--bin", "threads"];
    let output = cargo(&folder, &target, &threads).output().expect("cargo starts");
    succeeded("over threads", &output);

    let build = ["build", "--offline", "-q", "--bin", "processes"];
    let output = cargo(&folder, &target, &build).output().expect("cargo starts");
    succeeded("building", &output);
    let place = format!("antiphon-{:032x}", u128::from(std::process::id()) << 64 | 0x6e65);
    let ranks: Vec<_> = (0..4)
        .map(|rank: u32| {
            let mut command = Command::new(target.join("debug/processes"));
            command.env("ANTIPHON_RANK", rank.to_string()).env("ANTIPHON_WORLD", "4");
            command.env("ANTIPHON_COMM_ID", &place);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
        })
        .collect();
    // All are waited for, whatever became of the first.
    let ended: Vec<_> = ranks.into_iter().map(|rank| rank.wait_with_output()).collect();
    for (rank, output) in ended.into_iter().enumerate() {
        let said = succeeded(&format!("rank {rank}"), &output.expect("it ends"));
        assert!(said.contains(&format!("rank {rank} of 4: the sums are right")), "{said}");
    }
}
