//! The page of environment variables has those that the sources read, and no others.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

const PAGE: &str = "docs/environment.md";
/// Folders whose sources are what users run.
const PRODUCT: &[&str] = &["executor", "ffi", "hal", "plan", "src", "transports"];
/// Names of these beginnings and endings are tests' switches, and macros of the C header.
const OTHERS: (&[&str], &[&str]) =
    (&["ANTIPHON_NEEDS_", "ANTIPHON_RESULT_", "ANTIPHON_TEST_", "ANTIPHON_WRITE_"], &["_INIT"]);

/// Checks `files` of the repository at `root`.
pub(super) fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let read = |name: &Path| {
        fs::read_to_string(root.join(name)).map_err(Error::io(format!("read {}", name.display())))
    };
    let mut sources = BTreeSet::new();
    for file in files.iter().filter(|file| is_product(file)) {
        sources.extend(names(&read(file)?, '"'));
    }
    Ok(differ(&sources, &names(&read(Path::new(PAGE))?, '`')))
}

fn is_product(file: &Path) -> bool {
    let is_source = file.extension().is_some_and(|ending| ending == "rs" || ending == "py");
    let mut parts = file.iter().filter_map(|part| part.to_str());
    let inside = parts.next().is_some_and(|first| PRODUCT.contains(&first));
    is_source
        && inside
        && !parts.any(|part| ["tests", "tests.rs", "examples", "benches"].contains(&part))
}

/// The variables that `text` has between two of `quote`.
fn names(text: &str, quote: char) -> BTreeSet<String> {
    let is_name = |word: &&str| {
        let rest = word.strip_prefix("ANTIPHON_").or_else(|| word.strip_prefix("MSCCLPP_"));
        let letters = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
        let (beginnings, endings) = OTHERS;
        rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(letters))
            && !beginnings.iter().any(|other| word.starts_with(other))
            && !endings.iter().any(|other| word.ends_with(other))
    };
    text.split(quote).filter(is_name).map(str::to_owned).collect()
}

fn differ(sources: &BTreeSet<String>, page: &BTreeSet<String>) -> Vec<String> {
    let missing = sources.difference(page);
    let missing = missing.map(|name| format!("{PAGE}: lacks {name}, which the sources read"));
    let unread = page.difference(sources);
    missing.chain(unread.map(|name| format!("{PAGE}: has {name}, which no source reads"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_on_the_page_if_it_is_read() {
        let source = r#"let a = "ANTIPHON_A"; let b = "MSCCLPP_B2"; "ANTIPHON_NEEDS_C", "ANTIPHON_D_INIT", "ANTIPHON_e""#;
        let sources = names(source, '"');
        assert_eq!(sources.iter().collect::<Vec<_>>(), ["ANTIPHON_A", "MSCCLPP_B2"]);
        assert!(differ(&sources, &names("`ANTIPHON_A` (or `MSCCLPP_B2`)", '`')).is_empty());
        let faults = differ(&sources, &names("| `ANTIPHON_A` | `ANTIPHON_Z` |", '`')).join("\n");
        assert!(
            faults.contains("lacks MSCCLPP_B2") && faults.contains("has ANTIPHON_Z"),
            "{faults}"
        );
        for (file, product) in [
            ("src/cli.rs", true),
            ("ffi/tests/a.rs", false),
            ("xtask/src/a.rs", false),
            ("hal/a.md", false),
        ] {
            assert_eq!(is_product(Path::new(file)), product, "{file}");
        }
    }
}
