//! What a process that ends says of the communicators that it has not let go of: that it was through with them, if it was.
//!
//! Programs end without destroying what they have made. Their peers would take that for a death, as far as they do not see for
//! themselves, and those of other hosts do not, that nothing is missing.

use super::Shared;
use std::sync::{Arc, Mutex, Once, PoisonError, Weak};

/// Communicators on hosts, each with the process that has made it: what that one forks has them as well, and is none of their ranks.
static LIVE: Mutex<Vec<(u32, Weak<Shared>)>> = Mutex::new(Vec::new());
/// Those that were left at the end: whoever let go of one last would wait for what is not to be waited for then.
static KEPT: Mutex<Vec<Arc<Shared>>> = Mutex::new(Vec::new());

/// Has the end of the process say goodbye for a rank. On devices nobody knows by then what still runs.
pub(super) fn watch(shared: &Arc<Shared>) {
    static ASKED: Once = Once::new();
    if shared.gpu.is_some() {
        return;
    }
    let mut live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
    live.retain(|(_, one)| one.strong_count() > 0);
    live.push((std::process::id(), Arc::downgrade(shared)));
    ASKED.call_once(|| {
        // SAFETY: the function takes nothing, and is there until the library is unloaded, before which it is called.
        if unsafe { libc::atexit(ends) } != 0 {
            log::debug!(
                "the end of this process says goodbye to no peer: no room for its function"
            );
        }
    });
}

/// The process ends. Other threads may go on meanwhile, or hold what is looked at for ever: then nothing is said.
extern "C" fn ends() {
    let Ok(live) = LIVE.try_lock() else { return };
    let own = live.iter().filter(|(process, _)| *process == std::process::id());
    let all: Vec<Arc<Shared>> = own.filter_map(|(_, one)| one.upgrade()).collect();
    drop(live);
    if all.iter().all(|shared| shared.is_through()) {
        all.iter().for_each(|shared| shared.leave());
        all.iter().for_each(|shared| shared.bootstrap.farewell());
    }
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).extend(all);
}

impl Shared {
    /// Whether nothing of this rank is under way, nor is the communicator broken, as far as can be seen without waiting.
    fn is_through(&self) -> bool {
        let Ok(log) = self.failure.log.try_lock() else { return false };
        log.completed == log.seq && !self.failed()
    }
}
