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

/// A logger that panics, as a program's may.
#[cfg(test)]
pub mod logger {
    use std::cell::RefCell;
    use std::sync::mpsc::Sender;

    struct Panics;

    thread_local! {
        static TOLD: RefCell<Option<Sender<String>>> = const { RefCell::new(None) };
    }

    impl log::Log for Panics {
        fn enabled(&self, _: &log::Metadata<'_>) -> bool {
            true
        }

        fn log(&self, record: &log::Record<'_>) {
            if let Some(told) = TOLD.with_borrow(Clone::clone) {
                told.send(record.args().to_string()).unwrap();
                panic!("the disk is full");
            }
        }

        fn flush(&self) {}
    }

    /// From now on whatever this thread logs is told, and panics.
    pub fn panics(told: Sender<String>) {
        // Another test may have set it.
        let _ = log::set_logger(&Panics);
        log::set_max_level(log::LevelFilter::Warn);
        TOLD.set(Some(told));
    }
}
