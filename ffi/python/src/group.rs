//! Thread-block groups and pipelines, and where an operation runs.

use crate::convert::Whole;
use crate::current::{Shared, current};
use crate::errors::raise;
use antiphon_plan::dsl::{BlockGroup, Misuse, On};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};

/// Thread blocks that share operations: each does its slice of every operation that the group is given.
///
/// Raises ValueError if a block is named twice.
#[pyclass(module = "antiphon.language.thread_block_group", frozen, subclass)]
pub struct ThreadBlockGroup {
    group: BlockGroup,
}

#[pymethods]
impl ThreadBlockGroup {
    #[new]
    fn new(tb_list: Vec<i64>) -> PyResult<Self> {
        let blocks = blocks(&tb_list).map_err(raise)?;
        Ok(ThreadBlockGroup { group: BlockGroup::new(blocks).map_err(raise)? })
    }

    /// The blocks, in the order of their slices.
    #[getter]
    fn tb_list(&self) -> Vec<u64> {
        self.group.blocks().to_vec()
    }

    /// The position of block `tb` in the group.
    ///
    /// Raises ValueError if the block does not belong to it.
    fn get_internal_id(&self, tb: i64) -> PyResult<u64> {
        let block = block(tb).map_err(raise)?;
        Ok(self.group.slice(block).map_err(raise)?.tb_id)
    }

    /// Number of blocks.
    fn numtb(&self) -> usize {
        self.group.blocks().len()
    }

    fn __repr__(&self) -> String {
        format!("ThreadBlockGroup(tb_list={:?})", self.group.blocks())
    }
}

/// A thread block's number.
pub fn block(tb: i64) -> Result<u64, Misuse> {
    u64::try_from(tb).map_err(|_| Misuse::Block { block: tb })
}

/// Thread blocks' numbers.
pub fn blocks(tbs: &[i64]) -> Result<Vec<u64>, Misuse> {
    tbs.iter().map(|&tb| block(tb)).collect()
}

/// Where an operation runs that takes `tb` and `tb_group`.
pub fn on<'a>(
    tb: Option<i64>,
    tb_group: Option<&'a Bound<'_, ThreadBlockGroup>>,
) -> Result<On<'a>, Misuse> {
    let group = tb_group.map(|group| &group.get().group);
    Ok(On { block: tb.map(block).transpose()?, group })
}

/// Where an operation runs that takes only `tb`.
pub fn on_block(tb: i64) -> Result<On<'static>, Misuse> {
    Ok(On::block(block(tb)?))
}

/// A pipeline, for `with`: all operations inside run once per window of `unit` bytes over `num_chunks` chunks.
///
/// Every block that takes part gets its own body, in program order. Entering one raises RuntimeError inside of
/// another one and outside of a program, and ValueError if one of the numbers is less than 1.
#[pyclass(module = "antiphon.language.loop", frozen, subclass)]
pub struct LoopIterationContext {
    /// Bytes of a window.
    #[pyo3(get)]
    unit: i64,
    /// Chunks that the windows cover together.
    #[pyo3(get)]
    num_chunks: i64,
    /// The program in which it is open.
    open: Mutex<Option<Arc<Shared>>>,
}

impl LoopIterationContext {
    /// Checks that the loop an operation names is the one that is open, to which the operation belongs anyway.
    ///
    /// # Errors
    /// `RuntimeError` if it is not.
    pub fn check_open(named: Option<&Bound<'_, Self>>) -> PyResult<()> {
        let Some(named) = named else { return Ok(()) };
        let open = named.get().open.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let current = current()?;
        current.speaks_middle();
        if open.is_some_and(|open| Arc::ptr_eq(&open, &current)) {
            return Ok(());
        }
        Err(PyRuntimeError::new_err(
            "cannot record the operation in the loop that iter_context names: it is not the open one; an operation \
             belongs to the loop whose `with` it stands in",
        ))
    }
}

#[pymethods]
impl LoopIterationContext {
    #[new]
    fn new(unit: Whole<i64>, num_chunks: Whole<i64>) -> Self {
        LoopIterationContext { unit: unit.0, num_chunks: num_chunks.0, open: Mutex::new(None) }
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        let this = slf.get();
        let program = current()?;
        program.record(|program| program.begin_pipeline(this.unit, this.num_chunks))?;
        *this.open.lock().unwrap_or_else(PoisonError::into_inner) = Some(program);
        Ok(slf)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<()> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Ended in its own program, even if the current one is no longer that.
        let Some(program) = open else { return Err(raise(Misuse::NoPipeline)) };
        program.lock().end_pipeline().map_err(raise)
    }
}
