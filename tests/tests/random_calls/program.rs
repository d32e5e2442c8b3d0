//! Programs: what all ranks do, step by step, and which communicators there are meanwhile.

use antiphon::plan::algorithms::Algorithm;
use antiphon::{DataType, Op};
use std::collections::{BTreeMap, BTreeSet};

/// A communicator of the program; [`WORLD`] is there from the start.
pub type Name = usize;

/// The communicator of all ranks.
pub const WORLD: Name = 0;

/// Runs of memory that each rank has, in which the buffers of its calls lie.
pub const SLOTS: usize = 6;

/// What ranks do, alike but for what says that it is one rank's.
#[derive(Clone, Debug)]
pub struct Program {
    pub seed: u64,
    /// For each rank, the host that it is on.
    pub hosts: Vec<&'static str>,
    /// Whether the ranks share a GPU.
    pub on_gpu: bool,
    /// `Options::reproducible`.
    pub reproducible: bool,
    /// `Options::process_access`.
    pub process_access: bool,
    /// Streams that each rank has.
    pub streams: usize,
    /// Bytes of a slot.
    pub room: usize,
    pub steps: Vec<Step>,
}

#[derive(Clone, Debug)]
pub enum Step {
    /// The ranks of the mask put other memory in the place of a slot's.
    Renew {
        slot: usize,
        ranks: u32,
    },
    /// Calls, each on a stream or blocking.
    Make {
        calls: Vec<(Call, Option<usize>)>,
        how: How,
    },
    /// Waits for a stream, and looks at all memory that is not used by another.
    Synchronize {
        stream: usize,
    },
    /// The ranks of the mask ask whether a stream is through.
    Query {
        stream: usize,
        ranks: u32,
    },
    /// The ranks of the mask come late to what follows.
    Dawdle {
        ranks: u32,
    },
    Barrier {
        on: Name,
    },
    /// Bytes of random lengths.
    Exchange {
        on: Name,
    },
    /// The lists are of ranks of `of`; who is on none joins none.
    Split {
        of: Name,
        groups: Vec<(Name, Vec<u32>)>,
    },
    /// Those who are listed alone call it.
    Subset {
        of: Name,
        name: Name,
        ranks: Vec<u32>,
    },
    /// Every rank drops its end.
    Leave {
        of: Name,
    },
    /// A built-in algorithm's plan under another name, or code that runs it.
    Register {
        entry: usize,
        algorithm: Algorithm,
        ranks: usize,
        root: usize,
        in_place: bool,
        code: bool,
    },
    Unregister {
        entry: usize,
    },
    /// Sets a selector that chooses by the seed, or takes it away.
    Select {
        seed: Option<u64>,
    },
}

/// How ranks make the calls of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// The ranks of the mask gather them in a group, the others make one after the other.
    Grouped(u32),
    /// Each on a thread of its own; they are of different communicators.
    Beside,
    /// One thread of each process gathers what all ranks of the process call.
    Driven,
}

/// What a call computes. Roots and peers are ranks of its communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    AllReduce,
    AllGather,
    ReduceScatter,
    AllToAll,
    Broadcast(u32),
    Reduce(u32),
    Gather(u32),
    Scatter(u32),
    AllToAllV,
    AllGatherV,
    /// Up to two transfers from every rank to every rank, itself too, together.
    Transfers,
    /// One transfer, which sender and receiver make by itself.
    Transfer {
        from: u32,
        to: u32,
    },
    /// Every rank sends to the one so many ranks further on, round the ring of ranks.
    Shift(u32),
}

impl What {
    pub fn root(self) -> Option<u32> {
        match self {
            What::Broadcast(root)
            | What::Reduce(root)
            | What::Gather(root)
            | What::Scatter(root) => Some(root),
            _ => None,
        }
    }

    pub fn reduces(self) -> bool {
        matches!(self, What::AllReduce | What::ReduceScatter | What::Reduce(_))
    }

    /// Whether blocks have lengths of their own.
    pub fn is_uneven(self) -> bool {
        use What::{AllGatherV, AllToAllV, Shift, Transfer, Transfers};
        matches!(self, AllToAllV | AllGatherV | Transfers | Transfer { .. } | Shift(_))
    }
}

/// One call of all ranks of a communicator.
#[derive(Clone, Debug)]
pub struct Call {
    pub on: Name,
    pub what: What,
    pub dtype: DataType,
    pub op: Op,
    /// Every rank's input is multiplied by a factor of its own before it is summed.
    pub scaled: bool,
    /// Elements of a block; the most of one, where blocks have lengths of their own.
    pub count: u64,
    /// The ranks of the communicator that are in place.
    pub in_place: u32,
    /// Slots of the send buffers of ranks that are out of place, and of all other buffers.
    pub slots: (usize, usize),
    /// Whether its sums are made in the order of docs/numerics.md, so that inputs may be any whose sums round.
    pub ordered: bool,
    /// Whether a blocking call is made by the method for slices, where there is one.
    pub typed: bool,
    /// Of lengths and places.
    pub seed: u64,
    /// Of values.
    pub values: u64,
}

/// The ranks of a communicator.
#[derive(Clone, Debug)]
pub struct Ranks {
    /// Their numbers in [`WORLD`].
    pub listed: Vec<u32>,
    pub world: u32,
    /// Those whose inputs are summed before the sums of all nodes are: of each node, where all have equally many and consecutive
    /// ones; otherwise each by itself.
    pub nodes: Vec<Vec<u32>>,
}

impl Ranks {
    fn new(listed: Vec<u32>, hosts: &[&str]) -> Self {
        let world = listed.len() as u32;
        let host = |rank: &u32| hosts[listed[*rank as usize] as usize];
        let all: Vec<u32> = (0..world).collect();
        let nodes: Vec<Vec<u32>> =
            all.chunk_by(|one, other| host(one) == host(other)).map(<[u32]>::to_vec).collect();
        let names: BTreeSet<&str> = all.iter().map(host).collect();
        let is_even = nodes.iter().all(|node| node.len() == nodes[0].len());
        let nodes = match is_even && names.len() == nodes.len() {
            true => nodes,
            false => all.iter().map(|&rank| vec![rank]).collect(),
        };
        Ranks { listed, world, nodes }
    }
}

/// The communicators that there are while a program goes on.
#[derive(Clone, Debug)]
pub struct Members<'p> {
    hosts: &'p [&'static str],
    ranks: BTreeMap<Name, Ranks>,
}

impl<'p> Members<'p> {
    pub fn new(hosts: &'p [&'static str]) -> Self {
        let all = (0..hosts.len() as u32).collect();
        Members { hosts, ranks: BTreeMap::from([(WORLD, Ranks::new(all, hosts))]) }
    }

    pub fn of(&self, name: Name) -> Option<&Ranks> {
        self.ranks.get(&name)
    }

    pub fn names(&self) -> impl Iterator<Item = Name> {
        self.ranks.keys().copied()
    }

    /// Whether a step's communicators are there. Where steps were left out, some are not.
    pub fn have(&self, step: &Step) -> bool {
        match step {
            Step::Make { calls, .. } => {
                calls.iter().all(|(call, _)| self.ranks.contains_key(&call.on))
            }
            Step::Barrier { on: of }
            | Step::Exchange { on: of }
            | Step::Split { of, .. }
            | Step::Subset { of, .. }
            | Step::Leave { of } => self.ranks.contains_key(of),
            _ => true,
        }
    }

    /// What a step makes of them.
    pub fn take(&mut self, step: &Step) {
        let listed = |members: &Members<'_>, of: &Name, ranks: &[u32]| {
            let all = &members.ranks[of].listed;
            let listed = ranks.iter().map(|&rank| all[rank as usize]);
            Ranks::new(listed.collect(), members.hosts)
        };
        match step {
            Step::Split { of, groups } => {
                for (name, ranks) in groups {
                    self.ranks.insert(*name, listed(self, of, ranks));
                }
            }
            Step::Subset { of, name, ranks } => {
                self.ranks.insert(*name, listed(self, of, ranks));
            }
            Step::Leave { of } => {
                self.ranks.remove(of);
            }
            _ => {}
        }
    }
}
