//! What becomes of a launch, and of its buffers, when its communicator fails.

use super::*;
use antiphon_port::{Link, Posted, WireError, Write};
use std::os::fd::BorrowedFd;

/// Rank 1 signals, and is through with its launch; what becomes of the communicator then, and of rank 0's launch that is late.
fn late(
    ends: impl FnOnce(&[Communicator], &QueuedLaunch),
) -> (Result<bool, ExecutorError>, Vec<Communicator>) {
    let (ranks, executor, plan) = two(signal("late"), Duration::from_secs(60));
    let (input, mut output) = ([7; 4], [0; 4]);
    let call = call(&plan, &input, &mut output);
    let launch = executor.queued(&call, Some(1)).unwrap();
    assert!(!launch.advance(Effort::Try).unwrap());
    let peer = Executor::new(&ranks[1]).queued(&call, Some(1)).unwrap();
    // Rank 1 would step rank 0's block as well, did it not look at its own first.
    while !peer.advance(Effort::Wait).unwrap() {}
    assert!(launch.context.state().active.is_some(), "it has not seen the signal");
    ends(&ranks, &launch);
    loop {
        match launch.advance(Effort::Wait) {
            Ok(false) => {}
            over => break (over, ranks),
        }
    }
}

fn enough() -> ExecutorError {
    let (reason, doing) = ("enough".to_owned(), Doing::default());
    ExecutorError::Aborted { by: 1, reason, doing }
}

#[test]
fn what_a_peer_finds_later_does_not_hurt_a_launch_that_has_all_it_needs() {
    let (over, ranks) = late(|ranks, _| ranks[0].shared.fail(enough()));
    assert!(over.unwrap());
    let quiet = || ranks[1].shared.control(0).quiet.0.load(Ordering::Acquire) != 0;
    assert!(quiet(), "it is the last of rank 0's launches");
    ranks[0].barrier().expect_err("broken it is all the same");
}

/// Its caller may have filled the buffers again that others have still to read.
#[test]
fn what_a_peer_has_given_up_is_not_completed() {
    let (over, _) = late(|ranks, _| {
        ranks[0].shared.fail(enough());
        let page = ranks[0].shared.control(1);
        page.completed.0.store(0, Ordering::Release);
        page.quiet.0.store(1, Ordering::Release);
    });
    assert!(matches!(over.unwrap_err(), ExecutorError::Aborted { .. }));
}

/// Also if this rank has yet to hear of it.
#[test]
fn a_launch_that_a_peer_has_given_up_waits_to_hear_why() {
    let (over, _) = late(|ranks, launch| {
        let page = ranks[0].shared.control(1);
        page.completed.0.store(0, Ordering::Release);
        page.quiet.0.store(1, Ordering::Release);
        assert!(!launch.advance(Effort::Try).unwrap());
        let wait =
            diagnose::all_waits(&launch.borrowed(), &launch.context.state(), Blocked::GivenUp(1));
        assert!(wait.to_string().contains("rank 1 has given this launch up"), "{wait}");
        ranks[0].shared.fail(enough());
    });
    assert!(matches!(over.unwrap_err(), ExecutorError::Aborted { .. }));
}

/// The peers count on it that this rank reaches into their memory no more.
#[test]
fn a_launch_of_a_rank_that_is_quiet_has_ended() {
    let (over, _) = late(|ranks, _| ranks[0].abort("enough"));
    assert!(matches!(over.unwrap_err(), ExecutorError::Aborted { by: 0, .. }));
    let (over, _) = late(|ranks, _| {
        ranks[1].abort("enough");
        // Nobody works on the launch when the control thread hears of that.
        while ranks[1].shared.control(0).quiet.0.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
    });
    assert!(matches!(over.unwrap_err(), ExecutorError::Aborted { by: 1, .. }));
}

/// Whoever polls for that takes the buffers back.
#[test]
fn the_launches_of_a_rank_are_over_by_a_failure_once_it_is_quiet() {
    let (over, _) = late(|ranks, launch| {
        ranks[0].shared.fail(enough());
        let quiet = || ranks[1].shared.control(0).quiet.0.load(Ordering::Acquire) != 0;
        let worked_on = launch.context.state();
        assert!(!ranks[0].is_complete() && !quiet());
        drop(worked_on);
        // Rank 1 has yet to hear of it.
        while !ranks[0].is_complete() {
            std::thread::yield_now();
        }
        assert!(quiet());
    });
    assert!(matches!(over.unwrap_err(), ExecutorError::Aborted { .. }));
}

/// Rank 0's launch, which has begun and waits for rank 1's signal; and rank 1's, which has not.
fn begun(input: &[u32; 4], output: &mut [u32; 4]) -> (Vec<Communicator>, [QueuedLaunch; 2]) {
    let (ranks, executor, plan) = two(signal("begun"), Duration::from_secs(60));
    let call = call(&plan, input, output);
    let launch = executor.queued(&call, Some(1)).unwrap();
    assert!(!launch.advance(Effort::Try).unwrap());
    let peer = Executor::new(&ranks[1]).queued(&call, Some(1)).unwrap();
    (ranks, [launch, peer])
}

/// A peer that has yet to hear of the failure would write to buffers that the caller has back.
#[test]
fn the_launches_of_a_rank_are_over_by_a_failure_once_its_peers_are_quiet() {
    let (input, mut output) = ([7; 4], [0; 4]);
    let (ranks, [_launch, peer]) = begun(&input, &mut output);
    let worked_on = peer.context.state();
    ranks[0].shared.fail(enough());
    assert!(!ranks[0].is_complete());
    drop(worked_on);
    while !ranks[0].is_complete() {
        std::thread::yield_now();
    }
    assert_ne!(ranks[0].shared.control(1).quiet.0.load(Ordering::Acquire), 0);
}

/// A wire would go on with what it has to read from the buffers, or to write to them.
#[test]
fn the_launches_of_a_rank_are_over_by_a_failure_once_its_links_are_stopped() {
    let (input, mut output) = ([7; 4], [0; 4]);
    let (ranks, _launches) = over_a_wire(&input, &mut output);
    let link = ranks[0].shared.ports.link(1).unwrap().unwrap().link();
    assert!(link.completed().is_ok());
    ranks[0].shared.fail(enough());
    while !ranks[0].is_complete() {
        std::thread::yield_now();
    }
    assert!(link.completed().is_err());
}

/// A link that cannot even be stopped.
#[derive(Debug)]
struct Faulty;

impl Link for Faulty {
    fn peer(&self) -> u32 {
        1
    }
    fn accept(&self, _: u64, _: u64, _: &[u8]) -> Result<(), WireError> {
        Ok(())
    }
    fn retire(&self, _: u64) {}
    fn write(&self, _: &Write<'_>) -> Result<Posted, WireError> {
        Ok(Posted::Full)
    }
    fn signal(&self, _: u64, _: u64, _: u64) -> Result<Posted, WireError> {
        Ok(Posted::Full)
    }
    fn posted(&self) -> u64 {
        0
    }
    fn completed(&self) -> Result<u64, WireError> {
        Ok(0)
    }
    fn progress(&self) -> Result<bool, WireError> {
        Ok(false)
    }
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    fn arm(&self) -> Result<bool, WireError> {
        Ok(true)
    }
    fn stop(&self) {
        panic!("oh no");
    }
    fn describe(&self) -> String {
        "faulty".to_owned()
    }
}

/// The caller has its buffers back then, and peers that have yet to hear of the failure would write to them. Whatever panics in the
/// making of that end.
#[test]
fn a_launch_that_fails_keeps_its_buffers_from_peers_that_are_not_quiet() {
    for faulty in [false, true] {
        let (input, mut output) = ([7; 4], [0; 4]);
        let (ranks, [launch, peer]) = begun(&input, &mut output);
        let plain = |active: &Active| active.buffers.reached_from_outside;
        assert!(launch.context.state().active.as_ref().is_some_and(plain));
        if faulty {
            ranks[0].shared.ports.stand(1, None, Arc::new(Faulty)).unwrap();
        }
        // A rank is not quiet while somebody works on a launch of it.
        let worked_on = peer.context.state();
        ranks[0].shared.fail(enough());
        let (gives_up, has_given_up) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let error = loop {
                    match launch.advance(Effort::Wait) {
                        Ok(over) => assert!(!over),
                        Err(error) => break error,
                    }
                };
                gives_up.send(error).unwrap();
            });
            // Longer than a peer of another process would be waited for.
            let early = has_given_up.recv_timeout(QUIET_LIMIT + Duration::from_millis(200));
            assert!(early.is_err(), "{early:?}");
            drop(worked_on);
            let error = has_given_up.recv().unwrap();
            assert!(matches!(error, ExecutorError::Aborted { .. }), "{error}");
        });
    }
}

/// As by a panic of who was to drive it: its peers would wait for it in vain.
#[test]
fn a_launch_that_is_dropped_before_its_end_fails_those_of_its_peers() {
    for begins in [false, true] {
        let (ranks, executor, plan) = two(signal("dropped"), Duration::from_secs(2));
        let (input, mut output) = ([7; 4], [0; 4]);
        let call = call(&plan, &input, &mut output);
        let [waits, dropped] =
            [&executor, &Executor::new(&ranks[1])].map(|rank| rank.queued(&call, Some(1)).unwrap());
        if begins {
            assert!(dropped.borrowed().begin(&mut dropped.context.state()).unwrap().is_none());
        }
        drop(dropped);
        let error = loop {
            match waits.advance(Effort::Wait) {
                Ok(over) => assert!(!over, "begins: {begins}"),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, ExecutorError::Aborted { by: 1, .. }), "{error}");
        assert!(error.to_string().contains("dropped before its end"), "{error}");
    }
}

/// As the program's logger does. The call has no number then, so the peers' would meet another of this rank's.
#[test]
fn a_call_whose_making_panics_fails_and_the_peers_hear_of_it() {
    let plan = put_over_a_port([0, 1]);
    let options = Options::default().with_verification(false);
    let [ranks, others] = [(); 2].map(|()| Communicator::in_process(2, &options).unwrap());
    // So that what it needs is first looked for when it is called.
    let plan = Executor::new(&others[0]).load(&plan).unwrap();
    let (input, mut output) = ([7; 4], [0; 4]);
    let executor = Executor::new(&ranks[0]);
    let (tell, told) = std::sync::mpsc::channel();
    let error = std::thread::scope(|scope| {
        let calls = scope.spawn(|| {
            crate::sync::logger::panics_at_anything(tell);
            executor.queued(&call(&plan, &input, &mut output), Some(1)).map(drop).unwrap_err()
        });
        calls.join().unwrap()
    });
    let said = told.recv().unwrap();
    assert!(said.contains("the wire to rank 1"), "{said}");
    assert!(error.to_string().contains("it panicked: the disk is full"), "{error}");
    while ranks[1].failure().is_none() {
        std::thread::yield_now();
    }
}

/// A program's logger may panic while the launch waits for that.
#[test]
fn a_launch_that_failed_keeps_its_buffers_also_if_it_cannot_say_so() {
    let (input, mut output) = ([7; 4], [0; 4]);
    let (ranks, [launch, peer]) = begun(&input, &mut output);
    let worked_on = peer.context.state();
    ranks[0].shared.end(enough());
    let began = Instant::now().checked_sub(Duration::from_secs(200)).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let keeps = scope.spawn(|| {
            crate::sync::logger::panics(tell);
            let active = launch.context.state().active.take().unwrap();
            launch.borrowed().keep(&active, began);
        });
        let said = told.recv().unwrap();
        assert!(said.contains("until rank 1, of this process, is out of the buffers"), "{said}");
        drop(worked_on);
        assert!(keeps.join().is_ok(), "it did not wait for rank 1");
    });
}
