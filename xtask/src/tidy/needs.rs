//! Every test program that skips for want of a tool is run by a step that has it.
//!
//! Such a program looks for a variable `ANTIPHON_NEEDS_...`, with which it fails where it would skip: a step must name the program and
//! set the variable. What a program takes of `antiphon_tests` is not followed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{Error, Result, ci};

const BEGINNING: &str = "ANTIPHON_NEEDS_";
/// What machines of CI have none of.
const NOWHERE: &[&str] = &["ANTIPHON_NEEDS_GPU"];

/// Checks `files` of the repository at `root`.
pub(super) fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for file in files {
        let Some(program) = program(file) else { continue };
        let mut needed = BTreeSet::new();
        let mut parts = vec![(file.clone(), true)];
        while let Some((part, is_root)) = parts.pop() {
            let text = fs::read_to_string(root.join(&part))
                .map_err(Error::io(format!("read {}", part.display())))?;
            needed.extend(variables(&text));
            let found = modules(&part, is_root, &text);
            parts.extend(found.into_iter().filter(|at| files.contains(at)).map(|at| (at, false)));
        }
        faults.extend(unmet(&file.to_string_lossy(), program, &needed, ci::insists));
    }
    Ok(faults)
}

/// The name of the test program whose first file this is, as cargo has it.
fn program(file: &Path) -> Option<&str> {
    let is_tests = |folder: Option<&Path>| folder.is_some_and(|folder| folder.ends_with("tests"));
    let folder = file.parent()?;
    let named = match file.file_name()?.to_str()? {
        "main.rs" if is_tests(folder.parent()) => folder.file_name()?,
        name if name.ends_with(".rs") && is_tests(Some(folder)) => file.file_stem()?,
        _ => return None,
    };
    let inside = file.iter().any(|part| part == "src");
    named.to_str().filter(|_| !inside)
}

/// The variables that a text names.
fn variables(text: &str) -> BTreeSet<String> {
    let words = text.split('"').filter(|word| word.starts_with(BEGINNING));
    words.filter(|word| !NOWHERE.contains(word)).map(str::to_owned).collect()
}

/// The files where the modules that a file declares may be.
fn modules(file: &Path, is_root: bool, text: &str) -> Vec<PathBuf> {
    let folder = file.parent().unwrap_or(Path::new(""));
    let is_head = is_root || file.ends_with("mod.rs");
    let below = if is_head { folder.to_path_buf() } else { file.with_extension("") };
    let mut found = Vec::new();
    let mut elsewhere = None;
    for line in text.lines().map(str::trim) {
        if let Some(path) = line.strip_prefix("#[path = \"") {
            elsewhere = path.strip_suffix("\"]").map(|path| plain(&folder.join(path)));
        } else if let Some(name) = declared(line) {
            found.extend(elsewhere.take().map_or_else(
                || vec![below.join(format!("{name}.rs")), below.join(name).join("mod.rs")],
                |path| vec![path],
            ));
        }
    }
    found
}

/// The module that a line declares to be in another file.
fn declared(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub(crate) ").or(line.strip_prefix("pub ")).unwrap_or(line);
    rest.strip_prefix("mod ")?.strip_suffix(';')
}

/// A path without what leads back.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path {
        if part == ".." {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    plain
}

fn unmet(
    file: &str,
    program: &str,
    needed: &BTreeSet<String>,
    insists: impl Fn(&str, &str) -> bool,
) -> Vec<String> {
    let unmet = needed.iter().filter(|variable| !insists(program, variable));
    let fault = |variable| {
        format!(
            "{file}: skips where a tool is missing, and no step of CI runs it with {variable}=1; name it in such a step in \
             xtask/src/ci/steps.rs"
        )
    };
    unmet.map(fault).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_known_by_where_they_are() {
        for (file, expected) in [
            ("a/tests/names.rs", Some("names")),
            ("tests/cli.rs", Some("cli")),
            ("tests/tests/gpu/main.rs", Some("gpu")),
            ("tests/tests/gpu/python.rs", None),
            ("a/tests/tools/mod.rs", None),
            ("a/tests/names.cpp", None),
            ("a/src/b/tests/c.rs", None),
            ("tests/src/main.rs", None),
        ] {
            assert_eq!(program(Path::new(file)), expected, "{file}");
        }
    }

    #[test]
    fn modules_are_found_where_the_compiler_finds_them() {
        let text = "mod tools;\n#[path = \"../../b/mod.rs\"]\npub mod other;\nmod inside {\n";
        for (file, is_root, expected) in [
            ("a/tests/x.rs", true, ["a/tests/tools.rs", "a/tests/tools/mod.rs", "b/mod.rs"]),
            ("a/x/mod.rs", false, ["a/x/tools.rs", "a/x/tools/mod.rs", "b/mod.rs"]),
            ("a/y/x.rs", false, ["a/y/x/tools.rs", "a/y/x/tools/mod.rs", "b/mod.rs"]),
        ] {
            let found = modules(Path::new(file), is_root, text);
            assert_eq!(found, expected.map(PathBuf::from), "{file}");
        }
    }

    #[test]
    fn a_program_that_no_step_names_is_a_fault() {
        let needed = variables(r#"const A: &str = "ANTIPHON_NEEDS_A"; "ANTIPHON_NEEDS_GPU", "B""#);
        let by = |known: &'static str| {
            unmet("tests/x.rs", "x", &needed, move |program, variable| {
                (program, variable) == (known, "ANTIPHON_NEEDS_A")
            })
        };
        assert_eq!(by("x"), [""; 0]);
        let faults = by("y");
        assert!(faults.len() == 1 && faults[0].contains("ANTIPHON_NEEDS_A=1"), "{faults:?}");
    }

    #[test]
    fn a_step_runs_the_programs_that_it_names() {
        assert!(ci::insists("rdma_vm", "ANTIPHON_NEEDS_VM"));
        assert!(!ci::insists("programs", "ANTIPHON_NEEDS_VM"));
        assert!(!ci::insists("rdma_vm", "ANTIPHON_NEEDS_HIPRTC"));
        // By the step that takes the whole workspace.
        assert!(ci::insists("anything", "ANTIPHON_NEEDS_SIMULATOR"));
    }
}
