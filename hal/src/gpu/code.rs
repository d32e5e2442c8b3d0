//! What drivers answer and are told, as numbers: those that HIP took over from CUDA. The tests of each backend compare
//! them with its vendor's header.

use std::ffi::{c_int, c_uint};
use std::ops::RangeInclusive;

/// What a driver function returns. A number and not the bindings' enumerations: a newer driver answers codes that
/// those do not list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Code(pub(crate) u32);

impl Code {
    pub(crate) const SUCCESS: Code = Code(0);
    pub(crate) const INVALID_VALUE: Code = Code(1);
    pub(crate) const OUT_OF_MEMORY: Code = Code(2);
    pub(crate) const INVALID_DEVICE: Code = Code(101);
    pub(crate) const INVALID_CONTEXT: Code = Code(201);
    pub(crate) const INVALID_HANDLE: Code = Code(400);
    pub(crate) const NOT_READY: Code = Code(600);
    pub(crate) const PEER_ENABLED: Code = Code(704);
    pub(crate) const TOO_MANY_BLOCKS: Code = Code(720);
    pub(crate) const NOT_PERMITTED: Code = Code(800);
    pub(crate) const NOT_SUPPORTED: Code = Code(801);
    pub(crate) const CAPTURE_IMPLICIT: Code = Code(906);

    /// The first and the last of those that say that a call does not go with what is being recorded into a graph.
    pub(crate) const RECORDING: RangeInclusive<u32> = 900..=908;

    /// What a driver answers if it takes no code of the kind that it was to load: an invalid image, no image for the device, or
    /// assembler text that it does not understand. CUDA's own codes come last: text is not translated because there is no
    /// compiler, because the compiler is too old, or because somebody has switched it off.
    pub(crate) const FOREIGN: [Code; 6] =
        [Code(200), Code(209), Code(218), Code(221), Code(222), Code(223)];

    /// Whether it speaks of what is being recorded into a graph, and says nothing of the work that the call asks about.
    pub(crate) fn is_of_recording(self) -> bool {
        Self::RECORDING.contains(&self.0)
    }

    /// `Ok` for a success.
    pub(crate) fn ok(self) -> Result<(), Code> {
        if self == Code::SUCCESS { Ok(()) } else { Err(self) }
    }
}

/// A stream that does not wait for the default stream.
pub(crate) const NON_BLOCKING: c_uint = 1;
/// An event without timing.
pub(crate) const NO_TIMING: c_uint = 2;
/// That nothing waits for an object of a graph to be let go of.
pub(crate) const NO_DESTRUCTOR_SYNC: c_uint = 1;
/// That a graph takes over the count on an object.
pub(crate) const MOVE_TO_GRAPH: c_uint = 1;
/// The least strict mode of recording.
pub(crate) const RELAXED: c_uint = 2;
/// The only flag that opening an IPC handle takes.
pub(crate) const LAZY_PEER_ACCESS: c_uint = 1;
/// A file descriptor, as a type of handle.
pub(crate) const DESCRIPTOR: c_uint = 1;
/// The smallest granularity.
pub(crate) const GRANULARITY: c_uint = 0;

/// Bytes of stack of a thread, as a limit of a device.
pub(crate) const STACK: c_uint = 0;

/// The most threads of a block, as an attribute of a function.
pub(crate) const THREADS: c_uint = 0;
/// Bytes of shared memory that the code declares, likewise.
pub(crate) const SHARED_BYTES: c_uint = 1;
/// Bytes of local memory of a thread, likewise.
pub(crate) const LOCAL_BYTES: c_uint = 3;
/// Registers of a thread, likewise.
pub(crate) const REGISTERS: c_uint = 4;

/// Whether a capture status says that work is being recorded. One that was invalidated is still open.
pub(crate) fn is_capturing(status: c_uint) -> bool {
    status != 0
}

/// An attribute that counts something; the driver never answers a negative one for these.
pub(crate) fn count(value: c_int) -> u32 {
    u32::try_from(value).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalidated_capture_is_still_one() {
        assert_eq!([0, 1, 2].map(is_capturing), [false, true, true]);
    }
}
