//! The built-in algorithms by name: at which sizes each is chosen, on hosts and on devices, as tables of the manual.

use antiphon::plan::algorithms::devices::{DeviceClass, prediction};
use antiphon::plan::algorithms::{Algorithm, Shape};
use antiphon::plan::model::Collective;

use crate::bench::report::size;

/// What the marks of the tables are named.
pub(super) const NAME: &str = "defaults by name";
/// Ranks of a node, on devices.
const PER_NODE: usize = 8;

/// The largest message of each step of a choice, and the algorithm that serves it.
pub(super) type Steps = Vec<(u64, Algorithm)>;

/// The ranks that a column is for.
#[derive(Clone, Copy)]
enum Ranks {
    /// On hosts, with what they are called.
    Hosts(&'static str, Shape),
    /// On so many nodes of devices.
    Devices(DeviceClass, usize),
}

impl Ranks {
    fn title(self) -> String {
        match self {
            Ranks::Hosts(name, _) => format!("hosts: {name}"),
            Ranks::Devices(class, 1) => format!("`{}`", class.topology_name()),
            Ranks::Devices(class, nodes) => format!("`{}-{nodes}`", class.topology_name()),
        }
    }

    fn steps(self, collective: &Collective) -> Steps {
        match self {
            Ranks::Hosts(_, shape) => super::steps(collective, shape),
            Ranks::Devices(class, nodes) => {
                let found = prediction(class, nodes, PER_NODE, collective);
                let steps = found.map_or(&[][..], |found| found.steps);
                steps.iter().map(|step| (step.up_to, step.algorithm)).collect()
            }
        }
    }

    fn are_assumed(self, collective: &Collective) -> bool {
        match self {
            Ranks::Hosts(_, shape) => super::is_assumed(collective, shape),
            Ranks::Devices(..) => false,
        }
    }
}

/// The tables: of the algorithms of one node, and of those of several.
pub(super) fn tables() -> String {
    let [near, far] = [1, 2].map(table);
    format!("{near}\n{far}")
}

/// The table of the algorithms that so many nodes are served by.
fn table(nodes: usize) -> String {
    let hosts = super::columns().into_iter().filter(|(_, shape)| shape.nodes == nodes);
    let hosts = hosts.map(|(name, shape)| Ranks::Hosts(name, shape));
    let devices = DeviceClass::ALL.map(|class| Ranks::Devices(class, nodes));
    let columns: Vec<Ranks> = hosts.chain(devices).collect();
    let titles: String = columns.iter().map(|column| format!(" {} |", column.title())).collect();
    let mut table = format!("| |{titles}\n|---|{}\n", "---|".repeat(columns.len()));
    for algorithm in Algorithm::ALL.iter().filter(|one| one.is_hierarchical() == (nodes > 1)) {
        let collective = algorithm.collective();
        let cell = |column: &Ranks| {
            let sizes = sizes(*algorithm, &column.steps(&collective));
            match column.are_assumed(&collective) && sizes != NONE {
                true => format!(" *{sizes}* |"),
                false => format!(" {sizes} |"),
            }
        };
        let cells: String = columns.iter().map(cell).collect();
        table.push_str(&format!("| `{}` |{cells}\n", algorithm.name()));
    }
    table
}

/// What is said of an algorithm that serves no size.
const NONE: &str = "–";

/// The sizes that an algorithm serves.
fn sizes(algorithm: Algorithm, steps: &[(u64, Algorithm)]) -> String {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    let mut above = 0;
    for &(up_to, serves) in steps {
        match runs.last_mut() {
            _ if serves != algorithm => {}
            Some(last) if last.1 == above => last.1 = up_to,
            _ => runs.push((above, up_to)),
        }
        above = up_to;
    }
    let bytes = |bytes: u64| size(bytes as usize);
    let text = |&run: &(u64, u64)| match run {
        (0, u64::MAX) => "all".to_owned(),
        (0, up_to) => format!("to {}", bytes(up_to)),
        (above, u64::MAX) => format!("above {}", bytes(above)),
        (above, up_to) => format!("above {} to {}", bytes(above), bytes(up_to)),
    };
    let text: Vec<String> = runs.iter().map(text).collect();
    if text.is_empty() { NONE.to_owned() } else { text.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::section;
    use std::path::Path;

    #[test]
    fn the_manual_has_the_tables() {
        let written = section::read(Path::new(super::super::DOCUMENT), NAME).unwrap();
        assert_eq!(written.trim(), tables().trim(), "run `cargo xtask defaults`");
    }

    #[test]
    fn sizes_are_runs_of_steps() {
        let [one, two, three] =
            [Algorithm::AllReduceHub, Algorithm::AllReduceRing, Algorithm::AllReduceZeroCopy];
        let steps = [(512, one), (1024, two), (4096, two), (8192, one), (u64::MAX, two)];
        assert_eq!(sizes(one, &steps), "to 512, above 4K to 8K");
        assert_eq!(sizes(two, &steps), "above 512 to 4K, above 8K");
        assert_eq!(sizes(three, &steps), "–");
        assert_eq!(sizes(one, &[(64, one), (u64::MAX, one)]), "all");
    }

    #[test]
    fn every_algorithm_has_a_row_and_most_serve_something() {
        let tables = tables();
        for algorithm in Algorithm::ALL {
            let begin = format!("| `{}` |", algorithm.name());
            let rows: Vec<&str> = tables.lines().filter(|line| line.starts_with(&begin)).collect();
            let [row] = rows[..] else { panic!("{algorithm:?}: {rows:?}") };
            let mut cells = row.split('|').skip(2).map(str::trim).filter(|cell| !cell.is_empty());
            // It adds in an order of its own.
            let by_name_alone = algorithm == Algorithm::AllReduceRing;
            assert_eq!(cells.all(|cell| cell == NONE), by_name_alone, "{row}");
        }
    }
}
