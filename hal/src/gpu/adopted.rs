//! Numbers of streams that applications made: the same however often one is adopted.

use crate::gpu::lock;
use crate::id::next_id;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// The streams of applications that were ever adopted.
#[derive(Debug)]
pub(crate) struct Adopted(Mutex<BTreeMap<(usize, u64), u64>>);

impl Adopted {
    /// None yet.
    pub(crate) const fn new() -> Self {
        Adopted(Mutex::new(BTreeMap::new()))
    }

    /// Our number of the stream that the driver knows by `number` in a context.
    pub(crate) fn id(&self, context: usize, number: u64) -> u64 {
        *lock(&self.0).entry((context, number)).or_insert_with(next_id)
    }
}

#[cfg(test)]
mod tests {
    use super::Adopted;

    #[test]
    fn a_stream_has_one_number_however_often_it_is_adopted() {
        let adopted = Adopted::new();
        let first = adopted.id(1, 7);
        assert_eq!(adopted.id(1, 7), first);
        assert_ne!(adopted.id(2, 7), first);
        assert_ne!(adopted.id(1, 8), first);
    }
}
