//! From a lowered program to GPU kernel source: pure text.
//!
//! A rank's blocks become straight-line code that calls a small library of device functions (`device/*.h`).
//! What differs between ranks, sizes and launches is data:
//!
//! | what | where it is | changes with |
//! |---|---|---|
//! | control flow: which operation follows which, how many sides a move has, of what kind | the generated code | the plan |
//! | which channel, which rank's memory, which move | [`Operands`], a table of words | the rank |
//! | byte ranges of moves, iterations of pipelines | [`Tables`] | the sizes of a call |
//! | addresses, flags, sequence numbers | [`abi::Launch`] | the launch |
//!
//! So one compilation serves every size, and all ranks whose blocks look alike. Blocks of equal code share it, and what
//! repeats inside of a block is a loop, so that source and compile time stay bounded for plans of any length.
//!
//! Nothing here knows a device or a compiler; text and tables are all that comes out.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod abi;
mod calls;
pub mod divide;
mod emit;
pub mod interpret;
pub mod prebuilt;
mod repeat;
pub mod scale;
mod shapes;
mod skeleton;
mod tables;
mod target;

pub use emit::{
    ENTRY, Generated, GeneratedTogether, NO_RANK, RankBlocks, THREADS, TOGETHER, Unsupported,
    generate, generate_together,
};
pub use skeleton::{Operands, Peers};
pub use tables::Tables;
pub use target::{Target, Variant, written_for};
