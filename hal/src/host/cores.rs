//! How many processors this process may keep busy.

use std::num::NonZeroUsize;
use std::thread;

/// The processors that this process may keep busy at once: those the calling thread may run on (affinity),
/// or fewer where the container's quota grants less time than that (rounded down, but at least 1).
///
/// Asks the system, which takes some tens of microseconds: keep the answer.
pub fn usable_cores() -> u32 {
    // The standard library intersects the affinity mask with the quotas of both cgroup versions.
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    u32::try_from(cores).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::usable_cores;
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    #[test]
    fn a_thread_bound_to_one_processor_has_one_usable_core() {
        let bound = std::thread::spawn(|| {
            let allowed = sched_getaffinity(None).unwrap();
            let first = (0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).unwrap();
            let mut one = CpuSet::new();
            one.set(first);
            sched_setaffinity(None, &one).unwrap();
            usable_cores()
        });
        assert_eq!(bound.join().unwrap(), 1);
        assert!(usable_cores() >= 1);
    }
}
