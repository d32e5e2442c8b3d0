//! `cargo xtask tidy`: the rules of the repository that no compiler checks.
//!
//! Each rule is a pure function from texts to faults, so that its own tests can show it a bad text; [`check`] applies all of them
//! to the working tree and is itself a test.

mod arrows;
mod manifests;
mod needs;
mod shown;
mod sources;
mod variables;

use std::path::Path;

use crate::{Result, repo};

/// Every fault of the repository at `root`, one sentence each; empty when it is tidy.
pub fn check(root: &Path) -> Result<Vec<String>> {
    let files = repo::files(root)?;
    let mut faults = sources::check(root, &files)?;
    faults.extend(manifests::check(root)?);
    faults.extend(arrows::check(root)?);
    faults.extend(needs::check(root, &files)?);
    faults.extend(shown::check(root)?);
    faults.extend(variables::check(root, &files)?);
    Ok(faults)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_is_tidy() {
        let faults = check(&repo::root()).expect("the repository can be read");
        assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    }
}
