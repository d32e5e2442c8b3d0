//! The finished program: as text, or streamed to a file.

use crate::current::{Finish, compile_note, current, last_compiled};
use antiphon_plan::Style;
use antiphon_plan::dsl::Compiled;
use pyo3::exceptions::{PyLookupError, PyOSError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// How the language asks for indentation.
pub enum Indent {
    /// Two spaces a level, as the language does unless told.
    Two,
    /// Whatever `json.dumps` makes of it.
    Other(Py<PyAny>),
}

impl FromPyObject<'_, '_> for Indent {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        match given.extract::<i64>() {
            Ok(2) => Ok(Indent::Two),
            _ => Ok(Indent::Other(given.to_owned().unbind())),
        }
    }
}

/// The plan's text, as `json.dumps(plan, indent=indent, **options)` would have it.
pub fn text<'py>(
    py: Python<'py>,
    program: &dyn Finish,
    indent: &Indent,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyString>> {
    let compiled = program.finish(py)?;
    let plain = options.is_none_or(|options| options.is_empty());
    let style = if plain && matches!(indent, Indent::Two) { Style::Pretty } else { Style::Compact };
    let written = py.detach(|| {
        let mut text = Vec::new();
        antiphon_plan::write(&compiled.plan, style, &mut text).map(|()| text)
    })?;
    drop(compiled);
    let written = String::from_utf8(written)?;
    // Python writes other characters than ASCII in its own way.
    if style == Style::Pretty && written.is_ascii() {
        return Ok(PyString::new(py, &written));
    }
    let json = py.import("json")?;
    let plan = json.call_method1("loads", (written,))?;
    let options = options.map_or_else(|| Ok(PyDict::new(py)), |options| options.copy())?;
    match indent {
        Indent::Two => options.set_item("indent", 2)?,
        Indent::Other(indent) => options.set_item("indent", indent)?,
    }
    Ok(json.call_method("dumps", (plan,), Some(&options))?.cast_into()?)
}

/// Streams the plan to a file. Returns what the passes did.
pub fn write(py: Python<'_>, program: &dyn Finish, path: &Path, style: Style) -> PyResult<String> {
    save(py, program.finish(py)?, path, style)
}

fn save(py: Python<'_>, compiled: Compiled, path: &Path, style: Style) -> PyResult<String> {
    let written = py.detach(|| {
        let mut file = File::create(path)?;
        antiphon_plan::write(&compiled.plan, style, &mut file)?;
        io::Write::write_all(&mut file, b"\n")
    });
    written.map_err(|error| match error.raw_os_error() {
        // With these arguments Python chooses the class by the number.
        Some(code) => {
            PyOSError::new_err((code, error.to_string(), path.to_string_lossy().into_owned()))
        }
        None => error.into(),
    })?;
    Ok(compiled.report.to_string())
}

/// The plan of the current program, as text of JSON indented by two spaces.
///
/// Raises RuntimeError outside of a program, for signals without waits or the reverse, and for whatever else makes no
/// plan. Under `python -m antiphon compile`, which writes the plan itself, it is a line that says so; `to_json()` of
/// the program is the text there too.
#[pyfunction(name = "JSON")]
pub fn json(py: Python<'_>) -> PyResult<Bound<'_, PyString>> {
    let program = current()?;
    match compile_note() {
        Some(note) => Ok(PyString::new(py, &note)),
        None => text(py, &*program, &Indent::Two, None),
    }
}

/// Writes the plan of the last program made since `begin_compile`. Returns what the passes did.
#[pyfunction]
pub fn write_compiled(py: Python<'_>, path: PathBuf, compact: bool) -> PyResult<String> {
    let program = last_compiled().ok_or_else(|| PyLookupError::new_err("no program was made"))?;
    let style = if compact { Style::Compact } else { Style::Pretty };
    // Nobody asks the program again, so its operations need not be there twice.
    let compiled = program.finish_last(py)?;
    save(py, compiled, &path, style)
}
