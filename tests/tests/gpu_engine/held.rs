//! Launches that other work of their streams keeps from beginning until after a failure: they touch nothing that callers have back.

use crate::caller::Caller;
use crate::copies::{read, write};
use crate::{PATIENCE, backend, on_simulator, on_threads, options};
use antiphon::executor::{ExecutorError, KernelForm};
use antiphon::plan::builder::ProgramBuilder;
use antiphon::plan::model::{Collective, Plan};
use antiphon_tests::recorder::Recorder;
use antiphon_tests::{name_of, until_within};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const ELEMENTS: usize = 64;
const BYTES: u64 = ELEMENTS as u64 * 4;

/// A block of rank 0 fills rank 1's output and waits for nothing. Rank 1 shows that it has begun, by its own input in its output, and waits for
/// rank 0.
fn overwrites() -> Plan {
    let program = ProgramBuilder::new("overwrites", Collective::SendRecv, 2);
    let (there, back) = (program.channel(0, 1), program.channel(1, 0));
    let (first, second) = (program.block(0), program.block(1));
    first.put(program.input(0).all(), program.output(1).all());
    first.signal(&[there]);
    second.copy(program.input(1).all(), program.output(1).all());
    // By this others see the copy.
    second.signal(&[back]);
    second.wait(&[there]);
    program.block(0).wait(&[back]);
    program.build().unwrap()
}

/// Rank 0 waits for rank 1.
fn waits() -> Plan {
    let program = ProgramBuilder::new("waits", Collective::SendRecv, 2);
    let channel = program.channel(1, 0);
    program.block(1).signal(&[channel]);
    program.block(0).wait(&[channel]);
    program.build().unwrap()
}

/// Rank 0's launch is behind one of another communicator, which waits until rank 1 has aborted the launch's own. Rank 1's buffers are
/// its caller's by then.
fn changes_nothing(kernels: KernelForm, recorder: Option<&Recorder>) {
    // Rank 0 says so, and waits for nobody: a rank that panics keeps the other one no longer than limits do.
    let (is_held, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let says = |flag: &AtomicBool| flag.store(true, Ordering::Release);
    let until_said = |flag: &AtomicBool, what: &str| {
        until_within(PATIENCE, what, || flag.load(Ordering::Acquire));
    };
    let filled = |value: u32| vec![value; ELEMENTS];
    let options = options().with_verification(false).with_kernels(kernels);
    let found = on_threads(2, &options, |rank| {
        let (own, stream) = match recorder {
            Some(recorder) => recorder.adopt(rank.device()),
            None => (0, rank.stream().unwrap()),
        };
        let other = rank.subset(&[0, 1]).unwrap();
        let beside = rank.stream().unwrap();
        let [caller, gate] = [(&rank, overwrites()), (&other, waits())]
            .map(|(rank, plan)| Caller::new(rank, &plan, BYTES).on(Arc::clone(&stream)));
        let output = || read(&beside, caller.output.address().cast_const(), ELEMENTS);
        write(&beside, caller.input.address(), &filled(rank.rank()));
        for caller in [&caller, &gate] {
            // While the gate is shut nothing is made.
            caller.execute().unwrap();
            caller.synchronize().unwrap();
        }
        let graph =
            recorder.map(|recorder| recorder.record_on_thread(own, || caller.execute().unwrap()));
        write(&beside, caller.output.address(), &filled(7));
        rank.barrier().unwrap();
        let found = if rank.rank() == 0 {
            gate.execute().unwrap();
            match recorder.zip(graph) {
                Some((recorder, graph)) => recorder.replay(graph, own),
                None => caller.execute().unwrap(),
            }
            says(&is_held);
            let ended = caller.synchronize();
            says(&is_over);
            (ended, output())
        } else {
            match recorder.zip(graph) {
                Some((recorder, graph)) => recorder.replay(graph, own),
                None => caller.execute().unwrap(),
            }
            until_within(PATIENCE, "the launch to begin", || output() == filled(1));
            until_said(&is_held, "rank 0's launch to be in its stream");
            rank.abort("enough");
            let ended = caller.synchronize();
            write(&beside, caller.output.address(), &filled(9));
            gate.execute().unwrap();
            until_said(&is_over, "rank 0's launch to be over");
            (ended, output())
        };
        gate.synchronize().unwrap();
        if let Some((recorder, graph)) = recorder.zip(graph) {
            recorder.destroy(graph);
        }
        found
    });
    let [(held, _), (ended, output)] = &found[..] else { unreachable!("there are two ranks") };
    assert!(matches!(held, Err(ExecutorError::Aborted { by: 1, .. })), "{held:?}");
    assert!(ended.is_err(), "a launch that was ended is not complete");
    assert_eq!(output, &filled(9), "rank 0 has written there");
}

#[test]
fn a_launch_that_begins_after_a_failure_touches_no_buffers() {
    let test = name_of(a_launch_that_begins_after_a_failure_touches_no_buffers);
    if on_simulator(test).is_none() {
        return;
    }
    for kernels in [KernelForm::Generated, KernelForm::Interpreted] {
        changes_nothing(kernels, None);
    }
}

#[test]
fn a_replay_that_begins_after_a_failure_touches_no_buffers() {
    let test = name_of(a_replay_that_begins_after_a_failure_touches_no_buffers);
    let Some(simulated) = on_simulator(test) else { return };
    changes_nothing(KernelForm::Generated, Some(&Recorder::new(&simulated, backend())));
}
