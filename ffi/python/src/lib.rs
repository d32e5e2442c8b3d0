//! `antiphon._native`: what the Python package `antiphon` is made of.
//!
//! Every class here is a thin face of [`antiphon_plan::dsl`]: it holds a handle (a rank, a channel, a run of chunks) and
//! the program that the handle belongs to, and passes calls on. Checks, passes and the plan's text are the compiler's.
//! The files of `antiphon/language` give the classes their public names and add what only Python can express.
//!
//! The only process state is which program is the current one ([`current`]), because the language is written that way.

#![forbid(unsafe_code)]

mod channel;
mod chunk;
mod collective;
mod convert;
mod current;
mod errors;
mod group;
mod guarded;
mod lane;
mod late;
mod legacy;
mod lines;
mod output;
mod program;
mod rank;
mod semaphore;
mod switch;

use pyo3::prelude::*;

/// The compiled half of the package `antiphon`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::channel::{MemoryChannel, PortChannel};
    #[pymodule_export]
    use crate::chunk::{BaseBuffer, Buffer, Chunk};
    #[pymodule_export]
    use crate::collective::collective_chunks;
    #[pymodule_export]
    use crate::current::{begin_compile, end_compile, get_program};
    #[pymodule_export]
    use crate::group::{LoopIterationContext, ThreadBlockGroup};
    #[pymodule_export]
    use crate::guarded::Guarded;
    #[pymodule_export]
    use crate::lane::Channel;
    #[pymodule_export]
    use crate::legacy::{ChunkProgram, Ref, current_chunk_program};
    #[pymodule_export]
    use crate::output::{json, write_compiled};
    #[pymodule_export]
    use crate::program::CollectiveProgram;
    #[pymodule_export]
    use crate::rank::Rank;
    #[pymodule_export]
    use crate::semaphore::Semaphore;
    #[pymodule_export]
    use crate::switch::{SwitchChannel, SwitchChannelRankView};
}
