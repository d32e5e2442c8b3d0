//! Switch channels: one buffer of several ranks, reduced and stored by multicast.

use crate::chunk::ChunkArg;
use crate::convert::{BufferArg, Maybe, ReduceArg, channel_type};
use crate::current::{Shared, current};
use crate::errors::raise;
use crate::group::{LoopIterationContext, block, on_block};
use crate::lane::one_op;
use antiphon_plan::ReduceOp;
use antiphon_plan::dsl::{self, MembersChecked, Misuse, On, Program, Switch};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

type Loop<'a, 'py> = Option<&'a Bound<'py, LoopIterationContext>>;

/// A channel over the buffer `buffer_type` of all ranks of `rank_list`.
///
/// No list means all ranks of the program, and so does an empty one in a program of the language's middle stage; else it
/// raises ValueError. `buffer` is another name of `buffer_type`, `tag` a name
/// that changes nothing. Raises RuntimeError outside of a program and for ranks that it does not have, ValueError for a
/// rank named twice, TypeError without a buffer.
///
/// Operations raise RuntimeError for a rank outside of the group, for a chunk of another rank or of another size than
/// `size`, and if some member's buffer does not have the chunks `buffer_offset` to `buffer_offset + size`: scratch must
/// have been handed out before. Those that are called `group_...` find the last only when the program ends; without
/// `at_rank` they are of the rank that the program spoke of last.
#[pyclass(module = "antiphon.language.channel", frozen, subclass)]
pub struct SwitchChannel(Arc<Members>);

/// The ranks of a switch channel.
struct Members {
    program: Arc<Shared>,
    switch: Switch,
    /// Where sums went for which no store said so: rank, block and run of the channel, and the chunk.
    placed: Mutex<BTreeMap<(u64, u64, u64, u64), dsl::Chunk>>,
}

/// A load-reduce that does not say where its sum goes: where the store that follows takes it from.
pub struct Pending {
    members: Arc<Members>,
    rank: u64,
    block: u64,
    offset: u64,
    size: u64,
    op: ReduceOp,
    /// What the author called.
    call: &'static str,
}

impl Pending {
    /// Records it with the sum in `to`; if no store said so, in the rank's own chunks of the channel's buffer.
    ///
    /// # Errors
    /// Those of the call.
    pub fn record(self, program: &mut Program, to: Option<dsl::Chunk>) -> Result<(), Misuse> {
        let Pending { members, rank, block, offset, size, op, call } = self;
        let switch = &members.switch;
        let own = members.own(rank, offset, size);
        if to.is_none() {
            let mut placed = members.placed.lock().unwrap_or_else(PoisonError::into_inner);
            placed.insert((rank, block, offset, size), own);
        }
        let (to, checked) = (to.unwrap_or(own), MembersChecked::AtEnd);
        let on = On::block(block);
        program
            .switch_reduce(switch, rank as i64, offset, size, to, op, checked, on)
            .map_err(|refused| refused.of_call(call))
    }
}

impl Members {
    #[allow(clippy::too_many_arguments)]
    fn reduce(
        &self,
        rank: i64,
        buffer_offset: i64,
        size: i64,
        dst_chunk: ChunkArg,
        tb: i64,
        reduce_op: ReduceArg,
    ) -> PyResult<()> {
        self.spoke_of(rank);
        self.program.record(|program| {
            let (offset, size) = self.run(buffer_offset, size)?;
            let (to, op, on) = (dst_chunk.0, reduce_op.0, on_block(tb)?);
            let checked = MembersChecked::Now;
            program
                .switch_reduce(&self.switch, rank, offset, size, to, op, checked, on)
                .map_err(|refused| refused.of_call("reduce"))
        })
    }

    fn store(
        &self,
        rank: i64,
        src_chunk: ChunkArg,
        buffer_offset: i64,
        size: i64,
        tb: i64,
        packets: bool,
    ) -> PyResult<()> {
        self.spoke_of(rank);
        self.program.record(|program| {
            let (offset, size) = self.run(buffer_offset, size)?;
            let (from, on) = (src_chunk.0, on_block(tb)?);
            let checked = MembersChecked::Now;
            let call = if packets { "broadcast_packets" } else { "broadcast" };
            program
                .switch_store(&self.switch, rank, from, offset, size, packets, checked, on)
                .map_err(|refused| refused.of_call(call))
        })
    }

    fn spoke_of(&self, rank: i64) {
        if let Ok(rank) = u64::try_from(rank) {
            self.program.spoke_of(rank);
        }
    }

    /// A run of chunks of the channel's buffer, which cannot begin before it.
    fn run(&self, offset: i64, size: i64) -> Result<(u64, u64), Misuse> {
        match (u64::try_from(offset), u64::try_from(size)) {
            (Ok(offset), Ok(size)) => Ok((offset, size)),
            _ => Err(Misuse::SwitchChunks { buffer: self.switch.buffer, offset, size }),
        }
    }

    /// A rank's own chunks of the channel's buffer.
    fn own(&self, rank: u64, index: u64, size: u64) -> dsl::Chunk {
        dsl::Chunk { rank, buffer: self.switch.buffer, index, size }
    }

    /// The member that a call of the middle stage is for.
    fn member(&self, rank: Option<i64>) -> PyResult<u64> {
        let rank = match rank {
            Some(rank) => u64::try_from(rank)?,
            None => self.program.recent()?,
        };
        self.is_member(rank).map_err(raise)?;
        Ok(rank)
    }

    fn is_member(&self, rank: u64) -> Result<(), Misuse> {
        let owners = || self.switch.ranks().collect();
        let what = "switch channel";
        self.id(rank).map(drop).ok_or_else(|| Misuse::NotMine { what, rank, owners: owners() })
    }

    #[allow(clippy::too_many_arguments)]
    fn load_reduce(
        self: &Arc<Self>,
        call: &'static str,
        rank: Option<i64>,
        (offset, size): (i64, i64),
        to: Option<ChunkArg>,
        op: ReduceArg,
        tb: i64,
        iter_context: Loop<'_, '_>,
    ) -> PyResult<()> {
        LoopIterationContext::check_open(iter_context)?;
        let rank = self.member(rank)?;
        let (offset, size) = self.run(offset, size).map_err(raise)?;
        let block = block(tb).map_err(raise)?;
        self.program.speaks_middle();
        self.program.spoke_of(rank);
        match to {
            Some(to) => self.program.record(|program| {
                let (checked, on) = (MembersChecked::AtEnd, On::block(block));
                let switch = &self.switch;
                program
                    .switch_reduce(switch, rank as i64, offset, size, to.0, op.0, checked, on)
                    .map_err(|refused| refused.of_call(call))
            }),
            None => {
                // Whatever waited before comes first.
                self.program.record(|_| Ok(()))?;
                let members = Arc::clone(self);
                let op = op.0;
                self.program.defer(Pending { members, rank, block, offset, size, op, call });
                Ok(())
            }
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn group_store(
        self: &Arc<Self>,
        call: &'static str,
        rank: Option<i64>,
        from: Option<ChunkArg>,
        (offset, size): (i64, i64),
        tb: i64,
        iter_context: Loop<'_, '_>,
    ) -> PyResult<()> {
        LoopIterationContext::check_open(iter_context)?;
        let rank = self.member(rank)?;
        let (offset, size) = self.run(offset, size).map_err(raise)?;
        let block = block(tb).map_err(raise)?;
        let source = from.map_or_else(|| self.own(rank, offset, size), |from| from.0);
        self.program.speaks_middle();
        self.program.check_current()?;
        let key = (rank, block, offset, size);
        if let Some(pending) = self.program.take_pending() {
            let mine = Arc::ptr_eq(&pending.members, self)
                && (pending.rank, pending.block, pending.offset, pending.size) == key;
            let to = mine.then_some(source);
            pending.record(&mut self.program.lock(), to).map_err(raise)?;
        }
        let placed = self.placed.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        if let Some(placed) = placed.filter(|placed| *placed != source) {
            let dsl::Chunk { index, size, buffer, .. } = placed;
            return Err(PyRuntimeError::new_err(format!(
                "cannot store the sum of these chunks from elsewhere: it was reduced to {size} chunks from {index} on of \
                 buffer {buffer} of rank {rank}, since other operations came in between; give group_load_reduce its \
                 dst_chunk"
            )));
        }
        self.program.spoke_of(rank);
        self.program.record(|program| {
            let (checked, on) = (MembersChecked::AtEnd, On::block(block));
            let switch = &self.switch;
            program
                .switch_store(switch, rank as i64, source, offset, size, false, checked, on)
                .map_err(|refused| refused.of_call(call))
        })
    }

    fn id(&self, rank: u64) -> Option<u64> {
        self.switch.members.iter().find(|(member, _)| *member == rank).map(|(_, id)| *id)
    }
}

#[pymethods]
impl SwitchChannel {
    #[new]
    #[pyo3(signature = (rank_list=None, buffer_type=None, *, buffer=None, tag=None))]
    fn new(
        py: Python<'_>,
        rank_list: Option<Vec<i64>>,
        buffer_type: Option<BufferArg>,
        buffer: Option<BufferArg>,
        tag: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        // The groups of all members are made in one call, so that there is nothing for a tag to pair.
        drop(tag);
        let program = current()?;
        if buffer.is_some() {
            program.speaks_middle();
        }
        let buffer_type = match (buffer_type, buffer) {
            (Some(given), None) | (None, Some(given)) => given,
            (Some(one), Some(other)) if one == other => one,
            _ => {
                return Err(PyTypeError::new_err(
                    "SwitchChannel() needs its buffer once: give buffer_type, as in \
                     SwitchChannel(rank_list, BufferType.input)",
                ));
            }
        };
        // The current stage makes no group of nobody; the middle one means everybody.
        let everyone = match &rank_list {
            Some(ranks) => ranks.is_empty() && program.is_middle(py)?,
            None => true,
        };
        let rank_list = match rank_list {
            Some(ranks) if !everyone => ranks,
            _ => (0..program.lock().ranks() as i64).collect(),
        };
        let switch = program.declare(|program| program.switch(&rank_list, buffer_type.0))?;
        Ok(SwitchChannel(Arc::new(Members { program, switch, placed: Mutex::default() })))
    }

    /// The member ranks.
    #[getter]
    fn rank_list(&self) -> Vec<u64> {
        self.0.switch.ranks().collect()
    }

    /// The members as a RankGroup.
    #[getter]
    fn rank_group<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let types = py.import(intern!(py, "antiphon.language.internal.types"))?;
        let ranks = self.rank_list();
        types.getattr(intern!(py, "RankGroup"))?.call1((ranks.len(), ranks))
    }

    /// Every member's number of the channel among its switch channels, by rank.
    #[getter]
    fn channel_ids(&self) -> BTreeMap<u64, u64> {
        self.0.switch.members.iter().copied().collect()
    }

    /// The buffer, a BufferType.
    #[getter]
    fn buffer_type(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        BufferArg(self.0.switch.buffer).member(py)
    }

    /// `ChannelType.switch`.
    #[getter]
    fn channel_type<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        channel_type(py, "switch")
    }

    /// The channel as rank `rank` uses it. Raises RuntimeError if the rank is no member.
    fn at_rank(&self, rank: i64) -> PyResult<SwitchChannelRankView> {
        let members = &self.0;
        members.program.declare(|program| members.is_member(program.rank(rank)?))?;
        Ok(SwitchChannelRankView { members: Arc::clone(members), rank })
    }

    /// Rank `rank` reduces the chunks `buffer_offset` to `buffer_offset + size` of every member into `dst_chunk`.
    #[pyo3(signature = (rank, buffer_offset, size, dst_chunk, tb, reduce_op=ReduceArg::SUM))]
    fn reduce(
        &self,
        rank: i64,
        buffer_offset: i64,
        size: i64,
        dst_chunk: ChunkArg,
        tb: i64,
        reduce_op: ReduceArg,
    ) -> PyResult<()> {
        self.0.reduce(rank, buffer_offset, size, dst_chunk, tb, reduce_op)
    }

    /// Rank `rank` stores `src_chunk` at `buffer_offset` of every member.
    fn broadcast(
        &self,
        rank: i64,
        src_chunk: ChunkArg,
        buffer_offset: i64,
        size: i64,
        tb: i64,
    ) -> PyResult<()> {
        self.0.store(rank, src_chunk, buffer_offset, size, tb, false)
    }

    /// Rank `rank` waits for the packets of `src_chunk` and stores them as packets at `buffer_offset` of every member;
    /// the chunk and the channel's buffer are scratch.
    fn broadcast_packets(
        &self,
        rank: i64,
        src_chunk: ChunkArg,
        buffer_offset: i64,
        size: i64,
        tb: i64,
    ) -> PyResult<()> {
        self.0.store(rank, src_chunk, buffer_offset, size, tb, true)
    }

    /// The rank that the program spoke of last reduces the chunks `buffer_offset` to `buffer_offset + size` of every member into `dst_chunk`; without one,
    /// to where the following `group_store` takes the sum from. `reduce_op` is another name of `op`.
    #[pyo3(signature = (
        buffer_offset, size, dst_chunk=None, op=Maybe(None), tb=0, *, reduce_op=Maybe(None), iter_context=None
    ))]
    #[allow(clippy::too_many_arguments)]
    fn group_load_reduce(
        &self,
        buffer_offset: i64,
        size: i64,
        dst_chunk: Option<ChunkArg>,
        op: Maybe<ReduceArg>,
        tb: i64,
        reduce_op: Maybe<ReduceArg>,
        iter_context: Loop<'_, '_>,
    ) -> PyResult<()> {
        let (run, op) = ((buffer_offset, size), one_op(reduce_op, op)?);
        self.0.load_reduce("group_load_reduce", None, run, dst_chunk, op, tb, iter_context)
    }

    /// The rank that the program spoke of last stores `src_chunk` at `buffer_offset` of every member; `group_store(buffer_offset, size, tb)` stores what
    /// the `group_load_reduce` of the same chunks gave.
    #[pyo3(signature = (*args, **kwargs))]
    fn group_store(
        &self,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let Store { from, run, tb, iter_context } = Store::parse(args, kwargs)?;
        self.0.group_store("group_store", None, from, run, tb, iter_context.as_ref())
    }

    /// `group_load_reduce(index, size)`.
    #[pyo3(signature = (index, size, *, op=Maybe(None), tb=0, reduce_op=Maybe(None), iter_context=None))]
    fn group_reduce(
        &self,
        index: i64,
        size: i64,
        op: Maybe<ReduceArg>,
        tb: i64,
        reduce_op: Maybe<ReduceArg>,
        iter_context: Loop<'_, '_>,
    ) -> PyResult<()> {
        let (run, op) = ((index, size), one_op(reduce_op, op)?);
        self.0.load_reduce("group_reduce", None, run, None, op, tb, iter_context)
    }

    /// `group_store(index, size)`.
    #[pyo3(signature = (index, size, *, tb=0, iter_context=None))]
    fn group_broadcast(
        &self,
        index: i64,
        size: i64,
        tb: i64,
        iter_context: Loop<'_, '_>,
    ) -> PyResult<()> {
        self.0.group_store("group_broadcast", None, None, (index, size), tb, iter_context)
    }

    fn __repr__(&self) -> String {
        let switch = &self.0.switch;
        let ranks: Vec<u64> = switch.ranks().collect();
        format!("SwitchChannel(rank_list={ranks:?}, buffer_type={})", switch.buffer)
    }
}

/// A switch channel as one of its members uses it; `SwitchChannel.at_rank` makes it.
#[pyclass(module = "antiphon.language.channel", frozen, subclass)]
pub struct SwitchChannelRankView {
    members: Arc<Members>,
    rank: i64,
}

#[pymethods]
impl SwitchChannelRankView {
    /// The member.
    #[getter]
    fn rank(&self) -> i64 {
        self.rank
    }

    /// Reduces the chunks `buffer_offset` to `buffer_offset + size` of every member into `dst_chunk`.
    #[pyo3(signature = (buffer_offset, size, dst_chunk, tb, reduce_op=ReduceArg::SUM))]
    fn reduce(
        &self,
        buffer_offset: i64,
        size: i64,
        dst_chunk: ChunkArg,
        tb: i64,
        reduce_op: ReduceArg,
    ) -> PyResult<()> {
        self.members.reduce(self.rank, buffer_offset, size, dst_chunk, tb, reduce_op)
    }

    /// Stores `src_chunk` at `buffer_offset` of every member.
    fn broadcast(
        &self,
        src_chunk: ChunkArg,
        buffer_offset: i64,
        size: i64,
        tb: i64,
    ) -> PyResult<()> {
        self.members.store(self.rank, src_chunk, buffer_offset, size, tb, false)
    }

    /// Waits for the packets of `src_chunk` and stores them as packets at `buffer_offset` of every member; the chunk
    /// and the channel's buffer are scratch.
    fn broadcast_packets(
        &self,
        src_chunk: ChunkArg,
        buffer_offset: i64,
        size: i64,
        tb: i64,
    ) -> PyResult<()> {
        self.members.store(self.rank, src_chunk, buffer_offset, size, tb, true)
    }

    /// The rank reduces the chunks `buffer_offset` to `buffer_offset + size` of every member into `dst_chunk`; without one,
    /// to where the following `group_store` takes the sum from. `reduce_op` is another name of `op`.
    #[pyo3(signature = (
        buffer_offset, size, dst_chunk=None, op=Maybe(None), tb=0, *, reduce_op=Maybe(None), iter_context=None
    ))]
    #[allow(clippy::too_many_arguments)]
    fn group_load_reduce(
        &self,
        buffer_offset: i64,
        size: i64,
        dst_chunk: Option<ChunkArg>,
        op: Maybe<ReduceArg>,
        tb: i64,
        reduce_op: Maybe<ReduceArg>,
        iter_context: Loop<'_, '_>,
    ) -> PyResult<()> {
        let (run, op) = ((buffer_offset, size), one_op(reduce_op, op)?);
        let rank = Some(self.rank);
        self.members.load_reduce("group_load_reduce", rank, run, dst_chunk, op, tb, iter_context)
    }

    /// The rank stores `src_chunk` at `buffer_offset` of every member; `group_store(buffer_offset, size, tb)` stores what
    /// the `group_load_reduce` of the same chunks gave.
    #[pyo3(signature = (*args, **kwargs))]
    fn group_store(
        &self,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let Store { from, run, tb, iter_context } = Store::parse(args, kwargs)?;
        let rank = Some(self.rank);
        self.members.group_store("group_store", rank, from, run, tb, iter_context.as_ref())
    }

    /// `group_load_reduce(index, size)`.
    #[pyo3(signature = (index, size, *, op=Maybe(None), tb=0, reduce_op=Maybe(None), iter_context=None))]
    fn group_reduce(
        &self,
        index: i64,
        size: i64,
        op: Maybe<ReduceArg>,
        tb: i64,
        reduce_op: Maybe<ReduceArg>,
        iter_context: Loop<'_, '_>,
    ) -> PyResult<()> {
        let (run, op) = ((index, size), one_op(reduce_op, op)?);
        self.members.load_reduce("group_reduce", Some(self.rank), run, None, op, tb, iter_context)
    }

    /// `group_store(index, size)`.
    #[pyo3(signature = (index, size, *, tb=0, iter_context=None))]
    fn group_broadcast(
        &self,
        index: i64,
        size: i64,
        tb: i64,
        iter_context: Loop<'_, '_>,
    ) -> PyResult<()> {
        let rank = Some(self.rank);
        self.members.group_store("group_broadcast", rank, None, (index, size), tb, iter_context)
    }
}

/// The arguments of `group_store`, with its source or without.
struct Store<'py> {
    from: Option<ChunkArg>,
    run: (i64, i64),
    tb: i64,
    iter_context: Option<Bound<'py, LoopIterationContext>>,
}

impl<'py> Store<'py> {
    fn parse(args: &Bound<'py, PyTuple>, kwargs: Option<&Bound<'py, PyDict>>) -> PyResult<Self> {
        let refuse = |what: String| {
            PyTypeError::new_err(format!(
                "cannot read the arguments of group_store: {what}; expected group_store(src_chunk, buffer_offset, size, \
                 tb=0) or group_store(buffer_offset, size, tb=0)"
            ))
        };
        let sourced = args.get_item(0).is_ok_and(|first| first.extract::<i64>().is_err());
        let names = ["src_chunk", "buffer_offset", "size", "tb", "iter_context"];
        let positional = if sourced { &names[..4] } else { &names[1..4] };
        if args.len() > positional.len() {
            return Err(refuse(format!("saw {} of them without a name", args.len())));
        }
        let given = PyDict::new(args.py());
        for (name, value) in positional.iter().zip(args) {
            given.set_item(name, value)?;
        }
        for (name, value) in kwargs.into_iter().flatten() {
            let known = name.extract::<&str>().is_ok_and(|name| names.contains(&name));
            if !known || given.contains(&name)? {
                return Err(refuse(format!("saw {name} twice, or where it is not one of them")));
            }
            given.set_item(name, value)?;
        }
        let number = |name: &str| match given.get_item(name)? {
            Some(value) => value.extract::<i64>(),
            None if name == "tb" => Ok(0),
            None => Err(refuse(format!("{name} is missing"))),
        };
        let value = |name| Ok::<_, PyErr>(given.get_item(name)?.filter(|value| !value.is_none()));
        Ok(Store {
            from: value("src_chunk")?.map(|chunk| chunk.extract()).transpose()?,
            run: (number("buffer_offset")?, number("size")?),
            tb: number("tb")?,
            iter_context: value("iter_context")?.map(|it| it.cast_into()).transpose()?,
        })
    }
}
