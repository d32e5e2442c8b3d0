//! What a panic does not keep from going on.

use crate::error::ExecutorError;
use crate::selection::order::panicked;
use antiphon_hal::HalError;
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

/// Does what others wait for: a panic becomes the error of what could not be done.
pub fn or_panicked<T>(
    what: &str,
    work: impl FnOnce() -> Result<T, ExecutorError>,
) -> Result<T, ExecutorError> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|panic| Err(not_done(what, format!("it panicked: {}", panicked(&*panic)))))
}

/// The error of what could not be done, by no fault of its caller's.
pub fn not_done(what: &str, why: String) -> ExecutorError {
    let source = std::io::Error::other(why);
    HalError::System { what: what.to_owned(), source }.into()
}

/// What threads of tests log. A process has one logger, so all tests have this one.
#[cfg(test)]
pub mod logger {
    use log::Level;
    use std::cell::RefCell;
    use std::sync::mpsc::Sender;

    struct Ears;

    /// Who is told of what is so important, and whether the logger panics then, as a program's may.
    #[derive(Clone)]
    struct Ear {
        told: Sender<String>,
        least: Level,
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
            let ear = OWN.with_borrow(Clone::clone).filter(|ear| record.level() <= ear.least);
            if let Some(Ear { told, panics, .. }) = ear {
                told.send(record.args().to_string()).unwrap();
                assert!(!panics, "the disk is full");
            }
        }

        fn flush(&self) {}
    }

    /// From now on whatever this thread warns of is told.
    pub fn hears(told: Sender<String>) {
        set(Ear { told, least: Level::Warn, panics: false });
    }

    /// From now on whatever this thread warns of is told, and panics.
    pub fn panics(told: Sender<String>) {
        set(Ear { told, least: Level::Warn, panics: true });
    }

    /// From now on whatever this thread logs at all is told, and panics.
    pub fn panics_at_anything(told: Sender<String>) {
        set(Ear { told, least: Level::Trace, panics: true });
    }

    fn set(ear: Ear) {
        // Another test may have set it.
        let _ = log::set_logger(&Ears);
        log::set_max_level(ear.least.to_level_filter().max(log::max_level()));
        OWN.set(Some(ear));
    }
}
