//! What operations cost on a topology, in seconds.

use super::topology::{GB, Topology, US};

/// A topology's overheads and the speeds of a block, in seconds and seconds per byte.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    pub launch: f64,
    pub data: f64,
    pub packet: f64,
    pub reference: f64,
    pub signal: f64,
    pub release: f64,
    pub wait: f64,
    pub sync: f64,
    pub barrier: f64,
    pub semaphore: f64,
    pub post: f64,
    pub flush: f64,
    pub proxy: f64,
    pub turn: f64,
    /// One side of a copy, a byte.
    pub side: f64,
    /// Each source after the first, a byte.
    pub combine: f64,
    /// Packets, a byte of payload.
    pub payload: f64,
}

impl Costs {
    /// The costs for a plan of `ranks` ranks.
    pub(super) fn new(topology: &Topology, ranks: usize) -> Self {
        let on_node = ranks.min(topology.ranks_per_node as usize);
        let crowded = topology.device.cores.is_some_and(|cores| on_node > cores as usize);
        let o = &topology.device.overhead_us;
        let block = &topology.device.block;
        Costs {
            launch: (o.launch + if crowded { o.switch } else { 0.0 }) * US,
            data: o.data * US,
            packet: o.packet * US,
            reference: o.reference * US,
            signal: o.signal * US,
            release: o.release * US,
            wait: o.wait * US,
            sync: o.sync * US,
            barrier: o.barrier * US,
            semaphore: o.semaphore * US,
            post: o.post * US,
            flush: o.flush * US,
            proxy: o.proxy * US,
            turn: o.turn * US,
            side: 0.5 / (block.copy_gbs * GB),
            combine: 1.0 / (block.combine_gbs * GB),
            payload: 1.0 / (block.packet_gbs * GB),
        }
    }
}
