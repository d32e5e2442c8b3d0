//! `cargo xtask ci`: every step a change must pass, in the order in which they fail fastest.
//!
//! `.ci/run` is a thin caller of this. What steps need beside the toolchain is installed while those before them run. One target
//! folder serves all steps but those that need other flags, or are of another workspace; only what users run and install, and
//! the models, is built for release.
//! Tests that run by themselves are asked for as tests of the workspace, and parts of it together with a package of the same
//! features, so that little is built again.

mod steps;
mod tools;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::process::Command;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Error, Result, repo};
use steps::STEPS;
use tools::Tool;

struct Step {
    name: &'static str,
    program: Program,
    /// [Filled](filled) when the step is run, as is the environment.
    arguments: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
    /// What the step needs beside the toolchain that runs this task.
    needs: &'static [Tool],
}

impl Step {
    /// Whether it runs a test program of the workspace. What it picks of the program's tests is taken to be right.
    fn runs(&self, program: &str) -> bool {
        let words = self.arguments;
        let picks = words.iter().any(|word| word.starts_with("--test") || *word == "--lib");
        let named = words.windows(2).any(|pair| pair == ["--test", program])
            || words.iter().any(|word| word.strip_prefix("--test=") == Some(program));
        words.starts_with(&["test", "--workspace"]) && (named || !picks)
    }
}

/// What a step starts.
#[derive(Clone, Copy, Debug)]
enum Program {
    Cargo,
    /// This task.
    Xtask,
    /// A program of the Python that [`tools::PYTHON`] provides.
    Python(&'static str),
}

/// Runs all steps, or those whose name has the text `only`, with their own output; stops at the first that fails and
/// names it.
///
/// # Errors
/// A step that failed, and a text that no step's name has.
pub fn run(only: Option<&str>) -> Result<()> {
    let only = only.unwrap_or_default();
    let steps: Vec<_> = STEPS.iter().filter(|step| step.name.contains(only)).collect();
    if steps.is_empty() {
        let names: Vec<_> = STEPS.iter().map(|step| step.name).collect();
        return Err(Error::message(format!(
            "cannot run steps named `{only}`: there are {}",
            names.join(", ")
        )));
    }
    let mut seen = HashSet::new();
    let needs = steps.iter().flat_map(|step| step.needs);
    let tools: Vec<_> = needs.filter(|tool| seen.insert(tool.name)).collect();
    thread::scope(|scope| {
        let (sender, provided) = mpsc::channel();
        // In the order of the steps, while those before them run.
        scope.spawn(move || {
            // Once a step has failed nobody hears it, and no more are provided.
            tools.into_iter().try_for_each(|tool| sender.send((tool.name, provide(tool))))
        });
        let mut known = HashMap::new();
        steps.into_iter().try_for_each(|step| take(step, &provided, &mut known))
    })
}

/// What is known of tools, by their names.
type Known = HashMap<&'static str, Result<()>>;

/// Waits for the tools of a step, and runs it.
fn take(
    step: &Step,
    provided: &Receiver<(&'static str, Result<()>)>,
    known: &mut Known,
) -> Result<()> {
    while step.needs.iter().any(|tool| !known.contains_key(tool.name)) {
        // The sender lives until all are known.
        let Ok((name, outcome)) = provided.recv() else { break };
        known.insert(name, outcome);
    }
    for tool in step.needs {
        let Some(Err(why)) = known.get(tool.name) else { continue };
        if !tool.installable {
            println!("==> {}: SKIP, {} is not to be had here: {why}", step.name, tool.name);
            return Ok(());
        }
        return known.remove(tool.name).unwrap_or(Ok(()));
    }
    let (started, before) = (Instant::now(), computed());
    let mut command = command(step)?;
    println!("==> {}: {}", step.name, repo::line(&command));
    repo::stream(step.name, &mut command)?;
    let took = started.elapsed().as_secs_f64();
    let computed = computed().saturating_sub(before).as_secs_f64();
    println!("==> {}: ok, {took:.0} s ({computed:.0} s of processors)", step.name);
    Ok(())
}

/// How long processors have computed for ended children of this program, and for theirs, as proc(5) has it; nothing where it has not.
/// What provides tools meanwhile is among them.
fn computed() -> Duration {
    /// Of which Linux tells programs such times: the same on every machine that Rust knows.
    const TICK: Duration = Duration::from_millis(10);
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The fields behind the name, which may itself have blanks, begin with the third; user's time is the 16th, the kernel's the 17th.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks =
        fields.split_whitespace().skip(13).take(2).filter_map(|ticks| ticks.parse::<u32>().ok());
    TICK.saturating_mul(ticks.sum())
}

/// Whether a step runs a test program with a variable set, which has the program fail where it would skip.
pub(crate) fn insists(program: &str, variable: &str) -> bool {
    let sets = |step: &Step| step.environment.iter().any(|(name, _)| *name == variable);
    STEPS.iter().any(|step| step.runs(program) && sets(step))
}

/// Sees to it that a tool is there, or says why it cannot be.
fn provide(tool: &Tool) -> Result<()> {
    let run = |words: &[&str]| {
        let Some((program, arguments)) = words.split_first() else { return Ok(()) };
        let arguments = arguments.iter().map(|word| filled(word));
        let mut command = repo::outside(&filled(program));
        command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
        repo::capture(tool.name, &mut command).map(drop)
    };
    let install = || {
        if !tool.packages.is_empty() {
            run(&["apt-get", "update", "-qq"])?;
            run(&[&["apt-get", "install", "-y", "-qq", "--no-install-recommends"], tool.packages]
                .concat())?;
        }
        run(tool.install)
    };
    run(tool.probe).or_else(|_| install().and_then(|()| run(tool.probe)))
}

fn command(step: &Step) -> Result<Command> {
    // `cargo +toolchain` is understood by the launcher of toolchains, not by a toolchain's own cargo.
    let launcher = step.arguments.first().is_some_and(|first| first.starts_with('+'));
    let mut command = match step.program {
        Program::Cargo if launcher => repo::outside("cargo"),
        Program::Cargo => repo::cargo(),
        // Not this very file: steps before may have put another build of it in its place.
        Program::Xtask => {
            let mut command = repo::cargo();
            command.args(["run", "--quiet", "--package", "xtask"]);
            command.args((!cfg!(debug_assertions)).then_some("--release")).arg("--");
            command
        }
        Program::Python(name) => repo::outside(&filled(&format!("{{venv}}/bin/{name}"))),
    };
    let environment = step.environment.iter().map(|(name, value)| (name, filled(value)));
    command.args(step.arguments.iter().map(|word| filled(word))).envs(environment);
    Ok(command)
}

/// A word of a command line: `{target}` is where cargo builds, `{venv}` the Python of [`tools::PYTHON`], `{nvrtc}` that of
/// [`tools::NVRTC`], `{torch}` where [`tools::TORCH`] is, `{oldest}` the version of Rust of the manifests, `{path}` where programs
/// are looked for.
fn filled(word: &str) -> String {
    let target = repo::target_dir().to_string_lossy().into_owned();
    let path = std::env::var("PATH").unwrap_or_default();
    word.replace("{oldest}", env!("CARGO_PKG_RUST_VERSION"))
        .replace("{venv}", "{target}/python")
        .replace("{nvrtc}", "{target}/nvrtc")
        .replace("{torch}", "{target}/torch")
        .replace("{target}", &target)
        .replace("{path}", &path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOL: Tool =
        Tool { name: "a tool", installable: true, packages: &[], install: &[], probe: &["true"] };

    /// What becomes of a step that fails where it is run, if a tool that it needs is said to be there or not.
    fn check(needs: &'static [Tool], outcome: Result<()>) -> Result<()> {
        let (name, program) = ("fail", Program::Cargo);
        let arguments = &["no-such-command"];
        let step = Step { name, program, arguments, environment: &[], needs };
        let (sender, provided) = mpsc::channel();
        sender.send((TOOL.name, outcome)).unwrap();
        take(&step, &provided, &mut HashMap::new())
    }

    #[test]
    fn a_step_whose_tools_are_there_runs() {
        let said = check(&[TOOL], Ok(())).unwrap_err().to_string();
        assert!(said.contains("fail"), "{said}");
    }

    #[test]
    fn a_step_fails_for_want_of_what_can_be_installed_and_is_skipped_for_want_of_what_cannot() {
        let missing = || Err(Error::message("it is not there"));
        let said = check(&[TOOL], missing()).unwrap_err().to_string();
        assert_eq!(said, "it is not there");
        check(&[Tool { installable: false, ..TOOL }], missing()).unwrap();
    }
}
