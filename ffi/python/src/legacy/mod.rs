//! The oldest stage: programs that speak of chunks, over [`antiphon_plan::legacy`].

mod argument;
mod chunk;
mod program;

pub use chunk::Ref;
pub use program::{ChunkProgram, current_chunk_program};

use crate::errors;
use antiphon_plan::legacy::Misuse;
use pyo3::PyErr;
use pyo3::exceptions::{PyAssertionError, PyRuntimeError, PyValueError};

/// The exception of a misuse: `AssertionError` where this stage asserts, `ValueError` for a value that no program could
/// use, `RuntimeError` for the rest.
fn raise(misuse: Misuse) -> PyErr {
    let text = misuse.to_string();
    match misuse {
        Misuse::Recording(misuse) => errors::raise(misuse),
        Misuse::SameRank { .. }
        | Misuse::OtherRank { .. }
        | Misuse::NoLink { .. }
        | Misuse::SendRecv { .. }
        | Misuse::NeverWritten { .. }
        | Misuse::ChannelType { .. }
        | Misuse::NoTemporary => PyAssertionError::new_err(text),
        Misuse::Ranks { .. }
        | Misuse::Root { .. }
        | Misuse::Factor { .. }
        | Misuse::Index { .. }
        | Misuse::NoIndex { .. }
        | Misuse::Block { .. }
        | Misuse::Split { .. }
        | Misuse::Sizes { .. } => PyValueError::new_err(text),
        _ => PyRuntimeError::new_err(text),
    }
}
