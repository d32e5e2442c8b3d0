//! Counters by which the blocks of a rank wait for each other.

use crate::convert::{Maybe, SyncArg};
use crate::current::{Shared, current};
use crate::group::{LoopIterationContext, on_block};
use crate::lane::one_sync;
use crate::rank::RankArg;
use antiphon_plan::dsl;
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

type Loop<'a, 'py> = Option<&'a Bound<'py, LoopIterationContext>>;

/// A counter of one rank, by which its thread blocks wait for each other. It starts at `initial_value`.
///
/// Without a rank it is, at every operation, one of the rank that the program spoke of last; each rank has its own.
/// Raises RuntimeError outside of a program and for a rank that it does not have, TypeError without an initial value.
#[pyclass(module = "antiphon.language.rank", frozen, subclass)]
pub struct Semaphore {
    program: Arc<Shared>,
    of: Of,
    /// The value it starts at.
    #[pyo3(get)]
    initial_value: i64,
}

/// Whose counter it is.
enum Of {
    Rank(dsl::Semaphore),
    /// One for each rank that used it so far.
    Anyone(Mutex<BTreeMap<u64, dsl::Semaphore>>),
}

impl Semaphore {
    fn named(&self) -> PyResult<dsl::Semaphore> {
        match &self.of {
            Of::Rank(semaphore) => Ok(*semaphore),
            Of::Anyone(_) => Err(PyRuntimeError::new_err(
                "cannot name the rank of this semaphore: it was made without one, so every rank that uses it has its own",
            )),
        }
    }

    fn resolve(&self, iter_context: Loop<'_, '_>) -> PyResult<dsl::Semaphore> {
        LoopIterationContext::check_open(iter_context)?;
        let semaphore = match &self.of {
            Of::Rank(semaphore) => *semaphore,
            Of::Anyone(known) => {
                let rank = self.program.recent()?;
                let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
                match known.get(&rank) {
                    Some(semaphore) => *semaphore,
                    None => {
                        let initial = self.initial_value;
                        let new = self
                            .program
                            .declare(|program| program.semaphore(rank as i64, initial))?;
                        known.insert(rank, new);
                        new
                    }
                }
            }
        };
        self.program.spoke_of(semaphore.rank);
        Ok(semaphore)
    }
}

#[pymethods]
impl Semaphore {
    #[new]
    #[pyo3(signature = (rank=None, initial_value=None, *, tag=None))]
    fn new(
        rank: Option<RankArg>,
        initial_value: Option<i64>,
        tag: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let Some(initial_value) = initial_value else {
            return Err(PyTypeError::new_err(
                "Semaphore() is missing the argument 'initial_value'; give Semaphore(rank, initial_value)",
            ));
        };
        // Of semaphores nothing is paired, so that their tags are only names.
        drop(tag);
        let program = current()?;
        let of = match rank {
            Some(RankArg(rank)) => {
                Of::Rank(program.declare(|program| program.semaphore(rank, initial_value))?)
            }
            None => {
                program.speaks_middle();
                Of::Anyone(Mutex::default())
            }
        };
        Ok(Semaphore { program, of, initial_value })
    }

    /// The rank's number of the semaphore. Raises RuntimeError if it was made without a rank.
    #[getter]
    fn id(&self) -> PyResult<u64> {
        Ok(self.named()?.id)
    }

    /// The rank. Raises RuntimeError if it was made without one.
    #[getter]
    fn rank(&self) -> PyResult<u64> {
        Ok(self.named()?.rank)
    }

    /// Block `tb` takes one, waiting until it may. `data_sync` says where the block's threads meet around it; `sync` is
    /// another name of it.
    #[pyo3(signature = (tb, data_sync=Maybe(None), *, sync=Maybe(None), iter_context=None))]
    fn acquire(
        &self,
        tb: i64,
        data_sync: Maybe<SyncArg>,
        sync: Maybe<SyncArg>,
        iter_context: Loop<'_, '_>,
    ) -> PyResult<()> {
        let (semaphore, sync) = (self.resolve(iter_context)?, one_sync(data_sync, sync)?.0);
        self.program.record(|program| program.acquire(semaphore, on_block(tb)?, sync))
    }

    /// Block `tb` gives one. `data_sync` says where the block's threads meet around it; `sync` is another name of it.
    #[pyo3(signature = (tb, data_sync=Maybe(None), *, sync=Maybe(None), iter_context=None))]
    fn release(
        &self,
        tb: i64,
        data_sync: Maybe<SyncArg>,
        sync: Maybe<SyncArg>,
        iter_context: Loop<'_, '_>,
    ) -> PyResult<()> {
        let (semaphore, sync) = (self.resolve(iter_context)?, one_sync(data_sync, sync)?.0);
        self.program.record(|program| program.release(semaphore, on_block(tb)?, sync))
    }
}
