//! The files of `examples/plans` are what the built-in algorithms write.
//!
//! Run with `UPDATE_EXAMPLES=1` to write them anew.

use antiphon_plan::algorithms::examples;
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
