//! Calls for streams and groups to drive: their numbers and contexts, and the errors that come back.

use super::{Call, Executor};
use crate::error::ExecutorError;
use crate::launch::QueuedLaunch;
use crate::sync::lock;
use antiphon_hal::{Effort, HalError, Stream, Task};
use std::sync::Arc;

impl Executor {
    /// A call that somebody will drive, with its number and its context: that of a stream, or of blocking calls. All are
    /// driven to their end, those of one context in the order in which they were made.
    pub(crate) fn queued(
        &self,
        call: &Call<'_>,
        stream: Option<u64>,
    ) -> Result<QueuedLaunch, ExecutorError> {
        let mut recent = lock(&self.queued);
        loop {
            let recent = self.recent(&mut recent, call, stream, None)?;
            if let Some(order) = self.order(recent, call) {
                let shared = &self.communicator.shared;
                let with = (&recent.context, &recent.sized);
                return Ok(QueuedLaunch::new(shared, with, order, &recent.runtime_blocks));
            }
        }
    }

    /// Gives a launch to a stream.
    pub(crate) fn submit(
        &self,
        launch: &Arc<dyn Task>,
        stream: &Arc<dyn Stream>,
    ) -> Result<(), ExecutorError> {
        stream.submit(launch, Effort::Brief).map(drop).map_err(own_error)
    }
}

/// A launch's own error, out of the stream's.
pub(crate) fn own_error(error: HalError) -> ExecutorError {
    if let HalError::Task(inner) = &error
        && let Some(own) = inner.downcast_ref::<ExecutorError>()
    {
        return own.clone();
    }
    error.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::communicator::{Communicator, Options};
    use antiphon_plan::builder::ProgramBuilder;
    use antiphon_plan::model::Collective;
    use antiphon_types::DataType;

    #[test]
    fn a_launch_that_waits_for_its_turn_leaves_the_context_to_the_one_whose_turn_it_is() {
        let program = ProgramBuilder::new("copy", Collective::AllReduce, 1);
        program.block(0).copy(program.input(0).all(), program.output(0).all());
        let one = Communicator::in_process(1, &Options::default()).unwrap().remove(0);
        let executor = Executor::new(&one);
        let plan = executor.load(&program.build().unwrap()).unwrap();
        let (input, mut output) = ([7u32; 4], [0u32; 4]);
        let (from, to) = ((input.as_ptr().cast(), 16), (output.as_mut_ptr().cast(), 16));
        let call = Call::new(&plan, DataType::U32, from, to);
        let [first, second] = [(); 2].map(|()| executor.queued(&call, Some(1)).unwrap());
        let context = &first.context;
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| while !second.advance(Effort::Wait).unwrap() {});
            while context.state().queued == 0 {
                std::thread::yield_now();
            }
            assert!(!waits.is_finished());
            assert!(first.advance(Effort::Try).unwrap());
        });
        assert_eq!((output, context.state().queued), (input, 0));
    }
}
