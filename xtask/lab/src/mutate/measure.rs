//! The measurement: every mutant before every judge, on several threads, with the same result on any number of them.

use super::cases::{self, Call};
use super::choose::Mutant;
use super::judge::{Judgement, judge};
use super::kinds::KINDS;
use super::plans::Base;
use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// How much is run.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Schedules of each plan, all calls together.
    pub schedules: u32,
    /// What all choices are drawn from.
    pub seed: u64,
    /// Threads.
    pub jobs: usize,
}

/// What the judges say of the plans themselves, in order.
pub fn bases(plans: &[Base], effort: Effort, progress: &(impl Fn(usize) + Sync)) -> Vec<Judgement> {
    each(plans, effort.jobs, progress, |base| {
        let calls = cases::calls(&base.plan);
        judge(&base.plan, &calls, effort.schedules, effort.seed, &base.name)
    })
}

/// What the judges say of the mutants, in order. `plans` holds those that they were made from.
pub fn mutants(
    mutants: &[Mutant],
    plans: &[Base],
    effort: Effort,
    progress: &(impl Fn(usize) + Sync),
) -> Vec<Judgement> {
    let calls: HashMap<&str, Vec<Call>> =
        plans.iter().map(|base| (&base.name[..], cases::calls(&base.plan))).collect();
    each(mutants, effort.jobs, progress, |mutant| {
        let calls = calls.get(&mutant.base[..]).map(Vec::as_slice).unwrap_or_default();
        let name = format!("{} {} {}", KINDS[mutant.kind].name, mutant.base, mutant.what);
        judge(&mutant.plan, calls, effort.schedules, effort.seed, &name)
    })
}

/// `work` on every item, on `jobs` threads; the results in the order of the items. `progress` hears how many are done.
fn each<T: Sync, R: Send + Sync>(
    items: &[T],
    jobs: usize,
    progress: &(impl Fn(usize) + Sync),
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let results: Vec<OnceLock<R>> = items.iter().map(|_| OnceLock::new()).collect();
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, items.len().max(1)) {
            scope.spawn(|| {
                loop {
                    // Each number is handed out once; the scope's end publishes the results.
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { break };
                    let _ = results[at].set(work(item));
                    progress(done.fetch_add(1, Ordering::Relaxed) + 1);
                }
            });
        }
    });
    results.into_iter().filter_map(OnceLock::into_inner).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order_whatever_the_jobs() {
        let items: Vec<u64> = (0..100).collect();
        let seen = AtomicUsize::new(0);
        for jobs in [0, 1, 3, 200] {
            let progress = |_| {
                seen.fetch_add(1, Ordering::Relaxed);
            };
            let squares = each(&items, jobs, &progress, |item| item * item);
            assert!(squares.iter().zip(&items).all(|(square, item)| *square == item * item));
            assert_eq!(squares.len(), items.len());
        }
        assert_eq!(seen.into_inner(), 400);
    }
}
