//! Frees what a driver may free only once kernels have ended, on a thread of its own.
//!
//! No driver promises that unmapping, unbinding and freeing wait for no kernel, and a kernel may wait for a launch that only
//! the watch can end. So whoever watches launches hands over what is to go, and waits for nothing; and it goes while no launch
//! of any rank of the process is [under way](super::underway).

use super::underway::Underway;
use crate::worker::Worker;
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// What is to go: dropping it frees it.
type Gone = Box<dyn Any + Send>;

/// Between two looks whether something may go.
const PAUSE: Duration = Duration::from_millis(1);

/// The thread, once there is something to free.
pub struct Reaper {
    underway: Arc<Underway>,
    thread: Worker<Gone>,
}

impl fmt::Debug for Reaper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reaper").field("thread", &self.thread).finish_non_exhaustive()
    }
}

/// Frees what comes, in its order: while nothing is under way, and once nobody sends any more, at once.
fn reap(receiver: &Receiver<Gone>, underway: &Underway) {
    let mut held = Vec::new();
    loop {
        let next = if held.is_empty() {
            receiver.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            receiver.recv_timeout(PAUSE)
        };
        match next {
            Ok(gone) => held.push(gone),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        held = underway.quietly(held, drop).unwrap_or_default();
    }
}

impl Reaper {
    /// Whose things go while none of these launches is.
    pub fn new(underway: &Arc<Underway>) -> Self {
        let otherwise = "memory is freed by the thread that watches";
        let thread = Worker::new("antiphon-reaper", otherwise);
        Reaper { underway: Arc::clone(underway), thread }
    }

    /// Frees something, some time. Things go in the order in which they come. Where the system gives no thread, they go at
    /// once.
    pub fn free(&self, gone: impl Any + Send) {
        let underway = Arc::clone(&self.underway);
        let kept = self.thread.hand(Box::new(gone), move |gone| reap(gone, &underway));
        // Not before now: it may wait for who hands over something.
        drop(kept);
    }

    /// Lets the thread go on by itself: what it waits for may never end.
    pub fn leave(&self) {
        self.thread.leave();
    }
}

impl Drop for Reaper {
    /// Waits until all has gone, which it does now whatever is under way.
    fn drop(&mut self) {
        self.thread.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};
    use std::thread::ThreadId;

    /// Says who frees it, once it may go.
    struct Slow(Receiver<()>, Sender<ThreadId>);

    impl Drop for Slow {
        fn drop(&mut self) {
            let _ = self.0.recv();
            let _ = self.1.send(std::thread::current().id());
        }
    }

    #[test]
    fn what_cannot_go_yet_keeps_nobody_waiting_and_is_gone_in_the_end() {
        let reaper = Reaper::new(&Arc::default());
        let ((go, may), (said, who)) = (channel(), channel());
        reaper.free(Slow(may, said));
        let after = Arc::new(());
        reaper.free(Arc::clone(&after));
        assert_eq!(Arc::strong_count(&after), 2, "it goes after what came before");
        go.send(()).unwrap();
        assert_ne!(who.recv().unwrap(), std::thread::current().id());
        drop(reaper);
        assert_eq!(Arc::strong_count(&after), 1);
    }

    #[test]
    fn a_thread_that_is_left_is_not_waited_for() {
        let reaper = Reaper::new(&Arc::default());
        let ((go, may), (said, who)) = (channel(), channel());
        reaper.free(Slow(may, said));
        reaper.leave();
        drop(reaper);
        go.send(()).unwrap();
        assert_ne!(who.recv().unwrap(), std::thread::current().id());
    }
}
