//! References to chunks, whose methods are the program's operations.

use super::argument::{AnyKind, FormatArg, Place, one, target};
use super::program::Oldest;
use super::raise;
use crate::convert::BufferArg;
use antiphon_plan::legacy::{self, Buffer, Content, Format, Target};
use antiphon_plan::model::ChannelType::{Memory, Port, Switch};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::sync::Arc;

/// `size` chunks of a rank's buffer; `chunk()` makes one.
///
/// Of two names of the same memory, as in place, it has the one that plans use. In its methods `dst` and `src` are ranks,
/// `sendtb` and `recvtb` thread blocks. The other end is a buffer, `buffer=` or `chunk=`, and an `index`: without them
/// the reference's own; in a scratch buffer without an index, its end. A reference in place of a buffer stands for its
/// buffer and index. Methods raise AssertionError for the wrong rank, for ranks that the topology does not connect, for
/// chunks never written and for types of channels that they cannot use, ValueError for numbers that cannot be, and
/// RuntimeError for the rest.
#[pyclass(module = "antiphon.language.legacy", frozen)]
pub struct Ref {
    pub program: Arc<Oldest>,
    pub chunk: legacy::Ref,
}

/// The other end, by either of its names.
struct End<'py> {
    buffer: Option<Place<'py>>,
    chunk: Option<Place<'py>>,
    index: i64,
}

impl Ref {
    fn of(&self, chunk: legacy::Ref) -> Ref {
        Ref { program: Arc::clone(&self.program), chunk }
    }

    fn end(&self, end: End<'_>) -> PyResult<Target> {
        target(&self.program, one(end.buffer, end.chunk, "buffer and chunk")?, end.index)
    }

    fn content(&self, index: u64) -> PyResult<Option<Content>> {
        self.program.lock().contents(self.chunk, index).map_err(raise)
    }

    /// One number of a chunk's origins: of several, for a reduction, a list; of nothing, None.
    fn numbers(
        &self,
        py: Python<'_>,
        index: u64,
        number: impl Fn(&legacy::Program, legacy::Origin) -> i64,
    ) -> PyResult<Py<PyAny>> {
        let Some(content) = self.content(index)? else { return Ok(py.None()) };
        let program = self.program.lock();
        let numbers: Vec<i64> = content.terms.iter().map(|&term| number(&program, term)).collect();
        drop(program);
        Ok(match numbers[..] {
            [one] => one.into_pyobject(py)?.into_any().unbind(),
            _ => numbers.into_pyobject(py)?.into_any().unbind(),
        })
    }
}

#[pymethods]
impl Ref {
    /// The owner.
    #[getter]
    fn rank(&self) -> u64 {
        self.chunk.rank
    }

    /// The buffer: a BufferType, or the name of a scratch buffer.
    #[getter]
    fn buffer(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if let Buffer::Scratch(id) = self.chunk.buffer {
            let name = self.program.scratch_name(id);
            if name != "scratch" {
                return Ok(name.into_pyobject(py)?.into_any().unbind());
            }
        }
        BufferArg(self.chunk.buffer.model()).member(py)
    }

    /// The first chunk.
    #[getter]
    fn index(&self) -> u64 {
        self.chunk.index
    }

    /// Number of chunks.
    #[getter]
    fn size(&self) -> u64 {
        self.chunk.size
    }

    /// The same chunks in `num` equal parts.
    fn split(&self, num: u64) -> PyResult<Vec<Ref>> {
        let parts = self.chunk.split(num).map_err(raise)?;
        Ok(parts.into_iter().map(|part| self.of(part)).collect())
    }

    /// The chunks from the first of either reference to the last, of one rank and buffer.
    fn group(&self, other: &Bound<'_, Ref>) -> PyResult<Ref> {
        self.chunk.group(&other.get().chunk).map(|both| self.of(both)).map_err(raise)
    }

    /// Copies the chunks to rank `dst`; returns those there.
    #[pyo3(signature = (dst, buffer=None, index=-1, sendtb=-1, chan_type=AnyKind(Memory), *, chunk=None))]
    #[allow(clippy::too_many_arguments)]
    fn put(
        &self,
        py: Python<'_>,
        dst: i64,
        buffer: Option<Place<'_>>,
        index: i64,
        sendtb: i64,
        chan_type: AnyKind,
        chunk: Option<Place<'_>>,
    ) -> PyResult<Ref> {
        let at = self.end(End { buffer, chunk, index })?;
        let put =
            |program: &mut legacy::Program| program.put(self.chunk, dst, at, sendtb, chan_type.0);
        self.program.record(py, put).map(|there| self.of(there))
    }

    /// Copies the chunks to rank `dst` as packets; returns those there.
    ///
    /// With `src_format` DataFormat.packet the chunks are packets, which are forwarded. Over a port channel raw chunks
    /// are first packed into `temp_buffer`. Behind `sendtb` come `src_format`, which may be left out, `chan_type`,
    /// `temp_buffer` and `temp_buffer_index`.
    #[pyo3(signature = (
        dst, buffer=None, index=-1, sendtb=-1, *rest, chunk=None, src_format=None, chan_type=None, temp_buffer=None,
        temp_buffer_index=-1
    ))]
    #[allow(clippy::too_many_arguments)]
    fn put_packet(
        &self,
        py: Python<'_>,
        dst: i64,
        buffer: Option<Place<'_>>,
        index: i64,
        sendtb: i64,
        rest: &Bound<'_, PyTuple>,
        chunk: Option<Place<'_>>,
        src_format: Option<FormatArg>,
        chan_type: Option<AnyKind>,
        temp_buffer: Option<Place<'_>>,
        temp_buffer_index: i64,
    ) -> PyResult<Ref> {
        let mut rest = rest.iter().peekable();
        let early = rest.peek().and_then(|given| given.extract().ok());
        if early.is_some() {
            rest.next();
        }
        let format = one(early, src_format, "a positional format and src_format")?;
        let late = rest.next().map(|given| given.extract()).transpose()?;
        let kind = one(late, chan_type, "a positional type of channel and chan_type")?;
        let late: Option<Option<Place<'_>>> =
            rest.next().map(|given| given.extract()).transpose()?;
        let temporary = one(late.flatten(), temp_buffer, "a positional buffer and temp_buffer")?;
        let temporary_index = match rest.next() {
            Some(given) => given.extract()?,
            None => temp_buffer_index,
        };
        if rest.next().is_some() {
            return Err(PyTypeError::new_err("put_packet() takes at most 8 arguments"));
        }
        let at = self.end(End { buffer, chunk, index })?;
        let packed = temporary.map(|place| target(&self.program, Some(place), temporary_index));
        let packed = packed.transpose()?;
        let format = format.map_or(Format::Raw, |FormatArg(format)| format);
        let kind = kind.map_or(Memory, |AnyKind(kind)| kind);
        let there = self.program.record(py, |program| {
            program.put_packet(self.chunk, dst, at, sendtb, format, kind, packed)
        })?;
        Ok(self.of(there))
    }

    /// `put_packet` of raw chunks, as the first guides call it.
    #[pyo3(signature = (dst, buffer=None, index=-1, sendtb=-1, chan_type=AnyKind(Memory), *, chunk=None))]
    #[allow(clippy::too_many_arguments)]
    fn packet_put(
        &self,
        py: Python<'_>,
        dst: i64,
        buffer: Option<Place<'_>>,
        index: i64,
        sendtb: i64,
        chan_type: AnyKind,
        chunk: Option<Place<'_>>,
    ) -> PyResult<Ref> {
        let at = self.end(End { buffer, chunk, index })?;
        let there = self.program.record(py, |program| {
            program.put_packet(self.chunk, dst, at, sendtb, Format::Raw, chan_type.0, None)
        })?;
        Ok(self.of(there))
    }

    /// Copies chunks of rank `src` to these; returns these.
    #[pyo3(signature = (src, buffer=None, index=-1, recvtb=-1, chan_type=AnyKind(Memory), *, chunk=None))]
    #[allow(clippy::too_many_arguments)]
    fn get(
        &self,
        py: Python<'_>,
        src: i64,
        buffer: Option<Place<'_>>,
        index: i64,
        recvtb: i64,
        chan_type: AnyKind,
        chunk: Option<Place<'_>>,
    ) -> PyResult<Ref> {
        let at = self.end(End { buffer, chunk, index })?;
        let get =
            |program: &mut legacy::Program| program.get(self.chunk, src, at, recvtb, chan_type.0);
        self.program.record(py, get).map(|()| self.of(self.chunk))
    }

    /// Tells rank `dst` that the chunks, and all that the block did before, are done.
    #[pyo3(signature = (dst, buffer=None, index=-1, sendtb=-1, chan_type=AnyKind(Memory), *, chunk=None))]
    #[allow(clippy::too_many_arguments)]
    fn signal(
        &self,
        py: Python<'_>,
        dst: i64,
        buffer: Option<Place<'_>>,
        index: i64,
        sendtb: i64,
        chan_type: AnyKind,
        chunk: Option<Place<'_>>,
    ) -> PyResult<()> {
        let at = self.end(End { buffer, chunk, index })?;
        let kind = chan_type.0;
        self.program.record(py, |program| program.signal(self.chunk, dst, at, sendtb, kind))
    }

    /// Waits until what rank `src` signals for the chunks has arrived.
    #[pyo3(signature = (src, buffer=None, index=-1, recvtb=-1, chan_type=AnyKind(Memory), *, chunk=None))]
    #[allow(clippy::too_many_arguments)]
    fn wait(
        &self,
        py: Python<'_>,
        src: i64,
        buffer: Option<Place<'_>>,
        index: i64,
        recvtb: i64,
        chan_type: AnyKind,
        chunk: Option<Place<'_>>,
    ) -> PyResult<()> {
        let at = self.end(End { buffer, chunk, index })?;
        let kind = chan_type.0;
        self.program.record(py, |program| program.wait(self.chunk, src, at, recvtb, kind))
    }

    /// Waits until what was sent over the port channel to rank `dst` has left.
    #[pyo3(signature = (dst, buffer=None, index=-1, sendtb=-1, chan_type=AnyKind(Port), *, chunk=None))]
    #[allow(clippy::too_many_arguments)]
    fn flush(
        &self,
        py: Python<'_>,
        dst: i64,
        buffer: Option<Place<'_>>,
        index: i64,
        sendtb: i64,
        chan_type: AnyKind,
        chunk: Option<Place<'_>>,
    ) -> PyResult<()> {
        let at = self.end(End { buffer, chunk, index })?;
        let kind = chan_type.0;
        self.program.record(py, |program| program.flush(self.chunk, dst, at, sendtb, kind))
    }

    /// Copies the chunks within their rank, `dst`; returns the copy.
    #[pyo3(signature = (dst, buffer=None, index=-1, sendtb=-1, *, chunk=None))]
    fn copy(
        &self,
        py: Python<'_>,
        dst: i64,
        buffer: Option<Place<'_>>,
        index: i64,
        sendtb: i64,
        chunk: Option<Place<'_>>,
    ) -> PyResult<Ref> {
        let at = self.end(End { buffer, chunk, index })?;
        let copy = |program: &mut legacy::Program| program.copy(self.chunk, dst, at, sendtb);
        self.program.record(py, copy).map(|there| self.of(there.unwrap_or(self.chunk)))
    }

    /// Unpacks the packets within their rank, `dst`; returns the copy.
    #[pyo3(signature = (dst, buffer=None, index=-1, sendtb=-1, *, chunk=None))]
    fn copy_packet(
        &self,
        py: Python<'_>,
        dst: i64,
        buffer: Option<Place<'_>>,
        index: i64,
        sendtb: i64,
        chunk: Option<Place<'_>>,
    ) -> PyResult<Ref> {
        let at = self.end(End { buffer, chunk, index })?;
        let copy = |program: &mut legacy::Program| program.copy_packet(self.chunk, dst, at, sendtb);
        self.program.record(py, copy).map(|there| self.of(there.unwrap_or(self.chunk)))
    }

    /// Adds `other`, also called `other_chunkref`, to the chunks; if it is of another rank, by reading it. Returns the
    /// chunks.
    #[pyo3(signature = (other=None, recvtb=-1, channel_type=AnyKind(Memory), *, other_chunkref=None))]
    fn reduce(
        &self,
        py: Python<'_>,
        other: Option<Bound<'_, Ref>>,
        recvtb: i64,
        channel_type: AnyKind,
        other_chunkref: Option<Bound<'_, Ref>>,
    ) -> PyResult<Ref> {
        let other = the_other(other, other_chunkref)?;
        let kind = channel_type.0;
        let sum =
            self.program.record(py, |program| program.reduce(self.chunk, other, recvtb, kind))?;
        Ok(self.of(sum))
    }

    /// Adds the packets `other`, also called `other_chunkref`, of the same rank, to the chunks. Returns the chunks.
    #[pyo3(signature = (other=None, recvtb=-1, *, other_chunkref=None))]
    fn reduce_packet(
        &self,
        py: Python<'_>,
        other: Option<Bound<'_, Ref>>,
        recvtb: i64,
        other_chunkref: Option<Bound<'_, Ref>>,
    ) -> PyResult<Ref> {
        let other = the_other(other, other_chunkref)?;
        let sum =
            self.program.record(py, |program| program.reduce_packet(self.chunk, other, recvtb))?;
        Ok(self.of(sum))
    }

    /// Reduces these chunks and the same ones of other ranks into these, over a switch. Returns the chunks.
    #[pyo3(signature = (others, recvtb=-1, chan_type=AnyKind(Switch)))]
    fn group_load_reduce(
        &self,
        py: Python<'_>,
        others: Vec<Bound<'_, Ref>>,
        recvtb: i64,
        chan_type: AnyKind,
    ) -> PyResult<Ref> {
        let others: Vec<legacy::Ref> = others.iter().map(|other| other.get().chunk).collect();
        let sum = self.program.record(py, |program| {
            program.group_load_reduce(self.chunk, &others, recvtb, chan_type.0)
        })?;
        Ok(self.of(sum))
    }

    /// Stores the chunks in the same ones of the ranks `dsts`, over a switch. Returns the chunks.
    #[pyo3(signature = (dsts, index=-1, buffer=None, sendtb=-1, chan_type=AnyKind(Switch)))]
    fn group_store(
        &self,
        py: Python<'_>,
        dsts: Vec<i64>,
        index: i64,
        buffer: Option<Place<'_>>,
        sendtb: i64,
        chan_type: AnyKind,
    ) -> PyResult<Ref> {
        let at = self.end(End { buffer, chunk: None, index })?;
        self.program.record(py, |program| {
            program.group_store(self.chunk, &dsts, at, sendtb, chan_type.0)
        })?;
        Ok(self.of(self.chunk))
    }

    /// In which chunk of an input the data of chunk `index` of these was at first; a list for a reduction.
    #[pyo3(signature = (index=0))]
    fn get_origin_index(&self, py: Python<'_>, index: u64) -> PyResult<Py<PyAny>> {
        self.numbers(py, index, |_, origin| origin.index as i64)
    }

    /// In whose input the data of chunk `index` of these was at first; a list for a reduction.
    #[pyo3(signature = (index=0))]
    fn get_origin_rank(&self, py: Python<'_>, index: u64) -> PyResult<Py<PyAny>> {
        self.numbers(py, index, |_, origin| origin.rank as i64)
    }

    /// In which chunk of the output the data of chunk `index` of these belongs; a list for a reduction.
    #[pyo3(signature = (index=0))]
    fn get_dst_index(&self, py: Python<'_>, index: u64) -> PyResult<Py<PyAny>> {
        let to =
            |program: &legacy::Program, origin| program.settings().collective.destination(origin);
        self.numbers(py, index, |program, origin| to(program, origin).1 as i64)
    }

    /// To which rank the data of chunk `index` of these belongs, -1 for all; a list for a reduction.
    #[pyo3(signature = (index=0))]
    fn get_dst_rank(&self, py: Python<'_>, index: u64) -> PyResult<Py<PyAny>> {
        let to =
            |program: &legacy::Program, origin| program.settings().collective.destination(origin);
        self.numbers(py, index, |program, origin| {
            to(program, origin).0.map_or(-1, |rank| rank as i64)
        })
    }

    /// Prints what chunk `index` of these holds: the ranks and chunks of inputs.
    #[pyo3(signature = (index=0))]
    fn print_chunk_info(&self, py: Python<'_>, index: u64) -> PyResult<()> {
        let content = self.content(index)?;
        let text = content.map_or_else(|| "nothing".to_owned(), |content| content.to_string());
        py.import("builtins")?.call_method1("print", (text,)).map(drop)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let legacy::Ref { rank, index, size, .. } = self.chunk;
        let buffer = self.buffer(py)?;
        let buffer = buffer.bind(py);
        let buffer = match buffer.getattr_opt(intern!(py, "name"))? {
            Some(name) => format!("BufferType.{name}"),
            None => buffer.to_string(),
        };
        Ok(format!("Ref(rank={rank}, buffer={buffer}, index={index}, size={size})"))
    }
}

fn the_other(
    other: Option<Bound<'_, Ref>>,
    other_chunkref: Option<Bound<'_, Ref>>,
) -> PyResult<legacy::Ref> {
    match one(other, other_chunkref, "other and other_chunkref")? {
        Some(other) => Ok(other.get().chunk),
        None => Err(PyTypeError::new_err(
            "cannot reduce with nothing: other is missing; give the reference of the chunks to add",
        )),
    }
}
