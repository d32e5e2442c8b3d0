//! The compiler's errors as Python's exceptions.

use antiphon_plan::dsl::{Category, Misuse};
use pyo3::PyErr;
use pyo3::exceptions::{PyRuntimeError, PyValueError};

/// The exception of a misuse: `ValueError` for a value that no program could use, `RuntimeError` for a call that this
/// program cannot make.
pub fn raise(misuse: Misuse) -> PyErr {
    let text = misuse.to_string();
    match misuse.category() {
        Category::Value => PyValueError::new_err(text),
        Category::Call => PyRuntimeError::new_err(text),
    }
}

/// The same, where the language has `ValueError` for an operation without a block.
pub fn raise_value_without_block(misuse: Misuse) -> PyErr {
    match misuse {
        Misuse::NoBlock => PyValueError::new_err(misuse.to_string()),
        other => raise(other),
    }
}
