//! Switch channels: one buffer of several ranks, reduced and stored by multicast.

use crate::chunk::ChunkArg;
use crate::convert::{BufferArg, ReduceArg, channel_type};
use crate::current::{Shared, current};
use crate::group::on_block;
use antiphon_plan::dsl::{MembersChecked, Misuse, Switch};
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A channel over the buffer `buffer_type` of all ranks of `rank_list`.
///
/// Raises RuntimeError outside of a program and for ranks that it does not have, ValueError for an empty list and for a
/// rank named twice.
///
/// Operations raise RuntimeError for a rank outside of the group, for a chunk of another rank or of another size than
/// `size`, and if some member's buffer does not have the chunks `buffer_offset` to `buffer_offset + size`: scratch must
/// have been handed out before.
#[pyclass(module = "antiphon.language.channel", frozen, subclass)]
pub struct SwitchChannel(Arc<Members>);

/// The ranks of a switch channel.
struct Members {
    program: Arc<Shared>,
    switch: Switch,
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
        self.program.record(|program| {
            let (offset, size) = self.run(buffer_offset, size)?;
            let (to, op, on) = (dst_chunk.0, reduce_op.0, on_block(tb)?);
            let checked = MembersChecked::Now;
            program.switch_reduce(&self.switch, rank, offset, size, to, op, checked, on)
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
        self.program.record(|program| {
            let (offset, size) = self.run(buffer_offset, size)?;
            let (from, on) = (src_chunk.0, on_block(tb)?);
            let checked = MembersChecked::Now;
            program.switch_store(&self.switch, rank, from, offset, size, packets, checked, on)
        })
    }

    /// A run of chunks of the channel's buffer, which cannot begin before it.
    fn run(&self, offset: i64, size: i64) -> Result<(u64, u64), Misuse> {
        match (u64::try_from(offset), u64::try_from(size)) {
            (Ok(offset), Ok(size)) => Ok((offset, size)),
            _ => Err(Misuse::SwitchChunks { buffer: self.switch.buffer, offset, size }),
        }
    }

    fn id(&self, rank: u64) -> Option<u64> {
        self.switch.members.iter().find(|(member, _)| *member == rank).map(|(_, id)| *id)
    }
}

#[pymethods]
impl SwitchChannel {
    #[new]
    fn new(rank_list: Vec<i64>, buffer_type: BufferArg) -> PyResult<Self> {
        let program = current()?;
        let switch = program.record(|program| program.switch(&rank_list, buffer_type.0))?;
        Ok(SwitchChannel(Arc::new(Members { program, switch })))
    }

    /// The member ranks.
    #[getter]
    fn rank_list(&self) -> Vec<u64> {
        self.0.switch.ranks().collect()
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
        members.program.record(|program| {
            let rank = program.rank(rank)?;
            let owners = || members.switch.ranks().collect();
            let what = "switch channel";
            members.id(rank).map(drop).ok_or_else(|| Misuse::NotMine {
                what,
                rank,
                owners: owners(),
            })
        })?;
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
}
