//! `cargo xtask defaults --fit TOPOLOGY...`: the machine that stands for hosts, as `antiphon info --measure` saw it, with its
//! numbers fitted to what was measured of two ranks with a core each.
//!
//! Small launches that each show one cost do not show all that calls cost: the bytes that two cores pass to each other, say, or
//! a network. So what those show is where the fit begins; what calls took says how far it goes.

mod fit;
pub mod held;
mod peers;
pub mod rules;

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use antiphon::executor::selection::table::{Machine, Table};
use antiphon::plan::algorithms::hosts::Place;
use antiphon::plan::model::Collective;
use antiphon::plan::simulate::{Between, Topology};
use serde_json::{Value, json};

use self::fit::{Measured, Number};
use crate::{Error, Result, repo};

/// Where the machine is: as it was measured, what its ranks pay for peers, and as it is fitted.
const FOLDER: &str = "plan/src/algorithms/hosts/host";
const MEASURED: &str = "measured.json";
const PEERS: &str = "peers.json";
const FITTED: &str = "fitted.json";
/// Two ranks of one node, and of two.
const NEAR: Place = Place { crowded: false, nodes: 1, per_node: 2 };
const FAR: Place = Place { crowded: false, nodes: 2, per_node: 1 };

/// Numbers that what happens inside a node hangs on.
const INSIDE: [Number; 15] = [
    |t| &mut t.device.memory_gbs,
    |t| &mut t.device.cache_mb,
    |t| &mut t.device.block.copy_gbs,
    |t| &mut t.device.block.combine_gbs,
    |t| &mut t.device.block.packet_gbs,
    |t| &mut t.device.overhead_us.launch,
    |t| &mut t.device.overhead_us.data,
    |t| &mut t.device.overhead_us.packet,
    |t| &mut t.device.overhead_us.reference,
    |t| &mut t.device.overhead_us.signal,
    |t| &mut t.device.overhead_us.release,
    |t| &mut t.device.overhead_us.wait,
    |t| &mut t.device.overhead_us.turn,
    |t| &mut t.inside.gbs,
    |t| &mut t.inside.latency_us,
];
/// Those that a crossing from node to node hangs on beside them.
const BETWEEN: [Number; 5] = [
    |t| &mut t.device.overhead_us.post,
    |t| &mut t.device.overhead_us.flush,
    |t| &mut t.device.overhead_us.proxy,
    |t| &mut between(t).gbs,
    |t| &mut between(t).latency_us,
];
/// The network that the fit begins with, since `antiphon info --measure` sees none: one for all ranks of a node.
const NETWORK: Between = Between { nics_per_node: 1, gbs: 2.0, latency_us: 5.0 };

fn between(topology: &mut Topology) -> &mut Between {
    topology.between.get_or_insert(NETWORK)
}

/// Keeps the medians of these topologies, and what peers cost on this machine, which must be the one they are of; without any,
/// goes by what is kept. Fits, and writes the machine that stands for hosts.
///
/// # Errors
/// Files that cannot be read or written; what cannot be measured or simulated.
pub fn run(paths: &[PathBuf]) -> Result<()> {
    let folder = repo::root().join(FOLDER);
    if !paths.is_empty() {
        let all = paths.iter().map(|path| topology(path)).collect::<Result<Vec<_>>>()?;
        write(&folder.join(MEASURED), &(median(&all)?.to_text() + "\n"))?;
        write(&folder.join(PEERS), &peers::measure()?)?;
    }
    let fitted = fitted(&|_| true)?;
    write(&folder.join(FITTED), &(fitted.to_text() + "\n"))?;
    println!(
        "{FOLDER}/{FITTED} is written: `cargo xtask defaults --predict` asks the simulator anew"
    );
    Ok(())
}

/// The machine, fitted to the calls of some collectives: first to those on one node, then to those over two.
fn fitted(collectives: &dyn Fn(&Collective) -> bool) -> Result<Topology> {
    let folder = repo::root().join(FOLDER);
    let host = topology(&folder.join(MEASURED))?;
    let peers = peers::calls(&read(&folder.join(PEERS))?)?;
    let tables = super::derived::tables()?;
    let calls = |place| {
        // What other machines took says nothing of the numbers of this one.
        let same = |table: &&Table| host.source.ends_with(&table.machine().to_string());
        let all = tables.iter().map(|(_, table)| table).filter(same);
        all.flat_map(|table| fit::calls(table, place, collectives)).collect::<Vec<_>>()
    };
    let (near, far_calls) = (calls(NEAR), calls(FAR));
    if near.is_empty() || far_calls.is_empty() {
        let of = &host.source;
        return Err(error(format!(
            "cannot fit the {of}: saw no times of two ranks there, over one node and over two; keep some by `cargo xtask defaults --from`"
        )));
    }
    let near = [near, peers].map(|calls| Measured { place: NEAR, calls });
    let inside = fit::fit(&host, &near, &INSIDE)?;
    let source = format!("{}, fitted by `cargo xtask defaults --fit`", inside.source);
    let far = Topology { source, between: Some(NETWORK), ..inside };
    fit::fit(&far, &[Measured { place: FAR, calls: far_calls }], &BETWEEN)
}

fn error(error: impl Display) -> Error {
    Error::message(error.to_string())
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(Error::io(format!("read {}", path.display())))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(Error::io(format!("write {}", path.display())))
}

fn topology(path: &Path) -> Result<Topology> {
    let parsed = Topology::parse(&read(path)?);
    parsed.map_err(|wrong| error(format!("{}: {wrong}", path.display())))
}

/// The topology of which each number is the median of those of all.
fn median(all: &[Topology]) -> Result<Topology> {
    let values: Vec<Value> = all.iter().map(|one| json!(one)).collect();
    let of_all: Vec<&Value> = values.iter().collect();
    let mut median: Topology = serde_json::from_value(middle(&of_all)).map_err(error)?;
    let (machine, count) = (Machine::here(), all.len());
    median.source = format!("median of {count} times `antiphon info --measure` on {machine}");
    Ok(median)
}

/// The median of numbers, of structures that of each number in them, and of anything else the first.
fn middle(all: &[&Value]) -> Value {
    match all.first() {
        Some(Value::Object(first)) => {
            let field = |key: &String| {
                let of_all: Vec<&Value> = all.iter().filter_map(|one| one.get(key)).collect();
                (key.clone(), middle(&of_all))
            };
            first.keys().map(field).collect()
        }
        Some(first) if first.is_f64() => {
            let mut numbers: Vec<f64> = all.iter().filter_map(|one| one.as_f64()).collect();
            numbers.sort_by(f64::total_cmp);
            json!(numbers[numbers.len() / 2])
        }
        first => first.map_or(Value::Null, |first| (*first).clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon::plan::algorithms::hosts::host;

    #[test]
    fn the_machine_that_stands_for_hosts_is_what_is_fitted() {
        assert_eq!(fitted(&|_| true).unwrap(), host().unwrap(), "run `cargo xtask defaults --fit`");
    }

    #[test]
    fn of_several_topologies_each_number_is_the_median() {
        let of = |latency_us: f64, launch: f64| {
            let mut one = Topology::built_in("h100x8").unwrap();
            one.inside.latency_us = latency_us;
            one.device.overhead_us.launch = launch;
            one
        };
        let saw = median(&[of(1.0, 30.5), of(7.5, 10.5), of(2.5, 20.5)]).unwrap();
        assert_eq!((saw.inside.latency_us, saw.device.overhead_us.launch), (2.5, 20.5));
        assert!(saw.source.starts_with("median of 3 times"), "{}", saw.source);
        assert_eq!(saw.nodes, 1);
    }
}
