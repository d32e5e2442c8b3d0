//! Buffers that a program names before its calls do.

use super::Communicator;
use crate::error::ExecutorError;

impl Communicator {
    /// Tells the peers about a buffer now, so that they have mapped it when the first call comes that uses it, which else tells them
    /// and waits for that. A hint: calls use any buffer, and find out themselves how it is reached. `false` where nothing is gained:
    /// the buffer is in memory that peers cannot map, and calls copy it, or on the host read it from its process.
    ///
    /// On a GPU the memory stays mapped while it is among the 64 of the application that were used or told of last; memory of
    /// [`allocate`](Self::allocate), there and on the host, until it is freed. A local call; peers make none.
    ///
    /// # Errors
    /// What broke the communicator; what device and peers report.
    pub fn register(&self, buffer: *const u8, bytes: u64) -> Result<bool, ExecutorError> {
        self.told_of(buffer, bytes).map_err(|error| self.shared.whose.names(error))
    }

    fn told_of(&self, buffer: *const u8, bytes: u64) -> Result<bool, ExecutorError> {
        let shared = &self.shared;
        shared.check()?;
        if bytes == 0 {
            return Ok(false);
        }
        if let Some(gpu) = &shared.gpu {
            return gpu.register(shared, buffer.expose_provenance() as u64, bytes);
        }
        shared.sweep()?;
        match shared.device.find(buffer, bytes) {
            Some((memory, _)) => shared.announce(&memory).map(|_| true),
            None => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Communicator, Options};
    use std::time::{Duration, Instant};

    #[test]
    fn memory_that_peers_map_is_told_of_once_and_no_other() {
        let ranks = Communicator::in_process(2, &Options::default()).unwrap();
        let memory = ranks[0].allocate(4096).unwrap();
        let own = memory.address().cast_const();
        for _ in 0..2 {
            assert!(ranks[0].register(own, 4096).unwrap());
        }
        assert!(ranks[0].shared.regions.is_announced(&memory));
        assert!(!ranks[1].shared.regions.is_announced(&memory));
        let heap = [0u8; 64];
        assert!(!ranks[0].register(heap.as_ptr(), 64).unwrap());
        assert!(!ranks[0].register(own, 0).unwrap());
        // What is freed no peer has mapped any more, though nothing was launched.
        let region = memory.id();
        let mapped = || ranks[1].shared.regions.memory.region(0, region).is_some();
        let until = |done: &dyn Fn() -> bool| {
            let began = Instant::now();
            while !done() {
                assert!(began.elapsed() < Duration::from_secs(60), "nobody hears of it");
                std::thread::yield_now();
            }
        };
        until(&mapped);
        drop(memory);
        let other = ranks[0].allocate(4096).unwrap();
        assert!(ranks[0].register(other.address(), 4096).unwrap());
        until(&|| !mapped());
        ranks[1].abort("enough");
        assert!(ranks[1].register(own, 4096).is_err());
    }
}
