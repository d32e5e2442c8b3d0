//! Ranks on threads of one process.

/// Runs `work` as every rank, each on a thread of its own; what each gives, in rank order.
pub fn on_threads<R: Sync, T: Send>(ranks: &[R], work: impl Fn(&R) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = ranks.iter().map(|rank| scope.spawn(move || work(rank))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}
