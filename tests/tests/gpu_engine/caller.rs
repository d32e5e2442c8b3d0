//! Calls of one rank: what they take, and their launches.

use antiphon::DataType;
use antiphon::executor::hal::{Memory, Stream};
use antiphon::executor::{Call, Communicator, Executor, ExecutorError, LoadedPlan};
use antiphon::plan::model::Plan;
use std::sync::Arc;

/// What calls of a plan take on one rank and one stream.
pub struct Caller {
    pub executor: Executor,
    pub plan: Arc<LoadedPlan>,
    pub stream: Arc<dyn Stream>,
    pub input: Arc<dyn Memory>,
    pub output: Arc<dyn Memory>,
    /// Of the input, and of the output.
    bytes: u64,
}

impl Caller {
    /// On a stream of its own, with an input and an output of so many bytes.
    pub fn new(rank: &Communicator, plan: &Plan, bytes: u64) -> Self {
        let executor = Executor::new(rank);
        let plan = executor.load(plan).unwrap();
        let [input, output] = [(); 2].map(|()| rank.allocate(bytes).unwrap());
        Caller { executor, plan, stream: rank.stream().unwrap(), input, output, bytes }
    }

    /// The same on this stream.
    pub fn on(self, stream: Arc<dyn Stream>) -> Self {
        Caller { stream, ..self }
    }

    /// Launches the plan.
    pub fn execute(&self) -> Result<(), ExecutorError> {
        self.execute_as(DataType::U32)
    }

    /// The same with elements of this type.
    pub fn execute_as(&self, dtype: DataType) -> Result<(), ExecutorError> {
        let (from, to) = (self.input.address().cast_const(), self.output.address());
        let call = Call::new(&self.plan, dtype, (from, self.bytes), (to, self.bytes));
        // SAFETY: both memories hold the call's bytes, and whoever drops them has seen the launches end.
        unsafe { self.executor.execute(&call, &self.stream) }
    }

    /// Waits for what it has launched.
    pub fn synchronize(&self) -> Result<(), ExecutorError> {
        self.executor.synchronize(&self.stream)
    }
}
