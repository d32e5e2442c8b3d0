//! `Channel`, the middle stage's one class for memory and port channels.

use crate::channel::{Endpoint, Group};
use crate::chunk::ChunkArg;
use crate::convert::{KindArg, Maybe, ReduceArg, SyncArg, channel_type};
use crate::current::current;
use crate::group::LoopIterationContext;
use crate::rank::RankArg;
use antiphon_plan::dsl::Transfer;
use antiphon_plan::model::ChannelType;
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;

type Loop<'a, 'py> = Option<&'a Bound<'py, LoopIterationContext>>;

/// A memory or port channel by which rank `src_rank` reaches rank `dst_rank`: MemoryChannel and PortChannel in one.
///
/// Every one made is a new channel. With a `tag`, an int or a str, it is paired with the peer's channel of its type that
/// has the same tag; without, the k-th is paired with the peer's k-th. Raises RuntimeError outside of a program and for
/// ranks that it does not have, and at the program's end for tags without a counterpart.
///
/// The operations are those of the two classes; `sync` is another name of `data_sync`, and `iter_context` names the
/// open loop, to which the operation belongs anyway. Over a port channel `get`, `reduce` and `tb_group` raise
/// RuntimeError, over a memory channel `flush` and what signals by itself do.
#[pyclass(module = "antiphon.language.channel", frozen, subclass)]
pub struct Channel {
    end: Endpoint,
    tag: Option<Tag>,
}

/// What pairs channels: a number or a name, which are never equal.
#[derive(Clone, FromPyObject, IntoPyObject)]
enum Tag {
    Number(i64),
    Name(String),
}

impl Tag {
    fn text(&self) -> String {
        match self {
            Tag::Number(number) => number.to_string(),
            Tag::Name(name) => format!("{name:?}"),
        }
    }
}

/// What an operation that synchronises is given, by either name.
pub fn one_sync(data_sync: Maybe<SyncArg>, sync: Maybe<SyncArg>) -> PyResult<SyncArg> {
    match (data_sync.0, sync.0) {
        (Some(data_sync), Some(sync)) if data_sync != sync => Err(PyTypeError::new_err(
            "cannot use sync and data_sync that differ: they are one argument; give data_sync",
        )),
        (Some(given), _) | (None, Some(given)) => Ok(given),
        (None, None) => Ok(SyncArg::BOTH),
    }
}

impl Channel {
    fn only(&self, kind: ChannelType, op: &str, class: &str) -> PyResult<()> {
        if self.end.channel.kind == kind {
            return Ok(());
        }
        let saw = self.end.channel.kind;
        Err(PyRuntimeError::new_err(format!(
            "cannot {op} over a {saw} channel: allowed {kind} channels; make one by {class}(dst_rank, src_rank)"
        )))
    }

    fn whole(&self, op: &str, group: Group<'_, '_>) -> PyResult<()> {
        match group {
            Some(_) => {
                self.only(ChannelType::Memory, &format!("{op} with tb_group"), "MemoryChannel")
            }
            None => Ok(()),
        }
    }
}

#[pymethods]
impl Channel {
    #[new]
    #[pyo3(signature = (dst_rank, src_rank, channel_type=KindArg(ChannelType::Memory), tag=None))]
    fn new(
        dst_rank: RankArg,
        src_rank: RankArg,
        channel_type: KindArg,
        tag: Option<Tag>,
    ) -> PyResult<Self> {
        let (program, kind) = (current()?, channel_type.0);
        program.speaks_middle();
        let channel = program.declare(|program| match &tag {
            Some(tag) => program.tagged_channel(kind, dst_rank.0, src_rank.0, &tag.text()),
            None => program.channel(kind, dst_rank.0, src_rank.0),
        })?;
        program.spoke_of(channel.source);
        Ok(Channel { end: Endpoint { program, channel }, tag })
    }

    /// The source rank's number of the channel among those of its type, as long as no tag gives it another one.
    #[getter]
    fn channel_id(&self) -> u64 {
        self.end.channel.id
    }

    /// The rank that runs the operations.
    #[getter]
    fn src_rank(&self) -> u64 {
        self.end.channel.source
    }

    /// The peer.
    #[getter]
    fn dst_rank(&self) -> u64 {
        self.end.channel.destination
    }

    /// What pairs the channel with the peer's.
    #[getter]
    fn tag(&self) -> Option<Tag> {
        self.tag.clone()
    }

    /// `ChannelType.memory` or `ChannelType.port`.
    #[getter]
    fn channel_type<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let port = self.end.channel.kind == ChannelType::Port;
        channel_type(py, if port { "port" } else { "memory" })
    }

    /// Signals the peer. `data_sync` says where the block's threads meet around it; a relaxed signal orders no data.
    #[pyo3(signature = (tb, data_sync=Maybe(None), relaxed=false, *, sync=Maybe(None), iter_context=None))]
    fn signal(
        &self,
        py: Python<'_>,
        tb: i64,
        data_sync: Maybe<SyncArg>,
        relaxed: bool,
        sync: Maybe<SyncArg>,
        iter_context: Loop<'_, '_>,
    ) -> PyResult<()> {
        LoopIterationContext::check_open(iter_context)?;
        self.end.signal(py, tb, one_sync(data_sync, sync)?, relaxed)
    }

    /// Waits for one more signal of the peer. The arguments are those of `signal`.
    #[pyo3(signature = (tb, data_sync=Maybe(None), relaxed=false, *, sync=Maybe(None), iter_context=None))]
    fn wait(
        &self,
        py: Python<'_>,
        tb: i64,
        data_sync: Maybe<SyncArg>,
        relaxed: bool,
        sync: Maybe<SyncArg>,
        iter_context: Loop<'_, '_>,
    ) -> PyResult<()> {
        LoopIterationContext::check_open(iter_context)?;
        self.end.wait(py, tb, one_sync(data_sync, sync)?, relaxed)
    }

    /// `signal(..., relaxed=True)`.
    #[pyo3(name = "relaxedSignal", signature = (tb, data_sync=Maybe(None), *, sync=Maybe(None), iter_context=None))]
    fn relaxed_signal(
        &self,
        py: Python<'_>,
        tb: i64,
        data_sync: Maybe<SyncArg>,
        sync: Maybe<SyncArg>,
        iter_context: Loop<'_, '_>,
    ) -> PyResult<()> {
        self.signal(py, tb, data_sync, true, sync, iter_context)
    }

    /// `wait(..., relaxed=True)`.
    #[pyo3(name = "relaxedWait", signature = (tb, data_sync=Maybe(None), *, sync=Maybe(None), iter_context=None))]
    fn relaxed_wait(
        &self,
        py: Python<'_>,
        tb: i64,
        data_sync: Maybe<SyncArg>,
        sync: Maybe<SyncArg>,
        iter_context: Loop<'_, '_>,
    ) -> PyResult<()> {
        self.wait(py, tb, data_sync, true, sync, iter_context)
    }

    /// Waits until earlier transfers over the port channel are complete.
    #[pyo3(signature = (tb, data_sync=Maybe(None), *, sync=Maybe(None), iter_context=None))]
    fn flush(
        &self,
        tb: i64,
        data_sync: Maybe<SyncArg>,
        sync: Maybe<SyncArg>,
        iter_context: Loop<'_, '_>,
    ) -> PyResult<()> {
        LoopIterationContext::check_open(iter_context)?;
        self.only(ChannelType::Port, "flush", "PortChannel")?;
        self.end.flush(tb, one_sync(data_sync, sync)?)
    }

    /// Copies `src_chunk` of the source rank to `dst_chunk` of the peer.
    #[pyo3(signature = (dst_chunk, src_chunk, tb=None, tb_group=None, *, iter_context=None))]
    fn put(
        &self,
        dst_chunk: ChunkArg,
        src_chunk: ChunkArg,
        tb: Option<i64>,
        tb_group: Group<'_, '_>,
        iter_context: Loop<'_, '_>,
    ) -> PyResult<()> {
        LoopIterationContext::check_open(iter_context)?;
        self.whole("put", tb_group)?;
        self.end.transfer(Transfer::Put, dst_chunk, src_chunk, tb, tb_group)
    }

    /// Copies `src_chunk` of the peer to `dst_chunk` of the source rank.
    #[pyo3(signature = (dst_chunk, src_chunk, tb=None, tb_group=None, *, iter_context=None))]
    fn get(
        &self,
        dst_chunk: ChunkArg,
        src_chunk: ChunkArg,
        tb: Option<i64>,
        tb_group: Group<'_, '_>,
        iter_context: Loop<'_, '_>,
    ) -> PyResult<()> {
        LoopIterationContext::check_open(iter_context)?;
        self.only(ChannelType::Memory, "get", "MemoryChannel")?;
        self.end.transfer(Transfer::Get, dst_chunk, src_chunk, tb, tb_group)
    }

    /// Stores the data of `src_chunk` of the source rank as packets to `dst_chunk` in the peer's scratch; over a port
    /// channel both hold packets as they are.
    #[pyo3(signature = (dst_chunk, src_chunk, tb=None, tb_group=None, *, iter_context=None))]
    fn put_packets(
        &self,
        dst_chunk: ChunkArg,
        src_chunk: ChunkArg,
        tb: Option<i64>,
        tb_group: Group<'_, '_>,
        iter_context: Loop<'_, '_>,
    ) -> PyResult<()> {
        LoopIterationContext::check_open(iter_context)?;
        self.whole("put_packets", tb_group)?;
        self.end.transfer(Transfer::PutPackets, dst_chunk, src_chunk, tb, tb_group)
    }

    /// Waits for the packets of `src_chunk` in the source rank's scratch and forwards them to `dst_chunk` in the
    /// peer's. Raises ValueError without `tb` and `tb_group`.
    #[pyo3(signature = (dst_chunk, src_chunk, tb=None, tb_group=None, *, iter_context=None))]
    fn read_put_packets(
        &self,
        dst_chunk: ChunkArg,
        src_chunk: ChunkArg,
        tb: Option<i64>,
        tb_group: Group<'_, '_>,
        iter_context: Loop<'_, '_>,
    ) -> PyResult<()> {
        LoopIterationContext::check_open(iter_context)?;
        self.end.transfer(Transfer::ReadPutPackets, dst_chunk, src_chunk, tb, tb_group)
    }

    /// Copies `src_chunk` of the source rank to `dst_chunk` of the peer, then signals it, over a port channel.
    #[pyo3(signature = (dst_chunk, src_chunk, tb, *, iter_context=None))]
    fn put_with_signal(
        &self,
        py: Python<'_>,
        dst_chunk: ChunkArg,
        src_chunk: ChunkArg,
        tb: i64,
        iter_context: Loop<'_, '_>,
    ) -> PyResult<()> {
        LoopIterationContext::check_open(iter_context)?;
        self.only(ChannelType::Port, "put with a signal", "PortChannel")?;
        self.end.signalling_transfer(py, Transfer::PutWithSignal, dst_chunk, src_chunk, tb)
    }

    /// The same, and then waits until all is complete.
    #[pyo3(signature = (dst_chunk, src_chunk, tb, *, iter_context=None))]
    fn put_with_signal_and_flush(
        &self,
        py: Python<'_>,
        dst_chunk: ChunkArg,
        src_chunk: ChunkArg,
        tb: i64,
        iter_context: Loop<'_, '_>,
    ) -> PyResult<()> {
        LoopIterationContext::check_open(iter_context)?;
        self.only(ChannelType::Port, "put with a signal", "PortChannel")?;
        self.end.signalling_transfer(py, Transfer::PutWithSignalAndFlush, dst_chunk, src_chunk, tb)
    }

    /// Reduces `local_src_chunk` and all of `remote_src_chunks`, which are the peer's, into `local_dst_chunk`, by
    /// default `local_src_chunk`. `op` is another name of `reduce_op`.
    #[pyo3(signature = (
        local_src_chunk, remote_src_chunks, tb=None, tb_group=None, local_dst_chunk=None, reduce_op=Maybe(None), *, op=Maybe(None),
        iter_context=None
    ))]
    #[allow(clippy::too_many_arguments)]
    fn reduce(
        &self,
        local_src_chunk: ChunkArg,
        remote_src_chunks: Vec<ChunkArg>,
        tb: Option<i64>,
        tb_group: Group<'_, '_>,
        local_dst_chunk: Option<ChunkArg>,
        reduce_op: Maybe<ReduceArg>,
        op: Maybe<ReduceArg>,
        iter_context: Loop<'_, '_>,
    ) -> PyResult<()> {
        LoopIterationContext::check_open(iter_context)?;
        self.only(ChannelType::Memory, "reduce", "MemoryChannel")?;
        let (to, op) = (local_dst_chunk.unwrap_or(local_src_chunk), one_op(reduce_op, op)?);
        self.end.reduce(to, local_src_chunk, remote_src_chunks, tb, tb_group, op)
    }

    fn __repr__(&self) -> String {
        self.end.repr("Channel")
    }
}

/// What a reduction is given, by either name.
pub fn one_op(reduce_op: Maybe<ReduceArg>, op: Maybe<ReduceArg>) -> PyResult<ReduceArg> {
    match (reduce_op.0, op.0) {
        (Some(reduce_op), Some(op)) if reduce_op != op => Err(PyTypeError::new_err(
            "cannot use op and reduce_op that differ: they are one argument; give reduce_op",
        )),
        (Some(given), _) | (None, Some(given)) => Ok(given),
        (None, None) => Ok(ReduceArg::SUM),
    }
}
