//! Calls of an application that wait for a launch, while the launch waits for what the host has to do for it.
//!
//! On the simulated driver such calls keep nobody from calling it. Whether a card's do is what these tests are for there.

use crate::copies::{read, write};
use crate::hosts::apart;
use crate::{on_simulator, options};
use antiphon::executor::hal::{Memory, Stream};
use antiphon::executor::{Call, Communicator, Executor, ExecutorError};
use antiphon::plan::algorithms::{Algorithm, Shape};
use antiphon::{DataType, ReduceOp};
use antiphon_tests::application::Application;
use antiphon_tests::name_of;
use antiphon_tests::simulated::Simulated;
use std::sync::Arc;
use std::time::Duration;

/// Several parcels of a wire.
const ELEMENTS: usize = 1 << 17;
const BYTES: u64 = ELEMENTS as u64 * 4;

fn values(rank: u32) -> Vec<u32> {
    (0..ELEMENTS as u32).map(|at| at * 3 + rank * 1000).collect()
}

/// A rank on a node of its own, with an allreduce whose bytes the host moves.
struct Side {
    executor: Executor,
    stream: Arc<dyn Stream>,
    memory: [Arc<dyn Memory>; 2],
}

impl Side {
    fn new(rank: &Communicator) -> Self {
        let stream = rank.stream().unwrap();
        let memory = [rank.allocate(BYTES).unwrap(), rank.allocate(BYTES).unwrap()];
        write(&stream, memory[0].address(), &values(rank.rank()));
        Side { executor: Executor::new(rank), stream, memory }
    }

    /// Launches so many times.
    fn launch(&self, times: u32) -> Result<(), ExecutorError> {
        let shape = Shape { nodes: 2, ..Shape::new(2) };
        let plan = Algorithm::AllReduceHierarchicalZeroCopy.plan(shape).unwrap();
        let plan = self.executor.load(&plan)?;
        let [input, output] = &self.memory;
        let (from, to) = ((input.address().cast_const(), BYTES), (output.address(), BYTES));
        let call = Call { op: Some(ReduceOp::Sum), ..Call::new(&plan, DataType::U32, from, to) };
        // SAFETY: both are `BYTES` long, and outlive the stream's work, which the rank waits for.
        (0..times).try_for_each(|_| unsafe { self.executor.execute(&call, &self.stream) })
    }
}

/// Each of two ranks launches so often, after it has done so once, and then makes `calls` without waiting for it.
fn behind(
    test: &str,
    times: u32,
    calls: impl Fn(&Side, &Simulated) -> Result<(), ExecutorError> + Sync,
) {
    let Some(simulated) = on_simulator(test) else { return };
    // There each takes milliseconds, and no queue is ever full.
    let times = if simulated.is_simulated() { times.min(40) } else { times };
    let options = options().with_timeout(Some(Duration::from_secs(20))).with_verification(false);
    let sums: Vec<u32> = values(0).iter().zip(values(1)).map(|(one, other)| one + other).collect();
    let outcomes = apart(&["a", "b"], &options, |rank| {
        let side = Side::new(&rank);
        side.launch(1)?;
        side.executor.synchronize(&side.stream)?;
        side.launch(times)?;
        calls(&side, &simulated)?;
        side.executor.synchronize(&side.stream)?;
        assert_eq!(read(&side.stream, side.memory[1].address(), ELEMENTS), sums);
        rank.barrier()
    });
    outcomes.into_iter().for_each(|outcome| outcome.unwrap());
}

#[test]
fn a_copy_to_memory_that_is_not_pinned_may_follow_a_launch_over_nodes() {
    let test = name_of(a_copy_to_memory_that_is_not_pinned_may_follow_a_launch_over_nodes);
    behind(test, 1, |side, _| {
        let mut found = vec![0u32; ELEMENTS];
        let to = found.as_mut_ptr().cast();
        // SAFETY: both are `BYTES` long, and the copy is waited for.
        let copied = unsafe { side.stream.copy(to, side.memory[1].address(), BYTES) };
        let _ = copied.unwrap();
        side.executor.synchronize(&side.stream)
    });
}

#[test]
fn memory_may_be_freed_behind_a_launch_over_nodes() {
    let test = name_of(memory_may_be_freed_behind_a_launch_over_nodes);
    if !crate::is_cuda(test) {
        return;
    }
    behind(test, 1, |_, simulated| {
        let application = Application::new(simulated);
        application.free(application.allocate(1 << 20));
        Ok(())
    });
}

#[test]
fn launches_over_nodes_may_be_made_far_ahead() {
    let test = name_of(launches_over_nodes_may_be_made_far_ahead);
    // More than the queue of a stream is said to take.
    behind(test, 1200, |_, _| Ok(()));
}
