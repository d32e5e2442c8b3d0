//! Plans from files: the repository's examples, and the plans of another implementation where they are present.

use super::Base;
use crate::{Error, Result, repo};
use antiphon::plan::{json, model::Plan};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// All plans, by name. A note says what is not there.
pub(super) fn plans(note: &mut impl FnMut(String)) -> Result<Vec<Base>> {
    let mut plans = Vec::new();
    for path in files(&repo::root().join("examples/plans"))? {
        plans.push(Base { name: format!("examples/{}", name(&path)), plan: read(&path)? });
    }
    let others = repo::root().join("../shared/plans");
    let Ok(table) = fs::read_to_string(others.join("README.md")) else {
        note(format!("SKIP: no plans of another implementation at {}", others.display()));
        return Ok(plans);
    };
    let right = right(&table);
    for path in files(&others)? {
        let name = name(&path);
        if right.contains(&name) {
            plans.push(Base { name, plan: read(&path)? });
        }
    }
    Ok(plans)
}

/// The files that the table of verdicts calls right.
fn right(table: &str) -> BTreeSet<String> {
    let rows = table.lines().filter_map(|line| {
        let mut cells = line.split('|').map(str::trim).skip(1);
        let file = cells.next()?;
        (cells.nth(2)? == "ok").then(|| file.to_owned())
    });
    rows.collect()
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let cannot = || format!("list {}", folder.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::io(cannot()))? {
        let path = entry.map_err(Error::io(cannot()))?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn read(path: &Path) -> Result<Plan> {
    let bytes = fs::read(path).map_err(Error::io(format!("read {}", path.display())))?;
    let read = json::read(&bytes);
    read.map(|read| read.plan)
        .map_err(|error| Error::message(format!("cannot mutate {}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plans_with_the_verdict_ok_are_right() {
        let table = "| plan | collective | ranks | verdict | detail |\n|---|---|---|---|---|\n\
                     | a.json | test | 2 | ok |  |\n| b.json | test | 2 | deadlock | x |\n";
        assert_eq!(right(table), BTreeSet::from(["a.json".to_owned()]));
    }
}
