//! Words to and from memory of a device, or of the host that is mapped there.

use antiphon::executor::hal::Stream;
use std::sync::Arc;

/// Writes the words to `to`, which has room for them and which nobody uses meanwhile.
pub(crate) fn write(stream: &Arc<dyn Stream>, to: *mut u8, values: &[u32]) {
    // SAFETY: the callers' memory is as long, and nobody uses it until the copy is over.
    let copied = unsafe { stream.copy(to, values.as_ptr().cast(), values.len() as u64 * 4) };
    copied.map(|_| stream.synchronize()).unwrap().unwrap();
}

/// The `count` words at `from`, which nobody writes meanwhile.
pub(crate) fn read(stream: &Arc<dyn Stream>, from: *const u8, count: usize) -> Vec<u32> {
    let mut values = vec![0u32; count];
    // SAFETY: as above.
    let copied = unsafe { stream.copy(values.as_mut_ptr().cast(), from, count as u64 * 4) };
    copied.map(|_| stream.synchronize()).unwrap().unwrap();
    values
}
