//! Topologies: how many ranks there are, how they are connected, and how fast everything is.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Bytes a second of one GB/s.
pub(super) const GB: f64 = 1e9;
/// Seconds of one microsecond.
pub(super) const US: f64 = 1e-6;

/// A machine, or a cluster of equal ones. Bandwidths are in 10⁹ bytes a second, times in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// What it is called in tables.
    pub name: String,
    /// Where the numbers come from, for people.
    #[serde(default)]
    pub source: String,
    /// Number of nodes.
    pub nodes: u32,
    /// Number of ranks on each node. Rank r is on node r / `ranks_per_node`.
    pub ranks_per_node: u32,
    /// What each rank runs on.
    pub device: Device,
    /// How the ranks of a node reach each other.
    pub inside: Inside,
    /// How nodes reach each other; needed if there is more than one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub between: Option<Between>,
}

/// What one rank runs on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// What it is called.
    pub name: String,
    /// Bandwidth of its memory, reads and writes together.
    pub memory_gbs: f64,
    /// Whether all ranks of a node share one memory of that bandwidth.
    #[serde(default)]
    pub shared_memory: bool,
    /// Caches of a node, in 10⁶ bytes. Where all buffers of its ranks fit, nothing crosses the memory.
    #[serde(default)]
    pub cache_mb: f64,
    /// Processors of a node that the blocks of all its ranks take turns on; without it every block has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// How fast one thread block moves data when nothing else holds it back.
    pub block: BlockSpeed,
    /// What operations cost beside the moving of data.
    pub overhead_us: Overheads,
}

/// How fast one thread block moves data when nothing else holds it back.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockSpeed {
    /// Copying: bytes stored.
    pub copy_gbs: f64,
    /// Reducing: bytes of each source after the first.
    pub combine_gbs: f64,
    /// Writing or reading packets: bytes of payload.
    pub packet_gbs: f64,
}

/// What operations cost beside the moving of data, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overheads {
    /// Entering a launch, once for each rank.
    pub launch: f64,
    /// An operation that moves data.
    pub data: f64,
    /// An operation that writes or reads packets.
    pub packet: f64,
    /// Each source and destination of an operation.
    pub reference: f64,
    /// A signal.
    pub signal: f64,
    /// What a signal costs more if it must make earlier stores visible.
    pub release: f64,
    /// A wait whose signal has come.
    pub wait: f64,
    /// Synchronising the threads of a block.
    pub sync: f64,
    /// A barrier among the blocks of a rank, once all have arrived.
    pub barrier: f64,
    /// Taking or giving back a semaphore.
    pub semaphore: f64,
    /// Handing something to the proxy of a port channel.
    pub post: f64,
    /// A flush once all has been transferred.
    pub flush: f64,
    /// What the proxy spends on each transfer and signal.
    pub proxy: f64,
    /// What a processor spends to go on with another block; of no effect without `cores`.
    #[serde(default)]
    pub turn: f64,
    /// What entering a launch costs more where a node has more ranks than `cores`: another thread must come in.
    #[serde(default)]
    pub switch: f64,
}

/// How the ranks of a node reach each other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inside {
    /// What the links connect.
    pub shape: Shape,
    /// Bandwidth of each link, in one direction.
    pub gbs: f64,
    /// Time from one rank to another, one way.
    pub latency_us: f64,
    /// Whether the switch copies a store to all members of a group, and reduces what it loads from them.
    #[serde(default)]
    pub multicast: bool,
    /// Whether memory is reached through caches that are kept coherent, as among the cores of a host: what others have
    /// written to a rank's scratch then crosses its link again when it is read.
    #[serde(default)]
    pub coherent: bool,
}

/// What the links of a node connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// Every rank and a switch that never is the bottleneck: one link out of and one into each rank.
    Switch,
    /// Every pair of ranks: one link in each direction.
    Pairs,
}

/// How nodes reach each other: network cards at a switch that never is the bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Between {
    /// Network cards of a node, which its ranks share evenly, neighbours first.
    pub nics_per_node: u32,
    /// Bandwidth of each card, in one direction.
    pub gbs: f64,
    /// Time from one node to another, one way.
    pub latency_us: f64,
}

/// A topology that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// It is not JSON of the right form.
    #[error("cannot read a topology: {0}; docs/simulator.md describes the file")]
    Parse(String),
    /// A number makes no sense.
    #[error(
        "cannot use topology `{topology}`: saw {field} {saw}, allowed {allowed}; correct the file"
    )]
    Number {
        /// The topology's name.
        topology: String,
        /// The field, by its keys.
        field: &'static str,
        /// What it is.
        saw: String,
        /// What it may be.
        allowed: &'static str,
    },
    /// There are several nodes, and nothing connects them.
    #[error(
        "cannot use topology `{topology}`: saw {nodes} nodes and no `between`, allowed one node alone; add `between` \
         with the network cards"
    )]
    Apart {
        /// The topology's name.
        topology: String,
        /// Its nodes.
        nodes: u32,
    },
    /// There is no built-in topology of that name.
    #[error(
        "cannot find topology `{name}`: saw neither a file nor a built-in one; allowed {allowed}"
    )]
    Unknown {
        /// The name.
        name: String,
        /// The names there are.
        allowed: String,
    },
}

impl Topology {
    /// Reads a topology file.
    ///
    /// # Errors
    /// It is not JSON of the right form (with line and column), or a number makes no sense.
    pub fn parse(text: &str) -> Result<Topology, TopologyError> {
        let read: Result<Topology, _> = serde_json::from_str(text);
        let topology = read.map_err(|error| TopologyError::Parse(error.to_string()))?;
        topology.validate()?;
        Ok(topology)
    }

    /// The text of a topology file.
    pub fn to_text(&self) -> String {
        // Structures of numbers and strings always have a text; were there none, an empty file would say so.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// A built-in topology: a name of [`TOPOLOGIES`](super::TOPOLOGIES), and then perhaps `-N` for N nodes.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn built_in(name: &str) -> Result<Topology, TopologyError> {
        super::built_in::find(name)
    }

    /// Number of ranks of all nodes.
    pub fn ranks(&self) -> usize {
        self.nodes as usize * self.ranks_per_node as usize
    }

    /// Refuses numbers that make no sense.
    ///
    /// # Errors
    /// A bandwidth is not positive, a time is negative, a count is zero, or nothing connects the nodes.
    pub fn validate(&self) -> Result<(), TopologyError> {
        let refuse = |field, saw: String, allowed| {
            Err(TopologyError::Number { topology: self.name.clone(), field, saw, allowed })
        };
        let Device { memory_gbs, cores, block, overhead_us: o, .. } = &self.device;
        let nics = self.between.map_or(1, |between| between.nics_per_node);
        let counts = [
            ("nodes", self.nodes),
            ("ranks_per_node", self.ranks_per_node),
            ("device.cores", cores.unwrap_or(1)),
            ("between.nics_per_node", nics),
        ];
        for (field, count) in counts {
            if count == 0 {
                return refuse(field, "0".to_owned(), "1 or more");
            }
        }
        if self.nodes.checked_mul(self.ranks_per_node).is_none_or(|ranks| ranks > MOST_RANKS) {
            let saw = format!("{} x {}", self.nodes, self.ranks_per_node);
            return refuse("nodes x ranks_per_node", saw, "1 to 2^24 ranks");
        }
        let bandwidths = [
            ("device.memory_gbs", *memory_gbs),
            ("device.block.copy_gbs", block.copy_gbs),
            ("device.block.combine_gbs", block.combine_gbs),
            ("device.block.packet_gbs", block.packet_gbs),
            ("inside.gbs", self.inside.gbs),
            ("between.gbs", self.between.map_or(1.0, |between| between.gbs)),
        ];
        for (field, value) in bandwidths {
            if !(1e-6..=1e9).contains(&value) {
                return refuse(field, value.to_string(), "0.000001 to 10^9 GB/s");
            }
        }
        let times = [
            ("inside.latency_us", self.inside.latency_us),
            ("between.latency_us", self.between.map_or(0.0, |between| between.latency_us)),
            ("device.overhead_us.launch", o.launch),
            ("device.overhead_us.data", o.data),
            ("device.overhead_us.packet", o.packet),
            ("device.overhead_us.reference", o.reference),
            ("device.overhead_us.signal", o.signal),
            ("device.overhead_us.release", o.release),
            ("device.overhead_us.wait", o.wait),
            ("device.overhead_us.sync", o.sync),
            ("device.overhead_us.barrier", o.barrier),
            ("device.overhead_us.semaphore", o.semaphore),
            ("device.overhead_us.post", o.post),
            ("device.overhead_us.flush", o.flush),
            ("device.overhead_us.proxy", o.proxy),
            ("device.overhead_us.turn", o.turn),
            ("device.overhead_us.switch", o.switch),
        ];
        for (field, value) in times {
            if !(0.0..=1e9).contains(&value) {
                return refuse(field, value.to_string(), "0 to 10^9 microseconds");
            }
        }
        if !(0.0..=1e9).contains(&self.device.cache_mb) {
            let saw = self.device.cache_mb.to_string();
            return refuse("device.cache_mb", saw, "0 to 10^9 megabytes");
        }
        if self.nodes > 1 && self.between.is_none() {
            return Err(TopologyError::Apart { topology: self.name.clone(), nodes: self.nodes });
        }
        Ok(())
    }
}

/// Keeps the numbers of links within 32 bits.
const MOST_RANKS: u32 = 1 << 24;
