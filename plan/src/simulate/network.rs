//! What a transfer crosses: the memories at both ends and the links between them.

use super::share::Shared;
use super::timeline::LinkLoad;
use super::topology::{GB, Shape, Topology, US};

/// Where every shared thing of a topology is numbered, for the ranks of a plan.
///
/// The numbers are, one after the other: the memory of each rank (or node), the link out of each rank, the link into
/// each rank, out of each network card, into each network card. Where links connect pairs, "out of rank r" has one number
/// for each peer, and "into" none.
#[derive(Clone, Debug)]
pub(super) struct Network {
    ranks: u32,
    per_node: u32,
    nics: u32,
    shared_memory: bool,
    shape: Shape,
    pub(super) multicast: bool,
    coherent: bool,
    /// Seconds a byte that a block spends on what it fetches from or hands to other caches.
    pub(super) crossing: f64,
    /// Whether all that is moved stays in the caches.
    pub(super) cached: bool,
    latency: [f64; 2],
    /// Where the numbers of links out, in, of cards out and in begin.
    starts: [u32; 4],
    pub(super) things: Vec<Shared>,
}

impl Network {
    /// The network of `ranks` ranks, each with so many bytes of buffers.
    pub(super) fn new(topology: &Topology, ranks: usize, buffers: f64) -> Self {
        let on_node = ranks.min(topology.ranks_per_node as usize) as f64;
        let cached = on_node * buffers <= topology.device.cache_mb * 1e6;
        let ranks = ranks as u32;
        let (per_node, inside) = (topology.ranks_per_node, topology.inside);
        let nodes = ranks.div_ceil(per_node);
        let shared_memory = topology.device.shared_memory;
        let nics = topology.between.map_or(0, |between| between.nics_per_node.min(per_node));
        let memories = if shared_memory { nodes } else { ranks };
        let (out, into) = match inside.shape {
            Shape::Switch => (ranks, ranks),
            Shape::Pairs => (ranks * per_node.min(ranks), 0),
        };
        let mut things = Vec::new();
        let mut starts = [0; 4];
        let mut add = |at: Option<usize>, count: u32, gbs: f64| {
            if let Some(at) = at {
                starts[at] = things.len() as u32;
            }
            things.extend((0..count).map(|_| Shared::new(gbs * GB)));
        };
        add(None, memories, topology.device.memory_gbs);
        add(Some(0), out, inside.gbs);
        add(Some(1), into, inside.gbs);
        let gbs = topology.between.map_or(1.0, |between| between.gbs);
        add(Some(2), nodes * nics, gbs);
        add(Some(3), nodes * nics, gbs);
        let between = topology.between.map_or(0.0, |between| between.latency_us);
        Network {
            ranks,
            per_node,
            nics,
            shared_memory,
            shape: inside.shape,
            multicast: inside.multicast,
            coherent: inside.coherent,
            crossing: if inside.coherent { 1.0 / (inside.gbs * GB) } else { 0.0 },
            cached,
            latency: [inside.latency_us * US, between * US],
            starts,
            things,
        }
    }

    fn node(&self, rank: u32) -> u32 {
        rank / self.per_node
    }

    /// Whether two ranks are on one node.
    pub(super) fn together(&self, a: u32, b: u32) -> bool {
        self.node(a) == self.node(b)
    }

    /// Seconds from one rank to another, one way.
    pub(super) fn latency(&self, from: u32, to: u32) -> f64 {
        if from == to { 0.0 } else { self.latency[usize::from(!self.together(from, to))] }
    }

    /// The memory of a rank.
    pub(super) fn memory(&self, rank: u32) -> u32 {
        if self.shared_memory { self.node(rank) } else { rank }
    }

    fn card(&self, rank: u32) -> u32 {
        let local = rank % self.per_node;
        self.node(rank) * self.nics
            + (u64::from(local) * u64::from(self.nics) / u64::from(self.per_node)) as u32
    }

    /// The first link on the way from one rank to another.
    pub(super) fn out(&self, from: u32, to: u32) -> u32 {
        if !self.together(from, to) {
            return self.starts[2] + self.card(from);
        }
        match self.shape {
            Shape::Switch => self.starts[0] + from,
            Shape::Pairs => {
                self.starts[0] + from * self.per_node.min(self.ranks) + to % self.per_node
            }
        }
    }

    /// The link that it takes then, if that is another one.
    pub(super) fn into(&self, from: u32, to: u32) -> Option<u32> {
        if !self.together(from, to) {
            return Some(self.starts[3] + self.card(to));
        }
        (self.shape == Shape::Switch).then(|| self.starts[1] + to)
    }

    /// The link that a rank's own scratch crosses when it is read, if caches are coherent.
    pub(super) fn fetch(&self, rank: u32) -> Option<u32> {
        (self.coherent && self.shape == Shape::Switch).then(|| self.starts[1] + rank)
    }

    fn name(&self, thing: u32) -> String {
        let [out, into, card_out, card_into] = self.starts;
        let card =
            |at: u32| format!("node {} nic {}", at / self.nics.max(1), at % self.nics.max(1));
        if thing >= card_into {
            format!("{} in", card(thing - card_into))
        } else if thing >= card_out {
            format!("{} out", card(thing - card_out))
        } else if thing >= into {
            format!("rank {} in", thing - into)
        } else if thing >= out {
            match self.shape {
                Shape::Switch => format!("rank {} out", thing - out),
                Shape::Pairs => {
                    let (at, peers) = (thing - out, self.per_node.min(self.ranks));
                    let from = at / peers;
                    let to = self.node(from) * self.per_node + at % peers;
                    format!("rank {from} to rank {to}")
                }
            }
        } else if self.shared_memory {
            format!("node {thing} memory")
        } else {
            format!("rank {thing} memory")
        }
    }

    /// What everything that was used carried.
    pub(super) fn loads(&self) -> Vec<LinkLoad> {
        let used = (0..).zip(&self.things).filter(|(_, thing)| thing.bytes > 0);
        let load = |(at, thing): (u32, &Shared)| LinkLoad {
            name: self.name(at),
            bytes: thing.bytes,
            busy: thing.busy,
            bandwidth: thing.bandwidth(),
        };
        used.map(load).collect()
    }
}
