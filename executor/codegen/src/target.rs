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

/// The element type and the operator that a plan's kernels are written for where it is called with these. A plan whose moves
/// combine nothing (`combines` is [`Layout::combines`]) moves all elements of a size alike: one type stands for them, and the
/// kernels of a call serve those with other types, too. An average stays what it is, since it ends in a division.
pub fn written_for(
    combines: bool,
    dtype: DataType,
    op: Option<ReduceOp>,
) -> (DataType, Option<ReduceOp>) {
    if combines || op == Some(ReduceOp::Avg) {
        return (dtype, op);
    }
    // Those that other plans are most often called with: where kernels interpret, these have the same.
    let of_size = match dtype.size() {
        1 => DataType::U8,
        2 => DataType::Bf16,
        4 => DataType::F32,
        _ => DataType::F64,
    };
    (of_size, None)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_that_combine_nothing_have_kernels_for_four_sizes_and_others_for_all_types() {
        let sum = Some(ReduceOp::Sum);
        let written = |combines, op| DataType::ALL.map(|dtype| written_for(combines, dtype, op));
        for (before, after) in DataType::ALL.into_iter().zip(written(false, sum)) {
            assert_eq!((before.size(), None), (after.0.size(), after.1), "{before}");
        }
        let mut sizes: Vec<_> = written(false, None).into_iter().map(|(dtype, _)| dtype).collect();
        sizes.sort_unstable();
        sizes.dedup();
        assert_eq!(sizes.len(), 4);
        assert_eq!(written(true, sum), DataType::ALL.map(|dtype| (dtype, sum)));
        let average = Some(ReduceOp::Avg);
        assert_eq!(written(false, average), DataType::ALL.map(|dtype| (dtype, average)));
    }
}
