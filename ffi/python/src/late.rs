//! What objects are made of, from their `__init__` on.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::sync::OnceLock;

/// What an object is made of. `__new__` leaves it empty and `__init__` fills it: a class in Python that derives from one of ours has
/// an `__init__` of its own, with other arguments, which says by `super().__init__(...)` what ours is to be.
pub struct Late<T>(OnceLock<T>);

impl<T> Late<T> {
    /// Nothing yet.
    pub fn empty() -> Self {
        Late(OnceLock::new())
    }

    /// What is there at once, for objects that Python does not make.
    pub fn of(made: T) -> Self {
        Late(OnceLock::from(made))
    }

    /// What is there.
    ///
    /// # Errors
    /// `RuntimeError` before `__init__`.
    pub fn get(&self) -> PyResult<&T> {
        self.0.get().ok_or_else(|| {
            PyRuntimeError::new_err(
                "cannot use the object before it is made: its class has an __init__ that does not call \
                 super().__init__(...); do so first",
            )
        })
    }

    /// Makes it.
    ///
    /// # Errors
    /// `RuntimeError` the second time, and those of making it.
    pub fn make(&self, make: impl FnOnce() -> PyResult<T>) -> PyResult<()> {
        let twice = || {
            PyRuntimeError::new_err(
                "cannot make the object twice: its __init__ has been called; make another one",
            )
        };
        // Before anything of the program's is handed out for it.
        if self.0.get().is_some() {
            return Err(twice());
        }
        self.0.set(make()?).map_err(|_| twice())
    }
}
