//! Functions of Python that C calls.

use pyo3::prelude::*;
use pyo3::types::PyTuple;

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
        let number = |said: PyResult<Bound<'_, PyAny>>| said?.extract::<i32>();
        number(self.function.bind(py).call1(arguments))
            .or_else(|raised| number(self.otherwise.bind(py).call1((raised.into_value(py),))))
            .unwrap_or(self.last)
    }
}
