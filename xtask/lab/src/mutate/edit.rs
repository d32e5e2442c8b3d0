//! Changes to plans: where an operation is, and the few steps that every mutation is made of.

use antiphon::plan::model::{ChannelType, Op, OpKind, Plan};
use std::fmt;

/// Where an operation is in a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    /// The rank.
    pub rank: usize,
    /// The thread block.
    pub block: usize,
    /// Position in the block's operations.
    pub op: usize,
    /// Position in the body of the pipeline that `op` is.
    pub inner: Option<usize>,
}

impl At {
    /// Position in the list that the operation is an element of.
    pub fn position(self) -> usize {
        self.inner.unwrap_or(self.op)
    }

    /// Another position of the same list.
    pub fn moved(self, position: usize) -> At {
        match self.inner {
            Some(_) => At { inner: Some(position), ..self },
            None => At { op: position, ..self },
        }
    }

    /// The list that the operation is an element of.
    pub fn list(self, plan: &Plan) -> Option<&[Op]> {
        let ops = &plan.gpus.get(self.rank)?.threadblocks.get(self.block)?.ops;
        match self.inner {
            Some(_) => Some(&ops.get(self.op)?.pipeline.as_ref()?.ops),
            None => Some(ops),
        }
    }

    fn list_mut(self, plan: &mut Plan) -> Option<&mut Vec<Op>> {
        let ops = &mut plan.gpus.get_mut(self.rank)?.threadblocks.get_mut(self.block)?.ops;
        match self.inner {
            Some(_) => Some(&mut ops.get_mut(self.op)?.pipeline.as_mut()?.ops),
            None => Some(ops),
        }
    }

    /// The operation that comes after this one in its list, nops left out.
    pub fn next_other(self, plan: &Plan) -> Option<(At, &Op)> {
        let rest = self.list(plan)?.iter().enumerate().skip(self.position() + 1);
        let mut others = rest.filter(|(_, op)| op.kind != OpKind::Nop);
        others.next().map(|(position, op)| (self.moved(position), op))
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} tb {} op {}", self.rank, self.block, self.op)?;
        self.inner.map_or(Ok(()), |inner| write!(f, ".{inner}"))
    }
}

/// Every operation of a plan, those of pipelines' bodies too, with its place.
pub fn operations(plan: &Plan) -> Vec<(At, &Op)> {
    let mut all = Vec::new();
    for (rank, gpu) in plan.gpus.iter().enumerate() {
        for (block, tb) in gpu.threadblocks.iter().enumerate() {
            for (op, operation) in tb.ops.iter().enumerate() {
                let at = At { rank, block, op, inner: None };
                all.push((at, operation));
                let body = operation.pipeline.iter().flat_map(|pipeline| &pipeline.ops);
                all.extend(body.enumerate().map(|(i, op)| (At { inner: Some(i), ..at }, op)));
            }
        }
    }
    all
}

/// One step of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Leave the operation out.
    Remove(At),
    /// Put another operation before this place.
    Insert(At, Box<Op>),
    /// Put another operation in its place.
    Replace(At, Box<Op>),
    /// Exchange the operations at two places of one list.
    Exchange(At, At),
    /// Let the block's own number `position` of a list of channels lead to another channel of the rank.
    Channel {
        /// The rank.
        rank: usize,
        /// The thread block.
        block: usize,
        /// Which of the block's lists.
        list: usize,
        /// Position in the list.
        position: usize,
        /// The rank's number of the channel.
        id: u64,
    },
    /// Let a semaphore start with another value.
    Semaphore {
        /// The rank.
        rank: usize,
        /// The rank's number of the semaphore.
        id: usize,
        /// The value.
        value: i64,
    },
    /// Use the same scratch on every launch.
    SingleScratch,
}

/// A change to a plan: steps, one after the other, and what they do in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The steps; each sees what those before left.
    pub steps: Vec<Step>,
    /// What is changed, for people.
    pub what: String,
}

impl Edit {
    /// A change of one step.
    pub fn new(step: Step, what: impl Into<String>) -> Self {
        Edit { steps: vec![step], what: what.into() }
    }

    /// Leaves an operation out.
    pub fn remove(at: At, op: &Op) -> Self {
        Edit::new(Step::Remove(at), format!("{at}: drop {}", op.kind))
    }

    /// Puts another operation in the place of `op`.
    pub fn replace(at: At, op: &Op, new: Op, what: impl fmt::Display) -> Self {
        Edit::new(Step::Replace(at, Box::new(new)), format!("{at} ({}): {what}", op.kind))
    }

    /// The changed plan; `None` if the plan has no such place.
    pub fn apply(&self, plan: &Plan) -> Option<Plan> {
        let mut plan = plan.clone();
        self.steps.iter().try_for_each(|step| step.apply(&mut plan))?;
        Some(plan)
    }
}

impl Step {
    fn apply(&self, plan: &mut Plan) -> Option<()> {
        match self {
            Step::Remove(at) => {
                let list = at.list_mut(plan)?;
                (at.position() < list.len()).then(|| list.remove(at.position()))?;
            }
            Step::Insert(at, op) => {
                let list = at.list_mut(plan)?;
                (at.position() <= list.len()).then(|| list.insert(at.position(), Op::clone(op)))?;
            }
            Step::Replace(at, op) => {
                *at.list_mut(plan)?.get_mut(at.position())? = Op::clone(op);
            }
            Step::Exchange(a, b) => {
                let list = a.list_mut(plan)?;
                (a.position().max(b.position()) < list.len())
                    .then(|| list.swap(a.position(), b.position()))?;
            }
            &Step::Channel { rank, block, list, position, id } => {
                let block = plan.gpus.get_mut(rank)?.threadblocks.get_mut(block)?;
                *block.channels.get_mut(list)?.1.get_mut(position)? = id;
            }
            &Step::Semaphore { rank, id, value } => {
                *plan.gpus.get_mut(rank)?.semaphores.get_mut(id)? = value;
            }
            Step::SingleScratch => plan.use_double_scratch_buffer = false,
        }
        Some(())
    }
}

/// How many channels of a type a block can name.
pub fn channels_of(plan: &Plan, at: At, channel_type: ChannelType) -> u64 {
    let block = plan.gpus.get(at.rank).and_then(|gpu| gpu.threadblocks.get(at.block));
    let lists = block.into_iter().flat_map(|block| &block.channels);
    lists.filter(|(kind, _)| *kind == channel_type).map(|(_, ids)| ids.len() as u64).sum()
}

/// How many remote buffers a block can name by operations of a channel type.
pub fn remotes_of(plan: &Plan, at: At, channel_type: ChannelType) -> u64 {
    let block = plan.gpus.get(at.rank).and_then(|gpu| gpu.threadblocks.get(at.block));
    let lists = block.into_iter().flat_map(|block| &block.remote_buffer_refs);
    lists.filter(|(kind, _)| *kind == channel_type).map(|(_, ids)| ids.len() as u64).sum()
}
