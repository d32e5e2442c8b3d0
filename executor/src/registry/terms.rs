//! What a registered plan, or registered code, is for; and why it does not fit a call.

use crate::selection::{Question, Spread};
use antiphon_plan::LowerError;
use antiphon_plan::model::Collective;
use antiphon_plan::verify::SumOrder;
use antiphon_types::{DataType, ReduceOp};
use std::collections::BTreeSet;
use std::fmt;

/// For which calls a plan or code is registered. What the terms leave open limits nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The name that selectors, tables and messages use; `None` takes the plan's or the code's own name.
    pub name: Option<String>,
    /// Tags. A communicator that asks for tags is served only by plans and code that have all the tags that it asks for.
    pub tags: BTreeSet<String>,
    /// Number of ranks. A plan has its own, which this must equal.
    pub world: Option<u32>,
    /// Ranks on each node.
    pub ranks_per_node: Option<u32>,
    /// Whether input and output are the same memory. A plan says that itself, and this must agree.
    pub in_place: Option<bool>,
    /// Smallest message, in bytes of the call's larger buffer, inclusive. A plan's own limit holds as well.
    pub min_bytes: u64,
    /// Largest message, in bytes of the call's larger buffer, inclusive. A plan's own limit holds as well.
    pub max_bytes: u64,
    /// Element types; an empty list is all.
    pub dtypes: Vec<DataType>,
    /// Reductions. Those that are listed take the place of what the plan says. If the list is empty, a plan that names no
    /// reduction serves all, and a plan that names one serves that one alone.
    pub ops: Vec<ReduceOp>,
    /// The root, for collectives that have one. A plan of such a collective is for one root, and serves no call unless this
    /// says which.
    pub root: Option<u32>,
}

impl Default for Terms {
    fn default() -> Self {
        Terms {
            name: None,
            tags: BTreeSet::new(),
            world: None,
            ranks_per_node: None,
            in_place: None,
            min_bytes: 0,
            max_bytes: u64::MAX,
            dtypes: Vec::new(),
            ops: Vec::new(),
            root: None,
        }
    }
}

/// Why something that is registered does not serve a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misfit {
    /// It is for another collective.
    #[error("is for {own}, where what is for {wanted} serves the call")]
    Collective {
        /// What it is for.
        own: Collective,
        /// What it would have to be for; a plan for a gather or scatter may also be one for alltoallv, which moves their blocks.
        wanted: Collective,
    },
    /// It is for this other number of ranks.
    #[error("is for {0} ranks")]
    World(u32),
    /// It is for another number of ranks on each node.
    #[error("is for {wanted} ranks on each node, where there are {found}")]
    RanksPerNode {
        /// What it is for.
        wanted: u32,
        /// What there is.
        found: u32,
    },
    /// It joins these two ranks by memory or switch channels, and they are on different nodes.
    #[error(
        "joins ranks {0} and {1} by memory, which are on different nodes, or count as a node each"
    )]
    Reach(u32, u32),
    /// It is for calls in place (`true`) or out of place (`false`), and the call is the other.
    #[error("is for calls {}", if *.0 { "in place" } else { "out of place" })]
    InPlace(bool),
    /// Ranks need not be in place alike, and this one uses both buffers of several ranks: nobody knows whether it is right then.
    #[error("uses both buffers of several ranks, which may be in place and not in one call")]
    Mixed,
    /// The message is too small or too large; in bytes of the call's larger buffer.
    #[error("is for messages of {min} to {max} bytes")]
    Bytes {
        /// Smallest, inclusive.
        min: u64,
        /// Largest, inclusive.
        max: u64,
    },
    /// It writes to a buffer that a call by name leaves as it is.
    #[error("writes {0}, which a call leaves as it is")]
    Writes(Whose),
    /// It uses a buffer that a rank need not have in a call by name.
    #[error("uses {0}, which a call need not have")]
    Touches(Whose),
    /// It is not for this element type.
    #[error("is not for elements of type {}", .0.name())]
    DataType(DataType),
    /// It does not serve this reduction.
    #[error("does not reduce by {}", .0.name())]
    Op(ReduceOp),
    /// It is for this other root, or, with `None`, nobody has said for which root it is.
    #[error("{}", .0.map_or("has no root said".to_owned(), |root| format!("is for root {root}")))]
    Root(Option<u32>),
    /// It lacks this tag, which the communicator asks for.
    #[error("is not tagged `{0}`")]
    Tag(String),
    /// The plan cannot be lowered for the sizes of the call.
    #[error("{0}")]
    Sizes(Box<LowerError>),
    /// It has runtime sizes (`true`) and the call has none, or the other way round.
    #[error("{}", if *.0 { "has runtime sizes" } else { "has no runtime sizes" })]
    RuntimeSizes(bool),
    /// It adds in another order than reproducible calls do, or its order is not known.
    #[error("{}", differently(.found.as_ref(), .wanted.as_ref()))]
    Order {
        /// What the verifier says of it; `None` where it does not prove the plan.
        found: Option<SumOrder>,
        /// The order of reproducible calls.
        wanted: Option<SumOrder>,
    },
    /// It is code, whose order of sums nobody knows, and the call is to be reproducible.
    #[error("is code, of whose sums no order is shown, where sums are reproducible")]
    Unshown,
    /// It is code that does not serve devices, and the ranks are on devices.
    #[error("is code, which serves memory of the host, where the ranks are on devices")]
    Devices,
    /// It is code, and the call is a premultiplied sum.
    #[error("is code, which does not premultiply")]
    Premultiplied,
    /// It is code that refuses the call, for this reason.
    #[error("{0}")]
    Code(String),
}

impl Misfit {
    /// The misfit of something that is for one collective and a call of another.
    pub(super) fn collective(own: &Collective, question: &Question<'_>) -> Self {
        Misfit::Collective { own: own.clone(), wanted: question.collective.clone() }
    }
}

/// A buffer of a call by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whose {
    /// The rank whose buffer it is.
    pub rank: u32,
    /// Whether it is the rank's receive buffer; otherwise it is the send buffer.
    pub output: bool,
}

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let which = if self.output { "receive" } else { "send" };
        write!(f, "rank {}'s {which} buffer", self.rank)
    }
}

fn differently(found: Option<&SumOrder>, wanted: Option<&SumOrder>) -> String {
    let wanted = wanted.map_or("no order is known".to_owned(), ToString::to_string);
    match found {
        None => format!("is not shown to have one order of sums, where reproducible {wanted}"),
        Some(found) => format!("is not reproducible: {found}, where reproducible {wanted}"),
    }
}

impl Terms {
    /// Whether the terms are for messages of all sizes.
    pub(super) fn any_size(&self) -> bool {
        self.min_bytes == 0 && self.max_bytes == u64::MAX
    }

    /// Whether calls of ranks that are spread like this may be within the terms.
    pub(super) fn admit_ranks(&self, spread: Spread) -> Result<(), Misfit> {
        if let Some(world) = self.world.filter(|&world| world != spread.ranks) {
            return Err(Misfit::World(world));
        }
        let found = spread.per_node();
        match self.ranks_per_node.filter(|&wanted| wanted != found) {
            Some(wanted) => Err(Misfit::RanksPerNode { wanted, found }),
            None => Ok(()),
        }
    }

    /// Whether a call is within the terms, but for its collective and what a plan says itself.
    pub(super) fn admit(&self, question: &Question<'_>) -> Result<(), Misfit> {
        self.admit_ranks(question.spread)?;
        let rooted = question.collective.has_root();
        if let Some(wanted) = self.in_place.filter(|&wanted| wanted != question.in_place && !rooted)
        {
            return Err(Misfit::InPlace(wanted));
        }
        if !(self.min_bytes..=self.max_bytes).contains(&question.bytes) {
            return Err(Misfit::Bytes { min: self.min_bytes, max: self.max_bytes });
        }
        if !self.dtypes.is_empty() && !self.dtypes.contains(&question.dtype) {
            return Err(Misfit::DataType(question.dtype));
        }
        if let Some(op) = question.op
            && !self.ops.is_empty()
            && !self.ops.contains(&op)
        {
            return Err(Misfit::Op(op));
        }
        if rooted && let Some(root) = self.root.filter(|&root| root != question.root) {
            return Err(Misfit::Root(Some(root)));
        }
        match question.tags.iter().find(|&tag| !self.tags.contains(tag)) {
            Some(tag) => Err(Misfit::Tag(tag.clone())),
            None => Ok(()),
        }
    }
}
