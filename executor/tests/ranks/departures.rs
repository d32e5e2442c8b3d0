//! Ranks that have let go of a communicator, and go on with others of the same processes.

use crate::support::threads::on_threads;
use antiphon_executor::{Collectives, Communicator, DataType, ExecutorError, Options};

/// Two ranks, and a communicator of both that was made of theirs. No time limit ends a wait.
fn whole_and_part() -> [Vec<Collectives>; 2] {
    let options = Options::default().with_timeout(None);
    let whole = Communicator::in_process(2, &options).unwrap();
    let part = on_threads(&whole, |end| end.split(Some(0), end.rank()).unwrap().unwrap());
    [whole, part].map(|ends| ends.iter().map(|end| Collectives::new(end).unwrap()).collect())
}

/// What a rank has not done with its only peer before, it is told of: that one has left.
fn finds_nobody(left: &Collectives) {
    let mut byte = 0u8;
    // SAFETY: the byte outlives the calls.
    let sent = unsafe { left.send(&7u8, 1, DataType::U8, 1, None) };
    // SAFETY: as above.
    let received = unsafe { left.receive(&mut byte, 1, DataType::U8, 1, None) };
    let split = left.communicator().split(Some(0), 0).map(drop);
    let barrier = left.communicator().barrier();
    for outcome in [sent, received, split, barrier] {
        let error: ExecutorError = outcome.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("rank 1") && text.contains("left"), "{text}");
    }
}

#[test]
fn nobody_waits_for_who_has_let_go_of_a_part() {
    let [whole, mut part] = whole_and_part();
    drop(part.pop());
    finds_nobody(&part[0]);
    on_threads(&whole, |end| end.communicator().barrier().unwrap());
}

#[test]
fn nobody_waits_for_who_has_let_go_of_the_whole() {
    let [mut whole, part] = whole_and_part();
    drop(whole.pop());
    finds_nobody(&whole[0]);
    on_threads(&part, |end| end.communicator().barrier().unwrap());
}
