//! Proofs rest on nothing that differs from run to run.

use std::collections::BTreeSet;
use std::path::Path;

/// Words that would let chance, the clock or the environment into a proof.
const FORBIDDEN: &[&str] =
    &["rand::", "thread_rng", "std::thread", "Instant", "SystemTime", "std::time", "std::env"];

/// What goes through a hash table in its own order, which differs from run to run.
const ORDERED: &[&str] =
    &["iter", "iter_mut", "keys", "values", "values_mut", "drain", "into_iter", "into_keys"];

/// All files of the verifier with their code: no comments, no tests.
fn sources(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "tests") {
                sources(&path, found);
            }
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        found.push((name, lines.collect::<Vec<_>>().join("\n")));
    }
}

/// Names that are declared as hash tables, for all files to see or for one.
fn tables(code: &str, public: bool) -> BTreeSet<String> {
    let declared = code.lines().filter(|line| !line.trim_start().starts_with("use "));
    let declared = declared.filter(|line| !public || line.trim_start().starts_with("pub"));
    let name = |line: &str| {
        let at = line.find("HashMap").or_else(|| line.find("HashSet"))?;
        let before = line[..at].split([':', '=']).next()?;
        before.split_whitespace().next_back().map(str::to_owned)
    };
    declared.filter_map(name).collect()
}

fn word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// How a name (as a field only, or any) is used in code in an order of its own, if it is.
fn gone_through(code: &str, name: &str, field: bool) -> Option<String> {
    for (at, _) in code.match_indices(name) {
        let (before, rest) = (&code[..at], &code[at + name.len()..]);
        if before.ends_with(word) || rest.starts_with(word) || (field && !before.ends_with('.')) {
            continue;
        }
        let squeezed: String = rest.chars().filter(|c| !c.is_whitespace()).take(40).collect();
        let method: String =
            squeezed.strip_prefix('.').unwrap_or("").chars().take_while(|&c| word(c)).collect();
        if ORDERED.contains(&method.as_str()) {
            return Some(format!("{name}.{method}"));
        }
        let holder = before.trim_end_matches(|c: char| word(c) || c == '.' || c == '&');
        if holder.ends_with(" in ") && squeezed.starts_with('{') {
            return Some(format!("for … in {name}"));
        }
    }
    None
}

#[test]
fn no_chance_no_clock_and_no_order_of_hash_tables() {
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/verify"), &mut files);
    let names: BTreeSet<String> = files.iter().flat_map(|(_, code)| tables(code, true)).collect();
    for known in ["waiting_packet", "kept"] {
        assert!(names.contains(known), "saw {names:?}");
    }
    for (path, code) in &files {
        for &word in FORBIDDEN {
            assert!(!code.contains(word), "{path} says {word}");
        }
        for name in &names {
            assert_eq!(gone_through(code, name, true), None, "{path}");
        }
        for name in tables(code, false) {
            assert_eq!(gone_through(code, &name, false), None, "{path}");
        }
    }
}

#[test]
fn the_search_finds_what_it_looks_for() {
    let code = "let seen: HashSet<u32> = HashSet::new();\nfor x in &seen { }\nseen\n  .iter()";
    assert!(tables(code, false).contains("seen"));
    assert_eq!(gone_through(code, "seen", false).as_deref(), Some("for … in seen"));
    assert_eq!(gone_through("self.seen\n .iter()", "seen", true).as_deref(), Some("seen.iter"));
    assert_eq!(gone_through("unseen.iter() + seen.get(1)", "seen", false), None);
}
