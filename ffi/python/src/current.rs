//! The program that a `with` has made the current one, and what `python -m antiphon compile` is told of programs.

use crate::errors::raise;
use crate::lines::Lines;
use crate::switch::Pending;
use antiphon_plan::dsl::{Compiled, Misuse, Program};
use antiphon_plan::model::Collective;
use antiphon_plan::passes::Mode;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A program, shared by everything that records into it.
pub struct Shared {
    program: Mutex<Program>,
    /// What the plan calls the collective, where its author calls one of the known ones otherwise.
    label: Option<Collective>,
    lines: Mutex<Lines>,
    /// The rank that the program spoke of last; negative for none.
    recent: AtomicI64,
    /// Whether the program used a spelling that only the middle stage of the language has.
    middle: AtomicBool,
    /// A load-reduce whose sum goes where the next store takes it from.
    pending: Mutex<Option<Pending>>,
}

/// A program of whichever stage, which becomes a plan.
pub trait Finish: Send + Sync {
    /// Runs the passes, letting other threads of Python go on.
    ///
    /// # Errors
    /// What makes no plan, as an exception.
    fn finish(&self, py: Python<'_>) -> PyResult<Compiled>;

    /// As [`finish`](Self::finish), for a program that nobody asks again: its operations need not be there twice.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    fn finish_last(&self, py: Python<'_>) -> PyResult<Compiled> {
        self.finish(py)
    }
}

impl Finish for Shared {
    fn finish(&self, py: Python<'_>) -> PyResult<Compiled> {
        self.settle()?;
        py.detach(|| self.lock().finish()).map(|compiled| self.labelled(compiled)).map_err(raise)
    }

    fn finish_last(&self, py: Python<'_>) -> PyResult<Compiled> {
        self.settle()?;
        py.detach(|| self.lock().finish_last())
            .map(|compiled| self.labelled(compiled))
            .map_err(raise)
    }
}

struct Current {
    shared: Arc<Shared>,
    object: Py<PyAny>,
}

static CURRENT: Mutex<Option<Current>> = Mutex::new(None);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a panic left behind is still a program: each call changes it after its checks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// A program that others can record into.
    pub fn new(program: Program, label: Option<Collective>) -> Arc<Self> {
        let shared = Arc::new(Shared {
            program: Mutex::new(program),
            label,
            lines: Mutex::default(),
            recent: AtomicI64::new(-1),
            middle: AtomicBool::new(false),
            pending: Mutex::default(),
        });
        made(&shared);
        shared
    }

    fn labelled(&self, mut compiled: Compiled) -> Compiled {
        if let Some(label) = &self.label {
            compiled.plan.collective = label.clone();
        }
        compiled
    }

    /// The program, whether or not it is the current one.
    pub fn lock(&self) -> MutexGuard<'_, Program> {
        lock(&self.program)
    }

    /// Makes a call of the program, which must be the current one.
    ///
    /// # Errors
    /// `RuntimeError` if it is not; else those of the call.
    pub fn record<R>(
        self: &Arc<Self>,
        call: impl FnOnce(&mut Program) -> Result<R, Misuse>,
    ) -> PyResult<R> {
        self.record_or(raise, call)
    }

    /// The same for calls that name or make something, and are no operations of a block.
    ///
    /// # Errors
    /// As [`record`](Self::record).
    pub fn declare<R>(
        self: &Arc<Self>,
        call: impl FnOnce(&mut Program) -> Result<R, Misuse>,
    ) -> PyResult<R> {
        self.check_current()?;
        call(&mut self.lock()).map_err(raise)
    }

    /// The same, with exceptions of the caller's choice.
    ///
    /// # Errors
    /// As [`record`](Self::record).
    pub fn record_or<R>(
        self: &Arc<Self>,
        raise: impl FnOnce(Misuse) -> PyErr,
        call: impl FnOnce(&mut Program) -> Result<R, Misuse>,
    ) -> PyResult<R> {
        self.check_current()?;
        self.settle()?;
        if self.lock().settings().instances > 1 {
            // Whether instances meet in chunks is only known at the end.
            Python::attach(|py| self.at_caller(py))?;
        }
        call(&mut self.lock()).map_err(raise)
    }

    /// The same for calls whose faults may only be found at the end: the program keeps the author's line.
    ///
    /// # Errors
    /// As [`record`](Self::record).
    pub fn record_at<R>(
        self: &Arc<Self>,
        py: Python<'_>,
        call: impl FnOnce(&mut Program) -> Result<R, Misuse>,
    ) -> PyResult<R> {
        self.check_current()?;
        self.settle()?;
        self.at_caller(py)?;
        call(&mut self.lock()).map_err(raise)
    }

    /// Tells the program which line of the author's makes the next call.
    fn at_caller(&self, py: Python<'_>) -> PyResult<()> {
        // Taken out, because no lock may be held while Python runs: it may let another thread go on.
        let mut lines = std::mem::take(&mut *lock(&self.lines));
        let line = lines.caller(py);
        *lock(&self.lines) = lines;
        self.lock().at(line?);
        Ok(())
    }

    /// Remembers the rank that the program spoke of, for calls that name none.
    pub fn spoke_of(&self, rank: u64) {
        self.recent.store(i64::try_from(rank).unwrap_or(-1), Ordering::Relaxed);
    }

    /// The rank that the program spoke of last.
    ///
    /// # Errors
    /// `RuntimeError` if it spoke of none.
    pub fn recent(&self) -> PyResult<u64> {
        u64::try_from(self.recent.load(Ordering::Relaxed)).map_err(|_| {
            PyRuntimeError::new_err(
                "cannot tell which rank the call is for: the program has spoken of none yet; name the rank, as in \
                 Semaphore(rank, initial_value) or switch.at_rank(rank)",
            )
        })
    }

    /// Marks the program as one that uses spellings of the middle stage, whose defaults then hold.
    pub fn speaks_middle(&self) {
        self.middle.store(true, Ordering::Relaxed);
    }

    /// Whether the middle stage's defaults hold: the program has used one of its spellings, or its source does.
    pub fn is_middle(&self, py: Python<'_>) -> PyResult<bool> {
        if self.middle.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let stage = py.import("antiphon.language._stage")?;
        let middle = stage.getattr("caller_is_middle")?.call0()?.is_truthy()?;
        if middle {
            self.speaks_middle();
        }
        Ok(middle)
    }

    /// Lets a load-reduce wait for the store that says where its sum goes.
    pub fn defer(&self, pending: Pending) {
        *lock(&self.pending) = Some(pending);
    }

    /// Takes the load-reduce that waits for its store.
    pub fn take_pending(&self) -> Option<Pending> {
        lock(&self.pending).take()
    }

    /// Records the load-reduce that waits for a store, if there is one.
    ///
    /// # Errors
    /// Those of the call.
    pub fn settle(&self) -> PyResult<()> {
        match self.take_pending() {
            Some(pending) => pending.record(&mut self.lock(), None).map_err(raise),
            None => Ok(()),
        }
    }

    /// Checks that this is the current program.
    ///
    /// # Errors
    /// `RuntimeError` if it is not.
    pub fn check_current(self: &Arc<Self>) -> PyResult<()> {
        match &*lock(&CURRENT) {
            Some(current) if Arc::ptr_eq(&current.shared, self) => Ok(()),
            Some(_) => Err(PyRuntimeError::new_err(
                "cannot record the call: its rank, buffer or channel belongs to another program than the current one; \
                 make them inside the `with` of the program that uses them",
            )),
            None => Err(no_program()),
        }
    }
}

fn no_program() -> PyErr {
    PyRuntimeError::new_err("No Program in context")
}

/// The current program.
///
/// # Errors
/// `RuntimeError` outside of every program.
pub fn current() -> PyResult<Arc<Shared>> {
    let current = lock(&CURRENT);
    current.as_ref().map(|current| Arc::clone(&current.shared)).ok_or_else(no_program)
}

/// Makes a program the current one, in place of any other.
pub fn enter(shared: &Arc<Shared>, object: Py<PyAny>) {
    let current = Current { shared: Arc::clone(shared), object };
    let before = lock(&CURRENT).replace(current);
    drop(before);
}

/// Makes no program the current one.
pub fn leave() {
    let before = lock(&CURRENT).take();
    drop(before);
}

/// The current program.
///
/// Raises RuntimeError outside of every program.
#[pyfunction]
pub fn get_program(py: Python<'_>) -> PyResult<Py<PyAny>> {
    let current = lock(&CURRENT);
    current.as_ref().map(|current| current.object.clone_ref(py)).ok_or_else(no_program)
}

/// A run of `python -m antiphon compile`.
struct Compiling {
    compatible: bool,
    /// What `JSON()` says in place of the plan.
    note: String,
    last: Option<Arc<dyn Finish>>,
}

static COMPILING: Mutex<Option<Compiling>> = Mutex::new(None);

/// Says that programs made from now on are to be compiled: the last one is kept, `JSON()` returns `note` in place of
/// the plan, and with `compatible` all of them synchronise as the format's own DSL does.
#[pyfunction]
pub fn begin_compile(note: String, compatible: bool) {
    let before = lock(&COMPILING).replace(Compiling { compatible, note, last: None });
    drop(before);
}

/// Ends what `begin_compile` began.
#[pyfunction]
pub fn end_compile() {
    let before = lock(&COMPILING).take();
    drop(before);
}

/// Keeps a program, where programs are being compiled.
pub fn made<P: Finish + 'static>(program: &Arc<P>) {
    let kept: Arc<dyn Finish> = Arc::<P>::clone(program);
    let before = lock(&COMPILING).as_mut().and_then(|compiling| compiling.last.replace(kept));
    drop(before);
}

/// The last program made since `begin_compile`.
pub fn last_compiled() -> Option<Arc<dyn Finish>> {
    lock(&COMPILING).as_ref().and_then(|compiling| compiling.last.clone())
}

/// What `JSON()` says in place of the plan, where programs are being compiled.
pub fn compile_note() -> Option<String> {
    lock(&COMPILING).as_ref().map(|compiling| compiling.note.clone())
}

/// Where a new program's threads meet.
pub fn mode(compatible: bool) -> Mode {
    let asked = lock(&COMPILING).as_ref().is_some_and(|compiling| compiling.compatible);
    if compatible || asked { Mode::Compatible } else { Mode::Minimal }
}
