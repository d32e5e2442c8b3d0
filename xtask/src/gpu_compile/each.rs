//! As many things at once as there are cores: compilers use one each.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// What becomes of each job, in their order.
pub(crate) fn each<J: Sync, R: Send>(jobs: &[J], work: impl Fn(&J) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let some = || {
        let done = std::iter::from_fn(|| {
            let at = next.fetch_add(1, Ordering::Relaxed);
            Some((at, work(jobs.get(at)?)))
        });
        done.collect::<Vec<_>>()
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut done: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(some)).collect();
        let joined = workers.into_iter().map(|worker| worker.join());
        joined.flat_map(|done| done.unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    done.sort_by_key(|&(at, _)| at);
    done.into_iter().map(|(_, made)| made).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_stands_where_its_job_does() {
        let jobs: Vec<u32> = (0..100).collect();
        let expected: Vec<u32> = jobs.iter().map(|job| job * job).collect();
        assert_eq!(each(&jobs, |job| job * job), expected);
        assert!(each(&jobs[..0], |job| job * job).is_empty());
    }
}
