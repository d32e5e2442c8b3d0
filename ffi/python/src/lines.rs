//! Which line of the author's program makes a call, for errors that are only found at the end.
//!
//! Looking up a line number decodes a table of the function's code, which takes longer than recording an operation. But
//! a program has few calls that are made often: so a call is known by its place in the code, and its line is looked up
//! the first time only.

use antiphon_plan::passes::pairing::SourceLine;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::collections::HashMap;
use std::sync::Arc;

/// The lines of calls seen so far.
#[derive(Default)]
pub struct Lines {
    /// By address of the code object and position in it.
    known: HashMap<(usize, i64), Known>,
    files: HashMap<String, Arc<str>>,
}

struct Known {
    /// Keeps the address from being used again.
    _code: Py<PyAny>,
    /// None for calls that the package itself makes for the author.
    line: Option<SourceLine>,
}

static GETFRAME: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

impl Lines {
    /// The innermost line of the author's program that is being run; none if there is none.
    pub fn caller(&mut self, py: Python<'_>) -> PyResult<Option<SourceLine>> {
        let getframe = GETFRAME.import(py, "sys", "_getframe")?;
        let mut frame = getframe.call0()?;
        loop {
            let code = frame.getattr(intern!(py, "f_code"))?;
            let position = frame.getattr(intern!(py, "f_lasti"))?.extract()?;
            let key = (code.as_ptr() as usize, position);
            if !self.known.contains_key(&key) {
                let line = self.look_up(&frame, &code)?;
                self.known.insert(key, Known { _code: code.unbind(), line });
            }
            if let Some(Known { line: Some(line), .. }) = self.known.get(&key) {
                return Ok(Some(line.clone()));
            }
            frame = frame.getattr(intern!(py, "f_back"))?;
            if frame.is_none() {
                return Ok(None);
            }
        }
    }

    fn look_up(
        &mut self,
        frame: &Bound<'_, PyAny>,
        code: &Bound<'_, PyAny>,
    ) -> PyResult<Option<SourceLine>> {
        let module = frame.getattr("f_globals")?.get_item("__name__");
        let module: String = module.and_then(|name| name.extract()).unwrap_or_default();
        if module == "antiphon" || module.starts_with("antiphon.") {
            return Ok(None);
        }
        let file: String = code.getattr("co_filename")?.extract()?;
        let known = self.files.entry(file).or_insert_with_key(|file| file.as_str().into());
        let file = Arc::clone(known);
        // Code that was made without source has no line.
        let line = frame.getattr("f_lineno")?.extract().unwrap_or(0);
        Ok(Some(SourceLine { file, line }))
    }
}
