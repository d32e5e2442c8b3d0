//! For whom the text is written: the vendor's prelude, and what a kernel is specialised for.

use antiphon_plan::program::Layout;
use antiphon_plan::{DataType, ReduceOp};

/// A family of compilers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// CUDA C++, for NVRTC.
    Cuda,
    /// HIP, for hipRTC.
    Hip,
}

impl Target {
    /// What the text begins with: types, and everything that one vendor says in its own way. The simulated compilers, a
    /// test fixture, read their own words for it in the same text.
    pub(crate) fn prelude(self) -> String {
        let own = match self {
            Target::Cuda => include_str!("device/prelude_cuda.h"),
            Target::Hip => include_str!("device/prelude_hip.h"),
        };
        let simulated = include_str!("device/prelude_sim.h");
        format!("#ifdef ANTIPHON_GPUSIM\n{simulated}#else\n{own}#endif\n\n")
    }
}

/// What one kernel is compiled for, besides its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Variant {
    /// The compilers it is written for.
    pub target: Target,
    /// Element type.
    pub dtype: DataType,
    /// The operator that replaces the plan's own.
    pub op: Option<ReduceOp>,
}

impl Variant {
    /// The operator that stands for a move's own.
    pub(crate) fn operator(self, own: ReduceOp) -> ReduceOp {
        self.op.unwrap_or(own)
    }

    /// Bytes of which slices of runtime blocks are whole multiples.
    pub(crate) fn unit(self, layout: &Layout) -> u64 {
        layout.alignment.max(self.dtype.size() as u64)
    }
}

/// The device functions that the programs call: the same for all vendors.
pub(crate) const LIBRARY: &str = concat!(
    include_str!("device/launch.h"),
    include_str!("device/floats.h"),
    include_str!("device/element.h"),
    include_str!("device/memory.h"),
    include_str!("device/moves.h"),
    include_str!("device/runtime.h"),
    include_str!("device/multicast.h"),
    include_str!("device/packets.h"),
    include_str!("device/waits.h"),
    include_str!("device/ports.h"),
);

/// The functions of moves that count their sides while they run, for the texts that need them: behind the library.
pub(crate) const COUNTED: &str = include_str!("device/counted.h");

/// The line that names the element type.
pub(crate) fn element(dtype: DataType) -> String {
    format!("#define AP_ELEMENT element_{}\n", dtype.name())
}
