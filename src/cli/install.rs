//! `install`: writes the default plans into the cache folder, or plans that serve calls by name from then on.

use super::error::print_line;
use super::files::cache_folder;
use super::launch::warn_if_off;
use super::{CliError, InstallArgs, plans};
use antiphon::Terms;
use antiphon::executor::Installed;
use antiphon::executor::hal::host::usable_cores;
use antiphon::executor::registry::{InstallError, RegisteredPlan, Written};
use antiphon::executor::selection::Spread;
use antiphon::plan::model::{Collective, Plan};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Does what the options say.
pub fn install(args: &InstallArgs) -> Result<ExitCode, CliError> {
    let folder = match Installed::folder() {
        Some(folder) => folder,
        None => cache_folder()?.join("installed"),
    };
    if args.list {
        return list(&folder);
    }
    if !args.remove.is_empty() {
        return remove(&folder, &args.remove);
    }
    if args.files.is_empty() {
        return defaults(args);
    }
    check(args)?;
    for file in &args.files {
        let plan = plans::load(file)?.plan;
        check_plan(args, &plan)?;
        let idle = matches!(plan.collective, Collective::Test | Collective::Other(_));
        let written = Installed::install(&folder, plan, terms(args)).map_err(refused)?;
        let Written { name, path, doubt } = written;
        if let Some(doubt) = doubt {
            eprintln!("warning: plan `{name}` is not proven: {doubt}");
        }
        if idle {
            eprintln!("warning: plan `{name}` serves nothing: no call by name is what it is for");
        }
        print_line(&format!("installed {name}: {}", path.display()))?;
    }
    warn_if_off("ANTIPHON_INSTALLED", "installed plans serve no call");
    Ok(ExitCode::SUCCESS)
}

fn check(args: &InstallArgs) -> Result<(), CliError> {
    if args.name.is_some() && args.files.len() > 1 {
        let several = args.files.len();
        return Err(CliError::Usage(format!(
            "cannot give {several} plans one name: saw --name, allowed with one file"
        )));
    }
    if let Some(tag) = args.tags.iter().find(|tag| tag.trim().is_empty() || tag.contains(',')) {
        return Err(CliError::Usage(format!(
            "cannot use a tag: saw `{tag}`, allowed texts without commas, which ANTIPHON_TAGS has between tags"
        )));
    }
    Ok(())
}

/// What no plan of this kind can be said to be for.
fn check_plan(args: &InstallArgs, plan: &Plan) -> Result<(), CliError> {
    let (name, ranks) = (&plan.name, plan.gpus.len());
    if args.root.is_some() && !plan.collective.has_root() {
        let of = &plan.collective;
        return Err(CliError::Usage(format!(
            "cannot install plan `{name}` with --root: it is for {of}, which has none; leave it out"
        )));
    }
    match args.ranks_per_node {
        Some(here) if !ranks.is_multiple_of(here as usize) => Err(CliError::Usage(format!(
            "cannot install plan `{name}`: saw --ranks-per-node {here} for {ranks} ranks, allowed what divides them"
        ))),
        _ => Ok(()),
    }
}

fn refused(error: InstallError) -> CliError {
    match error {
        InstallError::Terms(error) => CliError::Usage(error.to_string()),
        other => CliError::Executor(other.to_string()),
    }
}

/// What is said of the plans.
fn terms(args: &InstallArgs) -> Terms {
    Terms {
        name: args.name.clone(),
        tags: args.tags.iter().cloned().collect(),
        ranks_per_node: args.ranks_per_node,
        min_bytes: args.min.unwrap_or(0),
        max_bytes: args.max.unwrap_or(u64::MAX),
        dtypes: args.dtypes.clone(),
        ops: args.ops.clone(),
        root: args.root,
        ..Terms::default()
    }
}

/// Writes the plans of the built-in algorithms.
fn defaults(args: &InstallArgs) -> Result<ExitCode, CliError> {
    let spread = Spread::here(args.ranks.unwrap_or_else(|| usable_cores().max(2)), args.nodes);
    let written = Installed::install_defaults(&defaults_folder()?, spread).map_err(refused)?;
    written.iter().try_for_each(|path| print_line(&path.display().to_string()))?;
    Ok(ExitCode::SUCCESS)
}

fn defaults_folder() -> Result<PathBuf, CliError> {
    Ok(cache_folder()?.join("default"))
}

fn remove(folder: &Path, names: &[String]) -> Result<ExitCode, CliError> {
    let mut missing = false;
    for name in names {
        if Installed::remove(folder, name).map_err(refused)? {
            print_line(&format!("removed {name}"))?;
        } else {
            eprintln!(
                "error: cannot remove `{name}`: no plan of that name is installed in {}",
                folder.display()
            );
            missing = true;
        }
    }
    Ok(ExitCode::from(u8::from(missing)))
}

/// What serves calls, what does not, and the default plans.
fn list(folder: &Path) -> Result<ExitCode, CliError> {
    let installed = Installed::read(folder);
    for plan in installed.plans() {
        print_line(&format!("installed {}: {}", plan.name(), serves(plan)))?;
    }
    for left_out in installed.skipped() {
        print_line(&format!("left out {}: {}", left_out.path.display(), left_out.why))?;
    }
    let mut defaults: Vec<PathBuf> = match defaults_folder().map(std::fs::read_dir) {
        Ok(Ok(entries)) => entries.filter_map(|entry| Some(entry.ok()?.path())).collect(),
        Ok(Err(_)) | Err(_) => Vec::new(),
    };
    defaults.retain(|path| path.extension().is_some_and(|end| end == "json"));
    defaults.sort_unstable();
    defaults.iter().try_for_each(|path| print_line(&format!("default {}", path.display())))?;
    Ok(ExitCode::SUCCESS)
}

/// Which calls a plan is for, in words.
fn serves(plan: &RegisteredPlan) -> String {
    let (terms, written) = (plan.terms(), plan.plan());
    let mut text = format!("{} on {} ranks", written.collective, written.gpus.len());
    // Calls with a root fit in place and out of place alike.
    let rooted = written.collective.has_root();
    match terms.root {
        Some(root) => text.push_str(&format!(", root {root}")),
        None if rooted => text.push_str(", no call: its root is not said"),
        None => {}
    }
    if !rooted {
        text.push_str(if written.in_place { ", in place" } else { ", out of place" });
    }
    let least = terms.min_bytes.max(written.min_message_size);
    let most = terms.max_bytes.min(written.max_message_size);
    match (least, most) {
        (0, u64::MAX) => {}
        (least, u64::MAX) => text.push_str(&format!(", from {least} bytes")),
        (least, most) => text.push_str(&format!(", {least} to {most} bytes")),
    }
    if let Some(ranks) = terms.ranks_per_node {
        text.push_str(&format!(", {ranks} on each node"));
    }
    let names = |names: Vec<&str>| names.join(" ");
    if !terms.dtypes.is_empty() {
        let of = names(terms.dtypes.iter().map(|dtype| dtype.name()).collect());
        text.push_str(&format!(", elements {of}"));
    }
    if !terms.ops.is_empty() {
        let by = names(terms.ops.iter().map(|op| op.name()).collect());
        text.push_str(&format!(", reductions {by}"));
    }
    if !terms.tags.is_empty() {
        text.push_str(&format!(
            ", tagged {}",
            names(terms.tags.iter().map(String::as_str).collect())
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use antiphon::Registry;
    use antiphon::plan::algorithms::{Algorithm, Shape};
    use clap::Parser;

    fn args(options: &str) -> Result<InstallArgs, clap::Error> {
        let line = format!("antiphon install {options}");
        match Cli::try_parse_from(line.split_whitespace())?.command {
            Command::Install(args) => Ok(args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn options_are_the_terms_of_the_plans() {
        let options =
            "p.json --name mine --tag a --tag b --min 1K --max 2M --dtype f32 --op max --root 1";
        let said = terms(&args(options).unwrap());
        assert_eq!((said.min_bytes, said.max_bytes, said.root), (1024, 2 << 20, Some(1)));
        let plan = Algorithm::BroadcastZeroCopy.plan(Shape { root: 1, ..Shape::new(2) }).unwrap();
        let registry = Registry::new();
        let registered = registry.register(plan, said).unwrap();
        let expected = "broadcast on 2 ranks, root 1, 1024 to 2097152 bytes, elements f32, reductions max, tagged a b";
        assert_eq!(serves(&registered), expected);
        let plan = Algorithm::AllReduceRing.plan(Shape::new(2)).unwrap();
        let plain = terms(&args("p.json --name plain").unwrap());
        assert_eq!(
            serves(&registry.register(plan, plain).unwrap()),
            "allreduce on 2 ranks, out of place"
        );
        for wrong in [
            "a.json b.json --name x",
            "--name x",
            "a.json --ranks 4",
            "--list --remove a",
            "a.json --list",
        ] {
            assert!(args(wrong).is_err() || check(&args(wrong).unwrap()).is_err(), "{wrong}");
        }
    }
}
