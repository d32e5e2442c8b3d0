//! `cargo xtask defaults --predict`: what the simulator says is the fastest on GPUs, as the table that the choice reads, and
//! as one of the manual.

use std::fs;
use std::path::Path;

use antiphon::plan::algorithms::devices::{
    DeviceClass, SIMULATED, Step, predict, prediction, predictions,
};
use antiphon::plan::model::Collective;

use crate::bench::report::size;
use crate::{Error, Result, repo, section};

/// Where the table is that the choice reads.
const SOURCE: &str = "plan/src/algorithms/devices/table.rs";
/// Where the manual's is, and what its marks are named.
const MANUAL: (&str, &str) = ("docs/algorithms.md", "predicted defaults");

/// Asks the simulator, and writes the table that the choice reads; the manual's is that of the choice as it was built.
///
/// # Errors
/// A simulation that fails; a file that cannot be read or written.
pub fn run() -> Result<()> {
    let error = |error: &dyn std::fmt::Display| Error::message(error.to_string());
    let mut all = Vec::new();
    for class in DeviceClass::ALL {
        for (nodes, per_node) in SIMULATED {
            for &per_node in per_node {
                let topology = class.topology(nodes, per_node).map_err(|e| error(&e))?;
                for collective in super::collectives() {
                    let steps = predict(&topology, &collective).map_err(|e| error(&e))?;
                    let key = (class, nodes, per_node, collective);
                    all.push((key, steps));
                }
            }
        }
    }
    let path = repo::root().join(SOURCE);
    let written = fs::write(&path, source(&all));
    written.map_err(Error::io(format!("write {}", path.display())))?;
    let stale = predictions().len() != all.len()
        || predictions().iter().zip(&all).any(|(built, (_, steps))| built.steps != &steps[..]);
    if stale {
        println!("{SOURCE} has changed: run this once more, for the manual");
    }
    section::write(Path::new(MANUAL.0), MANUAL.1, &page())
}

/// What a list of steps is for.
type Key = (DeviceClass, usize, usize, Collective);

/// The table that the choice reads, as source.
fn source(all: &[(Key, Vec<Step>)]) -> String {
    let mut text = String::from(
        "//! What the simulator predicts. Written by `cargo xtask defaults --predict`; a test holds it against the simulator.\n\n\
         use super::DeviceClass::{Amd, Nvidia, NvidiaMulticast};\n\
         use super::{DeviceClass, Prediction, Step};\n\
         use crate::algorithms::Algorithm::{self, *};\n\
         use crate::model::Collective::{self, *};\n\n\
         /// A prediction.\n\
         const fn of(\n    class: DeviceClass,\n    nodes: usize,\n    per_node: usize,\n    collective: Collective,\n    \
         steps: &'static [Step],\n) -> Prediction {\n    Prediction { class, nodes, per_node, collective, steps }\n}\n\n\
         /// A step.\n\
         const fn to(up_to: u64, algorithm: Algorithm, blocks: usize) -> Step {\n    \
         Step { up_to, algorithm, blocks }\n}\n\n\
         /// For all messages that are left.\n\
         const ALL: u64 = u64::MAX;\n\n\
         /// By class of devices, nodes, ranks of a node, and collective.\n\
         #[rustfmt::skip]\n\
         pub(super) const PREDICTIONS: &[Prediction] = &[\n",
    );
    for ((class, nodes, per_node, collective), steps) in all {
        let head = format!("of({class:?}, {nodes}, {per_node}, {collective:?}");
        let step =
            |Step { up_to, algorithm, blocks }: &Step| (*up_to, format!("{algorithm:?}, {blocks}"));
        text.push_str(&super::entry(&head, steps.iter().map(step)));
    }
    text + "];\n"
}

/// The columns of the manual's table: the devices, nodes and ranks of each node.
const COLUMNS: [(DeviceClass, usize, usize); 5] = [
    (DeviceClass::NvidiaMulticast, 1, 8),
    (DeviceClass::Nvidia, 1, 8),
    (DeviceClass::Amd, 1, 8),
    (DeviceClass::NvidiaMulticast, 1, 2),
    (DeviceClass::NvidiaMulticast, 2, 8),
];

/// The manual's table.
fn page() -> String {
    let mut page = String::from("| |");
    for (class, nodes, per_node) in COLUMNS {
        let name = class.topology_name();
        page.push_str(&match nodes {
            1 => format!(" {per_node} ranks, `{name}` |"),
            _ => format!(" {nodes} nodes of {per_node} ranks, `{name}` |"),
        });
    }
    page.push_str("\n|---|");
    COLUMNS.iter().for_each(|_| page.push_str("---|"));
    for collective in super::collectives() {
        page.push_str(&format!("\n| {collective} |"));
        for (class, nodes, per_node) in COLUMNS {
            let found = prediction(class, nodes, per_node, &collective);
            page.push_str(&format!(" {} |", cell(found.map_or(&[], |found| found.steps))));
        }
    }
    page.push('\n');
    page
}

/// Who serves which sizes, with how many thread blocks.
fn cell(steps: &[Step]) -> String {
    let parts = steps.iter().map(|Step { up_to, algorithm, blocks }| match *up_to {
        u64::MAX => format!("then `{algorithm}` × {blocks}"),
        up_to => format!("to {} `{algorithm}` × {blocks}", size(up_to as usize)),
    });
    parts.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon::plan::algorithms::devices::Prediction;

    #[test]
    fn the_manual_has_the_predictions() {
        let written = section::read(Path::new(MANUAL.0), MANUAL.1).unwrap();
        assert_eq!(written.trim(), page().trim(), "run `cargo xtask defaults --predict`");
    }

    #[test]
    fn the_table_is_written_as_this_tool_writes_it() {
        let key = |one: &Prediction| (one.class, one.nodes, one.per_node, one.collective.clone());
        let all: Vec<_> = predictions().iter().map(|one| (key(one), one.steps.to_vec())).collect();
        let written = fs::read_to_string(repo::root().join(SOURCE)).unwrap();
        assert_eq!(written, source(&all), "run `cargo xtask defaults --predict`");
    }
}
