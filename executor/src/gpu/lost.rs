//! Launches that end, or never do since their device has failed: the driver is asked, on a thread of its own.
//!
//! A driver may let the question wait for another thread that is inside of it, and that thread may wait for the launch. So a
//! thread that ends launches only reads what the asking thread has found.

use crate::error::ExecutorError;
use crate::worker::Worker;
use antiphon_hal::Event;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

/// Between two questions.
const PAUSE: Duration = Duration::from_millis(1);

/// What is known of the end of a context's launches.
#[derive(Clone, Debug, Default)]
pub struct Fate(Arc<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The number of the last launch behind which nothing is under way.
    over: AtomicU64,
    /// Why no launch ends any more.
    lost: OnceLock<ExecutorError>,
    /// Whether a question waits for the thread.
    asked: AtomicBool,
}

impl Fate {
    /// Why no launch ends any more, if the device is known to have failed. Asks nobody.
    pub fn lost(&self) -> Option<&ExecutorError> {
        self.0.lost.get()
    }

    /// The number of the last launch that is known to be over, with all that follows it. Asks nobody.
    pub fn over(&self) -> u64 {
        self.0.over.load(Ordering::Acquire)
    }

    /// Learns whether launch `number`, which the event is behind, is over, and whether the device has failed. Asks the driver.
    fn ask(&self, (behind, number): &(Arc<dyn Event>, u64)) {
        match behind.query() {
            Ok(true) => {
                self.0.over.fetch_max(*number, Ordering::AcqRel);
            }
            Ok(false) => {}
            Err(error) => {
                // The first reason is the best.
                let _ = self.0.lost.set(error.into());
            }
        }
    }
}

/// Of a context, the event behind a launch, or a later one, and the launch's number.
type Question = (Fate, (Arc<dyn Event>, u64));

/// The thread that asks, once there is a question.
#[derive(Debug)]
pub struct Asker(Worker<Question>);

impl Default for Asker {
    fn default() -> Self {
        Asker(Worker::new("antiphon-asks", "the driver is asked by the thread that watches"))
    }
}

impl Asker {
    /// Has the thread ask what became of a launch, behind which the event was recorded. Each context has one question at
    /// a time, and they are asked in turn; where the driver does not answer one, the others wait. Where the system gives no
    /// thread, the caller asks.
    pub fn ask(&self, fate: &Fate, launch: (Arc<dyn Event>, u64)) {
        if fate.lost().is_some() || fate.0.asked.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Err((fate, launch)) = self.0.hand((fate.clone(), launch), answer) {
            fate.0.asked.store(false, Ordering::Release);
            fate.ask(&launch);
        }
    }
}

fn answer(questions: &Receiver<Question>) {
    while let Ok((fate, launch)) = questions.recv() {
        fate.ask(&launch);
        fate.0.asked.store(false, Ordering::Release);
        thread::sleep(PAUSE);
    }
}
