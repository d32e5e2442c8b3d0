//! Launches that streams and groups drive.

use super::*;
use crate::sync::shielded;
use antiphon_hal::{Task, TaskState};
use std::sync::atomic::AtomicBool;

/// A launch that a stream drives.
pub struct QueuedLaunch {
    pub(crate) shared: Arc<Shared>,
    pub(crate) context: Arc<Context>,
    pub(crate) sized: Arc<Sized>,
    pub(crate) order: Order,
    pub(crate) runtime_blocks: Vec<BlockBytes>,
    pub(crate) waiting: Mutex<Option<Stalled>>,
    /// It has ended, well or by an error.
    over: AtomicBool,
}

// SAFETY: the buffers belong to the launch until it is complete (the contract of `Executor::execute`), whichever
// thread steps it.
unsafe impl Send for QueuedLaunch {}
// SAFETY: as above; mutable state is behind the context's lock.
unsafe impl Sync for QueuedLaunch {}

impl QueuedLaunch {
    /// A call that has its number, for whoever drives it to its end. If it is dropped before that, the communicator breaks.
    pub fn new(
        shared: &Arc<Shared>,
        (context, sized): (&Arc<Context>, &Arc<Sized>),
        order: Order,
        runtime_blocks: &[BlockBytes],
    ) -> Self {
        QueuedLaunch {
            shared: Arc::clone(shared),
            context: Arc::clone(context),
            sized: Arc::clone(sized),
            order,
            runtime_blocks: runtime_blocks.to_vec(),
            waiting: Mutex::default(),
            over: AtomicBool::new(false),
        }
    }

    /// As [`Launch::advance`].
    pub fn advance(&self, effort: Effort) -> Result<bool, ExecutorError> {
        let advanced = self.borrowed().advance(effort);
        if !matches!(advanced, Ok(false)) {
            self.over.store(true, Ordering::Relaxed);
        }
        advanced
    }

    /// A number that changes when the launch moves.
    pub fn position(&self) -> u64 {
        let state = self.context.state();
        self.borrowed().progress_of(&state)
    }

    /// The launch, for one poll.
    pub(super) fn borrowed(&self) -> Launch<'_> {
        let QueuedLaunch { shared, context, sized, order, runtime_blocks, waiting, .. } = self;
        Launch { shared, context, sized, order, runtime_blocks, waiting }
    }
}

/// Its peers count on a launch that has a number, and would wait for one that is dropped, as by a panic of who was to drive it.
impl Drop for QueuedLaunch {
    fn drop(&mut self) {
        if !*self.over.get_mut() {
            shielded(|| self.borrowed().abandon("a launch was dropped before its end"));
        }
    }
}

impl Task for QueuedLaunch {
    fn poll(&self, effort: Effort) -> TaskState {
        match self.advance(effort) {
            Ok(false) => TaskState::Pending,
            Ok(true) => TaskState::Done(Ok(())),
            Err(error) => TaskState::Done(Err(Arc::new(self.shared.whose.names(error)))),
        }
    }
}
