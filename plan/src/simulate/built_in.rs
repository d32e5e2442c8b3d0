//! Topologies with a name. Their numbers are assumed, not measured.
//!
//! Bandwidths of memory and links are those of the vendors' public data sheets, for one direction:
//!
//! - H100 SXM5 80 GB: HBM3 3.35 TB/s, NVLink 4 900 GB/s in both directions together, NVSwitch with multicast (NVLS);
//! - A100 SXM4 80 GB: HBM2e 2.039 TB/s, NVLink 3 600 GB/s in both directions together, NVSwitch;
//! - MI300X OAM: HBM3 5.3 TB/s, seven xGMI links of 128 GB/s in both directions together, one to each peer;
//! - between nodes one 400 Gb/s NIC for each GPU.
//!
//! What a single block moves, latencies and overheads are round numbers of the order that published measurements of such
//! machines show (about a microsecond from GPU to GPU, a few through a NIC). They serve to compare plans.

use super::topology::{
    Between, BlockSpeed, Device, Inside, Overheads, Shape, Topology, TopologyError,
};

/// The names of the built-in topologies.
pub const NAMES: [&str; 3] = ["h100x8", "a100x8", "mi300x8"];

const MOST_NODES: u32 = 1024;

/// Overheads of operations on a GPU.
const GPU: Overheads = Overheads {
    launch: 3.0,
    data: 0.3,
    packet: 0.2,
    reference: 0.02,
    signal: 0.2,
    release: 0.5,
    wait: 0.1,
    sync: 0.03,
    barrier: 0.8,
    semaphore: 0.3,
    post: 0.2,
    flush: 0.5,
    proxy: 1.5,
    turn: 0.0,
    switch: 0.0,
};

/// A built-in topology: its name, and then perhaps `-N` for N nodes.
pub(super) fn find(name: &str) -> Result<Topology, TopologyError> {
    let unknown = || TopologyError::Unknown {
        name: name.to_owned(),
        allowed: format!(
            "{}, each alone or with -N for N nodes (1 to {MOST_NODES}, e.g. h100x8-2)",
            NAMES.join(", ")
        ),
    };
    let (base, nodes) = match name.rsplit_once('-') {
        None => (name, 1),
        Some((base, nodes)) => (base, nodes.parse().map_err(|_| unknown())?),
    };
    if !(1..=MOST_NODES).contains(&nodes) {
        return Err(unknown());
    }
    let device = |name: &str, memory_gbs, [copy_gbs, combine_gbs, packet_gbs]: [f64; 3]| Device {
        name: name.to_owned(),
        memory_gbs,
        shared_memory: false,
        cache_mb: 0.0,
        cores: None,
        block: BlockSpeed { copy_gbs, combine_gbs, packet_gbs },
        overhead_us: GPU,
    };
    let inside = |shape, gbs, latency_us, multicast| Inside {
        shape,
        gbs,
        latency_us,
        multicast,
        coherent: false,
    };
    let (device, inside) = match base {
        "h100x8" => (
            device("H100 SXM5", 3350.0, [30.0, 40.0, 15.0]),
            inside(Shape::Switch, 450.0, 0.8, true),
        ),
        "a100x8" => (
            device("A100 SXM4", 2039.0, [20.0, 27.0, 10.0]),
            inside(Shape::Switch, 300.0, 0.9, false),
        ),
        "mi300x8" => {
            (device("MI300X", 5300.0, [20.0, 27.0, 10.0]), inside(Shape::Pairs, 64.0, 1.2, false))
        }
        _ => return Err(unknown()),
    };
    let between = Between { nics_per_node: 8, gbs: 50.0, latency_us: 4.0 };
    Ok(Topology {
        name: name.to_owned(),
        source: "assumed from public data sheets, not measured".to_owned(),
        nodes,
        ranks_per_node: 8,
        device,
        inside,
        between: (nodes > 1).then_some(between),
    })
}
