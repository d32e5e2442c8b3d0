//! `cargo xtask defaults --predict`: what the simulator says is the fastest on GPUs, as the table that the choice reads, and
//! as one of the manual.

use std::fmt::Display;
use std::fs;
use std::path::Path;

use antiphon::plan::algorithms::devices::{
    DeviceClass, Prediction, SIMULATED, Step, predict, predict_rooted, prediction,
    prediction_rooted, predictions, predictions_rooted,
};
use antiphon::plan::algorithms::{Algorithm, Rooted};
use antiphon::plan::model::Collective;
use antiphon::plan::simulate::{SimulateError, Topology};

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
    let all = simulated(&super::collectives(), predict)?;
    let own = simulated(&super::ROOTED, predict_rooted)?;
    let path = repo::root().join(SOURCE);
    let written = fs::write(&path, source(&all, &own));
    written.map_err(Error::io(format!("write {}", path.display())))?;
    if keyed(predictions()) != all || keyed(predictions_rooted()) != own {
        println!("{SOURCE} has changed: run this once more, for the manual");
    }
    section::write(Path::new(MANUAL.0), MANUAL.1, &page())
}

/// What a list of steps is for.
type Key = (DeviceClass, usize, usize, Collective);

/// What is predicted of these collectives, for all ranks that are simulated.
fn simulated<A>(
    collectives: &[Collective],
    predict: impl Fn(&Topology, &Collective) -> Result<Vec<Step<A>>, SimulateError>,
) -> Result<Vec<(Key, Vec<Step<A>>)>> {
    let error = |error: &dyn Display| Error::message(error.to_string());
    let mut all = Vec::new();
    for class in DeviceClass::ALL {
        for (nodes, per_node) in SIMULATED {
            for &per_node in per_node {
                let topology = class.topology(nodes, per_node).map_err(|e| error(&e))?;
                for collective in collectives {
                    let steps = predict(&topology, collective).map_err(|e| error(&e))?;
                    all.push(((class, nodes, per_node, collective.clone()), steps));
                }
            }
        }
    }
    Ok(all)
}

/// Predictions, as [`simulated`] gives them.
fn keyed<A: Copy>(all: &[Prediction<A>]) -> Vec<(Key, Vec<Step<A>>)> {
    let key = |one: &Prediction<A>| (one.class, one.nodes, one.per_node, one.collective.clone());
    all.iter().map(|one| (key(one), one.steps.to_vec())).collect()
}

/// The tables that the choice reads, as source.
fn source(all: &[(Key, Vec<Step>)], own: &[(Key, Vec<Step<Rooted>>)]) -> String {
    let mut text = String::from(
        "//! What the simulator predicts. Written by `cargo xtask defaults --predict`; a test holds it against the simulator.\n\n\
         use super::DeviceClass::{Amd, Nvidia, NvidiaMulticast};\n\
         use super::{DeviceClass, Prediction, Step};\n\
         use crate::algorithms::Algorithm::{self, *};\n\
         use crate::algorithms::Rooted;\n\
         use crate::model::Collective::{self, *};\n\n\
         /// A prediction.\n\
         const fn of<A>(\n    class: DeviceClass,\n    nodes: usize,\n    per_node: usize,\n    collective: Collective,\n    \
         steps: &'static [Step<A>],\n) -> Prediction<A> {\n    \
         Prediction { class, nodes, per_node, collective, steps }\n}\n\n\
         /// A step.\n\
         const fn to<A: Copy>(up_to: u64, algorithm: A, blocks: usize) -> Step<A> {\n    \
         Step { up_to, algorithm, blocks }\n}\n\n\
         /// For all messages that are left.\n\
         const ALL: u64 = u64::MAX;\n",
    );
    let named = |algorithm: &Algorithm| format!("{algorithm:?}");
    let by = "By class of devices, nodes, ranks of a node, and collective.";
    text.push_str(&array(by, "PREDICTIONS: &[Prediction<Algorithm>]", all, named));
    let named = |algorithm: &Rooted| format!("Rooted::{algorithm:?}");
    let by = "Likewise of gather and scatter.";
    text + &array(by, "ROOTED: &[Prediction<Rooted>]", own, named)
}

/// One of these tables.
fn array<A>(
    by: &str,
    head: &str,
    all: &[(Key, Vec<Step<A>>)],
    named: impl Fn(&A) -> String,
) -> String {
    let mut text = format!("\n/// {by}\n#[rustfmt::skip]\npub(super) const {head} = &[\n");
    for ((class, nodes, per_node, collective), steps) in all {
        let head = format!("of({class:?}, {nodes}, {per_node}, {collective:?}");
        let step = |Step { up_to, algorithm, blocks }: &Step<A>| {
            (*up_to, format!("{}, {blocks}", named(algorithm)))
        };
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
    for collective in super::collectives().into_iter().chain(super::ROOTED) {
        page.push_str(&format!("\n| {collective} |"));
        for (class, nodes, per_node) in COLUMNS {
            let found = prediction(class, nodes, per_node, &collective);
            let own = prediction_rooted(class, nodes, per_node, &collective);
            let said =
                found.map(|found| cell(found.steps)).or_else(|| own.map(|own| cell(own.steps)));
            page.push_str(&format!(" {} |", said.unwrap_or_default()));
        }
    }
    page.push('\n');
    page
}

/// Who serves which sizes, with how many thread blocks.
fn cell<A: Display>(steps: &[Step<A>]) -> String {
    let parts = steps.iter().map(|Step { up_to, algorithm, blocks }| match *up_to {
        u64::MAX => format!("then `{algorithm}` × {blocks}"),
        up_to => format!("to {} `{algorithm}` × {blocks}", size(up_to as usize)),
    });
    parts.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_has_the_predictions() {
        let written = section::read(Path::new(MANUAL.0), MANUAL.1).unwrap();
        assert_eq!(written.trim(), page().trim(), "run `cargo xtask defaults --predict`");
    }

    #[test]
    fn the_table_is_written_as_this_tool_writes_it() {
        let expected = source(&keyed(predictions()), &keyed(predictions_rooted()));
        let written = fs::read_to_string(repo::root().join(SOURCE)).unwrap();
        assert_eq!(written, expected, "run `cargo xtask defaults --predict`");
    }
}
