//! Calls of a group that are made one after the other because code serves some of them. Code's launches get their numbers when
//! the code runs, so the calls behind it must not get theirs before that.

use super::Collectives;
use super::coded::Coded;
use super::prepared::Prepared;
use super::scaled::Scaling;
use crate::error::ExecutorError;
use antiphon_hal::{HalError, Stream};
use std::sync::Arc;
use std::thread::{Builder, Scope, ScopedJoinHandle};

/// A call that all ranks of a communicator make.
#[derive(Debug)]
pub(super) enum Step {
    Launch(Prepared),
    Scaled(Scaling, Prepared),
    Code(Coded),
}

/// Calls of one communicator, in their order, from the first one on that code serves.
pub(super) struct InTurn {
    on: Collectives,
    steps: Vec<(Step, Option<Arc<dyn Stream>>)>,
}

// SAFETY: the buffers belong to the calls until these are complete (the contract of `Group::call`), whichever thread makes
// them, and one does.
unsafe impl Send for InTurn {}

impl InTurn {
    pub fn new(on: Collectives) -> Self {
        InTurn { on, steps: Vec::new() }
    }

    pub fn push(&mut self, step: Step, stream: Option<Arc<dyn Stream>>) {
        self.steps.push((step, stream));
    }

    /// Makes the calls on a thread of their own, since one communicator's code may wait for another communicator's calls, or for
    /// a transfer.
    pub fn start<'s>(self, scope: &'s Scope<'s, '_>) -> Started<'s> {
        let on = self.on.clone();
        let thread = Builder::new().name("antiphon-code".to_owned());
        thread.spawn_scoped(scope, move || self.run()).map_err(|source| {
            let error = HalError::no_thread("for the calls of a group", source);
            // Others wait for this rank.
            on.abort(&error.to_string());
            error.into()
        })
    }

    /// # Errors
    /// The first failure. The calls behind it are made all the same, since their peers are in them.
    fn run(self) -> Result<(), ExecutorError> {
        let InTurn { on, steps } = self;
        // Code finds the rank's device as it would on a thread of the application's.
        let mut first = on.communicator().device().make_current().map_err(Into::into);
        for (step, stream) in steps {
            // SAFETY: who gathered the calls vouches for their buffers until they are complete.
            let made = unsafe { on.make(step, stream.as_ref()) };
            first = first.and(made.map_err(|error| on.names(error)));
        }
        first
    }
}

/// Calls that go on, or why they do not.
pub(super) type Started<'s> =
    Result<ScopedJoinHandle<'s, Result<(), ExecutorError>>, ExecutorError>;

/// Waits for calls that were started.
///
/// # Errors
/// The first failure.
pub(super) fn finish(started: Vec<Started<'_>>) -> Result<(), ExecutorError> {
    let mut first = Ok(());
    for started in started {
        let ended = started.and_then(|thread| match thread.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        first = first.and(ended);
    }
    first
}

impl Collectives {
    /// Makes a call that was checked when it was gathered.
    ///
    /// # Safety
    /// As [`call`](Self::call).
    unsafe fn make(
        &self,
        step: Step,
        stream: Option<&Arc<dyn Stream>>,
    ) -> Result<(), ExecutorError> {
        // SAFETY: as this function's.
        unsafe {
            match step {
                Step::Launch(call) => self.launch(&call.call(), stream),
                Step::Scaled(scaling, call) => self.run_scaled(scaling, &call, stream),
                Step::Code(coded) => self.run_code(&coded, stream),
            }
        }
    }
}
