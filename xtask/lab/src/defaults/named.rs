//! The built-in algorithms by name: at which sizes each is chosen, on hosts and on devices, as tables of the manual.

use antiphon::executor::selection::{Devices, Spread};
use antiphon::plan::algorithms::devices::{DeviceClass, Step, prediction, prediction_rooted};
use antiphon::plan::algorithms::{Algorithm, Rooted};
use antiphon::plan::model::Collective;

use crate::bench::report::size;

/// What the marks of the tables are named.
pub(super) const NAME: &str = "defaults by name";
/// Ranks of a node, on devices.
const PER_NODE: usize = 8;

/// The largest message of each step of a choice, and the algorithm that serves it.
pub(super) type Steps = Vec<(u64, &'static str)>;

/// The ranks that a column is for.
#[derive(Clone, Copy)]
enum Ranks {
    /// On hosts, with what they are called.
    Hosts(&'static str, Spread),
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
            Ranks::Hosts(_, spread) => super::steps(collective, spread),
            Ranks::Devices(class, nodes) => {
                let found = prediction(class, nodes, PER_NODE, collective);
                let found = found.map(|found| named(found.steps, Algorithm::name));
                let own = || prediction_rooted(class, nodes, PER_NODE, collective);
                let own = || own().map(|own| named(own.steps, Rooted::name));
                found.or_else(own).unwrap_or_else(|| {
                    // Of which nothing was predicted, since there is one way.
                    let (ranks, nodes) = ((nodes * PER_NODE) as u32, nodes as u32);
                    let devices = Devices::of(class);
                    super::steps(collective, Spread { ranks, nodes, crowded: false, devices })
                })
            }
        }
    }

    fn are_predicted(self, collective: &Collective) -> bool {
        match self {
            Ranks::Hosts(_, spread) => super::is_predicted(collective, spread),
            Ranks::Devices(..) => false,
        }
    }
}

/// The steps of a prediction.
fn named<A: Copy>(steps: &[Step<A>], name: impl Fn(A) -> &'static str) -> Steps {
    steps.iter().map(|step| (step.up_to, name(step.algorithm))).collect()
}

/// The tables: of the algorithms of one node, and of those of several.
pub(super) fn tables() -> String {
    let [near, far] = [1, 2].map(table);
    format!("{near}\n{far}")
}

/// A row: what an algorithm is called there, its name, and the collective whose sizes are said.
type Row = (String, &'static str, Collective);

/// The algorithms of one node, or of several; one that serves several collectives has a row for each.
fn rows(nodes: usize) -> Vec<Row> {
    let row = |name: &'static str, collective| (format!("`{name}`"), name, collective);
    let all = Algorithm::ALL.into_iter().filter(|one| one.is_hierarchical() == (nodes > 1));
    let mut rows: Vec<Row> = all.map(|one| row(one.name(), one.collective())).collect();
    let own = Rooted::ALL.into_iter().filter(|one| one.is_hierarchical() == (nodes > 1));
    rows.extend(own.map(|one| row(one.name(), one.collective())));
    if nodes == 1 {
        for (name, collective) in
            [(BLOCKS, Collective::AllToAllV), ("allgatherv_zero_copy", Collective::AllGatherV)]
        {
            rows.push(row(name, collective));
        }
        for collective in super::ROOTED {
            rows.push((format!("`{BLOCKS}`, of a {collective}"), BLOCKS, collective));
        }
    }
    rows
}

/// What has a gather's or a scatter's blocks go one by one, too.
pub(super) const BLOCKS: &str = "alltoallv_zero_copy";

/// The table of the algorithms that so many nodes are served by.
fn table(nodes: usize) -> String {
    let hosts = super::columns().into_iter().filter(|(_, spread)| spread.nodes as usize == nodes);
    let hosts = hosts.map(|(name, spread)| Ranks::Hosts(name, spread));
    let devices = DeviceClass::ALL.map(|class| Ranks::Devices(class, nodes));
    let columns: Vec<Ranks> = hosts.chain(devices).collect();
    let titles: String = columns.iter().map(|column| format!(" {} |", column.title())).collect();
    let mut table = format!("| |{titles}\n|---|{}\n", "---|".repeat(columns.len()));
    for (title, name, collective) in rows(nodes) {
        let cell = |column: &Ranks| {
            let sizes = sizes(name, &column.steps(&collective));
            match column.are_predicted(&collective) && sizes != NONE {
                true => format!(" *{sizes}* |"),
                false => format!(" {sizes} |"),
            }
        };
        let cells: String = columns.iter().map(cell).collect();
        table.push_str(&format!("| {title} |{cells}\n"));
    }
    table
}

/// What is said of an algorithm that serves no size.
const NONE: &str = "–";

/// The sizes that an algorithm serves.
fn sizes(algorithm: &str, steps: &[(u64, &str)]) -> String {
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
        let [one, two, three] = ["one", "two", "three"];
        let steps = [(512, one), (1024, two), (4096, two), (8192, one), (u64::MAX, two)];
        assert_eq!(sizes(one, &steps), "to 512, above 4K to 8K");
        assert_eq!(sizes(two, &steps), "above 512 to 4K, above 8K");
        assert_eq!(sizes(three, &steps), "–");
        assert_eq!(sizes(one, &[(64, one), (u64::MAX, one)]), "all");
    }

    #[test]
    fn every_algorithm_has_a_row_and_most_serve_something() {
        let tables = tables();
        let cells = |title: &str| {
            let begin = format!("| {title} |");
            let rows: Vec<&str> = tables.lines().filter(|line| line.starts_with(&begin)).collect();
            let [row] = rows[..] else { panic!("{title}: {rows:?}") };
            let cells = row.split('|').skip(2).map(str::trim).filter(|cell| !cell.is_empty());
            cells.map(str::to_owned).collect::<Vec<_>>()
        };
        for algorithm in Algorithm::ALL {
            let all = cells(&format!("`{algorithm}`"));
            // It adds in an order of its own.
            let by_name_alone = algorithm == Algorithm::AllReduceRing;
            assert_eq!(all.iter().all(|cell| cell == NONE), by_name_alone, "{all:?}");
        }
        for name in ["`alltoallv_zero_copy`", "`allgatherv_zero_copy`"] {
            assert!(cells(name).iter().all(|cell| cell == "all"), "{name}");
        }
        // What serves each column of a gather serves all sizes together.
        for collective in super::super::ROOTED {
            let by_blocks = cells(&format!("`{BLOCKS}`, of a {collective}"));
            let own = Rooted::all_for(&collective).filter(|one| !one.is_hierarchical());
            let own: Vec<_> = own.map(|one| cells(&format!("`{one}`"))).collect();
            for (column, blocks) in by_blocks.iter().enumerate() {
                let alone = own.iter().all(|cells| cells[column] == NONE);
                assert_eq!(alone, blocks.trim_matches('*') == "all", "{collective} {column}");
            }
        }
    }
}
