//! The goodbye of a process that ends, for communicators that it has not dropped: it says that it was through with them, if it was.
//!
//! Programs end without destroying what they have made. Peers would take that for a death, unless they see for themselves that
//! nothing is missing, which peers on other hosts do not.

use super::{Communicator, Shared};
use crate::sync::lock;
use std::sync::{Arc, Mutex, MutexGuard, Once, TryLockError, Weak};
use std::time::Duration;

/// Communicators on hosts with their identities, also those of the process that this one was forked from, of which this process is no rank.
static LIVE: Mutex<Vec<(u64, Weak<Shared>)>> = Mutex::new(Vec::new());
/// Communicators left at the end. They are kept: dropping the last handle of one would wait for what must not be waited for then.
static KEPT: Mutex<Vec<Arc<Shared>>> = Mutex::new(Vec::new());

/// Has the process say goodbye for a rank when it ends. Not for ranks on devices: by then nobody knows what still runs there.
pub(super) fn watch(shared: &Arc<Shared>) {
    static ASKED: Once = Once::new();
    if shared.gpu.is_some() {
        return;
    }
    let mut live = lock(&LIVE);
    live.retain(|(_, one)| one.strong_count() > 0);
    live.push((shared.identity, Arc::downgrade(shared)));
    ASKED.call_once(|| {
        // SAFETY: the function takes nothing, and is there until the library is unloaded, before which it is called.
        if unsafe { libc::atexit(ends) } != 0 {
            log::debug!(
                "the end of this process says goodbye to no peer: no room for its function"
            );
        }
    });
}

/// Called when the process ends. Other threads may still run, or hold a lock that this needs for ever: then nothing is said.
extern "C" fn ends() {
    let pause = || std::thread::sleep(Duration::from_millis(1));
    let Some(live) = lock_soon(&LIVE, pause) else { return };
    let all: Vec<Arc<Shared>> = live.iter().filter_map(|(_, one)| one.upgrade()).collect();
    drop(live);
    say_goodbye(&all);
    lock(&KEPT).extend(all);
}

/// A lock that others hold for moments only; `None` if it does not come free in some pauses.
fn lock_soon<T>(mutex: &Mutex<T>, mut pause: impl FnMut()) -> Option<MutexGuard<'_, T>> {
    const PAUSES: u32 = 8;
    (0..=PAUSES).find_map(|_| match mutex.try_lock() {
        Ok(free) => Some(free),
        Err(TryLockError::Poisoned(free)) => Some(free.into_inner()),
        Err(TryLockError::WouldBlock) => {
            pause();
            None
        }
    })
}

/// Says goodbye for these ranks, unless something of one is under way. It may be of a rank that knows of a failure: then nothing is
/// said for that one alone, as peers believe of who has left that it is out of their memory.
fn say_goodbye(all: &[Arc<Shared>]) {
    let own: Vec<_> = all.iter().filter(|shared| !shared.is_inherited()).collect();
    if own.iter().all(|shared| shared.failed() || shared.is_through()) {
        let idle = |shared: &Shared| !shared.failed() || shared.failure.quieten();
        let leaving: Vec<_> = own.into_iter().filter(|shared| idle(shared)).collect();
        leaving.iter().for_each(|shared| shared.part());
        leaving.iter().for_each(|shared| shared.bootstrap.farewell());
    }
}

impl Communicator {
    /// Whether this is a rank of the process that this one was forked from. Peers would take what this process says for that
    /// one's word.
    pub fn is_inherited(&self) -> bool {
        self.shared.is_inherited()
    }
}

impl Shared {
    /// Marks ranks of this communicator and this process as quiet that know of its failure, and on whose launches nobody works. The
    /// control thread did when they heard of it, but for those that somebody looked at in that moment.
    pub fn quieten_near(&self) {
        let own: Vec<_> = {
            let live = lock(&LIVE);
            let own = live.iter().filter(|(identity, _)| *identity == self.identity);
            own.filter_map(|(_, shared)| shared.upgrade()).collect()
        };
        for shared in own.iter().filter(|shared| shared.failed()) {
            shared.failure.quieten();
        }
    }

    /// Whether nothing of this rank is under way, as far as can be seen without waiting.
    fn is_through(&self) -> bool {
        self.failure.log.try_lock().is_ok_and(|log| log.completed == log.seq)
    }

    /// Whether this is a rank of the process that this one was forked from.
    fn is_inherited(&self) -> bool {
        self.peers[self.rank as usize].pid != std::process::id()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::communicator::{Doing, ExecutorError, Options};
    use crate::shared::control::BROKEN;
    use std::sync::atomic::Ordering;

    /// Its peers look for what it was, which they hear of as it did, and not for a rank that left too early.
    #[test]
    fn a_process_that_ends_after_a_failure_says_that_it_was_broken() {
        let ranks = Communicator::in_process(3, &Options::default()).unwrap();
        let (reason, doing) = ("its process ended".to_owned(), Doing::default());
        ranks[1].shared.failure.hear(ExecutorError::PeerLost { peer: 2, pid: 7, reason, doing });
        say_goodbye(&[Arc::clone(&ranks[1].shared)]);
        let shared = &ranks[0].shared;
        while shared.bootstrap.has_left(1) != Ok(true) {
            std::thread::yield_now();
        }
        assert!(!shared.has_left(1));
    }

    /// The peer's caller gets its buffers back when the rank is gone, and a part of them may be moving.
    #[test]
    fn a_process_that_ends_while_somebody_works_for_a_failed_rank_does_not_say_that_it_has_left() {
        let ranks = Communicator::in_process(2, &Options::default()).unwrap();
        let shared = &ranks[1].shared;
        let worked_on = shared.log();
        shared.failure.hear(ExecutorError::Aborted {
            by: 0,
            reason: "enough".to_owned(),
            doing: Doing::default(),
        });
        let left = || ranks[0].shared.control(1).left.0.load(Ordering::Acquire);
        say_goodbye(&[Arc::clone(shared)]);
        assert_eq!(left(), 0);
        drop(worked_on);
        say_goodbye(&[Arc::clone(shared)]);
        assert_eq!(left(), BROKEN);
    }

    #[test]
    fn a_lock_that_is_held_for_a_moment_is_waited_for_and_one_that_is_never_free_is_not() {
        let mutex = Mutex::new(());
        let mut held = Some(lock(&mutex));
        assert!(lock_soon(&mutex, || drop(held.take())).is_some());
        let _held = lock(&mutex);
        assert!(lock_soon(&mutex, || ()).is_none());
    }
}
