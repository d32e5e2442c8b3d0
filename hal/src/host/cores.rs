//! The processors: how many this process may keep busy, and what they are.

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

/// The processor's name as the kernel prints it, or else the architecture's.
pub fn cpu_model() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    let name = line.and_then(|line| line.split_once(':')).map(|(_, name)| name.trim());
    name.filter(|name| !name.is_empty()).unwrap_or(std::env::consts::ARCH).to_owned()
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
