//! `cargo xtask first-steps`: how long the README's ways in take whoever starts with a clone and nothing built, each up to a right sum
//! over several processes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Instant;

use clap::Args;

use crate::{Error, Result, repo, section};

/// What to measure.
#[derive(Args, Debug)]
pub struct Options {
    /// Measure only the ways whose name has this
    only: Option<String>,
    /// Write the table to this document rather than only printing it
    #[arg(long, value_name = "PATH", conflicts_with = "only")]
    write: Option<PathBuf>,
}

/// Where the result is.
const SECTION: &str = "first steps";

/// A way in: the README's commands, in a fresh clone, with a folder of their own as `$NEW`.
struct Way {
    name: &'static str,
    script: &'static str,
}

/// Starts `$1` processes of the program that follows, and fails if one of them does.
const RANKS: &str = r#"
ranks() {
    export ANTIPHON_WORLD=$1 ANTIPHON_COMM_ID=antiphon-$(od -An -tx1 -N16 /dev/urandom | tr -d ' \n'); shift
    rank=0; started=
    while [ $rank -lt $ANTIPHON_WORLD ]; do ANTIPHON_RANK=$rank "$@" & started="$started $!"; rank=$((rank + 1)); done
    for process in $started; do wait "$process"; done
}
"#;

const WAYS: [Way; 5] = [
    Way {
        name: "a Rust project with the crate: `cargo new`, build, four processes",
        script: r#"clone=$PWD; cargo new -q "$NEW/project"; cd "$NEW/project"
            echo "antiphon = { path = \"$clone\" }" >> Cargo.toml
            awk '/^```rs$/ {text = ""; inside = 1; next} /^```$/ {if (inside && text ~ /from_environment/) printf "%s", text; inside = 0}
                 inside {text = text $0 "\n"}' "$clone/README.md" > src/main.rs
            cargo build
            ranks 4 cargo run -q"#,
    },
    Way {
        name: "C: `cargo xtask install`, gcc and pkg-config, two processes",
        script: r#"cargo xtask install --prefix "$NEW"
            export PKG_CONFIG_PATH=$NEW/lib/pkgconfig LD_LIBRARY_PATH=$NEW/lib
            gcc examples/c/all_reduce.c -o all_reduce $(pkg-config --cflags --libs antiphon)
            ranks 2 ./all_reduce"#,
    },
    Way {
        name: "C++: the same installation, CMake's `find_package`, three processes",
        script: r#"cargo xtask install --prefix "$NEW"
            cmake -S examples/c -B build -DCMAKE_PREFIX_PATH="$NEW"
            cmake --build build
            build/client 3"#,
    },
    Way {
        name: "NCCL's interface: the same installation, a program linked with it, started with `LD_PRELOAD`",
        script: r#"cargo xtask install --prefix "$NEW"
            gcc examples/nccl/all_reduce.c -o program -L"$NEW/lib/nccl" -lnccl
            ANTIPHON_DEVICE=host LD_LIBRARY_PATH=$NEW/lib/nccl LD_PRELOAD=$NEW/lib/nccl/libantiphon_nccl.so ./program"#,
    },
    Way {
        name: "Python: `pip install ./ffi/python numpy` in a virtual environment, two processes",
        script: r#"python3 -m venv "$NEW/venv"; . "$NEW/venv/bin/activate"
            pip install -q ./ffi/python numpy
            awk '/^```py$/ {inside = 1; next} /^```$/ {inside = 0} inside' README.md > sum.py
            echo 'assert (sums == 1).all()' >> sum.py
            ranks 2 python sum.py"#,
    },
];

/// Measures each way, one after the other, and prints the table.
///
/// # Errors
/// A way that does not come to its end, and what the file system says.
pub fn run(options: &Options) -> Result<()> {
    let only = options.only.as_deref().unwrap_or_default();
    let ways: Vec<_> = WAYS.iter().filter(|way| way.name.contains(only)).collect();
    if ways.is_empty() {
        let names = WAYS.map(|way| way.name).join("; ");
        return Err(Error::message(format!(
            "cannot measure ways named `{only}`: there are {names}"
        )));
    }
    // Not in the workspace, of which a project there would be taken for a part.
    let folder = std::env::temp_dir().join("antiphon-first-steps");
    let measured: Result<Vec<_>> = ways
        .into_iter()
        .map(|way| {
            let seconds = seconds(way, &folder)?;
            println!("{:>6.0} s  {}", seconds, way.name);
            Ok((way.name, seconds))
        })
        .collect();
    // Why a way failed says more than what could not be removed.
    let removed = remove(&folder);
    let measured = measured?;
    removed?;
    let table = table(&measured)?;
    print!("\n{table}");
    match &options.write {
        Some(document) => section::write(document, SECTION, &table),
        None => Ok(()),
    }
}

/// How long a way takes.
fn seconds(way: &Way, folder: &Path) -> Result<f64> {
    remove(folder)?;
    let (clone, new) = (folder.join("antiphon"), folder.join("new"));
    fs::create_dir_all(&new).map_err(Error::io(format!("make {}", new.display())))?;
    let mut git = Command::new("git");
    git.args(["clone", "-q", "--no-hardlinks"]).arg(repo::root()).arg(&clone);
    repo::capture("clone the repository", &mut git)?;
    let file = folder.join("way.sh");
    let text = format!("{RANKS}{}", way.script);
    fs::write(&file, text).map_err(Error::io(format!("write {}", file.display())))?;
    let mut script = repo::outside("sh");
    script.arg("-e").arg(&file).current_dir(&clone).env("NEW", &new);
    let names = std::env::vars_os().map(|(name, _)| name);
    names.filter(|name| is_ours(&name.to_string_lossy())).for_each(|name| {
        script.env_remove(name);
    });
    let started = Instant::now();
    repo::capture(&format!("go the way of {}", way.name), &mut script)?;
    Ok(started.elapsed().as_secs_f64())
}

/// Whether a newcomer has no such variable: it says how to build, or where to find what is built, or is read by what is tried.
fn is_ours(name: &str) -> bool {
    let read =
        ["CARGO_", "RUST", "ANTIPHON_", "MSCCLPP_"].iter().any(|start| name.starts_with(start));
    let kept = matches!(name, "CARGO_HOME" | "RUSTUP_HOME");
    read && !kept || matches!(name, "PYTHONPATH" | "LD_LIBRARY_PATH")
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io(format!("remove {}", folder.display()))(error))
        }
        _ => Ok(()),
    }
}

/// Of the commit that was cloned, not of what is changed since.
fn table(measured: &[(&str, f64)]) -> Result<String> {
    let mut git = Command::new("git");
    git.current_dir(repo::root()).args(["rev-parse", "--short", "HEAD"]);
    let commit = repo::capture("name the commit", &mut git)?;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let about = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = about.lines().find(|line| line.starts_with("model name"));
    let model = model
        .and_then(|line| line.split_once(": "))
        .map_or("an unknown processor", |(_, name)| name);
    let mut table = format!(
        "Made by `cargo xtask first-steps` of {} on {model} with {cores} cores, one run.\n\n| way | seconds |\n|---|---|\n",
        commit.trim()
    );
    for (name, seconds) in measured {
        table.push_str(&format!("| {name} | {seconds:.0} |\n"));
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ways_are_the_readmes() {
        let readme = fs::read_to_string(repo::root().join("README.md")).expect("the README");
        let commands = [
            "cargo xtask install --prefix $HOME/antiphon",
            "gcc examples/c/all_reduce.c -o all_reduce $(pkg-config --cflags --libs antiphon)",
            "cmake -S examples/c -B build -DCMAKE_PREFIX_PATH=$HOME/antiphon",
            "cmake --build build",
            "build/client 3",
            "gcc examples/nccl/all_reduce.c -o program -L$HOME/antiphon/lib/nccl -lnccl",
            "ANTIPHON_DEVICE=host LD_LIBRARY_PATH=$HOME/antiphon/lib/nccl LD_PRELOAD=$HOME/antiphon/lib/nccl/libantiphon_nccl.so ./program",
            "pip install ./ffi/python numpy",
            "python sum.py",
            "antiphon = { path = ",
            "cargo run -q",
        ];
        let scripts: String = WAYS.iter().map(|way| way.script).collect();
        let scripts = scripts
            .replace("$NEW", "$HOME/antiphon")
            .replace(['"', '\\'], "")
            .replace("pip install -q", "pip install");
        for command in commands {
            assert!(readme.contains(command), "the README has no `{command}`");
            assert!(scripts.contains(command), "no way has `{command}`: {scripts}");
        }
        let has = |fence: &str, word: &str| {
            let blocks = readme.split(fence).skip(1).filter_map(|rest| rest.split("```").next());
            blocks.filter(|text| text.contains(word)).count()
        };
        assert_eq!(has("```rs\n", "from_environment"), 1);
        assert_eq!((has("```py\n", ""), has("```py\n", "sums")), (1, 1));
    }

    #[test]
    fn the_table_has_a_line_for_each_way() {
        let table = table(&[("one", 55.6), ("two", 181.2)]).expect("a commit");
        assert!(table.ends_with("|---|---|\n| one | 56 |\n| two | 181 |\n"), "{table}");
    }
}
