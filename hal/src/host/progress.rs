//! The worker: one thread per process that drives every stream with queued work, so that progress needs no caller.
//!
//! It only ever tries, and passes by what another thread drives: a thread that waits for a result works on it
//! better itself. While there is work, or was until a moment ago, it naps for short times, so that submitting needs
//! no system call to wake it; after that it sleeps until a stream is enlisted.
//!
//! The thread is never joined: at the end of the process it is asleep or napping, and holds nothing that outlives
//! the process. A library that contains it must not be unloaded.

use crate::error::HalError;
use crate::host::lock;
use crate::host::queue::{Queue, Step};
use crate::task::Effort;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The first nap after something moved; each further one is twice as long.
const NAP: Duration = Duration::from_micros(100);
/// The longest nap.
const LONG_NAP: Duration = Duration::from_millis(1);
/// How long the worker goes on napping when no work is left.
const LINGER: Duration = Duration::from_millis(20);
/// How many tasks of one stream are finished before the next stream has its turn.
const TURN: usize = 16;

/// What submitters tell the worker.
struct Roster {
    started: bool,
    asleep: bool,
    arrivals: Vec<Arc<Queue>>,
}

static ROSTER: Mutex<Roster> =
    Mutex::new(Roster { started: false, asleep: false, arrivals: Vec::new() });
static WAKE: Condvar = Condvar::new();

/// Starts the worker, unless it runs.
pub(super) fn start() -> Result<(), HalError> {
    let mut roster = lock(&ROSTER);
    if !roster.started {
        thread::Builder::new()
            .name("antiphon-host".to_owned())
            .spawn(work)
            .map_err(|error| HalError::no_thread("for the streams of the host", error))?;
        roster.started = true;
    }
    Ok(())
}

/// Hands `queue` to the worker, until it has no work.
pub(super) fn enlist(queue: Arc<Queue>) {
    let mut roster = lock(&ROSTER);
    roster.arrivals.push(queue);
    if roster.asleep {
        roster.asleep = false;
        WAKE.notify_one();
    }
}

/// The worker's life.
fn work() {
    let mut active: Vec<Arc<Queue>> = Vec::new();
    let mut nap = NAP;
    let mut last_work = Instant::now();
    loop {
        let mut moved = false;
        active.retain(|queue| {
            let (advanced, keep) = serve(queue);
            moved |= advanced;
            keep
        });
        let roster = lock(&ROSTER);
        if moved || !roster.arrivals.is_empty() {
            nap = NAP;
            last_work = Instant::now();
        }
        let mut roster = match () {
            () if moved || !roster.arrivals.is_empty() => roster,
            () if active.is_empty() && last_work.elapsed() >= LINGER => sleep(roster),
            () => {
                let length = nap;
                nap = (nap * 2).min(LONG_NAP);
                let (roster, _) =
                    WAKE.wait_timeout(roster, length).unwrap_or_else(PoisonError::into_inner);
                roster
            }
        };
        active.append(&mut roster.arrivals);
    }
}

/// Waits until a stream is enlisted.
fn sleep(mut roster: MutexGuard<'_, Roster>) -> MutexGuard<'_, Roster> {
    roster.asleep = true;
    while roster.asleep {
        roster = WAKE.wait(roster).unwrap_or_else(PoisonError::into_inner);
    }
    roster
}

/// Gives `queue` its turn. Returns whether something was finished, and whether to keep the queue.
fn serve(queue: &Queue) -> (bool, bool) {
    for finished in 0..TURN {
        match queue.step(Effort::Try) {
            Step::Advanced => {}
            Step::Pending | Step::Busy => return (finished > 0, true),
            Step::Empty => return (finished > 0, !queue.delist()),
        }
    }
    (true, true)
}
