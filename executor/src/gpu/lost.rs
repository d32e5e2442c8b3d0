//! Launches that end, or never do since their device has failed: the driver is asked, on a thread of its own.
//!
//! A driver may let the question wait for whoever else is inside of it, and who is may wait for the launch. So whoever ends
//! launches only reads what the thread has found.

use crate::error::ExecutorError;
use antiphon_hal::Event;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

/// Between two questions.
const PAUSE: Duration = Duration::from_millis(1);

/// What stands for the end of a context's launches, and what is known of it.
#[derive(Clone)]
pub struct Fate {
    /// Comes behind all of the launch that was submitted last.
    pub behind: Arc<dyn Event>,
    known: Arc<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// The number of the last launch behind which nothing is under way.
    over: AtomicU64,
    /// Why no launch ends any more.
    lost: OnceLock<ExecutorError>,
    /// Whether a question waits for the thread.
    asked: AtomicBool,
}

impl fmt::Debug for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fate").field("known", &self.known).finish_non_exhaustive()
    }
}

impl Fate {
    /// Of launches behind which this event comes.
    pub fn new(behind: Arc<dyn Event>) -> Self {
        Fate { behind, known: Arc::default() }
    }

    /// Why no launch ends any more, if the device is known to have failed. Asks nobody.
    pub fn lost(&self) -> Option<&ExecutorError> {
        self.known.lost.get()
    }

    /// The number of the last launch that is known to be over, with all that follows it. Asks nobody.
    pub fn over(&self) -> u64 {
        self.known.over.load(Ordering::Acquire)
    }

    /// Learns whether launch `number`, or a later one, is over, and whether the device has failed. Asks the driver.
    fn ask(&self, number: u64) {
        match self.behind.query() {
            Ok(true) => {
                self.known.over.fetch_max(number, Ordering::AcqRel);
            }
            Ok(false) => {}
            Err(error) => {
                // The first reason is the best.
                let _ = self.known.lost.set(error.into());
            }
        }
    }
}

/// A launch of a context, whose event was recorded behind it or a later one.
type Question = (Fate, u64);

/// The thread that asks, once there is a question.
#[derive(Debug, Default)]
pub struct Asker(Mutex<Option<Sender<Question>>>);

impl Asker {
    /// Has the thread ask what became of launch `number`, behind which the event was recorded. Each context has one question at
    /// a time, and they are asked in turn; where the driver does not answer one, the others wait. Where the system gives no
    /// thread, the caller asks.
    pub fn ask(&self, fate: &Fate, number: u64) {
        if fate.lost().is_some() || fate.known.asked.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut thread = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let (sender, receiver) = channel();
            let named = thread::Builder::new().name("antiphon-asks".to_owned());
            match named.spawn(move || answer(&receiver)) {
                Ok(_) => *thread = Some(sender),
                Err(error) => log::warn!("the driver is asked by the thread that watches: {error}"),
            }
        }
        let sent = thread.as_ref().is_some_and(|to| to.send((fate.clone(), number)).is_ok());
        drop(thread);
        if !sent {
            fate.known.asked.store(false, Ordering::Release);
            fate.ask(number);
        }
    }
}

fn answer(questions: &Receiver<Question>) {
    while let Ok((fate, number)) = questions.recv() {
        fate.ask(number);
        fate.known.asked.store(false, Ordering::Release);
        thread::sleep(PAUSE);
    }
}
