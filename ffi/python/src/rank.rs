//! What a rank does on its own, and its semaphores.

use crate::chunk::{BaseBuffer, ChunkArg, chunks};
use crate::convert::{ReduceArg, SyncArg};
use crate::current::{Shared, current};
use crate::group::{ThreadBlockGroup, blocks, on, on_block};
use antiphon_plan::dsl;
use antiphon_plan::model::{Buffer, OpKind};
use pyo3::prelude::*;
use std::sync::Arc;

/// A rank of the current program: its buffers, and operations that concern no other rank.
///
/// Raises RuntimeError outside of a program and for a rank that it does not have.
///
/// Operations take `tb`, the thread block that runs them, or `tb_group`, a ThreadBlockGroup whose blocks share them;
/// with both, the block `tb` of the group does its slice. Without either they raise RuntimeError, as they do for chunks
/// of other ranks and of different sizes.
#[pyclass(module = "antiphon.language.rank", frozen, subclass)]
pub struct Rank {
    program: Arc<Shared>,
    rank: u64,
}

impl Rank {
    fn buffer(&self, buffer: Buffer) -> PyResult<BaseBuffer> {
        let run = self
            .program
            .record(|program| program.chunk(self.rank, buffer, 0..program.len(self.rank, buffer)));
        run.map(BaseBuffer::of)
    }

    fn copy_by(
        &self,
        op: OpKind,
        dst_chunk: ChunkArg,
        src_chunk: ChunkArg,
        tb: Option<i64>,
        tb_group: Option<&Bound<'_, ThreadBlockGroup>>,
    ) -> PyResult<()> {
        self.program.record(|program| {
            program.copy(op, self.rank as i64, dst_chunk.0, src_chunk.0, on(tb, tb_group)?)
        })
    }
}

#[pymethods]
impl Rank {
    #[new]
    fn new(rank: i64) -> PyResult<Self> {
        let program = current()?;
        let rank = program.record(|program| program.rank(rank))?;
        Ok(Rank { program, rank })
    }

    /// Its number.
    #[getter]
    fn rank(&self) -> u64 {
        self.rank
    }

    /// The rank's input buffer.
    fn get_input_buffer(&self) -> PyResult<BaseBuffer> {
        self.buffer(Buffer::Input)
    }

    /// The rank's output buffer.
    fn get_output_buffer(&self) -> PyResult<BaseBuffer> {
        self.buffer(Buffer::Output)
    }

    /// Copies `src_chunk` to `dst_chunk`, of equal size.
    #[pyo3(signature = (dst_chunk, src_chunk, tb=None, tb_group=None))]
    fn copy(
        &self,
        dst_chunk: ChunkArg,
        src_chunk: ChunkArg,
        tb: Option<i64>,
        tb_group: Option<&Bound<'_, ThreadBlockGroup>>,
    ) -> PyResult<()> {
        self.copy_by(OpKind::Copy, dst_chunk, src_chunk, tb, tb_group)
    }

    /// Waits for the packets of `src_chunk`, which is in scratch, and stores their data to `dst_chunk`.
    #[pyo3(signature = (dst_chunk, src_chunk, tb=None, tb_group=None))]
    fn unpack_packets(
        &self,
        dst_chunk: ChunkArg,
        src_chunk: ChunkArg,
        tb: Option<i64>,
        tb_group: Option<&Bound<'_, ThreadBlockGroup>>,
    ) -> PyResult<()> {
        self.copy_by(OpKind::UnpackPackets, dst_chunk, src_chunk, tb, tb_group)
    }

    /// Stores the data of `src_chunk` as packets to `dst_chunk`, which is in scratch.
    #[pyo3(signature = (dst_chunk, src_chunk, tb=None, tb_group=None))]
    fn copy_packets(
        &self,
        dst_chunk: ChunkArg,
        src_chunk: ChunkArg,
        tb: Option<i64>,
        tb_group: Option<&Bound<'_, ThreadBlockGroup>>,
    ) -> PyResult<()> {
        self.copy_by(OpKind::CopyPackets, dst_chunk, src_chunk, tb, tb_group)
    }

    /// Reduces `src_chunk` and all of `other_chunks` into `dst_chunk`, by default `src_chunk`; all of equal size.
    ///
    /// With `packet`, the others are packets in scratch. Raises RuntimeError if there are no others.
    #[pyo3(signature = (
        src_chunk, other_chunks, tb=None, tb_group=None, dst_chunk=None, reduce_op=ReduceArg::SUM, packet=false
    ))]
    #[allow(clippy::too_many_arguments)]
    fn reduce(
        &self,
        src_chunk: ChunkArg,
        other_chunks: Vec<ChunkArg>,
        tb: Option<i64>,
        tb_group: Option<&Bound<'_, ThreadBlockGroup>>,
        dst_chunk: Option<ChunkArg>,
        reduce_op: ReduceArg,
        packet: bool,
    ) -> PyResult<()> {
        let (from, to) = (src_chunk.0, dst_chunk.unwrap_or(src_chunk).0);
        let others = chunks(other_chunks);
        self.program.record(|program| {
            let on = on(tb, tb_group)?;
            program.reduce(self.rank as i64, to, from, &others, reduce_op.0, packet, on)
        })
    }

    /// Makes the blocks of `tb_list` meet: each goes on when all have come here. With one block, its threads meet.
    ///
    /// Raises RuntimeError for an empty list, ValueError for a block named twice.
    fn barrier(&self, tb_list: Vec<i64>) -> PyResult<()> {
        self.program.record(|program| program.barrier(self.rank as i64, &blocks(&tb_list)?))
    }

    fn __repr__(&self) -> String {
        format!("Rank({})", self.rank)
    }
}

/// A counter of one rank, by which its thread blocks wait for each other. It starts at `initial_value`.
///
/// Raises RuntimeError outside of a program and for a rank that it does not have.
#[pyclass(module = "antiphon.language.rank", frozen, subclass)]
pub struct Semaphore {
    program: Arc<Shared>,
    semaphore: dsl::Semaphore,
    /// The value it starts at.
    #[pyo3(get)]
    initial_value: i64,
}

#[pymethods]
impl Semaphore {
    #[new]
    fn new(rank: i64, initial_value: i64) -> PyResult<Self> {
        let program = current()?;
        let semaphore = program.record(|program| program.semaphore(rank, initial_value))?;
        Ok(Semaphore { program, semaphore, initial_value })
    }

    /// The rank's number of the semaphore.
    #[getter]
    fn id(&self) -> u64 {
        self.semaphore.id
    }

    /// The rank.
    #[getter]
    fn rank(&self) -> u64 {
        self.semaphore.rank
    }

    /// Block `tb` takes one, waiting until it may. `data_sync` says where the block's threads meet around it.
    #[pyo3(signature = (tb, data_sync=SyncArg::BOTH))]
    fn acquire(&self, tb: i64, data_sync: SyncArg) -> PyResult<()> {
        self.program.record(|program| program.acquire(self.semaphore, on_block(tb)?, data_sync.0))
    }

    /// Block `tb` gives one. `data_sync` says where the block's threads meet around it.
    #[pyo3(signature = (tb, data_sync=SyncArg::BOTH))]
    fn release(&self, tb: i64, data_sync: SyncArg) -> PyResult<()> {
        self.program.record(|program| program.release(self.semaphore, on_block(tb)?, data_sync.0))
    }
}
