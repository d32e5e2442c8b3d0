//! What a panic does not keep from going on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also one whose holder has panicked: one panic is not to end the threads too that end launches and free memory.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does what may panic, as the program's logger may, for a caller that others wait for.
pub fn shielded(work: impl FnOnce()) {
    // Whoever is told of panics has been: the program's hook.
    let _ = catch_unwind(AssertUnwindSafe(work));
}

/// What threads of tests log. A process has one logger, so all tests have this one.
#[cfg(test)]
pub mod logger {
    use std::cell::RefCell;
    use std::sync::mpsc::Sender;

    struct Ears;

    /// Who is told, and whether the logger panics then, as a program's may.
    #[derive(Clone)]
    struct Ear {
        told: Sender<String>,
        panics: bool,
    }

    thread_local! {
        static OWN: RefCell<Option<Ear>> = const { RefCell::new(None) };
    }

    impl log::Log for Ears {
        fn enabled(&self, _: &log::Metadata<'_>) -> bool {
            true
        }

        fn log(&self, record: &log::Record<'_>) {
            if let Some(Ear { told, panics }) = OWN.with_borrow(Clone::clone) {
                told.send(record.args().to_string()).unwrap();
                assert!(!panics, "the disk is full");
            }
        }

        fn flush(&self) {}
    }

    /// From now on whatever this thread logs is told.
    pub fn hears(told: Sender<String>) {
        set(Ear { told, panics: false });
    }

    /// From now on whatever this thread logs is told, and panics.
    pub fn panics(told: Sender<String>) {
        set(Ear { told, panics: true });
    }

    fn set(ear: Ear) {
        // Another test may have set it.
        let _ = log::set_logger(&Ears);
        log::set_max_level(log::LevelFilter::Warn);
        OWN.set(Some(ear));
    }
}
