//! Code that a page shows is the code of the file that it names.

use std::fs;
use std::path::Path;

use crate::{Error, Result};

/// A page, the language of its blocks, and the files whose text they are.
const SHOWN: &[(&str, &str, &[&str])] = &[
    ("README.md", "rust", &["examples/ring_allreduce.rs"]),
    ("README.md", "python", &["examples/dsl/ring_allreduce.py"]),
    ("docs/c.md", "c", &["examples/c/all_reduce.c", "examples/c/overlap.c"]),
    ("docs/c.md", "cmake", &["examples/c/CMakeLists.txt"]),
    ("docs/c.md", "cpp", &["examples/c/client.cpp"]),
    ("docs/recovery.md", "rust", &["tests/tests/recovery.rs"]),
    ("docs/recovery.md", "py", &["ffi/python/tests/programs/recovery.py"]),
];

/// Checks the pages of the repository at `root`.
pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let read =
        |name: &str| fs::read_to_string(root.join(name)).map_err(Error::io(format!("read {name}")));
    let mut faults = Vec::new();
    for &(page, language, files) in SHOWN {
        let text = read(page)?;
        let sources = files.iter().map(|file| read(file)).collect::<Result<Vec<_>>>()?;
        faults.extend(differs(page, &text, language, &files.join(" or "), &sources));
    }
    Ok(faults)
}

/// Every block of the language must be in one of the files as it stands, and there must be one.
fn differs(
    page: &str,
    text: &str,
    language: &str,
    file: &str,
    sources: &[String],
) -> Option<String> {
    let blocks = blocks(text, language);
    if blocks.is_empty() {
        return Some(format!("{page}: shows nothing of {file}; show it, or drop the rule"));
    }
    let other =
        blocks.iter().find(|block| !sources.iter().any(|source| source.contains(*block)))?;
    let known = |line: &str| sources.iter().any(|source| source.lines().any(|known| known == line));
    let changed = other.lines().find(|line| !known(line));
    let near = changed.or_else(|| other.lines().next()).unwrap_or_default().trim();
    Some(format!("{page}: shows code that is not in {file}, near `{near}`; copy it from there"))
}

/// The texts of the blocks that are fenced as `language`.
fn blocks<'t>(text: &'t str, language: &str) -> Vec<&'t str> {
    let opening = format!("```{language}\n");
    let parts = text.split(opening.as_str()).skip(1);
    parts.filter_map(|rest| rest.split_once("\n```").map(|(block, _)| block)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_code_must_be_in_its_file() {
        let sources = ["fn a() {\n    b();\n}\n".to_owned(), "fn d() {}\n".to_owned()];
        let fault = |page: &str| differs("a.md", page, "rust", "a.rs", &sources);
        assert_eq!(fault("```rust\nfn d() {}\n```\n"), None);
        assert_eq!(fault("See:\n\n```rust\nfn a() {\n    b();\n}\n```\n"), None);
        assert_eq!(fault("```rust\n    b();\n```\n"), None);
        let other = fault("```rust\nfn a() {\n    c();\n}\n```\n").unwrap_or_default();
        assert!(other.contains("not in a.rs, near `c();`"), "{other}");
        let none = fault("```python\nfn a()\n```\n").unwrap_or_default();
        assert!(none.contains("shows nothing of a.rs"), "{none}");
    }
}
