//! What a rank does on its own, and its semaphores.

use crate::chunk::{BaseBuffer, ChunkArg, chunks};
use crate::convert::{Maybe, ReduceArg};
use crate::current::{Shared, current};
use crate::group::{LoopIterationContext, ThreadBlockGroup, blocks, on};
use crate::lane::one_op;
use crate::late::Late;
use antiphon_plan::model::{Buffer, OpKind};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::sync::Arc;

type Loop<'a, 'py> = Option<&'a Bound<'py, LoopIterationContext>>;
type Group<'a, 'py> = Option<&'a Bound<'py, ThreadBlockGroup>>;

/// An argument that is a rank: its number, or a `Rank`.
#[derive(Clone, Copy)]
pub struct RankArg(pub i64);

impl FromPyObject<'_, '_> for RankArg {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        match given.cast::<Rank>() {
            Ok(rank) => Ok(RankArg(i64::try_from(rank.get().0.get()?.rank)?)),
            Err(_) => given.extract().map(RankArg),
        }
    }
}

/// What a reduction adds: a list, or, as the middle stage writes it, one chunk.
#[derive(FromPyObject)]
enum Others {
    One(ChunkArg),
    Many(Vec<ChunkArg>),
}

/// A rank of the current program: its buffers, and operations that concern no other rank.
///
/// Raises RuntimeError outside of a program and for a rank that it does not have.
///
/// Operations take `tb`, the thread block that runs them, or `tb_group`, a ThreadBlockGroup whose blocks share them;
/// with both, the block `tb` of the group does its slice. Without either they raise RuntimeError, as they do for chunks
/// of other ranks and of different sizes.
#[pyclass(module = "antiphon.language.rank", frozen, subclass)]
pub struct Rank(Late<Own>);

/// A rank and the program that it is of.
struct Own {
    program: Arc<Shared>,
    rank: u64,
}

impl Own {
    fn buffer(&self, buffer: Buffer) -> PyResult<BaseBuffer> {
        let run = self
            .program
            .declare(|program| program.chunk(self.rank, buffer, 0..program.len(self.rank, buffer)));
        run.map(BaseBuffer::of)
    }

    /// Where an operation runs: the middle stage puts what names no block on block 0.
    fn block(
        &self,
        py: Python<'_>,
        tb: Option<i64>,
        group: Group<'_, '_>,
    ) -> PyResult<Option<i64>> {
        match (tb, group) {
            (None, None) if self.program.is_middle(py)? => Ok(Some(0)),
            _ => Ok(tb),
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn copy_by(
        &self,
        py: Python<'_>,
        op: OpKind,
        (to, from): (ChunkArg, ChunkArg),
        tb: Option<i64>,
        tb_group: Group<'_, '_>,
        iter_context: Loop<'_, '_>,
    ) -> PyResult<()> {
        LoopIterationContext::check_open(iter_context)?;
        let tb = self.block(py, tb, tb_group)?;
        self.program.spoke_of(self.rank);
        self.program
            .record(|program| program.copy(op, self.rank as i64, to.0, from.0, on(tb, tb_group)?))
    }

    /// Adds one chunk to another: the middle stage's reduction, whose third and fourth argument are the operation and
    /// the block.
    fn add(
        &self,
        py: Python<'_>,
        to: ChunkArg,
        from: ChunkArg,
        given: Given<'_, '_>,
    ) -> PyResult<()> {
        self.program.speaks_middle();
        let Given { third, fourth, reduce_op, op, packet } = given;
        let (mut op, mut tb, mut group) = (one_op_given(reduce_op, op)?, None, None);
        for value in [third, fourth].into_iter().flatten() {
            if let Ok(named) = value.cast::<ThreadBlockGroup>() {
                group = Some(named);
            } else if let Ok(number) = value.extract::<i64>() {
                tb = Some(number);
            } else {
                op = one_op_given(op, Maybe(Some(value.extract()?)))?;
            }
        }
        let tb = self.block(py, tb, group)?;
        let op = one_op(op, Maybe(None))?;
        self.program.spoke_of(self.rank);
        self.program.record(|program| {
            let on = on(tb, group)?;
            program
                .reduce(self.rank as i64, to.0, to.0, &[from.0], op.0, packet, on)
                .map_err(|refused| refused.of_call("reduce"))
        })
    }
}

/// What a call of `reduce` was given beside its chunks.
struct Given<'a, 'py> {
    third: Option<&'a Bound<'py, PyAny>>,
    fourth: Option<&'a Bound<'py, PyAny>>,
    reduce_op: Maybe<ReduceArg>,
    op: Maybe<ReduceArg>,
    packet: bool,
}

fn one_op_given(first: Maybe<ReduceArg>, second: Maybe<ReduceArg>) -> PyResult<Maybe<ReduceArg>> {
    if (first, second) == (Maybe(None), Maybe(None)) {
        return Ok(first);
    }
    one_op(first, second).map(|op| Maybe(Some(op)))
}

#[pymethods]
impl Rank {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs), text_signature = "(rank)")]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        Rank(Late::empty())
    }

    fn __init__(&self, rank: i64) -> PyResult<()> {
        self.0.make(|| {
            let program = current()?;
            let rank = program.declare(|program| program.rank(rank))?;
            program.spoke_of(rank);
            Ok(Own { program, rank })
        })
    }

    /// Its number.
    #[getter]
    fn rank(&self) -> PyResult<u64> {
        Ok(self.0.get()?.rank)
    }

    /// The rank's input buffer.
    fn get_input_buffer(&self) -> PyResult<BaseBuffer> {
        self.0.get()?.buffer(Buffer::Input)
    }

    /// The rank's output buffer.
    fn get_output_buffer(&self) -> PyResult<BaseBuffer> {
        self.0.get()?.buffer(Buffer::Output)
    }

    /// Copies `src_chunk` to `dst_chunk`, of equal size.
    #[pyo3(signature = (dst_chunk, src_chunk, tb=None, tb_group=None, *, iter_context=None))]
    fn copy(
        &self,
        py: Python<'_>,
        dst_chunk: ChunkArg,
        src_chunk: ChunkArg,
        tb: Option<i64>,
        tb_group: Group<'_, '_>,
        iter_context: Loop<'_, '_>,
    ) -> PyResult<()> {
        let chunks = (dst_chunk, src_chunk);
        self.0.get()?.copy_by(py, OpKind::Copy, chunks, tb, tb_group, iter_context)
    }

    /// Waits for the packets of `src_chunk`, which is in scratch, and stores their data to `dst_chunk`.
    #[pyo3(signature = (dst_chunk, src_chunk, tb=None, tb_group=None, *, iter_context=None))]
    fn unpack_packets(
        &self,
        py: Python<'_>,
        dst_chunk: ChunkArg,
        src_chunk: ChunkArg,
        tb: Option<i64>,
        tb_group: Group<'_, '_>,
        iter_context: Loop<'_, '_>,
    ) -> PyResult<()> {
        let chunks = (dst_chunk, src_chunk);
        self.0.get()?.copy_by(py, OpKind::UnpackPackets, chunks, tb, tb_group, iter_context)
    }

    /// Stores the data of `src_chunk` as packets to `dst_chunk`, which is in scratch.
    #[pyo3(signature = (dst_chunk, src_chunk, tb=None, tb_group=None, *, iter_context=None))]
    fn copy_packets(
        &self,
        py: Python<'_>,
        dst_chunk: ChunkArg,
        src_chunk: ChunkArg,
        tb: Option<i64>,
        tb_group: Group<'_, '_>,
        iter_context: Loop<'_, '_>,
    ) -> PyResult<()> {
        let chunks = (dst_chunk, src_chunk);
        self.0.get()?.copy_by(py, OpKind::CopyPackets, chunks, tb, tb_group, iter_context)
    }

    /// Reduces `src_chunk` and all of `other_chunks` into `dst_chunk`, by default `src_chunk`; all of equal size.
    ///
    /// With `packet`, the others are packets in scratch. Raises RuntimeError if there are no others. `op` is another name
    /// of `reduce_op`. With one chunk in place of the list, as in `reduce(dst, src, op, tb)`, this is dst += src.
    #[pyo3(signature = (
        src_chunk, other_chunks=None, tb=None, tb_group=None, dst_chunk=None, reduce_op=Maybe(None), packet=false, *, op=Maybe(None),
        iter_context=None
    ))]
    #[allow(clippy::too_many_arguments)]
    fn reduce(
        &self,
        py: Python<'_>,
        src_chunk: ChunkArg,
        other_chunks: Option<Others>,
        tb: Option<&Bound<'_, PyAny>>,
        tb_group: Option<&Bound<'_, PyAny>>,
        dst_chunk: Option<ChunkArg>,
        reduce_op: Maybe<ReduceArg>,
        packet: bool,
        op: Maybe<ReduceArg>,
        iter_context: Loop<'_, '_>,
    ) -> PyResult<()> {
        LoopIterationContext::check_open(iter_context)?;
        let own = self.0.get()?;
        let given = Given { third: tb, fourth: tb_group, reduce_op, op, packet };
        let others = match (other_chunks, dst_chunk) {
            (Some(Others::Many(others)), _) => chunks(others),
            (Some(Others::One(from)), None) => return own.add(py, src_chunk, from, given),
            // Both chunks by their names.
            (None, Some(to)) => return own.add(py, to, src_chunk, given),
            (Some(Others::One(_)), Some(_)) => {
                return Err(PyTypeError::new_err(
                    "cannot reduce one chunk with dst_chunk: reduce(dst, src) adds to its first chunk; give \
                     other_chunks as a list, as in reduce(a, [b], dst_chunk=c)",
                ));
            }
            (None, None) => {
                return Err(PyTypeError::new_err(
                    "cannot reduce: other_chunks is missing; give a list of chunks",
                ));
            }
        };
        let group = tb_group.map(|group| group.cast::<ThreadBlockGroup>()).transpose()?;
        let tb = tb.map(|tb| tb.extract::<i64>()).transpose()?;
        let tb = own.block(py, tb, group)?;
        let (to, op) = (dst_chunk.unwrap_or(src_chunk).0, one_op(reduce_op, op)?.0);
        own.program.spoke_of(own.rank);
        own.program.record(|program| {
            program
                .reduce(own.rank as i64, to, src_chunk.0, &others, op, packet, on(tb, group)?)
                .map_err(|refused| refused.of_call("reduce"))
        })
    }

    /// Makes the blocks of `tb_list` meet: each goes on when all have come here. With one block, its threads meet.
    ///
    /// Raises RuntimeError for an empty list, ValueError for a block named twice. In a program of the language's middle
    /// stage an empty list means all blocks that the whole program uses on the rank.
    #[pyo3(signature = (tb_list, *, iter_context=None))]
    fn barrier(
        &self,
        py: Python<'_>,
        tb_list: Vec<i64>,
        iter_context: Loop<'_, '_>,
    ) -> PyResult<()> {
        LoopIterationContext::check_open(iter_context)?;
        let own = self.0.get()?;
        let everyone = tb_list.is_empty() && own.program.is_middle(py)?;
        own.program.spoke_of(own.rank);
        own.program.record(|program| match everyone {
            true => program.barrier_of_everyone(own.rank as i64),
            false => program.barrier(own.rank as i64, &blocks(&tb_list)?),
        })
    }

    fn __repr__(&self) -> PyResult<String> {
        Ok(format!("Rank({})", self.0.get()?.rank))
    }
}
