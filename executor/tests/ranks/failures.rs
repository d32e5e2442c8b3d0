//! What the caller of a launch may do with its buffers when the launch is over, or has failed, whatever port channels still
//! have under way.

use crate::support::ports::{PATIENCE, ranks, send};
use antiphon_executor::hal::Memory;
use antiphon_executor::plan::model::Plan;
use antiphon_executor::{Call, Communicator, DataType, Executor, ExecutorError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Runs a plan with all of a memory as input and output.
fn run(
    communicator: &Communicator,
    plan: &Plan,
    input: &Arc<dyn Memory>,
    output: &Arc<dyn Memory>,
) -> Result<(), ExecutorError> {
    let executor = Executor::new(communicator);
    let plan = executor.load(plan)?;
    let from = (input.address().cast_const(), input.len());
    let call = Call::new(&plan, DataType::U8, from, (output.address(), output.len()));
    // SAFETY: both memories live past the call, and the tests touch them in the meantime only where they say so.
    unsafe { executor.run(&call) }
}

/// Sets all bytes of a memory.
fn fill(memory: &Arc<dyn Memory>, byte: u8) {
    // SAFETY: the memory is mapped while it is borrowed; each test says who else may touch it.
    unsafe { memory.address().write_bytes(byte, memory.len() as usize) }
}

/// The first byte of a memory that is another.
fn other(memory: &Arc<dyn Memory>, byte: u8) -> Option<u64> {
    // SAFETY: as above; read anew each time.
    let read = |at: u64| unsafe { memory.address().wrapping_add(at as usize).read_volatile() };
    (0..memory.len()).find(|&at| read(at) != byte)
}

/// The first byte of a memory that a transfer may be writing at this moment.
fn first(memory: &Arc<dyn Memory>) -> u8 {
    // SAFETY: as above; read anew each time.
    unsafe { memory.address().read_volatile() }
}

#[test]
fn when_a_launch_has_failed_nobody_writes_to_its_buffers() {
    // On a busy machine all may have arrived before the abort comes.
    let failed = (0..10).any(|_| aborted_launch_leaves_buffers_alone());
    assert!(failed, "every launch was over before its abort");
}

/// Whether a launch that was aborted half-way failed.
fn aborted_launch_leaves_buffers_alone() -> bool {
    let plan = send();
    let size = 64 << 20;
    let [receives, sends] = <[_; 2]>::try_from(ranks(&["here", "there"])).unwrap();
    let [input, output] = [0, 1].map(|_| receives.allocate(size).unwrap());
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let [input, output] = [0, 1].map(|_| sends.allocate(size).unwrap());
            fill(&input, 1);
            // It may be through, or hear of the abort: its link goes on with what was posted.
            let _ = run(&sends, &plan, &input, &output);
            while !over.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
        });
        scope.spawn(|| {
            let began = Instant::now();
            while first(&output) == 0 && began.elapsed() < PATIENCE {
                std::hint::spin_loop();
            }
            receives.abort("half of it is enough");
        });
        let outcome = run(&receives, &plan, &input, &output);
        // The caller has it back.
        fill(&output, 2);
        let began = Instant::now();
        let mut written = None;
        while began.elapsed() < Duration::from_millis(200) && written.is_none() {
            written = other(&output, 2);
        }
        over.store(true, Ordering::Release);
        assert_eq!(written, None, "bytes were written after {outcome:?}");
        outcome.is_err()
    })
}

#[test]
fn an_abort_is_told_by_its_reason_and_not_as_the_loss_of_a_link() {
    let plan = send();
    for round in 0..20 {
        let [waits, aborts] = <[_; 2]>::try_from(ranks(&["here", "there"])).unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let memory = [0, 1].map(|_| waits.allocate(4096).unwrap());
                run(&waits, &plan, &memory[0], &memory[1]).unwrap_err()
            });
            Executor::new(&aborts).load(&plan).unwrap();
            let began = Instant::now();
            while aborts.links().is_empty() && began.elapsed() < PATIENCE {
                std::thread::yield_now();
            }
            aborts.abort("enough of it");
            let error = waits.join().unwrap();
            assert!(
                matches!(error, ExecutorError::Aborted { by: 1, .. }),
                "round {round}: {error}"
            );
        });
    }
}

#[test]
fn the_input_may_change_when_the_launch_is_over_though_the_plan_does_not_flush() {
    let plan = send();
    // More than the buffers of any connection hold.
    let size = 64 << 20;
    let [receives, sends] = <[_; 2]>::try_from(ranks(&["here", "there"])).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let [input, output] = [0, 1].map(|_| sends.allocate(size).unwrap());
            for round in 1..4 {
                fill(&input, round);
                run(&sends, &plan, &input, &output).unwrap();
                fill(&input, 0xEE);
            }
        });
        let [input, output] = [0, 1].map(|_| receives.allocate(size).unwrap());
        for round in 1..4 {
            run(&receives, &plan, &input, &output).unwrap();
            let wrong = other(&output, round);
            assert_eq!(wrong, None, "round {round}");
        }
    });
}
