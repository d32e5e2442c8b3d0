//! Buffers and runs of their chunks.

use crate::convert::BufferArg;
use crate::current::current;
use crate::late::Late;
use antiphon_plan::dsl;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyDictMethods, PySlice, PyTuple};

/// A run of chunks in a buffer of some rank: `size` chunks from `index` on.
///
/// Slicing a buffer makes one, and so does `Chunk(rank, type, index, size)`; `Chunk(rank, index, size)` is a run of the
/// rank's input. `buffer` is another name of `type`. Two are equal if they name the same chunks.
#[pyclass(module = "antiphon.language.internal.types", frozen, eq, hash, subclass)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Chunk(pub dsl::Chunk);

#[pymethods]
impl Chunk {
    #[new]
    #[pyo3(signature = (*args, **kwargs))]
    fn new(args: &Bound<'_, PyTuple>, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let (rank, typed, index, size) = ("rank", ["type", "buffer"], "index", "size");
        let mut buffer = antiphon_plan::model::Buffer::Input;
        let [rank, index, size] = if let Some(given) =
            each_once([&[rank], &[index], &[size]], args, kwargs)
        {
            given
        } else {
            let names: [&[&str]; 4] = [&[rank], &typed, &[index], &[size]];
            let Some([rank, given, index, size]) = each_once(names, args, kwargs) else {
                return Err(PyTypeError::new_err(
                    "cannot make a Chunk: expected each argument once; Chunk(rank, type, index, size) names a \
                         buffer, Chunk(rank, index, size) chunks of the input",
                ));
            };
            buffer = given.extract::<BufferArg>()?.0;
            [rank, index, size]
        };
        let (rank, index, size) = (rank.extract()?, index.extract()?, size.extract()?);
        Ok(Chunk(dsl::Chunk { rank, buffer, index, size }))
    }

    /// The rank whose buffer it is.
    #[getter]
    fn rank(&self) -> u64 {
        self.0.rank
    }

    /// The buffer, a BufferType.
    #[getter]
    fn r#type(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        BufferArg(self.0.buffer).member(py)
    }

    /// Another name of `type`.
    #[getter]
    fn buffer(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.r#type(py)
    }

    /// The first chunk.
    #[getter]
    fn index(&self) -> u64 {
        self.0.index
    }

    /// Number of chunks.
    #[getter]
    fn size(&self) -> u64 {
        self.0.size
    }

    fn __repr__(&self) -> String {
        let dsl::Chunk { rank, buffer, index, size } = self.0;
        let buffer = buffer_name(buffer);
        format!("Chunk(rank={rank}, type=BufferType.{buffer}, index={index}, size={size})")
    }
}

/// The values of arguments in their order, each given by position or by one of its names; none unless each is there once and
/// nothing else is.
fn each_once<'py, const N: usize>(
    names: [&[&str]; N],
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> Option<[Bound<'py, PyAny>; N]> {
    if args.len() + kwargs.map_or(0, PyDictMethods::len) != N {
        return None;
    }
    let by_name = |name: &&str| kwargs.and_then(|given| given.get_item(*name).ok().flatten());
    let values: Option<Vec<_>> = names
        .iter()
        .enumerate()
        .map(|(position, names)| {
            args.get_item(position).ok().or_else(|| names.iter().find_map(by_name))
        })
        .collect();
    values?.try_into().ok()
}

fn buffer_name(buffer: antiphon_plan::model::Buffer) -> &'static str {
    use antiphon_plan::model::Buffer::{Input, Output, Scratch};
    match buffer {
        Input => "input",
        Output => "output",
        Scratch => "scratch",
    }
}

/// An argument that is a chunk.
#[derive(Clone, Copy)]
pub struct ChunkArg(pub dsl::Chunk);

impl FromPyObject<'_, '_> for ChunkArg {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        match given.cast::<Chunk>() {
            Ok(chunk) => Ok(ChunkArg(chunk.get().0)),
            Err(_) => {
                let given = given.get_type().name()?;
                Err(PyTypeError::new_err(format!(
                    "cannot use a value of type {given} as a chunk; slice a buffer, as in buffer[0:1]"
                )))
            }
        }
    }
}

/// The chunks of a list of arguments.
pub fn chunks(given: Vec<ChunkArg>) -> Vec<dsl::Chunk> {
    given.into_iter().map(|ChunkArg(chunk)| chunk).collect()
}

/// A buffer of a rank, or a part of it: `size` chunks from `offset` on.
///
/// `buffer_type` is another name of `type`.
///
/// `buffer[a:b]` is the Chunk of its chunks a to b (exclusive); without `a` from its beginning, without `b` to its end.
/// Raises TypeError for anything but a slice; ValueError for a step other than 1, negative numbers and a > b;
/// RuntimeError for chunks beyond the end.
#[pyclass(module = "antiphon.language.rank", frozen, subclass)]
pub struct BaseBuffer {
    run: Late<dsl::Chunk>,
}

impl BaseBuffer {
    /// The buffer that is this run of chunks.
    pub fn of(run: dsl::Chunk) -> Self {
        BaseBuffer { run: Late::of(run) }
    }

    fn run(&self) -> PyResult<&dsl::Chunk> {
        self.run.get()
    }
}

#[pymethods]
impl BaseBuffer {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        BaseBuffer { run: Late::empty() }
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __init__(
        &self,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let names: [&[&str]; 4] = [&["rank"], &["type", "buffer_type"], &["offset"], &["size"]];
        let Some([rank, buffer, offset, size]) = each_once(names, args, kwargs) else {
            return Err(PyTypeError::new_err(
                "cannot make a BaseBuffer: expected each argument once, as in BaseBuffer(rank, type, offset, size)",
            ));
        };
        self.run.make(|| {
            let (rank, index, size) = (rank.extract()?, offset.extract()?, size.extract()?);
            Ok(dsl::Chunk { rank, buffer: buffer.extract::<BufferArg>()?.0, index, size })
        })
    }

    /// The rank whose buffer it is.
    #[getter]
    fn rank(&self) -> PyResult<u64> {
        Ok(self.run()?.rank)
    }

    /// Which of the rank's buffers, a BufferType.
    #[getter]
    fn r#type(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        BufferArg(self.run()?.buffer).member(py)
    }

    /// Another name of `type`.
    #[getter]
    fn buffer_type(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.r#type(py)
    }

    /// Its first chunk in the rank's buffer.
    #[getter]
    fn offset(&self) -> PyResult<u64> {
        Ok(self.run()?.index)
    }

    /// Number of chunks.
    #[getter]
    fn size(&self) -> PyResult<u64> {
        Ok(self.run()?.size)
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(usize::try_from(self.run()?.size).unwrap_or(usize::MAX))
    }

    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<Chunk> {
        let py = key.py();
        let Ok(slice) = key.cast::<PySlice>() else {
            let key = key.get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "cannot take chunks of a buffer: saw a key of type {key}, allowed a slice such as buffer[0:1]"
            )));
        };
        let bound = |name, missing| -> PyResult<i64> {
            let value = slice.getattr(name)?;
            if value.is_none() { Ok(missing) } else { value.extract() }
        };
        let run = *self.run()?;
        let size = i64::try_from(run.size).unwrap_or(i64::MAX);
        let start = bound(intern!(py, "start"), 0)?;
        let stop = bound(intern!(py, "stop"), size)?;
        let step = bound(intern!(py, "step"), 1)?;
        if step != 1 {
            return Err(PyValueError::new_err(format!(
                "cannot take chunks {start} to {stop} in steps of {step}: allowed 1, chunks that follow each other"
            )));
        }
        let (Ok(from), Ok(to)) = (u64::try_from(start), u64::try_from(stop)) else {
            return Err(PyValueError::new_err(format!(
                "cannot take chunks {start} to {stop}: allowed numbers from 0 on, counted from the beginning"
            )));
        };
        if from > to {
            return Err(PyValueError::new_err(format!(
                "cannot take chunks {start} to {stop}: the end comes before the beginning"
            )));
        }
        if to > run.size {
            return Err(PyRuntimeError::new_err(format!(
                "cannot take chunks {start} to {stop} (exclusive) of the {} buffer of rank {} with {size} chunks",
                buffer_name(run.buffer),
                run.rank,
            )));
        }
        let index = run.index.saturating_add(from);
        Ok(Chunk(dsl::Chunk { index, size: to - from, ..run }))
    }

    fn __repr__(&self) -> PyResult<String> {
        let dsl::Chunk { rank, buffer, index, size } = *self.run()?;
        let buffer = buffer_name(buffer);
        Ok(format!(
            "BaseBuffer(rank={rank}, type=BufferType.{buffer}, offset={index}, size={size})"
        ))
    }
}

/// `size` chunks of a rank's scratch, after what was handed out before.
///
/// Raises RuntimeError outside of a program and for a rank that it does not have, ValueError for a negative size.
#[pyclass(module = "antiphon.language.rank", frozen, subclass, extends = BaseBuffer)]
pub struct Buffer;

#[pymethods]
impl Buffer {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs), text_signature = "(rank, size)")]
    fn new(
        _args: &Bound<'_, PyTuple>,
        _kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyClassInitializer<Self> {
        PyClassInitializer::from(BaseBuffer { run: Late::empty() }).add_subclass(Buffer)
    }

    fn __init__(slf: &Bound<'_, Self>, rank: i64, size: i64) -> PyResult<()> {
        let Ok(size) = u64::try_from(size) else {
            return Err(PyValueError::new_err(format!(
                "cannot make a scratch buffer: saw {size} chunks, allowed 0 or more"
            )));
        };
        slf.as_super().get().run.make(|| {
            let program = current()?;
            let run = program.declare(|program| program.scratch(rank, size))?;
            program.spoke_of(run.rank);
            Ok(run)
        })
    }
}
