//! References to chunks, and where an operation's other end is.

use super::Misuse;
use crate::model;

/// A buffer of a rank, as programs name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Buffer {
    /// The send buffer.
    Input,
    /// The receive buffer.
    Output,
    /// One of the program's scratch buffers: see [`Program::scratch`](super::Program::scratch).
    Scratch(u32),
}

impl Buffer {
    /// The buffer of the plan that it is, or is part of.
    pub fn model(self) -> model::Buffer {
        match self {
            Buffer::Input => model::Buffer::Input,
            Buffer::Output => model::Buffer::Output,
            Buffer::Scratch(_) => model::Buffer::Scratch,
        }
    }
}

/// A run of chunks of a rank's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ref {
    /// The owner.
    pub rank: u64,
    /// Which buffer. Of two buffers that are the same memory, the one that plans use.
    pub buffer: Buffer,
    /// The first chunk.
    pub index: u64,
    /// Number of chunks.
    pub size: u64,
}

impl Ref {
    /// One past the last chunk.
    pub fn end(&self) -> u64 {
        self.index.saturating_add(self.size)
    }

    /// The same run in equal parts.
    ///
    /// # Errors
    /// [`Misuse::Split`] if it cannot be divided so.
    pub fn split(&self, parts: u64) -> Result<Vec<Ref>, Misuse> {
        if parts == 0 || !self.size.is_multiple_of(parts) {
            return Err(Misuse::Split { size: self.size, parts });
        }
        let size = self.size / parts;
        Ok((0..parts).map(|part| Ref { index: self.index + part * size, size, ..*self }).collect())
    }

    /// The run from the first chunk of either reference to the last.
    ///
    /// # Errors
    /// [`Misuse::Group`] if they are not of the same rank and buffer.
    pub fn group(&self, other: &Ref) -> Result<Ref, Misuse> {
        if (self.rank, self.buffer) != (other.rank, other.buffer) {
            return Err(Misuse::Group {
                first: (self.rank, self.buffer.model()),
                second: (other.rank, other.buffer.model()),
            });
        }
        let index = self.index.min(other.index);
        Ok(Ref { index, size: self.end().max(other.end()) - index, ..*self })
    }

    /// Whether the two have a chunk in common.
    pub(super) fn overlaps(&self, other: &Ref) -> bool {
        (self.rank, self.buffer) == (other.rank, other.buffer)
            && self.index < other.end()
            && other.index < self.end()
    }
}

/// Where on the other rank an operation ends, or starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Target {
    /// The buffer; `None` means that of the reference itself.
    pub buffer: Option<Buffer>,
    /// The first chunk; `None` means that of the reference itself or, if a scratch buffer is named, the first one beyond its end.
    pub index: Option<u64>,
}

impl Target {
    /// The same buffer and chunks as the reference itself.
    pub const SAME: Target = Target { buffer: None, index: None };

    /// Chunks of this buffer, from this one on.
    pub fn at(buffer: Buffer, index: u64) -> Self {
        Target { buffer: Some(buffer), index: Some(index) }
    }

    /// Chunks that a scratch buffer did not have so far.
    pub fn append(scratch: Buffer) -> Self {
        Target { buffer: Some(scratch), index: None }
    }

    /// A target with -1 for no index, as programs spell it.
    ///
    /// # Errors
    /// [`Misuse::Index`] for other negative numbers.
    pub fn new(buffer: Option<Buffer>, index: i64) -> Result<Self, Misuse> {
        if index < -1 {
            return Err(Misuse::Index { index });
        }
        Ok(Target { buffer, index: u64::try_from(index).ok() })
    }
}

impl From<Ref> for Target {
    fn from(chunk: Ref) -> Self {
        Target::at(chunk.buffer, chunk.index)
    }
}
