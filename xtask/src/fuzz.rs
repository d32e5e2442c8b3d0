//! `cargo xtask fuzz`: bytes that were made to reach as much as they can are fed to every parser of bytes from outside.
//!
//! The targets, in `plan/fuzz` and `transports/fuzz`, are `cargo fuzz` ones. Here the stable compiler builds them, without a
//! sanitizer, so that every machine runs them for a moment; for hours and with a sanitizer there is `cargo fuzz run`.
//! What was found to reach something new is kept below the build folder, and is where the next run begins.

use std::env::consts::ARCH;
use std::fs;
use std::path::Path;

use clap::Args;

use crate::{Error, Result, repo};

/// A crate with targets.
struct Targets {
    folder: &'static str,
    /// Where its inputs begin; none where targets make sound inputs of any bytes themselves.
    seeds: Option<&'static str>,
    /// The longest input, in bytes. Where there are seeds, the longest of those.
    longest: Option<u32>,
}

const CRATES: [Targets; 2] = [
    Targets { folder: "plan/fuzz", seeds: Some("examples/plans"), longest: None },
    // More frames than a receiver keeps waiting.
    Targets { folder: "transports/fuzz", seeds: None, longest: Some(8192) },
];

/// What tells the fuzzer which inputs reach something new, as `cargo fuzz` has it; and all checks of arithmetic.
const FLAGS: [&str; 9] = [
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
    "-Cdebug-assertions",
    "-Coverflow-checks",
];

/// What to feed, and for how long.
#[derive(Debug, Args)]
pub struct Options {
    /// Run only the targets whose name has this text
    only: Option<String>,
    /// Seconds for each target
    #[arg(long, default_value_t = 3)]
    seconds: u32,
}

/// Runs the targets, one after the other; stops at the first that finds something, whose input is then shown and kept.
///
/// # Errors
/// What a target found, a target that cannot be built, and a text that no target's name has.
pub fn run(options: &Options) -> Result<()> {
    let only = options.only.as_deref().unwrap_or_default();
    let built = repo::target_dir().join("fuzz");
    let mut ran = 0;
    for targets in &CRATES {
        let mut names = names(&repo::root().join(targets.folder).join("fuzz_targets"))?;
        names.retain(|name| name.contains(only));
        if names.is_empty() {
            continue;
        }
        // Named, so that the flags are not for what runs while building.
        let triple = format!("{ARCH}-unknown-linux-gnu");
        let mut build = repo::cargo();
        build.args(["build", "--release", "--target", &triple]);
        build.arg("--manifest-path").arg(format!("{}/Cargo.toml", targets.folder));
        build.args(names.iter().flat_map(|name| ["--bin", name]));
        build.env("CARGO_TARGET_DIR", &built).env("RUSTFLAGS", FLAGS.join(" "));
        repo::stream("build the fuzz targets", &mut build)?;
        for name in &names {
            println!("==> fuzz {name} for {} s", options.seconds);
            let program = built.join(&triple).join("release").join(name);
            feed(targets, name, &program, &built, options.seconds)?;
        }
        ran += names.len();
    }
    match ran {
        0 => Err(Error::message(format!("cannot fuzz `{only}`: no target has that in its name"))),
        _ => Ok(()),
    }
}

/// The targets of a crate, sorted.
fn names(folder: &Path) -> Result<Vec<String>> {
    let reading = || format!("list {}", folder.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::io(reading()))? {
        let path = entry.map_err(Error::io(reading()))?.path();
        names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
    }
    names.sort();
    Ok(names)
}

fn feed(targets: &Targets, name: &str, program: &Path, built: &Path, seconds: u32) -> Result<()> {
    // New inputs go to the first folder.
    let corpus = built.join("corpus").join(name);
    let found = built.join("found");
    for folder in [&corpus, &found] {
        let making = format!("make the folder {}", folder.display());
        fs::create_dir_all(folder).map_err(Error::io(making))?;
    }
    let mut command = repo::outside(&program.to_string_lossy());
    command.arg(&corpus).args(targets.seeds);
    command.arg(format!("-artifact_prefix={}/{name}-", found.display()));
    command.arg(format!("-max_total_time={seconds}"));
    command.args(targets.longest.map(|longest| format!("-max_len={longest}")));
    command.args(["-timeout=10", "-rss_limit_mb=2048", "-verbosity=0", "-print_final_stats=1"]);
    repo::stream(&format!("pass what the fuzzer feeds {name}"), &mut command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_is_one_of_its_crate() {
        for Targets { folder, seeds, longest } in CRATES {
            let folder = repo::root().join(folder);
            let manifest = fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
            let names = names(&folder.join("fuzz_targets")).expect("targets");
            assert!(!names.is_empty());
            assert_eq!(manifest.matches("[[bin]]").count(), names.len());
            for name in names {
                let path = format!("name = \"{name}\"\npath = \"fuzz_targets/{name}.rs\"\n");
                assert!(manifest.contains(&path), "{name} is no target of {}", folder.display());
            }
            assert!(seeds.is_none_or(|seeds| repo::root().join(seeds).is_dir()));
            assert_ne!(seeds.is_some(), longest.is_some());
        }
    }
}
