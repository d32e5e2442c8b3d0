//! Numbers of streams that applications made: the same however often one is adopted.

use crate::gpu::lock;
use crate::id::next_id;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// A context, the driver's number of the stream in it, and of a thread's own stream the thread.
pub(crate) type Key = (usize, u64, Option<u64>);

/// The streams of applications that were ever adopted.
#[derive(Debug)]
pub(crate) struct Adopted(Mutex<BTreeMap<Key, u64>>);

impl Adopted {
    /// None yet.
    pub(crate) const fn new() -> Self {
        Adopted(Mutex::new(BTreeMap::new()))
    }

    /// Our number of a stream.
    pub(crate) fn id(&self, stream: Key) -> u64 {
        *lock(&self.0).entry(stream).or_insert_with(next_id)
    }
}

#[cfg(test)]
mod tests {
    use super::Adopted;

    #[test]
    fn a_stream_has_one_number_however_often_it_is_adopted() {
        let adopted = Adopted::new();
        let first = adopted.id((1, 7, None));
        assert_eq!(adopted.id((1, 7, None)), first);
        for other in [(2, 7, None), (1, 8, None), (1, 7, Some(3))] {
            assert_ne!(adopted.id(other), first);
        }
    }
}
