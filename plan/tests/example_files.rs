//! The files of `examples/plans` are what the built-in algorithms write; those of `examples/refuted` are refuted, as
//! `README.md` shows it.
//!
//! Run with `UPDATE_EXAMPLES=1` to write the former anew.

use antiphon_plan::algorithms::examples;
use antiphon_plan::program::Layout;
use antiphon_plan::verify::{Options, verify};
use antiphon_plan::{Style, read, write};
use std::collections::BTreeSet;
use std::path::Path;

#[test]
fn example_files_are_fresh() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/plans");
    let update = std::env::var_os("UPDATE_EXAMPLES").is_some();
    let mut names = BTreeSet::new();
    for (name, plan) in examples().unwrap() {
        let file = folder.join(name);
        let mut fresh = Vec::new();
        write(&plan, Style::Pretty, &mut fresh).unwrap();
        if update {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&file, &fresh).unwrap();
        }
        let found = std::fs::read(&file).unwrap_or_else(|error| {
            panic!("cannot read {name}: {error}; run with UPDATE_EXAMPLES=1")
        });
        assert!(found == fresh, "{name} is stale; run with UPDATE_EXAMPLES=1");
        assert_eq!(read(&found).unwrap().plan, plan, "{name} does not read back");
        names.insert(name.to_owned());
    }
    for entry in std::fs::read_dir(&folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(names.contains(&name), "{name} is not an example any more");
    }
}

#[test]
fn refuted_examples_are_refuted_as_shown() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = std::fs::read_to_string(root.join("README.md")).unwrap();
    let mut refuted = 0;
    for entry in std::fs::read_dir(root.join("examples/refuted")).unwrap() {
        let path = entry.unwrap().path();
        let plan = read(&std::fs::read(&path).unwrap()).unwrap().plan;
        let report = verify(&plan, &Layout::new(&plan).unwrap(), Options::default());
        assert_eq!(report.status(), 1, "{}: {report}", path.display());
        let file = path.file_name().unwrap().to_string_lossy();
        let shown = format!("examples/refuted/{file}: {report}");
        assert!(page.contains(shown.trim_end()), "README.md does not show this:\n{shown}");
        refuted += 1;
    }
    assert!(refuted > 0, "no example is refuted");
}
