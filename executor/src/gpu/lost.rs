//! Devices that fail: the driver is asked what became of launches that do not end, on a thread of its own.
//!
//! A driver may let the question wait for whoever else is inside of it, and who is may wait for the launch. So whoever ends
//! launches only reads what the thread has found.

use crate::error::ExecutorError;
use antiphon_hal::Event;
use std::fmt;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

/// Between two questions.
const PAUSE: Duration = Duration::from_millis(1);

/// What stands for the end of a context's launches, and why none of them ends any more, once that is known.
#[derive(Clone)]
pub struct Fate {
    /// Comes behind all of the launch that was submitted last.
    pub behind: Arc<dyn Event>,
    lost: Arc<OnceLock<ExecutorError>>,
}

impl fmt::Debug for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fate").field("lost", &self.lost).finish_non_exhaustive()
    }
}

impl Fate {
    /// Of launches behind which this event comes.
    pub fn new(behind: Arc<dyn Event>) -> Self {
        Fate { behind, lost: Arc::default() }
    }

    /// Why no launch ends any more, if the device is known to have failed. Asks nobody.
    pub fn lost(&self) -> Option<&ExecutorError> {
        self.lost.get()
    }

    /// Whether all is over, also because the device has failed. Asks the driver.
    pub fn ask(&self) -> bool {
        self.behind.query().unwrap_or_else(|error| {
            // The first reason is the best.
            let _ = self.lost.set(error.into());
            true
        })
    }
}

/// The thread that asks, once there is a question.
#[derive(Debug, Default)]
pub struct Asker(Mutex<Option<SyncSender<Fate>>>);

impl Asker {
    /// Has the thread ask. If it is busy, with a driver that does not answer maybe, it is asked again some other time.
    pub fn ask(&self, fate: &Fate) {
        let mut thread = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let (sender, receiver) = sync_channel(1);
            let named = thread::Builder::new().name("antiphon-asks".to_owned());
            match named.spawn(move || answer(&receiver)) {
                Ok(_) => *thread = Some(sender),
                Err(error) => log::warn!("nobody asks what became of launches: {error}"),
            }
        }
        if let Some(sender) = &*thread {
            // Full is as good: the question comes again.
            let _ = sender.try_send(fate.clone());
        }
    }
}

fn answer(questions: &Receiver<Fate>) {
    while let Ok(fate) = questions.recv() {
        fate.ask();
        thread::sleep(PAUSE);
    }
}
