//! How what breaks a communicator is told and heard, and who is named.

use super::*;
use crate::communicator::{Communicator, Options};
use crate::executor::{Call, Executor};
use crate::launch::QueuedLaunch;
use antiphon_bootstrap::BootstrapError;
use antiphon_hal::Effort;
use antiphon_plan::builder::ProgramBuilder;
use antiphon_plan::model::{Collective, Plan};
use antiphon_types::DataType;
use std::time::Duration;

/// A launch of this rank that waits for the others; what it is given outlives it.
fn waiting(
    rank: &Communicator,
    plan: &Plan,
    input: &[u32; 4],
    output: &mut [u32; 4],
) -> QueuedLaunch {
    let executor = Executor::new(rank);
    let plan = executor.load(plan).unwrap();
    let (from, to) = ((input.as_ptr().cast(), 16), (output.as_mut_ptr().cast(), 16));
    let launch = executor.queued(&Call::new(&plan, DataType::U32, from, to), Some(1)).unwrap();
    assert!(!launch.advance(Effort::Try).unwrap());
    launch
}

fn failure_of(launch: &QueuedLaunch) -> ExecutorError {
    loop {
        match launch.advance(Effort::Wait) {
            Ok(over) => assert!(!over),
            Err(error) => break error,
        }
    }
}

fn lost(peer: u32) -> ExecutorError {
    let (reason, doing) = ("its process ended".to_owned(), Doing::default());
    ExecutorError::PeerLost { peer, pid: 7, reason, doing }
}

const HEARD: Loss = Loss { landed: true, alone: false };

/// Rank 1 lives on, and comes once rank 0 has given it up, or says no more than that it is broken.
#[test]
fn who_was_given_up_when_it_was_through_is_not_waited_for() {
    let program = ProgramBuilder::new("wait", Collective::SendRecv, 2);
    let link = [program.channel(0, 1)];
    program.block(0).wait(&link);
    program.block(1).signal(&link);
    let plan = program.build().unwrap();
    let options = Options::default().with_timeout(Some(Duration::from_secs(60)));
    for comes in [true, false] {
        let ranks = Communicator::in_process(2, &options).unwrap();
        let (input, mut output) = ([7; 4], [0; 4]);
        let launch = waiting(&ranks[0], &plan, &input, &mut output);

        let shared = &ranks[0].shared;
        shared.failure.lose(1, Loss { alone: true, ..HEARD }, lost(1));
        let page = shared.control(1);
        if comes {
            page.publish(&shared.control(0).record(1).unwrap());
        } else {
            page.left.0.store(BROKEN, Ordering::Release);
        }
        let error = failure_of(&launch);
        assert!(matches!(error, ExecutorError::PeerLost { peer: 1, .. }), "{error}");
        assert!(error.to_string().contains("its process ended"), "{error}");
    }
}

/// Rank 1 has heard of a death, and its program has ended by that.
#[test]
fn of_peers_that_are_gone_the_one_that_was_lost_is_named() {
    let program = ProgramBuilder::new("wait", Collective::Other("wait".into()), 3);
    let links = [1, 2].map(|peer| program.channel(0, peer));
    program.block(0).wait(&links);
    program.block(1).signal(&links[..1]);
    program.block(2).signal(&links[1..]);
    let plan = program.build().unwrap();
    let options = Options::default().with_timeout(Some(Duration::from_secs(60)));
    for calls in [true, false] {
        let ranks = Communicator::in_process(3, &options).unwrap();
        let (input, mut output) = ([7; 4], [0; 4]);
        let launch = waiting(&ranks[0], &plan, &input, &mut output);

        let shared = &ranks[0].shared;
        shared.control(1).left.0.store(LEFT, Ordering::Release);
        shared.failure.lose(2, HEARD, lost(2));
        let error = if calls { failure_of(&launch) } else { ranks[0].barrier().unwrap_err() };
        assert!(matches!(error, ExecutorError::PeerLost { peer: 2, .. }), "{error}");
    }
}

/// Rank 1 knows that rank 2 is lost, and its program ends by that, though nothing of its communicator has failed.
#[test]
fn of_a_loss_that_a_peer_left_for_the_lost_one_is_named() {
    let program = ProgramBuilder::new("wait", Collective::Other("wait".into()), 3);
    let link = program.channel(0, 1);
    program.block(0).wait(&[link]);
    program.block(1).signal(&[link]);
    let plan = program.build().unwrap();
    let options = Options::default().with_timeout(Some(Duration::from_secs(60)));
    for calls in [true, false] {
        let ranks = Communicator::in_process(3, &options).unwrap();
        let executor = Executor::new(&ranks[0]);
        let plan = executor.load(&plan).unwrap();
        let (input, mut output) = ([7u32; 4], [0u32; 4]);
        let (from, to) = ((input.as_ptr().cast(), 16), (output.as_mut_ptr().cast(), 16));
        let call = Call::new(&plan, DataType::U32, from, to);
        let launch = executor.queued(&call, Some(1)).unwrap();
        assert!(!launch.advance(Effort::Try).unwrap());

        let shared = &ranks[0].shared;
        // The lost one is missed in neither: it is in the barrier, and has no part in the launch.
        shared.control(2).arrived.0.store(1, Ordering::Release);
        ranks[1].shared.failure.lose(2, HEARD, lost(2));
        ranks[1].shared.part();
        assert!(!shared.has_left(1), "before this rank has heard why");
        shared.failure.lose(2, HEARD, lost(2));
        assert!(shared.has_left(1));
        let error = if calls { failure_of(&launch) } else { ranks[0].barrier().unwrap_err() };
        assert!(matches!(error, ExecutorError::PeerLost { peer: 2, .. }), "{error}");
    }
}

/// Rank 1 lives, and its program has gone to make a communicator without rank 2, of which this launch knows by way of rank 1 alone.
#[test]
fn who_waits_for_a_rank_that_comes_no_more_for_a_loss_hears_of_that() {
    let program = ProgramBuilder::new("wait", Collective::Other("wait".into()), 3);
    let link = [program.channel(0, 1)];
    program.block(0).wait(&link);
    program.block(1).signal(&link);
    let plan = program.build().unwrap();
    let options = Options::default().with_timeout(Some(Duration::from_secs(60)));
    let ranks = Communicator::in_process(3, &options).unwrap();
    let (input, mut output) = ([7; 4], [0; 4]);
    let launch = waiting(&ranks[0], &plan, &input, &mut output);
    ranks[0].shared.failure.lose(2, HEARD, lost(2));
    let error = failure_of(&launch);
    assert!(matches!(error, ExecutorError::PeerLost { peer: 2, .. }), "{error}");
}

#[test]
fn who_has_given_a_peer_up_alone_leaves_in_good_order() {
    let ranks = Communicator::in_process(3, &Options::default()).unwrap();
    ranks[1].shared.failure.lose(2, Loss { alone: true, ..HEARD }, lost(2));
    ranks[1].shared.part();
    assert!(ranks[0].shared.has_left(1), "nobody else hears of that");
}

#[test]
fn an_abort_after_a_loss_names_the_lost_one() {
    let options = Options::default().with_timeout(Some(Duration::from_secs(60)));
    let ranks = Communicator::in_process(3, &options).unwrap();
    ranks[1].shared.failure.lose(2, HEARD, lost(2));
    ranks[1].abort("enough");
    let error = ranks[0].barrier().unwrap_err();
    assert!(matches!(error, ExecutorError::Aborted { by: 1, .. }), "{error}");
    assert!(error.to_string().contains("rank 2 (pid 7) is lost: its process ended"), "{error}");
}

/// What peers make of a failure may be back before this rank has told all of them of it, and ends by it itself.
#[test]
fn who_is_still_telling_of_a_failure_ends_by_that_and_not_by_an_echo() {
    let ranks = Communicator::in_process(2, &Options::default()).unwrap();
    let shared = &ranks[0].shared;
    *shared.failure.first.lock().unwrap() = Some(lost(1));
    assert!(!shared.failed(), "it is still being told");
    let echo = || BootstrapError::Timeout { doing: "echo", limit: Duration::ZERO, missing: vec![] };
    let form = || Err::<(), _>(echo().into());
    let errors = [
        shared.failure.unless_broken(&shared.bootstrap, form).unwrap_err(),
        shared.failure_or(echo()),
        ranks[0].broken().unwrap(),
    ];
    for error in errors {
        assert!(matches!(error, ExecutorError::PeerLost { peer: 1, .. }), "{error}");
    }
}

#[test]
fn how_a_peer_leaves_is_looked_at_after_its_goodbye() {
    let how = AtomicU64::new(0);
    let goodbye = || {
        how.store(BROKEN, Ordering::Release);
        true
    };
    assert_eq!(parting(goodbye, &how), (true, BROKEN));
}
