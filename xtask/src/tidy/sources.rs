//! Rules of single files: their size, the page they open with, and what no text may name.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// That of generated files.
const HARD_LIMIT: usize = 2000;
const SOFT_LIMIT: usize = 600;

/// Files that may be longer than the soft limit, each with the reason: tables and generated text only.
const LONG: &[(&str, &str)] = &[
    ("ffi/include/antiphon.h", "generated from ffi/src, with the comments of all functions"),
    (
        "ffi/python/antiphon/_native.pyi",
        "the types of one extension module, of which Python takes one file",
    ),
];

/// Endings of hand-written files whose size counts.
const HAND_WRITTEN: &[&str] = &["rs", "c", "h", "cpp", "py", "pyi", "sh", "cu"];

/// Checks `files` of the repository at `root`.
pub(super) fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for file in files {
        let bytes =
            fs::read(root.join(file)).map_err(Error::io(format!("read {}", file.display())))?;
        let Ok(text) = String::from_utf8(bytes) else { continue };
        let name = file.to_string_lossy();
        let ending = file.extension().and_then(|e| e.to_str()).unwrap_or_default();
        if HAND_WRITTEN.contains(&ending) {
            faults.extend(too_long(&name, text.lines().count()));
        }
        if ending == "rs" {
            faults.extend(no_page(&name, &text));
        }
        faults.extend(names_a_machine(&name, &text));
    }
    for (name, _) in LONG {
        if !files.iter().any(|f| f == Path::new(name)) {
            faults
                .push(format!("{name}: is allowed to be long but does not exist; drop the entry"));
        }
    }
    Ok(faults)
}

fn too_long(name: &str, lines: usize) -> Option<String> {
    let excused = LONG.iter().any(|(known, _)| *known == name);
    let limit = if excused { HARD_LIMIT } else { SOFT_LIMIT };
    (lines > limit).then(|| format!("{name}: {lines} lines, allowed {limit}; split it by topic"))
}

/// Every Rust file says first what it is for. A test target of a few lines is no exception: one line will do.
fn no_page(name: &str, text: &str) -> Option<String> {
    let first = text.lines().find(|l| !l.trim().is_empty()).unwrap_or_default();
    let opens = first.starts_with("//!") || first.starts_with("#![doc");
    let attribute = first.starts_with("#![") || first.starts_with("#!/");
    let page = opens || (attribute && text.lines().any(|l| l.starts_with("//!")));
    (!page).then(|| format!("{name}: opens without a `//!` page; say what it owns and what not"))
}

/// Folders and hosts that exist on one machine only, or say where packages come from. Spelled in halves, so that this file passes.
fn names_a_machine(name: &str, text: &str) -> Vec<String> {
    let banned = [
        concat!("/ho", "me/"),
        concat!("/wo", "rk/"),
        concat!("/Us", "ers/"),
        concat!("/root", "/."),
        concat!("pypi", ".org"),
        concat!("files.python", "hosted"),
        concat!("static.crates", ".io"),
        concat!("index.crates", ".io"),
        concat!("deb.debian", ".org"),
        concat!("registry.npm", "js"),
    ];
    let found = |line: &str| banned.iter().copied().find(|b| line.contains(b));
    let numbered = text.lines().enumerate();
    numbered
        .filter_map(|(i, line)| {
            found(line).map(|b| {
                format!("{name}:{}: names `{b}`; say it without a place of one machine", i + 1)
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_are_faults() {
        assert_eq!(too_long("a.rs", SOFT_LIMIT), None);
        assert!(
            too_long("a.rs", SOFT_LIMIT + 1).is_some_and(|f| f.contains("601 lines, allowed 600"))
        );
    }

    #[test]
    fn a_page_comes_first() {
        for (text, good) in [
            ("//! Page.\nfn f() {}", true),
            ("#![forbid(unsafe_code)]\n//! Page.", true),
            ("\n\n//! Page.", true),
            ("// Not a page.\n", false),
            ("use std::fs;\n//! Too late.", false),
            ("", false),
        ] {
            assert_eq!(no_page("a.rs", text).is_none(), good, "{text:?}");
        }
    }

    #[test]
    fn places_of_one_machine_are_named_with_their_line() {
        let text = concat!("fine\nsee /ho", "me/me/notes\n");
        let faults = names_a_machine("a.md", text);
        assert_eq!(faults.len(), 1);
        assert!(faults[0].starts_with("a.md:2:"), "{faults:?}");
        assert!(names_a_machine("a.md", "crates from the registry, /homework").is_empty());
    }
}
