//! The arrows between layers: which crate of the workspace may depend on which.
//!
//! The table is the architecture's, written down once more so that a test can compare it with what cargo sees. Normal and build
//! dependencies count; a test may borrow from anywhere (dev-dependencies make no edge in what users link).

use std::path::Path;

use serde_json::Value;

use crate::{Error, Result, repo};

/// A crate and those it may depend on directly.
const ALLOWED: &[(&str, &[&str])] = &[
    ("antiphon-types", &[]),
    ("antiphon-plan", &["antiphon-types"]),
    ("antiphon-kernels", &["antiphon-types"]),
    ("antiphon-hal", &["antiphon-kernels"]),
    ("antiphon-transport", &["antiphon-hal", "antiphon-types"]),
    ("antiphon-bootstrap", TRANSPORT),
    ("antiphon-memory", TRANSPORT),
    ("antiphon-port", TRANSPORT),
    ("antiphon-wire-rdma", WIRE_PLUGIN),
    ("antiphon-switch", TRANSPORT),
    ("antiphon-codegen", &["antiphon-plan"]),
    ("antiphon-executor", BELOW_EXECUTOR),
    // A fixture that stands for a vendor's library, so it knows nothing of ours.
    ("antiphon-gpusim", &[]),
    // Models, which stand for code of ours without using it.
    ("antiphon-protocols", &[]),
    ("antiphon-ffi", FACADE),
    // A client of the library that it loads, which tests build.
    ("antiphon-nccl", &[]),
    // What runs plans, it has of the library that its package carries.
    ("antiphon-python", &["antiphon-plan"]),
    ("antiphon", FACADE),
    // Whoever installs the library builds this first.
    ("xtask", &[]),
];

/// The executor and what it re-exports.
const FACADE: &[&str] = &["antiphon-executor", "antiphon-plan", "antiphon-hal", "antiphon-types"];

const TRANSPORT: &[&str] = &["antiphon-transport", "antiphon-hal", "antiphon-types"];

const WIRE_PLUGIN: &[&str] =
    &["antiphon-port", "antiphon-transport", "antiphon-hal", "antiphon-types"];

const BELOW_EXECUTOR: &[&str] = &[
    "antiphon-types",
    "antiphon-plan",
    "antiphon-hal",
    "antiphon-transport",
    "antiphon-bootstrap",
    "antiphon-memory",
    "antiphon-port",
    "antiphon-switch",
    // Built in on request: a plugin otherwise.
    "antiphon-wire-rdma",
    "antiphon-codegen",
];

/// Crates that nothing but each other may depend on, and that may depend on anything.
const OUTSIDE: &[&str] = &["antiphon-tests", "antiphon-lab"];

/// Compares the workspace at `root` with the table.
pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let mut command = repo::cargo();
    command.current_dir(root);
    command.args(["metadata", "--format-version", "1", "--no-deps", "--offline"]);
    let text = repo::capture("read the workspace", &mut command)?;
    let metadata = serde_json::from_str(&text)
        .map_err(|e| Error::message(format!("cannot read cargo's metadata: {e}")))?;
    Ok(faults(&edges(&metadata)))
}

/// A crate with its direct dependencies among all names; registry crates included.
type Edges = Vec<(String, Vec<String>)>;

fn edges(metadata: &Value) -> Edges {
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    packages.iter().map(|p| (text(&p["name"]), dependencies(p))).collect()
}

fn dependencies(package: &Value) -> Vec<String> {
    let all = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().filter(|d| d["kind"] != "dev").map(|d| text(&d["name"])).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn faults(edges: &Edges) -> Vec<String> {
    let ours: Vec<&str> = edges.iter().map(|(name, _)| name.as_str()).collect();
    let mut faults = Vec::new();
    for (name, dependencies) in edges {
        if OUTSIDE.contains(&name.as_str()) {
            continue;
        }
        let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| known == name) else {
            faults
                .push(format!("crate {name} has no place among the arrows: add it to {}", file!()));
            continue;
        };
        for dependency in dependencies.iter().filter(|d| ours.contains(&d.as_str())) {
            if !allowed.contains(&dependency.as_str()) {
                let allowed =
                    if allowed.is_empty() { "nothing of ours".into() } else { allowed.join(", ") };
                faults.push(format!(
                    "crate {name} must not depend on {dependency}: allowed {allowed}"
                ));
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(metadata: &str) -> Vec<String> {
        faults(&edges(&serde_json::from_str(metadata).expect("test metadata is JSON")))
    }

    #[test]
    fn a_forbidden_edge_is_named_and_a_dev_dependency_is_none() {
        let metadata = r#"{"packages": [
            {"name": "antiphon-plan", "dependencies": [
                {"name": "antiphon-hal", "kind": null}, {"name": "serde", "kind": null},
                {"name": "antiphon-types", "kind": null}, {"name": "antiphon-executor", "kind": "dev"}]},
            {"name": "antiphon-hal", "dependencies": []},
            {"name": "antiphon-executor", "dependencies": [{"name": "antiphon-lab", "kind": "build"}]},
            {"name": "antiphon-lab", "dependencies": [{"name": "antiphon-plan", "kind": null}]}]}"#;
        let faults = of(metadata);
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(faults[0].contains("antiphon-plan must not depend on antiphon-hal"));
        assert!(faults[1].contains("antiphon-executor must not depend on antiphon-lab"));
    }

    #[test]
    fn a_crate_without_a_place_is_a_fault() {
        let faults = of(r#"{"packages": [{"name": "antiphon-news", "dependencies": []}]}"#);
        assert!(faults[0].contains("antiphon-news has no place"), "{faults:?}");
    }

    #[test]
    fn the_table_has_no_cycle() {
        let mut placed: Vec<&str> = Vec::new();
        while placed.len() < ALLOWED.len() {
            let before = placed.len();
            for (name, allowed) in ALLOWED {
                if !placed.contains(name) && allowed.iter().all(|a| placed.contains(a)) {
                    placed.push(name);
                }
            }
            assert!(placed.len() > before, "cycle among the crates other than {placed:?}");
        }
    }
}
