//! Functions of Python that C calls.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A function that C calls, and whose number it takes whatever happens. What it raises is given to another function, which says the
/// number then; where that one raises as well, there is one for it. Neither is called by code of Python: an interrupt is raised where
/// such a function begins, before it can catch anything.
#[pyclass(frozen, module = "antiphon._native")]
pub struct Guarded {
    function: Py<PyAny>,
    otherwise: Py<PyAny>,
    last: i32,
}

#[pymethods]
impl Guarded {
    #[new]
    fn new(function: Py<PyAny>, otherwise: Py<PyAny>, last: i32) -> Guarded {
        Guarded { function, otherwise, last }
    }

    #[pyo3(signature = (*arguments))]
    fn __call__(&self, arguments: &Bound<'_, PyTuple>) -> i32 {
        let py = arguments.py();
        number(self.function.bind(py), arguments)
            .or_else(|raised| {
                let raised = PyTuple::new(py, [raised.into_value(py)])?;
                number(self.otherwise.bind(py), &raised)
            })
            .unwrap_or(self.last)
    }
}

/// What a function returns. A panic that it brings back, which Rust would go on with, is an error like others.
fn number(function: &Bound<'_, PyAny>, arguments: &Bound<'_, PyTuple>) -> PyResult<i32> {
    let call = || function.call1(arguments)?.extract::<i32>();
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
        Err(pyo3::exceptions::PyRuntimeError::new_err("what it called panicked"))
    })
}
