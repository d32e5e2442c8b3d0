//! The program that a `with` has made the current one, and what `python -m antiphon compile` is told of programs.

use crate::errors::raise;
use crate::lines::Lines;
use antiphon_plan::dsl::{Misuse, Program};
use antiphon_plan::passes::Mode;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A program, shared by everything that records into it.
pub struct Shared {
    program: Mutex<Program>,
    lines: Mutex<Lines>,
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
    pub fn new(program: Program) -> Arc<Self> {
        let lines = Mutex::default();
        let shared = Arc::new(Shared { program: Mutex::new(program), lines });
        let before = match &mut *lock(&COMPILING) {
            Some(compiling) => compiling.last.replace(Arc::clone(&shared)),
            None => None,
        };
        // Only now, unlocked: what ends with a program may run the author's code.
        drop(before);
        shared
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
        // Taken out, because no lock may be held while Python runs: it may let another thread go on.
        let mut lines = std::mem::take(&mut *lock(&self.lines));
        let line = lines.caller(py);
        *lock(&self.lines) = lines;
        let program = &mut *self.lock();
        program.at(line?);
        call(program).map_err(raise)
    }

    fn check_current(self: &Arc<Self>) -> PyResult<()> {
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
    last: Option<Arc<Shared>>,
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

/// The last program made since `begin_compile`.
pub fn last_compiled() -> Option<Arc<Shared>> {
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
