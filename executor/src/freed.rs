//! Whether memory that a launch is to use was freed by its application: the driver is asked, on a thread of its own.
//!
//! A driver may let the question wait for another thread that is inside of it, and that thread may wait for the launch. So a
//! thread that maps memory waits for the answer for a moment only.

use crate::worker::Worker;
use antiphon_hal::Memory;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// How long an answer is waited for. A driver that answers at all takes microseconds.
const PATIENCE: Duration = Duration::from_millis(50);

/// What may be freed, and where the answer goes.
type Question = (Arc<dyn Memory>, Sender<bool>);

/// The thread that asks, once there is a question.
#[derive(Debug)]
pub struct Inquirer {
    thread: Worker<Question>,
    /// Whether the thread is about a question.
    busy: Arc<AtomicBool>,
}

impl Default for Inquirer {
    fn default() -> Self {
        let otherwise = "whether memory is there still is not asked";
        Inquirer { thread: Worker::new("antiphon-freed", otherwise), busy: Arc::default() }
    }
}

impl Inquirer {
    /// Whether memory is known to be freed. What the driver does not tell in time counts as live; and so does, until it has
    /// answered, all other memory.
    pub fn is_freed(&self, memory: &Arc<dyn Memory>) -> bool {
        if !memory.is_borrowed() || self.busy.swap(true, Ordering::AcqRel) {
            return false;
        }
        let ((to, heard), busy) = (channel(), Arc::clone(&self.busy));
        let question = (Arc::clone(memory), to);
        let asked = self.thread.hand(question, move |questions| answer(questions, &busy));
        if asked.is_err() {
            self.busy.store(false, Ordering::Release);
            return false;
        }
        heard.recv_timeout(PATIENCE).unwrap_or_else(|_| {
            log::debug!("the driver does not say whether memory is there still: it is used");
            false
        })
    }
}

fn answer(questions: &Receiver<Question>, busy: &AtomicBool) {
    while let Ok((memory, to)) = questions.recv() {
        let freed = memory.is_freed();
        drop(memory);
        busy.store(false, Ordering::Release);
        // Who asked may have waited for long enough.
        let _ = to.send(freed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_hal::{Backend, HalError, MemoryHandle};
    use std::sync::Mutex;
    use std::thread;
    use std::time::Instant;

    /// Memory of which the driver says whether it is freed once it is told to.
    #[derive(Debug)]
    struct Asked(Mutex<Receiver<bool>>);

    // SAFETY: nobody may use the address.
    unsafe impl Memory for Asked {
        fn backend(&self) -> Backend {
            Backend::Cuda
        }

        fn address(&self) -> *mut u8 {
            std::ptr::null_mut()
        }

        fn len(&self) -> u64 {
            1
        }

        fn id(&self) -> u64 {
            1
        }

        fn is_borrowed(&self) -> bool {
            true
        }

        fn is_freed(&self) -> bool {
            self.0.lock().unwrap().recv() == Ok(true)
        }

        fn export(&self) -> Result<MemoryHandle, HalError> {
            Err(HalError::Gone)
        }
    }

    fn memory() -> (Sender<bool>, Arc<dyn Memory>) {
        let (say, said) = channel();
        (say, Arc::new(Asked(Mutex::new(said))))
    }

    #[test]
    fn what_the_driver_says_at_once_counts() {
        let inquirer = Inquirer::default();
        for freed in [true, false, true] {
            let (say, memory) = memory();
            say.send(freed).unwrap();
            let began = Instant::now();
            let found = inquirer.is_freed(&memory);
            // On a busy machine it may take longer than is waited for, and then the next question is not asked.
            if began.elapsed() >= PATIENCE {
                return;
            }
            assert_eq!(found, freed);
        }
    }

    #[test]
    fn a_driver_that_does_not_answer_is_waited_for_once_and_for_a_moment() {
        let inquirer = Inquirer::default();
        let ((say, first), (tell, second)) = (memory(), memory());
        tell.send(true).unwrap();
        assert!(!inquirer.is_freed(&first), "it may be there still");
        assert!(!inquirer.is_freed(&second), "nobody asks about it");
        assert_eq!(Arc::strong_count(&second), 1);
        say.send(true).unwrap();
        while inquirer.busy.load(Ordering::Acquire) {
            thread::yield_now();
        }
        assert_eq!(Arc::strong_count(&first), 1, "nobody keeps it");
    }
}
