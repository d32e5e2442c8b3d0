//! Rules of manifests and crate roots: common lints for every member, `forbid(unsafe_code)` where no unsafe belongs, and the licences'
//! texts in what is packed.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Error, Result, repo};

/// Crates that do without unsafe code for good.
const SAFE: &[&str] = &["plan", "hal/types", "ffi/python"];

/// Checks every member of the workspace at `root`.
pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    let workspace = read(&root.join("Cargo.toml"))?;
    for member in std::iter::once(String::from(".")).chain(members(&workspace)) {
        let folder = root.join(&member);
        let manifest = read(&folder.join("Cargo.toml"))?;
        if !inherits_lints(&manifest) {
            faults.push(format!("{member}/Cargo.toml: add `[lints]` with `workspace = true`"));
        }
        if is_published(&manifest) || folder.join("pyproject.toml").exists() {
            for licence in repo::LICENCES {
                let own = fs::read_to_string(folder.join(licence)).ok();
                if own != Some(read(&root.join(licence))?) {
                    faults.push(format!("{member}: link {licence} to that of the root"));
                }
            }
        }
        for crate_root in crate_roots(&folder) {
            let text = read(&crate_root)?;
            let name = crate_root.strip_prefix(root).unwrap_or(&crate_root).display();
            if SAFE.contains(&member.as_str()) && !text.contains("#![forbid(unsafe_code)]") {
                faults
                    .push(format!("{name}: add `#![forbid(unsafe_code)]`, this crate needs none"));
            }
        }
    }
    Ok(faults)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(Error::io(format!("read {}", path.display())))
}

fn crate_roots(folder: &Path) -> Vec<PathBuf> {
    ["src/lib.rs", "src/main.rs"].iter().map(|f| folder.join(f)).filter(|f| f.exists()).collect()
}

/// The quoted names of the `members` list. The manifest is ours, so a reader of this one list will do.
fn members(manifest: &str) -> Vec<String> {
    let Some((_, rest)) = manifest.split_once("members = [") else { return Vec::new() };
    let list = rest.split_once(']').map_or(rest, |(list, _)| list);
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Whether the crate is packed by itself, without what is around it here.
fn is_published(manifest: &str) -> bool {
    !manifest.lines().any(|line| line.replace(' ', "") == "publish=false")
}

fn inherits_lints(manifest: &str) -> bool {
    let mut lines =
        manifest.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
    lines.by_ref().any(|l| l == "[lints]")
        && lines.take_while(|l| !l.starts_with('[')).any(|l| l.replace(' ', "") == "workspace=true")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read_over_several_lines() {
        let manifest =
            "[workspace]\nmembers = [\n  \"hal\", \"hal/types\",\n  \"plan\",\n]\nx = [\"no\"]";
        assert_eq!(members(manifest), ["hal", "hal/types", "plan"]);
    }

    #[test]
    fn crates_are_published_unless_they_say_no() {
        assert!(is_published("[package]\nname = \"x\"\n"));
        assert!(!is_published("[package]\nname = \"x\"\npublish = false\n"));
    }

    #[test]
    fn lints_must_come_from_the_workspace() {
        for (manifest, good) in [
            ("[package]\n[lints]\nworkspace = true\n", true),
            ("[lints]\n\nworkspace=true", true),
            ("[package]\nname = \"x\"", false),
            ("[lints]\n[dependencies]\nworkspace = true", false),
            ("[lints.rust]\nunsafe_code = \"allow\"", false),
        ] {
            assert_eq!(inherits_lints(manifest), good, "{manifest}");
        }
    }
}
