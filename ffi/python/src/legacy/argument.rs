//! What the methods of references take: buffers by several sorts of names, types of channels, formats.

use super::chunk::Ref;
use super::program::Oldest;
use super::raise;
use crate::convert::BufferArg;
use antiphon_plan::legacy::{Buffer, Format, Target};
use antiphon_plan::model;
use antiphon_plan::model::ChannelType;
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;

/// A buffer: a `BufferType`, which `Buffer` has too, or the name of a scratch buffer.
#[derive(Clone, Debug)]
pub enum Name {
    /// One of a rank's three.
    Known(model::Buffer),
    /// A scratch buffer.
    Scratch(String),
}

impl FromPyObject<'_, '_> for Name {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        match given.extract::<BufferArg>() {
            Ok(known) => Ok(Name::Known(known.0)),
            Err(error) => match given.extract() {
                Ok(name) => Ok(Name::Scratch(name)),
                Err(_) => Err(error),
            },
        }
    }
}

impl Name {
    /// The buffer of this program.
    pub fn of(&self, program: &Oldest) -> Buffer {
        match self {
            Name::Known(model::Buffer::Input) => Buffer::Input,
            Name::Known(model::Buffer::Output) => Buffer::Output,
            Name::Known(model::Buffer::Scratch) => program.scratch("scratch"),
            Name::Scratch(name) => program.scratch(name),
        }
    }
}

/// Where an operation ends: a buffer, or a reference to chunks in it.
#[derive(Clone, FromPyObject)]
pub enum Place<'py> {
    /// Chunks of some rank, which stand for their buffer and index.
    Chunk(Bound<'py, Ref>),
    /// A buffer.
    Buffer(Name),
}

/// One argument that may be given by either of two names.
pub fn one<T>(first: Option<T>, second: Option<T>, names: &str) -> PyResult<Option<T>> {
    if first.is_some() && second.is_some() {
        return Err(PyTypeError::new_err(format!(
            "cannot use both {names}: they are one argument; give one of them"
        )));
    }
    Ok(first.or(second))
}

/// The chunks that a place and an index name.
pub fn target(program: &Oldest, place: Option<Place<'_>>, index: i64) -> PyResult<Target> {
    match place {
        None => Target::new(None, index).map_err(raise),
        Some(Place::Buffer(name)) => Target::new(Some(name.of(program)), index).map_err(raise),
        Some(Place::Chunk(chunk)) => {
            let chunk = chunk.get().chunk;
            let index = if index == -1 { i64::try_from(chunk.index)? } else { index };
            Target::new(Some(chunk.buffer), index).map_err(raise)
        }
    }
}

/// A `ChannelType`, or the name of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnyKind(pub ChannelType);

impl FromPyObject<'_, '_> for AnyKind {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let value = match given.getattr(intern!(given.py(), "value")) {
            Ok(value) => value.extract::<String>().ok(),
            Err(_) => given.extract::<String>().ok(),
        };
        match value.as_deref() {
            Some("memory" | "sm") => Ok(AnyKind(ChannelType::Memory)),
            Some("port" | "proxy") => Ok(AnyKind(ChannelType::Port)),
            Some("switch" | "nvls") => Ok(AnyKind(ChannelType::Switch)),
            Some("none") => Ok(AnyKind(ChannelType::None)),
            _ => Err(PyTypeError::new_err(format!(
                "cannot use {} as a type of channels: allowed ChannelType.memory, .port and .nvls",
                given.repr()?
            ))),
        }
    }
}

/// A `DataFormat`, or the name of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormatArg(pub Format);

impl FromPyObject<'_, '_> for FormatArg {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let value = match given.getattr(intern!(given.py(), "value")) {
            Ok(value) => value.extract::<String>().ok(),
            Err(_) => given.extract::<String>().ok(),
        };
        match value.as_deref() {
            Some("raw") => Ok(FormatArg(Format::Raw)),
            Some("packet") => Ok(FormatArg(Format::Packet)),
            _ => Err(PyTypeError::new_err(format!(
                "cannot use {} as a format: allowed DataFormat.raw, DataFormat.packet",
                given.repr()?
            ))),
        }
    }
}
