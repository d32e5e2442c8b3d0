//! Memory and port channels.

use crate::chunk::{ChunkArg, chunks};
use crate::convert::{ReduceArg, SyncArg, channel_type};
use crate::current::{Shared, current};
use crate::errors::{raise, raise_value_without_block};
use crate::group::{ThreadBlockGroup, on, on_block};
use crate::late::Late;
use antiphon_plan::dsl::{self, Transfer};
use antiphon_plan::model::ChannelType;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::sync::Arc;

/// A group of blocks that an operation may run on.
pub type Group<'a, 'py> = Option<&'a Bound<'py, ThreadBlockGroup>>;

/// What all kinds of channels are.
pub struct Endpoint {
    pub program: Arc<Shared>,
    pub channel: dsl::Channel,
}

impl Endpoint {
    pub fn new(kind: ChannelType, dst_rank: i64, src_rank: i64) -> PyResult<Self> {
        let program = current()?;
        let channel = program.declare(|program| program.channel(kind, dst_rank, src_rank))?;
        program.spoke_of(channel.source);
        Ok(Endpoint { program, channel })
    }

    pub fn signal(&self, py: Python<'_>, tb: i64, sync: SyncArg, relaxed: bool) -> PyResult<()> {
        self.program.spoke_of(self.channel.source);
        self.program
            .record_at(py, |program| program.signal(self.channel, on_block(tb)?, sync.0, relaxed))
    }

    pub fn wait(&self, py: Python<'_>, tb: i64, sync: SyncArg, relaxed: bool) -> PyResult<()> {
        self.program.spoke_of(self.channel.source);
        self.program
            .record_at(py, |program| program.wait(self.channel, on_block(tb)?, sync.0, relaxed))
    }

    pub fn transfer(
        &self,
        what: Transfer,
        dst: ChunkArg,
        src: ChunkArg,
        tb: Option<i64>,
        tb_group: Group<'_, '_>,
    ) -> PyResult<()> {
        // The one operation that the language refuses with another exception.
        let raise = match what {
            Transfer::ReadPutPackets => raise_value_without_block,
            _ => raise,
        };
        self.program.spoke_of(self.channel.source);
        self.program.record_or(raise, |program| {
            program.transfer(what, self.channel, dst.0, src.0, on(tb, tb_group)?)
        })
    }

    /// A transfer that signals, so that its line may be needed at the end.
    pub fn signalling_transfer(
        &self,
        py: Python<'_>,
        what: Transfer,
        dst: ChunkArg,
        src: ChunkArg,
        tb: i64,
    ) -> PyResult<()> {
        self.program.spoke_of(self.channel.source);
        self.program.record_at(py, |program| {
            program.transfer(what, self.channel, dst.0, src.0, on_block(tb)?)
        })
    }

    pub fn flush(&self, tb: i64, sync: SyncArg) -> PyResult<()> {
        self.program.spoke_of(self.channel.source);
        self.program.record(|program| program.flush(self.channel, on_block(tb)?, sync.0))
    }

    pub fn reduce(
        &self,
        to: ChunkArg,
        from: ChunkArg,
        others: Vec<ChunkArg>,
        tb: Option<i64>,
        tb_group: Group<'_, '_>,
        op: ReduceArg,
    ) -> PyResult<()> {
        let others = chunks(others);
        self.program.spoke_of(self.channel.source);
        self.program.record(|program| {
            let on = on(tb, tb_group)?;
            program.read_reduce(self.channel, to.0, from.0, &others, op.0, on)
        })
    }

    pub fn repr(&self, class: &str) -> String {
        let dsl::Channel { source, destination, id, .. } = self.channel;
        format!(
            "{class}(dst_rank={destination}, src_rank={source}) # channel {id} of rank {source}"
        )
    }
}

/// A channel by which rank `src_rank` reads and writes the memory of rank `dst_rank` and exchanges signals with it.
///
/// It is one-sided: `src_rank` runs its operations. The k-th MemoryChannel from rank a to rank b is paired with the
/// k-th from b to a: what the one signals, the other waits for. Raises RuntimeError outside of a program and for ranks
/// that it does not have.
///
/// Operations take `tb`, the thread block that runs them, and those on chunks alternatively `tb_group`, a
/// ThreadBlockGroup whose blocks share them; they raise RuntimeError without either, for chunks of other ranks than
/// said and for chunks of different sizes.
#[pyclass(module = "antiphon.language.channel", frozen, subclass)]
pub struct MemoryChannel(Late<Endpoint>);

#[pymethods]
impl MemoryChannel {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs), text_signature = "(dst_rank, src_rank)")]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        MemoryChannel(Late::empty())
    }

    fn __init__(&self, dst_rank: i64, src_rank: i64) -> PyResult<()> {
        self.0.make(|| Endpoint::new(ChannelType::Memory, dst_rank, src_rank))
    }

    /// The source rank's number of the channel among its memory channels.
    #[getter]
    fn channel_id(&self) -> PyResult<u64> {
        Ok(self.0.get()?.channel.id)
    }

    /// The rank that runs the operations.
    #[getter]
    fn src_rank(&self) -> PyResult<u64> {
        Ok(self.0.get()?.channel.source)
    }

    /// The peer.
    #[getter]
    fn dst_rank(&self) -> PyResult<u64> {
        Ok(self.0.get()?.channel.destination)
    }

    /// `ChannelType.memory`.
    #[getter]
    fn channel_type<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        channel_type(py, "memory")
    }

    /// Signals the peer. `data_sync` says where the block's threads meet around it; a relaxed signal orders no data.
    #[pyo3(signature = (tb, data_sync=SyncArg::BOTH, relaxed=false))]
    fn signal(&self, py: Python<'_>, tb: i64, data_sync: SyncArg, relaxed: bool) -> PyResult<()> {
        self.0.get()?.signal(py, tb, data_sync, relaxed)
    }

    /// Waits for one more signal of the peer. `data_sync` and `relaxed` as for `signal`.
    #[pyo3(signature = (tb, data_sync=SyncArg::BOTH, relaxed=false))]
    fn wait(&self, py: Python<'_>, tb: i64, data_sync: SyncArg, relaxed: bool) -> PyResult<()> {
        self.0.get()?.wait(py, tb, data_sync, relaxed)
    }

    /// Copies `src_chunk` of the source rank to `dst_chunk` of the peer.
    #[pyo3(signature = (dst_chunk, src_chunk, tb=None, tb_group=None))]
    fn put(
        &self,
        dst_chunk: ChunkArg,
        src_chunk: ChunkArg,
        tb: Option<i64>,
        tb_group: Group<'_, '_>,
    ) -> PyResult<()> {
        self.0.get()?.transfer(Transfer::Put, dst_chunk, src_chunk, tb, tb_group)
    }

    /// Copies `src_chunk` of the peer to `dst_chunk` of the source rank.
    #[pyo3(signature = (dst_chunk, src_chunk, tb=None, tb_group=None))]
    fn get(
        &self,
        dst_chunk: ChunkArg,
        src_chunk: ChunkArg,
        tb: Option<i64>,
        tb_group: Group<'_, '_>,
    ) -> PyResult<()> {
        self.0.get()?.transfer(Transfer::Get, dst_chunk, src_chunk, tb, tb_group)
    }

    /// Stores the data of `src_chunk` of the source rank as packets to `dst_chunk` in the peer's scratch.
    #[pyo3(signature = (dst_chunk, src_chunk, tb=None, tb_group=None))]
    fn put_packets(
        &self,
        dst_chunk: ChunkArg,
        src_chunk: ChunkArg,
        tb: Option<i64>,
        tb_group: Group<'_, '_>,
    ) -> PyResult<()> {
        self.0.get()?.transfer(Transfer::PutPackets, dst_chunk, src_chunk, tb, tb_group)
    }

    /// Waits for the packets of `src_chunk` in the source rank's scratch and forwards them to `dst_chunk` in the
    /// peer's. Raises ValueError without `tb` and `tb_group`.
    #[pyo3(signature = (dst_chunk, src_chunk, tb=None, tb_group=None))]
    fn read_put_packets(
        &self,
        dst_chunk: ChunkArg,
        src_chunk: ChunkArg,
        tb: Option<i64>,
        tb_group: Group<'_, '_>,
    ) -> PyResult<()> {
        self.0.get()?.transfer(Transfer::ReadPutPackets, dst_chunk, src_chunk, tb, tb_group)
    }

    /// Reduces `local_src_chunk` and all of `remote_src_chunks`, which are the peer's, into `local_dst_chunk`, by
    /// default `local_src_chunk`. Raises RuntimeError if there are no remote chunks.
    #[pyo3(signature = (
        local_src_chunk, remote_src_chunks, tb=None, tb_group=None, local_dst_chunk=None, reduce_op=ReduceArg::SUM
    ))]
    fn reduce(
        &self,
        local_src_chunk: ChunkArg,
        remote_src_chunks: Vec<ChunkArg>,
        tb: Option<i64>,
        tb_group: Group<'_, '_>,
        local_dst_chunk: Option<ChunkArg>,
        reduce_op: ReduceArg,
    ) -> PyResult<()> {
        let to = local_dst_chunk.unwrap_or(local_src_chunk);
        self.0.get()?.reduce(to, local_src_chunk, remote_src_chunks, tb, tb_group, reduce_op)
    }

    fn __repr__(&self) -> PyResult<String> {
        Ok(self.0.get()?.repr("MemoryChannel"))
    }
}

/// A channel by which rank `src_rank` has a proxy move data to rank `dst_rank`, and exchanges signals with it.
///
/// It is one-sided and paired as a MemoryChannel is. Raises RuntimeError outside of a program and for ranks that it does
/// not have; its operations do for chunks of other ranks than said and for chunks of different sizes.
#[pyclass(module = "antiphon.language.channel", frozen, subclass)]
pub struct PortChannel(Late<Endpoint>);

#[pymethods]
impl PortChannel {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs), text_signature = "(dst_rank, src_rank)")]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        PortChannel(Late::empty())
    }

    fn __init__(&self, dst_rank: i64, src_rank: i64) -> PyResult<()> {
        self.0.make(|| Endpoint::new(ChannelType::Port, dst_rank, src_rank))
    }

    /// The source rank's number of the channel among its port channels.
    #[getter]
    fn channel_id(&self) -> PyResult<u64> {
        Ok(self.0.get()?.channel.id)
    }

    /// The rank that runs the operations.
    #[getter]
    fn src_rank(&self) -> PyResult<u64> {
        Ok(self.0.get()?.channel.source)
    }

    /// The peer.
    #[getter]
    fn dst_rank(&self) -> PyResult<u64> {
        Ok(self.0.get()?.channel.destination)
    }

    /// `ChannelType.port`.
    #[getter]
    fn channel_type<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        channel_type(py, "port")
    }

    /// Signals the peer. `data_sync` says where the block's threads meet around it.
    #[pyo3(signature = (tb, data_sync=SyncArg::BOTH))]
    fn signal(&self, py: Python<'_>, tb: i64, data_sync: SyncArg) -> PyResult<()> {
        self.0.get()?.signal(py, tb, data_sync, false)
    }

    /// Waits for one more signal of the peer. `data_sync` as for `signal`.
    #[pyo3(signature = (tb, data_sync=SyncArg::BOTH))]
    fn wait(&self, py: Python<'_>, tb: i64, data_sync: SyncArg) -> PyResult<()> {
        self.0.get()?.wait(py, tb, data_sync, false)
    }

    /// Waits until earlier transfers over the channel are complete. `data_sync` as for `signal`.
    #[pyo3(signature = (tb, data_sync=SyncArg::BOTH))]
    fn flush(&self, tb: i64, data_sync: SyncArg) -> PyResult<()> {
        self.0.get()?.flush(tb, data_sync)
    }

    /// Copies `src_chunk` of the source rank to `dst_chunk` of the peer.
    fn put(&self, dst_chunk: ChunkArg, src_chunk: ChunkArg, tb: i64) -> PyResult<()> {
        self.0.get()?.transfer(Transfer::Put, dst_chunk, src_chunk, Some(tb), None)
    }

    /// Copies `src_chunk` of the source rank to `dst_chunk` of the peer, then signals it.
    fn put_with_signal(
        &self,
        py: Python<'_>,
        dst_chunk: ChunkArg,
        src_chunk: ChunkArg,
        tb: i64,
    ) -> PyResult<()> {
        self.0.get()?.signalling_transfer(py, Transfer::PutWithSignal, dst_chunk, src_chunk, tb)
    }

    /// Copies `src_chunk` of the source rank to `dst_chunk` of the peer, signals it and waits until all is complete.
    fn put_with_signal_and_flush(
        &self,
        py: Python<'_>,
        dst_chunk: ChunkArg,
        src_chunk: ChunkArg,
        tb: i64,
    ) -> PyResult<()> {
        self.0.get()?.signalling_transfer(
            py,
            Transfer::PutWithSignalAndFlush,
            dst_chunk,
            src_chunk,
            tb,
        )
    }

    /// Copies the packets of `src_chunk` of the source rank to `dst_chunk` in the peer's scratch. Both hold packets as
    /// they are: pack raw data into scratch first, by `copy_packets`.
    fn put_packets(&self, dst_chunk: ChunkArg, src_chunk: ChunkArg, tb: i64) -> PyResult<()> {
        self.0.get()?.transfer(Transfer::PutPackets, dst_chunk, src_chunk, Some(tb), None)
    }

    /// Waits for the packets of `src_chunk` in the source rank's scratch and forwards them to `dst_chunk` in the
    /// peer's. Raises ValueError without `tb` and `tb_group`.
    #[pyo3(signature = (dst_chunk, src_chunk, tb=None, tb_group=None))]
    fn read_put_packets(
        &self,
        dst_chunk: ChunkArg,
        src_chunk: ChunkArg,
        tb: Option<i64>,
        tb_group: Group<'_, '_>,
    ) -> PyResult<()> {
        self.0.get()?.transfer(Transfer::ReadPutPackets, dst_chunk, src_chunk, tb, tb_group)
    }

    fn __repr__(&self) -> PyResult<String> {
        Ok(self.0.get()?.repr("PortChannel"))
    }
}
