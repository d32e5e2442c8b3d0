//! The committed header is the one that the sources make.

use std::path::Path;

/// Set to write the header instead of comparing it.
const WRITE: &str = "ANTIPHON_WRITE_HEADER";

#[test]
fn the_header_is_that_of_the_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("cbindgen.toml");
    let bindings = cbindgen::Builder::new().with_crate(root).with_config(config).generate();
    let mut made = Vec::new();
    bindings.expect("the sources are readable").write(&mut made);
    // What Rust calls safety is what C calls a contract.
    let made =
        String::from_utf8(made).expect("UTF-8").replace("# Safety", "The caller sees to it:");
    let path = root.join("include/antiphon.h");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &made).expect("the header is writable");
        return;
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = committed.lines().zip(made.lines()).position(|(old, new)| old != new);
    assert!(
        committed == made,
        "ffi/include/antiphon.h is not that of the sources (from line {}): make it by {WRITE}=1 cargo test -p antiphon-ffi \
         --test header, and see CHANGELOG.md and ffi/abi for what else a change of the interface takes",
        differs.map_or(1, |line| line + 1)
    );
}

/// The functions that a header declares, each with the comment before it.
fn functions(header: &str) -> Vec<(&str, &str)> {
    let documented = header.split("/**").skip(1).filter_map(|rest| rest.split_once("*/"));
    let named = documented.filter_map(|(comment, rest)| {
        let declared = rest.split(';').next()?;
        let (before, _) = declared.split_once('(')?;
        // What is in braces, or is a pointer to a function, is a member.
        let plain = !declared.contains('{') && !declared.contains("(*");
        let name = before.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next()?;
        (plain && name.starts_with("antiphon_")).then_some((name, comment))
    });
    named.collect()
}

#[test]
fn every_function_says_which_threads_may_call_it() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/antiphon.h");
    let header = std::fs::read_to_string(path).expect("the header");
    let functions = functions(&header);
    // Whatever has parameters, documented or not.
    let code = header.split("/**").map(|part| part.split_once("*/").map_or(part, |(_, rest)| rest));
    let called = |text: &str| {
        let name = text.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next();
        name.is_some_and(|name| name.starts_with("antiphon_"))
    };
    let declared = code.map(|text| {
        let before: Vec<&str> = text.split('(').collect();
        before.iter().rev().skip(1).filter(|text| called(text)).count()
    });
    let declared: usize = declared.sum();
    assert_eq!(functions.len(), declared, "{functions:?}");
    for (name, comment) in functions {
        let words =
            comment.split_whitespace().collect::<Vec<_>>().join(" ").replace("thread block", "");
        assert!(words.contains("thread"), "{name}: {comment}");
    }
}
